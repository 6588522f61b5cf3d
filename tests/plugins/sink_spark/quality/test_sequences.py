"""Findings about the ids of a feed, which are the same wherever its messages are cut into batches."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Set
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blumfeld_sink_spark.quality import Summariser, stitch
from blumfeld_sink_spark.quality.chain import HOLES, LATER, SOON
from blumfeld_sink_spark.quality.summary import HEAD, ROOM
from blumfeld_sink_spark.records import OffsetRange
from tests.everyday import examples
from tests.plugins.sink_spark.feeds import CONTINUITY, Message, result_at, result_of, sequences, trades

Rows = list[dict[str, Any]]


def archived(
    messages: list[Message], cuts: list[int] | None = None, unread: Set[int] = frozenset()
) -> tuple[dict[str, Any], Rows]:
    """State and gaps of a feed from offset 100, a batch between each two cuts, the state through JSON each time.

    :param unread: offsets at which a message stands that no decoder could read; the others move up
    """
    state: dict[str, Any] = {}
    rows: Rows = []
    offsets = [at for at in range(100, 100 + len(messages) + len(unread)) if at not in unread]
    edges = [0, *sorted(cuts or []), len(messages)]
    for start, end in itertools.pairwise(edges):
        part, places = messages[start:end], offsets[start:end]
        result = result_of(part, 100 + start, [len(part) // 2])
        if unread:
            result = result_at(
                part, places, [at for at in unread if places and places[0] - 2 < at < places[-1]]
            )
        state, gaps = stitch(json.loads(json.dumps(state)), [result])
        rows += gaps.to_pylist()
    return state, rows


def named(rows: Rows) -> list[tuple[str, int, int, int | None]]:
    """Kind, offset, offset before, missing."""
    return [(row["kind"], row["k_offset"], row["offset_before"], row["missing"]) for row in rows]


def chained(ids: list[int]) -> list[Message]:
    """Depth messages; each covers the ids after the one before."""
    return [
        Message(prev + 1, last, prev, stream="depth", ts=last)
        for prev, last in zip([0, *ids], ids, strict=False)
    ]


def everywhere(messages: list[Message]) -> list[tuple[str, int, int, int | None]]:
    """Returns the findings. They must be the same in one batch, with one cut at any place, and cut everywhere."""
    whole = archived(messages)
    for cut in range(1, len(messages)):
        assert archived(messages, [cut]) == whole
    assert archived(messages, list(range(1, len(messages)))) == whole
    return named(whole[1])


DIFFS = chained([5, 9, 14, 20])
REST = [Message(None, 7, None, "depth"), Message(None, None, None, "depth"), Message(1, 9, 4, "other")]
"""A snapshot by REST has an id and none before it; messages without an id aren't looked at."""
ANEW = [
    *DIFFS[:2],
    Message(10, 9, 9, "depth"),  # a heartbeat repeats an id
    Message(3, 3, -1, "depth"),  # OKX begins a chain anew with a snapshot
    Message(4, 4, 3, "depth"),
    Message(1, 1, 4, "depth"),  # and with smaller ids after maintenance
    Message(2, 2, 1, "depth"),
]
BOTH = [
    message
    for pair in zip(trades([1, 2, 4]), trades([1, 3, 4], symbol="ETHUSDT"), strict=True)
    for message in pair
]
SWAPPED = [("gap", 101), ("gap_end", 102), ("out_of_order", 102)]
LATE = [("gap", 101), ("out_of_order", 102), ("duplicate", 103), ("gap_end", 104), ("out_of_order", 104)]


@pytest.mark.parametrize(
    ("feed", "wanted"),
    [
        pytest.param(
            [*trades(range(1, 30)), *DIFFS, *trades([3, 7, 90], stream="bbo")], [], id="a whole feed"
        ),
        pytest.param([*DIFFS[:2], DIFFS[3]], [("gap", 102)], id="a dropped diff"),
        pytest.param(trades([1, 2, 3, 3, 4, 5]), [("duplicate", 103)], id="a doubled trade"),
        pytest.param([*DIFFS[:3], *DIFFS[2:]], [("duplicate", 103)], id="a doubled diff"),
        pytest.param(trades([1, 3, 2, 4]), SWAPPED, id="swapped trades"),
        pytest.param([DIFFS[at] for at in (0, 2, 1, 3)], SWAPPED, id="swapped diffs"),
        pytest.param(
            trades([5, 8, 6, 6, 7, 9, 3]), [*LATE, ("out_of_order", 106)], id="a late trade that is doubled"
        ),
        pytest.param(
            trades([5, 90, 90, 80, 91], stream="bbo"),
            [("duplicate", 102), ("out_of_order", 103)],
            id="ids that only grow may skip some",
        ),
        pytest.param(ANEW, [("reset", 103), ("reset", 105)], id="a chain that begins anew"),
        pytest.param([*DIFFS[:2], *REST, DIFFS[2]], [], id="a snapshot by REST breaks no chain"),
        pytest.param(BOTH, [("gap", 103), ("gap", 104)], id="streams are apart"),
    ],
)
def test_findings_are_named_at_the_messages_that_reveal_them(
    feed: list[Message], wanted: list[tuple[str, int]]
) -> None:
    assert [row[:2] for row in everywhere(feed)] == wanted


@pytest.mark.parametrize("size", [10, 300])
def test_a_dropped_message_is_named(size: int) -> None:
    feed = trades([number for number in range(size) if number != 7])
    assert named(archived(feed)[1]) == [("gap", 107, 106, 1)]
    row = archived(feed, [7])[1][0]
    assert (row["expected"], row["got"], row["ts_event"], row["ts_before"]) == (7, 8, 8000, 6000)
    assert (row["topic"], row["k_partition"], row["venue"], row["symbol"]) == ("feed", 0, "test", "BTCUSDT")


def test_the_end_of_a_gap_says_of_which() -> None:
    """The end names ids, message and time of its gap. The sum of ``missing`` is the number that is still missing."""
    for cuts in ([], [2], [3], [1, 2, 3, 4, 5]):
        rows = archived(trades([1, 5, 3, 2, 4, 6]), cuts)[1]
        assert [(row["kind"], row["missing"]) for row in rows] == [
            ("gap", 3), ("out_of_order", -1), ("out_of_order", -1), ("gap_end", None), ("out_of_order", -1)
        ]  # fmt: skip
        gap, end = rows[0], rows[3]
        assert [end[name] for name in ("expected", "got", "ts_before", "offset_before")] == [2, 5, 5000, 101]
        assert (gap["expected"], gap["got"], gap["ts_event"], gap["k_offset"]) == (2, 5, 5000, 101)
        assert (end["ts_event"], end["k_offset"]) == (4000, 104)


def test_a_gap_that_is_forgotten_is_never_closed() -> None:
    """After more gaps than a stream remembers, the missing message of the first gap is late and closes nothing."""
    ids = [*range(1, 2 * HOLES + 9, 2), 2]
    kinds = [(row["kind"], row["k_offset"]) for row in archived(trades(ids), list(range(0, len(ids), 20)))[1]]
    assert kinds[-1] == ("out_of_order", 99 + len(ids))
    assert "gap_end" not in [kind for kind, _ in kinds]


def test_the_state_of_an_older_version_goes_on() -> None:
    """Its holes don't say which gap they are of: the late message is named, and the gap stays open."""
    state, _ = stitch({}, [result_of(trades([1, 3]), 100)])
    for chain in state["chains"].values():
        chain["holes"] = [hole[:2] for hole in chain["holes"]]
    _, rows = stitch(state, [result_of(trades([2, 4]), 102)])
    assert [(row["kind"], row["missing"]) for row in rows.to_pylist()] == [("out_of_order", -1)]


def test_what_comes_late_in_a_long_range_is_judged_by_what_was_before_it() -> None:
    """The task that reads the range can't know whether 3 or 2 came before it; the hole of 7 outlasts a range too."""
    feed = trades([1, 2, 4, 5, 6, *range(8, 200), 3, 2, 3, *range(200, 400), 7, 7])
    kinds = [("gap", 102, 101, 1), ("gap", 105, 104, 1)]
    late = [
        ("gap_end", 297),
        ("out_of_order", 297),
        ("duplicate", 298),
        ("duplicate", 299),
        ("gap_end", 500),
        ("out_of_order", 500),
        ("duplicate", 501),
    ]
    for cuts in ([], [5], [6], [3, 5], [5, 300], [5, 299], [2, 198, 310]):
        rows = named(archived(feed, cuts)[1])
        assert rows[:2] == kinds
        assert [row[:2] for row in rows[2:]] == late


WRONG = 1_746_194_730_000_123
"""An id of 16 digits, as a time in its place would be."""


def at_times(feed: list[Message], first: int = 0) -> list[Message]:
    return [attrs.evolve(message, ts=(first + nth) * 1000) for nth, message in enumerate(feed)]


def summed(rows: Rows) -> int:
    """The ids that are still missing, as the archive's page says."""
    counted = [row for row in rows if row["kind"] in ("gap", "unread", "out_of_order", "reset")]
    return sum(row["missing"] or 0 for row in counted)


def test_trades_recover_from_one_wrong_id() -> None:
    """Some are late beside it; then they are newer and follow one another, and the chain begins anew. The gap of 14
    digits was none.
    """
    feed = at_times(trades([1, 2, WRONG, *range(3, 40)]))
    assert everywhere(feed) == [
        ("gap", 102, 101, WRONG - 3),
        *(("out_of_order", 103 + nth, 102 + nth, -1) for nth in range(SOON - 1)),
        ("gap_end", 110, 102, None),
        ("reset", 110, 109, -(WRONG - 10)),
    ]
    rows = archived(feed)[1]
    assert (rows[-1]["expected"], rows[-1]["got"], summed(rows)) == (WRONG + 1, 10, 0)


@pytest.mark.parametrize(
    "feed",
    [
        trades([1, 5, WRONG, *range(6, 40)], stream="bbo"),
        [*chained([5, 9, WRONG]), *chained(list(range(9, 60, 3)))[1:]],
        [Message(1, 5), Message(6, WRONG), *(Message(number, number + 1) for number in range(10, 60, 2))],
        trades([5000, 5001, 5002, *range(1, 40)]),
        trades([5000, *range(1, 40)], stream="bbo"),
    ],
    ids=["grows", "chained", "a wrong range", "counts from one again", "grows from one again"],
)
def test_every_kind_of_stream_recovers(feed: list[Message]) -> None:
    """From a wrong id, and where the venue counts from a smaller number again: told as ``reset``, once."""
    kinds = [kind for kind, *_ in everywhere(at_times(feed))]
    assert kinds.count("reset") == 1
    assert len(kinds) <= SOON + 2
    assert kinds[-1] == "reset"


def test_a_wrong_id_with_a_wrong_time_is_recovered_from() -> None:
    """An event isn't later than its message, so a time far ahead makes the others no older."""
    feed = at_times(trades([1, 2, WRONG, *range(3, 40)]))
    feed = [attrs.evolve(message, recv=message.ts) for message in feed]
    for time in (2**60, 0):
        feed[2] = attrs.evolve(feed[2], ts=time)
        assert everywhere(feed)[-1][:2] == ("reset", 110)


def test_what_comes_late_or_again_begins_nothing_anew() -> None:
    """A producer's batch that is sent again behind the next one is older: all is counted, and the gap is closed."""
    order = [*range(1, 10), *range(40, 60), *range(10, 40), *range(60, 70)]
    rows = archived(trades(order), [25, 33])[1]
    assert [row["kind"] for row in rows[-2:]] == ["gap_end", "out_of_order"]
    assert {row["kind"] for row in rows} == {"gap", "gap_end", "out_of_order"}
    assert summed(rows) == 0
    again = [*range(1, 60), *range(20, 60), *range(60, 70)]
    assert {row["kind"] for row in archived(trades(again), [30, 90])[1]} == {"duplicate"}


def test_messages_of_one_time_begin_anew_later() -> None:
    """Their times say nothing, so more of them must follow one another."""
    feed = [attrs.evolve(message, ts=7) for message in trades([1, WRONG, *range(2, 2 * LATER)])]
    rows = archived(feed)[1]
    assert [row["k_offset"] for row in rows if row["kind"] == "reset"] == [101 + LATER]
    assert summed(rows) == 0


def test_heartbeats_begin_nothing_anew() -> None:
    """A venue repeats its last id for hours."""
    feed = at_times(
        [*chained([5, 9]), *(Message(9, 9, 9, "depth") for _ in range(3 * LATER)), *chained([9, 14])[1:]]
    )
    assert archived(feed)[1] == []


@settings(deadline=None, max_examples=examples(40))
@given(
    st.sampled_from(["trade", "depth", "bbo"]),
    st.lists(st.tuples(st.integers(1, 90), st.integers(1, 10**16)), max_size=3),
    st.lists(st.integers(0, 100), max_size=4),
)
def test_wrong_ids_are_told_the_same_wherever_ranges_are_cut(
    stream: str, wrong: list[tuple[int, int]], cuts: list[int]
) -> None:
    feed = [Message(at, at, at - 1, stream) for at in range(1, 101)]
    for at, bad in wrong:
        feed[at] = Message(bad, bad, feed[at].prev, stream)
    feed = at_times(feed)
    whole = archived(feed)
    assert archived(feed, cuts) == whole
    latest = max((at for at, _ in wrong), default=0)
    assert all(row["k_offset"] <= 100 + latest + SOON for row in whole[1])


def test_a_message_that_nobody_could_read_is_not_the_venues_loss() -> None:
    """It is in quarantine: its ids are missing, and the finding says why they may be."""
    feed = trades([1, 2, 4, 5, 7, 8])
    for cuts in ([], [1], [2], [3], [1, 2, 3, 4, 5, 6, 7]):
        rows = archived(feed, cuts, unread={102})[1]
        gap_rows = [(row["kind"], row["stream"], row["k_offset"], row["missing"]) for row in rows]
        assert gap_rows == [
            ("unread", "trade", 103, 1),
            ("gap", "trade", 105, 1),
        ], cuts


def test_ids_that_went_with_lost_offsets_are_not_the_venues_loss() -> None:
    state, _ = stitch({}, [result_of(trades([1, 2]), 100)])
    lost = OffsetRange("feed", 0, 102, 150)
    state, rows = stitch(state, [result_of(trades([9, 10]), 150)], [lost])
    assert [(row["kind"], row["stream"], row["missing"]) for row in rows.to_pylist()] == [
        ("data_loss", "offsets", 48),
        ("unread", "trade", 6),
    ]
    _, rows = stitch(state, [result_of(trades([12]), 152)])
    assert [row["kind"] for row in rows.to_pylist()] == ["gap"]


def test_a_feed_that_is_all_wrong_is_named_briefly() -> None:
    for feed in (trades([5] * 5000), trades(range(0, 10_000, 2)), trades(range(9000, 0, -1))):
        state, rows = archived(feed)
        assert len(rows) <= HEAD + ROOM + 1
        assert rows[-1]["kind"] == "more"
        assert sum(row["missing"] if row["kind"] == "more" else 1 for row in rows) == len(feed) - 1
        assert len(json.dumps(state)) < 4000


def test_a_feed_sent_again_is_taken_up_where_it_goes_on() -> None:
    """More messages are old than a head holds: findings beyond it are counted, and new messages are judged as ever."""
    feed = trades([*range(500), *range(200, 500), *range(500, 510), 511])
    for cuts in ([500], [500, 700]):
        rows = archived(feed, cuts)[1]
        assert {row["kind"] for row in rows[:-1]} == {"duplicate", "more"}
        assert named(rows[-1:]) == [("gap", 910, 909, 1)]


def test_lost_offsets_are_named() -> None:
    """The row has the time of a message near by; 0 where there is none."""
    state, _ = archived(trades([3, 4]))
    lost = OffsetRange("feed", 0, 102, 150)
    row = stitch(state, [], [lost])[1].to_pylist()[0]
    assert (row["kind"], row["expected"], row["got"], row["missing"]) == ("data_loss", 102, 150, 48)
    assert (row["k_offset"], row["offset_before"], row["ts_event"], row["symbol"]) == (102, 101, 4000, "")
    assert stitch({}, [], [OffsetRange("feed", 0, 0, 9)])[1].to_pylist()[0]["ts_event"] == 0


def test_rows_may_be_judged_many_at_once() -> None:
    feed = [message for at in range(50) for message in trades([at + at // 7], symbol=f"S{at % 3}")]
    results = []
    for at_once in (1, 7, 1000):
        summariser = Summariser("feed", 0, CONTINUITY, 10_000, at_once)
        for start in range(0, 50, 5):
            summariser.add(sequences(feed[start : start + 5], range(start, start + 5)), {})
        results.append(summariser.result())
    assert results[0] == results[1] == results[2]
    assert len(results[0]["streams"]) == 3


def test_partitions_are_apart() -> None:
    """Each partition has chains of its own, and results may come in any order."""
    results = [result_of(trades([n, n + 1]), 10 * n, partition=p) for n, p in ((3, 0), (1, 0), (5, 1))]
    state, rows = stitch({}, results)
    assert rows.num_rows == 0
    assert [chain["high"] for chain in state["chains"].values()] == [4, 6]


class Slow:
    """The oracle for ``gaps``: it reads a message at a time and remembers all ids."""

    def __init__(self) -> None:
        self.seen: dict[tuple[str, str], list[Message]] = {}
        self.rows: list[tuple[str, int, int]] = []
        self.offsets: dict[tuple[str, str], int] = {}
        self.gaps: dict[tuple[str, str], list[tuple[int, set[int]]]] = {}

    def take(self, offset: int, message: Message) -> None:
        key = (message.symbol, message.stream)
        seen = self.seen.setdefault(key, [])
        kind = self.judge(message, seen) if seen else ""
        if kind == "gap":
            self.missed(message, seen, offset)
        if kind == "out_of_order":
            self.close(message, key, offset)
        if kind:
            self.rows.append((kind, offset, self.offsets[key]))
        seen.append(message)
        self.offsets[key] = offset

    def missed(self, message: Message, seen: list[Message], offset: int) -> None:
        high = max(other.last or 0 for other in seen)
        end = (message.prev or 0) + 1 if message.stream == "depth" else message.first or 0
        if end > high + 1:
            self.gaps.setdefault((message.symbol, message.stream), []).append(
                (offset, set(range(high + 1, end)))
            )

    def close(self, message: Message, key: tuple[str, str], offset: int) -> None:
        """Names the gaps whose last missing id came."""
        low = (message.prev or 0) + 1 if message.stream == "depth" else message.first or 0
        for gap in list(self.gaps.get(key, ())):
            before = len(gap[1])
            gap[1].difference_update(range(low, (message.last or 0) + 1))
            if before and not gap[1]:
                self.gaps[key].remove(gap)
                self.rows.append(("gap_end", offset, gap[0]))

    def judge(self, message: Message, seen: list[Message]) -> str:
        """By all that came before."""
        assert message.last is not None
        high = max(other.last or 0 for other in seen)
        if message.last > high:
            before = message.prev if message.stream == "depth" else (message.first or 0) - 1
            return "gap" if message.stream != "bbo" and before != high else ""
        if message.stream == "bbo":
            return "duplicate" if message.last == high else "out_of_order"
        older = message.last < (seen[0].last or 0)  # than the first message: nothing is remembered of those
        return "duplicate" if message in seen and not older else "out_of_order"


@st.composite
def feeds(draw: st.DrawFn) -> list[Message]:
    """Three streams through one another, with messages dropped, doubled and delayed."""
    random_ = random.Random(draw(st.integers(0, 2**32)))
    size = draw(st.sampled_from([5, 30, 150]))
    feed: list[Message] = []
    for stream in ("trade", "depth", "bbo"):
        last = 1000
        for _ in range(size):
            prev, last = last, last + random_.choice([1, 1, 4])
            feed.append(Message(prev + 1, last, prev, stream=stream, ts=last))
    order = sorted(range(len(feed)), key=lambda at: at % size + random_.random())
    feed = [feed[at] for at in order]
    for _ in range(draw(st.integers(0, 12))):
        at = random_.randrange(len(feed))
        what = random_.choice(["drop", "double", "delay", "again"])
        if what == "drop":
            del feed[at : at + random_.choice([1, 1, 5])]
        elif what == "double":
            feed.insert(at, feed[at])
        elif what == "delay":
            feed.insert(min(len(feed), at + random_.randrange(1, 9)), feed.pop(at))
        else:
            feed.insert(min(len(feed), at + random_.randrange(1, 200)), feed[at])
        if not feed:
            return trades([1])
    return feed


@settings(deadline=None)
@given(feed=feeds(), data=st.data())
def test_cuts_change_nothing(feed: list[Message], data: st.DataObject) -> None:
    """Cut anywhere, the same messages give the same rows and the same state, and they are what a slow reader with
    all of the history says.
    """
    cuts = data.draw(st.lists(st.integers(0, len(feed)), max_size=6))
    whole = archived(feed)
    assert archived(feed, cuts) == whole
    slow = Slow()
    for offset, message in enumerate(feed, 100):
        slow.take(offset, message)
    assert [(row["kind"], row["k_offset"], row["offset_before"]) for row in whole[1]] == slow.rows
