"""Conditions that hold for a while are named where they begin and where they end."""

from __future__ import annotations

import itertools
import json
from decimal import Decimal
from typing import Any, ClassVar

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from blumfeld.spi.decoders import Continuity
from blumfeld_sink_spark.apply import SEQUENCES
from blumfeld_sink_spark.quality import Summariser, continuity_of, stitch
from blumfeld_sink_spark.quality.summary import ROOM
from blumfeld_sink_spark.records import OffsetRange, TaskResult
from blumfeld_sink_spark.tables import BBO, BOOK_DELTAS, TRADES
from tests.plugins.sink_spark.feeds import result_of
from tests.plugins.sink_spark.results import table_of, task_result

SECOND = 1_000_000_000


def bbo(quotes: list[tuple[str | None, str | None]], start: int = 0) -> pa.Table:
    rows = [
        {
            **dict.fromkeys(("ts_event", "ts_recv"), at * SECOND),
            "update_id": at,
            "bid": None if bid is None else Decimal(bid),
            "ask": None if ask is None else Decimal(ask),
            "k_offset": at,
        }
        for at, (bid, ask) in enumerate(quotes, start)
    ]
    return table_of(BBO, rows)


def timed(delays_s: list[float], start: int = 0, table: str = TRADES, rows_each: int = 1) -> pa.Table:
    """Returns messages a second apart that were received so much later than they happened."""
    rows = [
        {"ts_event": at * SECOND, "ts_recv": int((at + delay) * SECOND), "k_offset": at}
        for at, delay in enumerate(delays_s, start)
        for _ in range(rows_each)
    ]
    return table_of(table, rows)


def summed(parts: list[pa.Table], table: str, skew_ms: int = 10_000) -> TaskResult:
    """Returns a task's result for these parts of a table."""
    summariser = Summariser("feed", 0, {}, skew_ms, at_once=1)
    for part in parts:
        summariser.add(SEQUENCES.empty_table(), {table: part})
    first = parts[0].column("k_offset")[0].as_py() if parts[0].num_rows else 0
    return task_result(OffsetRange("feed", 0, first, first + 1), sequences=summariser.result())


def rows_of(table: pa.Table) -> list[tuple[str, str, int, int | None]]:
    return [(row["stream"], row["kind"], row["k_offset"], row["offset_before"]) for row in table.to_pylist()]


def test_a_crossed_book_is_named_once_and_again_when_it_is_well() -> None:
    quotes: list[tuple[str | None, str | None]] = [
        ("1", "2"), ("2.000000000000000001", "2"), ("3", "2"), ("2", "2"), ("1", "2"), (None, "2"), ("2", None)
    ]  # fmt: skip
    _, gaps = stitch({}, [summed([bbo(quotes)], BBO)])
    assert rows_of(gaps) == [
        ("bbo", "crossed", 1, 0),
        ("bbo", "locked", 3, 2),
        ("bbo", "locked_end", 4, 3),
    ]
    assert gaps.column("got").to_pylist() == [1, 3, 4]


def test_skewed_clocks_are_named_once() -> None:
    """With the two times; either way; the limit itself is still well."""
    _, gaps = stitch({}, [summed([timed([0, 10, 10.5, 11, 0, -10.5])], TRADES)])
    assert rows_of(gaps) == [
        ("trades", "skew", 2, 1),
        ("trades", "skew_end", 4, 3),
        ("trades", "skew", 5, 4),
    ]
    assert gaps.to_pylist()[0]["got"] - gaps.to_pylist()[0]["expected"] == 10.5 * SECOND
    assert stitch({}, [summed([timed([99])], TRADES, skew_ms=0)])[1].num_rows == 0


def test_a_feed_that_begins_skewed_is_named_at_its_second_message() -> None:
    """The first trade may be the old one that a venue sends at a subscription. The first change of a book can't."""
    _, gaps = stitch({}, [summed([timed([99, 99], 7)], TRADES)])
    assert rows_of(gaps) == [("trades", "stale", 7, None), ("trades", "skew", 8, 7)]
    _, gaps = stitch({}, [summed([timed([99, 99], 7, table=BOOK_DELTAS)], BOOK_DELTAS)])
    assert rows_of(gaps) == [("book_deltas", "skew", 7, None)]


def test_levels_of_one_message_count_once() -> None:
    """A book's diff is one message, whatever its rows."""
    _, gaps = stitch({}, [summed([timed([0, 99, 0], table=BOOK_DELTAS, rows_each=3)], BOOK_DELTAS)])
    assert rows_of(gaps) == [("book_deltas", "skew", 1, 0), ("book_deltas", "skew_end", 2, 1)]


def test_a_book_that_flickers_is_named_briefly() -> None:
    quotes: list[tuple[str | None, str | None]] = [("1", "2"), ("3", "2")] * 1000
    rows = stitch({}, [summed([bbo(quotes)], BBO)])[1].to_pylist()
    assert len(rows) == ROOM + 1
    assert (rows[-1]["kind"], rows[-1]["missing"]) == ("more", 1999 - ROOM)


@settings(deadline=None)
@given(
    well=st.lists(st.sampled_from(["0", "1", "2"]), min_size=1, max_size=30),
    cuts=st.lists(st.integers(0, 30), max_size=4),
)
def test_cuts_change_nothing(well: list[str], cuts: list[int]) -> None:
    """Between batches and within them."""

    def archived(edges: list[int]) -> tuple[Any, list[Any]]:
        state: dict[str, Any] = {}
        rows = []
        for start, end in itertools.pairwise(edges):
            quotes: list[tuple[str | None, str | None]] = [(bid, "1") for bid in well[start:end]]
            middle = len(quotes) // 2
            parts = [bbo(quotes[:middle], start), bbo(quotes[middle:], start + middle)]
            state, gaps = stitch(json.loads(json.dumps(state)), [summed(parts, BBO)])
            rows += gaps.to_pylist()
        return state, rows

    assert archived([0, *sorted(cuts), len(well)]) == archived([0, len(well)])


def test_rules_come_from_the_decoders() -> None:
    """The first that names a stream has the say."""

    class One:
        continuity: ClassVar = {"trade": Continuity.CONSECUTIVE}

    class Two:
        continuity: ClassVar = {"trade": Continuity.NONE, "depth": Continuity.CHAINED}

    rules = continuity_of([One(), Two()])  # type: ignore[list-item]
    assert rules == {"trade": Continuity.CONSECUTIVE, "depth": Continuity.CHAINED}


def test_an_empty_range_says_nothing() -> None:
    state, _ = stitch({}, [summed([timed([99])], TRADES)])
    assert stitch(state, [result_of([], 5)])[0] == state
