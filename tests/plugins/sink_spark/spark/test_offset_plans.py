"""Offsets, limits and ranges of batches."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blumfeld_sink_spark.errors import SettingsError
from blumfeld_sink_spark.records import OffsetRange
from blumfeld_sink_spark.spark.topics import offset_plans

lags = st.dictionaries(
    st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 5)), st.integers(0, 10_000), min_size=1
)


@pytest.mark.parametrize(
    ("text", "kind", "timestamp_ms", "offsets"),
    [
        ("earliest", "earliest", 0, {}),
        ("latest", "latest", 0, {}),
        ("timestamp:1723161256299", "timestamp", 1723161256299, {}),
        ('{"t": {"0": 5, "1": -2}}', "offsets", 0, {("t", 0): 5, ("t", 1): -2}),
    ],
)
def test_positions_are_read_as_spark_writes_them(
    text: str, kind: str, timestamp_ms: int, offsets: offset_plans.Offsets
) -> None:
    position = offset_plans.parse_position(text, "starting")
    assert (position.kind, position.timestamp_ms, dict(position.offsets)) == (kind, timestamp_ms, offsets)


@pytest.mark.parametrize(
    "text", ["", "first", "timestamp:", "timestamp:noon", "{", '{"t": 5}', '{"t": {"x": 1}}']
)
def test_other_positions_are_refused_by_their_key(text: str) -> None:
    with pytest.raises(SettingsError, match=r"archive\.ending"):
        offset_plans.parse_position(text, "ending")


def test_offsets_go_through_json_sorted() -> None:
    offsets = {("b", 10): 1, ("a", 1): 2, ("b", 2): 3}
    document = offset_plans.to_json(offsets)
    assert list(document) == ["a", "b"]
    assert list(document["b"]) == ["2", "10"]
    assert offset_plans.from_json(document) == offsets


@given(lags, st.integers(0, 30_000))
def test_a_limit_is_shared_out_whole_and_never_beyond_the_lag(
    behind: dict[offset_plans.Place, int], limit: int
) -> None:
    shares = offset_plans.share_out(behind, limit)
    assert sum(shares.values()) == min(limit, sum(behind.values()))
    assert all(0 <= shares[place] <= lag for place, lag in behind.items())


@given(lags, st.integers(500, 5_000))
def test_batches_under_a_limit_come_to_the_ends(ends: offset_plans.Offsets, limit: int) -> None:
    at = dict.fromkeys(ends, 0)
    read = 0
    while at != ends:
        following = offset_plans.next_ends(at, ends, {}, limit)
        got = sum(each.end - each.start for each in offset_plans.ranges(at, following))
        assert 0 < got <= limit
        read += got
        at = following
    assert read == sum(ends.values())


def test_a_partition_that_is_new_is_first_met_and_then_read() -> None:
    """The batch that finds a new partition reads none of it, so that its range is in Spark's log before it is read."""
    start, ends = {("t", 0): 5}, {("t", 0): 9, ("t", 1): 100}
    first = offset_plans.next_ends(start, ends, {("t", 1): 40}, None)
    assert first == {("t", 0): 9, ("t", 1): 40}
    assert offset_plans.ranges(start, first) == (OffsetRange("t", 0, 5, 9),)
    second = offset_plans.next_ends(first, ends, {}, None)
    assert offset_plans.ranges(first, second) == (OffsetRange("t", 1, 40, 100),)


def test_sparks_own_source_reads_a_new_partition_from_its_beginning_at_once() -> None:
    assert offset_plans.ranges({}, {("t", 1): 100}, fresh=0) == (OffsetRange("t", 1, 0, 100),)


def test_an_end_that_goes_back_reads_nothing_and_a_partition_that_is_gone_keeps_its_offset() -> None:
    start = {("t", 0): 50, ("t", 1): 7}
    assert offset_plans.next_ends(start, {("t", 0): 40}, {}, 10) == start


def test_lag_is_never_negative() -> None:
    assert offset_plans.lag({("t", 0): 5, ("t", 1): 9}, {("t", 0): 8, ("t", 1): 7}) == {
        ("t", 0): 3,
        ("t", 1): 0,
    }


def test_partitions_that_lost_all_records_are_named() -> None:
    earliest = {("t", 0): 0, ("t", 1): 9, ("t", 2): 3}
    assert offset_plans.vanished(earliest, {("t", 0): 0, ("t", 1): 9, ("t", 2): 5}) == [("t", 1)]


def test_neighbouring_ranges_are_joined() -> None:
    spans = offset_plans.merged(
        [OffsetRange("t", 0, 5, 9), OffsetRange("t", 0, 0, 5), OffsetRange("t", 0, 20, 30)]
    )
    assert spans == {("t", 0): [(0, 9), (20, 30)]}
