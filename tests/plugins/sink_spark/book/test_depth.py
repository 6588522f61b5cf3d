"""Books of which a client gets the best levels alone are cut after each message."""

from __future__ import annotations

import itertools
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blumfeld_sink_spark.book import depth
from blumfeld_sink_spark.book.best import Tops
from blumfeld_sink_spark.book.ladder import Ladder
from blumfeld_sink_spark.book.sync import Sync
from blumfeld_sink_spark.tables import BOOK_DELTAS, tables
from tests.everyday import examples
from tests.plugins.sink_spark.results import table_of

Level = tuple[int, int, int]
"""Side, price and size."""


def rows_of(messages: list[list[Level]], start: int = 0) -> pa.Table:
    """Returns rows of ``book_deltas``; the first message of all is a snapshot."""
    rows = [
        {
            **dict.fromkeys(("ts_event", "ts_recv", "k_offset"), at),
            "venue": "kraken",
            "side": side,
            "is_snapshot": at == 0,
            "price": Decimal(price) / 8,
            "size": Decimal(size),
        }
        for at, levels in enumerate(messages, start)
        for side, price, size in levels
    ]
    return table_of(BOOK_DELTAS, rows)


def best_of(book: dict[int, dict[int, int]], levels: int) -> None:
    for side, sizes in book.items():
        for price in sorted(sizes, key=lambda price: -side * price)[levels:]:
            del sizes[price]


LEVELS = st.tuples(st.sampled_from([1, -1]), st.integers(1, 9), st.integers(0, 2))
SNAPSHOT = [(side, 5 - side * nth, 1) for side in (1, -1) for nth in range(1, 4)]


@settings(deadline=None, max_examples=examples(80))
@given(
    st.lists(st.lists(LEVELS, min_size=1, max_size=4), max_size=12), st.lists(st.integers(1, 12), max_size=3)
)
def test_a_book_is_cut_after_each_message(messages: list[list[Level]], cuts: list[int]) -> None:
    feed, wanted = [SNAPSHOT, *messages], []
    slow: dict[int, dict[int, int]] = {1: {}, -1: {}}
    for levels in feed:
        for side, price, size in levels:
            slow[side].pop(price, None)
            slow[side] |= {price: size} if size else {}
        best_of(slow, 3)
        wanted.append((max(slow[1], default=None), min(slow[-1], default=None)))
    sync, ladder, tops, pairs = Sync(), Ladder(), Tops(), []
    edges = sorted({0, len(feed), *(cut for cut in cuts if cut < len(feed))})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(depth, "DEPTHS", {"kraken": (3,)})
        for start, end in itertools.pairwise(edges):
            changes = list(sync.feed(rows_of(feed[start:end], start)))
            ladder.take(changes)
            pairs += [(best.bid and best.bid * 8, best.ask and best.ask * 8) for best in tops.take(changes)]
    assert pairs == wanted
    for side in (1, -1):
        book = {int(row["price"] * 8): int(row["size"]) for row in ladder.side(side).to_pylist()}
        assert book == slow[side]


def test_other_venues_send_the_whole_book() -> None:
    rows = rows_of([[(-1, price, 1) for price in range(1, 11)], [(-1, 11, 1)]])
    at = rows.schema.get_field_index("venue")
    whole = rows.set_column(at, rows.schema.field(at), pa.array(["coinbase"] * rows.num_rows))
    assert [sum(change.rows.num_rows for change in Sync().feed(batch)) for batch in (whole, rows)] == [11, 12]


def test_a_removal_is_a_row_of_its_message() -> None:
    """Exports, snapshots and plots read the changes and need no rule of the venue."""
    feed = [[(-1, price, 1) for price in range(1, 11)], [(-1, 2, 3), (-1, 0, 1)], [(-1, 1, 2)]]
    *_, change = Sync().feed(rows_of(feed))
    rows = [(row["k_offset"], int(row["price"] * 8), int(row["size"])) for row in change.rows.to_pylist()]
    assert rows == [(1, 2, 3), (1, 0, 1), (1, 10, 0), (2, 1, 2)]
    assert change.rows.schema == tables()[BOOK_DELTAS].schema
