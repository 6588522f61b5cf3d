"""Old messages that a venue sends again, beside clocks that differ."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blumfeld_sink_spark.apply import SEQUENCES
from blumfeld_sink_spark.quality import Summariser, stitch
from blumfeld_sink_spark.quality.clocks import HEAD
from blumfeld_sink_spark.reading.producing.load import Record
from blumfeld_sink_spark.records import OffsetRange, TaskResult
from blumfeld_sink_spark.tables import BBO, TRADES
from tests.everyday import examples
from tests.plugins.sink_spark.archive_tools import archive, captured, rows_of
from tests.plugins.sink_spark.results import table_of, task_result
from tests.shared_facts import shared_path

SECOND = 1_000_000_000
Seen = tuple[int | None, float]
"""A trade's id, and how much later than it happened it was received, in seconds."""


def named(feed: list[Seen], cuts: list[int] | None = None, table: str = TRADES) -> list[tuple[str, int]]:
    """Returns kind and offset of each finding about the clocks of a feed, cut into batches."""
    return archived(feed, cuts, table)[1]


def archived(
    feed: list[Seen], cuts: list[int] | None = None, table: str = TRADES
) -> tuple[dict[str, Any], list[tuple[str, int]]]:
    state: dict[str, Any] = {}
    gap_places: list[tuple[str, int]] = []
    for start, end in itertools.pairwise([0, *sorted(set(cuts or [])), len(feed)]):
        result = _summed(feed[start:end], start, table)
        state, rows = stitch(json.loads(json.dumps(state)), [result])
        gap_places += [(row["kind"], row["k_offset"]) for row in rows.to_pylist()]
    return state, gap_places


def _summed(part: list[Seen], start: int, table: str) -> TaskResult:
    summariser = Summariser("feed", 0, {}, skew_ms=10_000, at_once=3)
    number_column = "trade_id" if table == TRADES else "update_id"
    for offset, (number, late_s) in enumerate(part, start):
        received = int((offset + late_s) * SECOND)
        row = {"ts_event": offset * SECOND, "ts_recv": received, number_column: number, "k_offset": offset}
        summariser.add(SEQUENCES.empty_table(), {table: table_of(table, [row])})
    wanted = OffsetRange("feed", 0, start, start + len(part))
    return task_result(wanted, sequences=summariser.result())


@pytest.mark.parametrize(
    ("feed", "wanted"),
    [
        ([(7, 99), (8, 0), (9, 0)], [("stale", 0)]),  # the last trade there was
        ([(7, 0), (7, 99), (8, 0)], []),  # subscribed again: a duplicate by its id
        ([(7, 0), (5, 99), (6, 99), (7, 99), (8, 0)], []),
        ([(7, 0), (9, 99), (10, 0)], [("stale", 1)]),  # subscribed again after trades that were missed
        ([(7, 0), (9, 99), (10, 99), (11, 0)], [("stale", 1), ("skew", 2), ("skew_end", 3)]),
        ([(7, 0), (8, 99), (9, 0)], [("skew", 1), ("skew_end", 2)]),  # the next trade, and late
        ([(7, 0), (8, 99), (8, 99), (9, 99), (10, 0)], [("skew", 1), ("skew_end", 4)]),
        ([(7, 0), (7, -99), (8, 0)], [("skew", 1), ("skew_end", 2)]),  # nothing is sent before it happened
        ([(None, 0), (None, 99), (None, 0)], [("skew", 1), ("skew_end", 2)]),
        ([(7, 99), (7, 99), (8, 99)], [("stale", 0), ("skew", 2)]),
    ],
)
def test_what_is_sent_again_is_no_skew(feed: list[Seen], wanted: list[tuple[str, int]]) -> None:
    assert named(feed) == wanted
    for cut in range(1, len(feed)):
        assert named(feed, [cut]) == wanted, cut
    assert named(feed, list(range(1, len(feed)))) == wanted


def test_a_hole_in_the_ids_of_quotes_says_nothing() -> None:
    assert named([(7, 99), (90, 0), (180, 99), (181, 0)], table=BBO) == [
        ("stale", 0),
        ("skew", 2),
        ("skew_end", 3),
    ]


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(
        st.tuples(st.one_of(st.none(), st.integers(1, 6)), st.sampled_from([0.0, 0.0, 99.0, 99.0, -99.0])),
        min_size=1,
        max_size=20,
    ),
    st.sets(st.integers(1, 19)),
)
def test_the_same_is_named_wherever_batches_were_cut(feed: list[Seen], cuts: set[int]) -> None:
    assert archived(feed, [cut for cut in cuts if cut < len(feed)]) == archived(feed)


def test_behind_many_old_messages_clocks_are_wrong() -> None:
    """The head of a range is bounded, so a range with more late messages than that is skewed."""
    feed: list[Seen] = [(500, 0.0), *[(400, 99.0)] * HEAD]
    assert named(feed, [1]) == []
    assert named([*feed, (400, 99.0)], [1]) == [("skew", HEAD + 1)]


def _okx(number: int, happened_ms: int, received_ms: int) -> Record:
    """Makes a trade as OKX pushes it. The last one before a subscription looks the same."""
    value = (
        f'{{"arg":{{"channel":"trades","instId":"BTC-USD-220527"}},"data":[{{"instId":"BTC-USD-220527","tradeId":'
        f'"{number}","px":"30218.8","sz":"1","side":"buy","ts":"{happened_ms}"}}]}}'
    )
    return Record(
        value=value.encode(), key=None, timestamp_ms=received_ms, partition=0, headers=None, stream=""
    )


def test_subscriptions_to_a_quiet_instrument_leave_the_clocks_alone(tmp_path: Path) -> None:
    """The shape of OKX's real capture, where trade 7849 comes 26 s after it happened; then subscribed again at once,
    and again after two trades were missed.
    """
    at = 1_652_459_199_958
    feed = [_okx(7849, at, at + 25_549), _okx(7850, at + 34_381, at + 34_496)]
    feed += [_okx(7850, at + 34_381, at + 60_000), _okx(7851, at + 61_000, at + 61_100)]
    feed += [_okx(7853, at + 90_000, at + 120_000), _okx(7854, at + 121_000, at + 121_100)]
    archive(tmp_path, rows_of(feed, "feed"), decoders=("okx",), batch_rows=2)
    rows = ds.dataset(str(tmp_path / "gaps"), partitioning=None).to_table().to_pylist()
    assert sorted((row["k_offset"], row["kind"]) for row in rows) == [
        (0, "stale"),
        (2, "duplicate"),
        (4, "gap"),
        (4, "stale"),
    ]


@pytest.mark.parametrize(
    ("venue", "name", "wanted"),
    [
        ("okx", "OKX.ws.1.0", [("trades", "stale")] * 2),
        ("coinbase", "COINBASE.ws.28.0", [("bbo", "stale")] * 4 + [("trades", "stale")] * 4),
    ],
)
def test_real_subscriptions_begin_with_old_messages_and_no_skew(
    tmp_path: Path, venue: str, name: str, wanted: list[tuple[str, str]]
) -> None:
    rows = captured([shared_path(f"market-data/cryptofeed/{name}")], "feed", key="none")
    archive(tmp_path, rows, decoders=(venue,), batch_rows=500)
    gaps = ds.dataset(str(tmp_path / "gaps"), partitioning=None).to_table().to_pylist()
    assert sorted((row["stream"], row["kind"]) for row in gaps) == wanted
