"""Snapshots and changes make a book by the venue's rules, wherever the rows are cut."""

from __future__ import annotations

import itertools
from decimal import Decimal
from typing import Any

import attrs
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blumfeld_sink_spark.book.best import Tops, integers
from blumfeld_sink_spark.book.ladder import Ladder
from blumfeld_sink_spark.book.sync import RECENT, Sync
from blumfeld_sink_spark.tables import BOOK_DELTAS
from tests.everyday import examples
from tests.plugins.sink_spark.results import table_of

Levels = dict[str, str]


@attrs.frozen
class Sent:
    """One message: ids, and the sizes by price of bids and asks."""

    first: int | None = None
    last: int | None = None
    prev: int | None = None
    bids: Levels = attrs.field(factory=dict)
    asks: Levels = attrs.field(factory=dict)
    snapshot: bool = False


def snapshot(last: int | None, prev: int | None = None, **bids: str) -> Sent:
    """A whole book; bids by price, as ``p5="1"``."""
    return Sent(None, last, prev, {price[1:]: size for price, size in bids.items()}, snapshot=True)


def change(first: int | None, last: int | None, prev: int | None = None, **bids: str) -> Sent:
    return Sent(first, last, prev, {price[1:]: size for price, size in bids.items()})


def rows_of(feed: list[Sent], start: int = 0) -> pa.Table:
    rows = [
        {
            **dict.fromkeys(("ts_event", "ts_recv", "k_offset"), at),
            "first_id": message.first,
            "last_id": message.last,
            "prev_id": message.prev,
            "side": side,
            "price": Decimal(price),
            "size": Decimal(size),
            "is_snapshot": message.snapshot,
        }
        for at, message in enumerate(feed, start)
        for side, levels in ((1, message.bids), (-1, message.asks))
        for price, size in levels.items()
    ]
    return table_of(BOOK_DELTAS, rows)


def built(feed: list[Sent], cuts: list[int] | None = None) -> tuple[Levels, Sync]:
    """The bids that a feed leads to, cut at these messages."""
    sync, ladder = Sync(), Ladder()
    edges = [0, *sorted(cuts or []), len(feed)]
    for start, end in itertools.pairwise(edges):
        if start < end:
            ladder.take(sync.feed(rows_of(feed[start:end], start)))
    if not sync.synced:
        return {}, sync
    levels = ladder.side(1).to_pylist()
    return {str(row["price"].normalize()): str(row["size"].normalize()) for row in levels}, sync


def everywhere(feed: list[Sent]) -> tuple[Levels, Sync]:
    whole, sync = built(feed)
    for cut in range(1, len(feed)):
        again, other = built(feed, [cut])
        assert (again, other.breaks, other.broken_at, other.id) == (
            whole,
            sync.breaks,
            sync.broken_at,
            sync.id,
        )
    return whole, sync


RESTARTED = [
    snapshot(15, -1, p100="1"),
    change(None, 17, 15, p100="2"),
    change(None, 3, 17, p100="3"),
    change(None, 5, 3, p99="9"),
    change(None, 6, 5, p100="0", p99="7"),
]
"""OKX's example of maintenance: the message that names 17 has the id 3."""
WHOLE = [snapshot(8, p5="5", p1="1"), change(9, 9, p6="6"), snapshot(9, p6="6", p5="5")]
NO_IDS = [change(None, None, p1="1"), snapshot(None, p5="5"), change(None, None, p6="6", p5="0")]


@pytest.mark.parametrize(
    ("feed", "levels", "dropped"),
    [
        pytest.param(
            [
                change(1, 5, p1="1"), snapshot(8, p5="5", p6="6"), change(6, 7, p5="9"), change(7, 9, p5="4"),
                change(10, 11, p6="0", p7="7"),
            ],
            {"7": "7", "5": "4"},
            1,
            id="changes that a snapshot has are dropped, the first that is applied straddles its id",
        ),
        pytest.param(
            [snapshot(8, p5="5"), change(3, 6, 2, p5="9"), change(7, 12, 6, p5="1"), change(15, 16, 12, p6="2")],
            {"5": "1", "6": "2"},
            1,
            id="USD-M: after the straddling change each names the one before",
        ),
        pytest.param(
            [snapshot(8, -1, p5="5"), change(None, 20, 8, p5="1"), change(None, 21, 20, p5="0")],
            {},
            0,
            id="OKX: the first change names the snapshot",
        ),
        pytest.param(
            [
                change(6, 7, p5="9"), change(8, 9, p5="4"), change(10, 11, p6="6"), snapshot(8, p5="5"),
                change(12, 12, p7="7"),
            ],
            {"5": "4", "6": "6", "7": "7"},
            None,
            id="a REST answer may be older than changes that came first",
        ),
        pytest.param(WHOLE, {"6": "6", "5": "5", "1": "1"}, None, id="a whole book takes no older snapshot"),
        pytest.param(
            [*WHOLE, snapshot(3, -1, p2="2"), change(None, 4, 3, p3="3")],
            {"3": "3", "2": "2"},
            None,
            id="a venue's own snapshot that begins anew counts always",
        ),
        pytest.param([*WHOLE, snapshot(12, p2="2")], {"2": "2"}, None, id="a newer snapshot is the book"),
        pytest.param(RESTARTED, {"99": "7"}, 0, id="a sequence may begin anew"),
        pytest.param(
            [*RESTARTED, change(None, 2, 6, p51="5"), change(None, 9, 2, p99="0")],
            {"51": "5"},
            0,
            id="a sequence may begin anew twice",
        ),
        pytest.param(
            [RESTARTED[0], *(message for message in RESTARTED[1:] for _ in range(2))],
            {"99": "7"},
            4,
            id="doubled messages around a new sequence are dropped",
        ),
        pytest.param(
            [
                change(None, 900, 800, p1="1"), change(None, 2, 900, p2="2"), change(None, 4, 2, p3="3"),
                snapshot(2, p9="9"), change(None, 5, 4, p4="4"),
            ],
            {"9": "9", "3": "3", "4": "4"},
            None,
            id="a late snapshot takes no changes of an older sequence",
        ),
        pytest.param(NO_IDS, {"6": "6"}, None, id="a venue without ids is followed as it comes"),
        pytest.param([*NO_IDS, snapshot(None, p7="7")], {"7": "7"}, None, id="without ids each snapshot is the book"),
    ],
)  # fmt: skip
def test_a_feed_without_a_hole_leads_to_its_book(
    feed: list[Sent], levels: Levels, dropped: int | None
) -> None:
    book_levels, sync = everywhere(feed)
    assert (book_levels, sync.breaks) == (levels, 0)
    assert dropped in (None, sync.dropped)


@pytest.mark.parametrize(
    ("feed", "at"),
    [
        pytest.param([RESTARTED[0], *RESTARTED[2:]], 1, id="that begins anew in a hole"),
        pytest.param([*RESTARTED[:2], *RESTARTED[3:]], 2, id="whose first message is not there"),
    ],
)
def test_a_sequence_breaks_the_book_and_is_applied_all_the_same(feed: list[Sent], at: int) -> None:
    """Small ids that the book hasn't seen aren't taken for old ones."""
    levels, sync = everywhere(feed)
    assert (levels, sync.breaks, sync.broken_at) == ({"99": "7"}, 1, at)


@pytest.mark.parametrize(
    "feed",
    [
        [snapshot(8, p5="5"), change(9, 9, p5="1"), change(11, 11, p6="2"), change(13, 13, p6="3")],
        [
            snapshot(8, p5="5"),
            change(9, 9, 8, p5="1"),
            change(11, 11, 10, p6="2"),
            change(13, 13, 12, p6="3"),
        ],
        [snapshot(9, p5="1"), change(11, 11, p6="2"), change(13, 13, p6="3")],
    ],
)
def test_a_hole_breaks_the_book(feed: list[Sent]) -> None:
    levels, sync = everywhere(feed)
    first = len(feed) - 2
    assert (levels, sync.breaks, sync.broken_at) == ({"5": "1", "6": "3"}, 2, first)
    changes = list(Sync().feed(rows_of(feed)))
    assert [entry.broken for entry in changes][-1] is True
    assert changes[0].broken is False
    levels, sync = everywhere([*feed, snapshot(20, p7="7"), change(21, 21, 20, p8="8")])
    assert (levels, sync.breaks, sync.broken_at) == ({"7": "7", "8": "8"}, 0, None)


def test_of_many_changes_the_last_are_kept() -> None:
    """``RECENT`` changes are kept. A snapshot that is older than all of them leaves a hole."""
    feed = [change(at, at, p5=str(at)) for at in range(1, 3 * RECENT)]
    late = snapshot(2 * RECENT + 10, p5="1")
    assert built([*feed, late], [RECENT // 2, RECENT, 2 * RECENT])[1].breaks == 0
    assert built([*feed, snapshot(5, p5="1")], [RECENT // 2, RECENT, 2 * RECENT])[1].breaks == 1


@settings(deadline=None, max_examples=examples(60))
@given(st.lists(st.tuples(st.booleans(), st.integers(1, 9), st.integers(0, 3)), max_size=30), st.data())
def test_a_chain_with_new_sequences_is_applied_whole(
    steps: list[tuple[bool, int, int]], data: st.DataObject
) -> None:
    feed, wanted, last = [snapshot(100, -1, p1="1")], {"1": "1"}, 100
    for anew, price, size in steps:
        prev, last = last, data.draw(st.integers(1, last - 1)) if anew and last > 1 else last + price
        feed.append(change(None, last, prev, **{f"p{price}": str(size)}))
        wanted.pop(str(price), None)
        wanted |= {str(price): str(size)} if size else {}
    cuts = data.draw(st.lists(st.integers(1, len(feed)), max_size=3))
    levels, sync = built(feed, [cut for cut in cuts if cut < len(feed)])
    assert (levels, sync.breaks, sync.dropped) == (wanted, 0, 0)


def test_before_a_snapshot_there_is_no_book() -> None:
    levels, sync = everywhere([change(1, 1, p1="1"), change(2, 2, p2="2")])
    assert (levels, sync.synced) == ({}, False)
    with pytest.raises(ValueError, match="no snapshot yet"):
        Ladder().side(1)


@settings(deadline=None, max_examples=examples(60))
@given(
    st.lists(
        st.lists(
            st.tuples(st.sampled_from([1, -1]), st.integers(1, 12), st.integers(0, 3)), min_size=1, max_size=6
        ),
        min_size=1,
        max_size=40,
    ),
    st.lists(st.integers(0, 40), max_size=4),
)
def test_both_books_are_that_of_a_slow_reader(
    feed: list[list[tuple[int, int, int]]], cuts: list[int]
) -> None:
    """After each message, in exact decimals, whatever comes and goes."""
    sent = [
        Sent(
            at,
            at,
            at - 1,
            {f"{price}.000000000000000001": f"{size * 10**9}" for side, price, size in levels if side > 0},
            {f"{price}00000000": str(size) for side, price, size in levels if side < 0},
            snapshot=at == 1,
        )
        for at, levels in enumerate(feed, 1)
    ]
    slow: dict[int, dict[Decimal, Decimal]] = {1: {}, -1: {}}
    wanted = []
    for message in sent:
        for side, levels in ((1, message.bids), (-1, message.asks)):
            for price, size in levels.items():
                slow[side].pop(Decimal(price), None)
                if Decimal(size):
                    slow[side][Decimal(price)] = Decimal(size)
        bid, ask = max(slow[1], default=None), min(slow[-1], default=None)
        wanted.append((bid, bid and slow[1][bid], ask, ask and slow[-1][ask]))
    sync, ladder, tops = Sync(), Ladder(), Tops()
    quotes: list[Any] = []
    edges = [0, *sorted(min(cut, len(sent)) for cut in cuts), len(sent)]
    for start, end in itertools.pairwise(edges):
        changes = list(sync.feed(rows_of(sent[start:end], start))) if start < end else []
        ladder.take(changes)
        quotes += [(best.bid, best.bid_size, best.ask, best.ask_size) for best in tops.take(changes)]
    assert quotes == wanted
    for side in (1, -1):
        rows = {row["price"]: row["size"] for row in ladder.side(side).to_pylist()}
        assert rows == slow[side]


def test_prices_come_and_go_without_end() -> None:
    feed = [Sent(1, 1, 0, {"5000": "1"}, snapshot=True)]
    for at in range(2, 3000):
        feed += [Sent(at, at, at - 1, {f"{at}": "1", "5000": "2"}), Sent(at, at, at - 1, {f"{at}": "0"})]
    tops = Tops()
    feed = [attrs.evolve(message, first=at, last=at, prev=at - 1) for at, message in enumerate(feed, 1)]
    best = list(tops.take(Sync().feed(rows_of(feed))))
    assert {quote.bid for quote in best} == {Decimal(5000)}
    assert (len(tops.bids.sizes), len(tops.bids.heap) < 1100) == (1, True)


@given(st.lists(st.integers(-(10**38) + 1, 10**38 - 1), max_size=20), st.integers(0, 3))
def test_integers_are_exact(numbers: list[int], skipped: int) -> None:
    column = pa.array([Decimal(number) for number in numbers], pa.decimal128(38, 0))
    assert integers(column.slice(skipped)) == numbers[skipped:]
