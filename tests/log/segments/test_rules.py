"""When a segment rolls and what retention takes: Kafka's edges, one by one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from blumfeld.log.segments.rules import (
    ActiveSegment,
    IncomingBatch,
    RetentionLimits,
    RetentionPlan,
    RollLimits,
    RollReason,
    plan_retention,
    should_roll,
)
from blumfeld.spi.storage import SegmentInfo

INT32_MAX = 2**31 - 1
LIMITS = RollLimits(segment_bytes=1000, segment_ms=500, segment_jitter_ms=100)


def active(size_bytes: int = 10, first_timestamp_ms: int = 50, index_full: bool = False) -> ActiveSegment:
    return ActiveSegment(
        base_offset=7,
        size_bytes=size_bytes,
        created_ms=1000,
        first_timestamp_ms=first_timestamp_ms,
        index_full=index_full,
    )


@pytest.mark.parametrize(
    ("size", "incoming", "rolls"), [(900, 100, False), (901, 100, True), (0, 1000, False)]
)
def test_a_segment_never_grows_over_its_size(size: int, incoming: int, rolls: bool) -> None:
    reason = should_roll(active(size), IncomingBatch(incoming, 8, 50), 1000, LIMITS)
    assert reason == (RollReason.SIZE if rolls else None)


@pytest.mark.parametrize(("timestamp_ms", "rolls"), [(450, False), (451, True), (-1, False)])
def test_time_is_the_records_own(timestamp_ms: int, rolls: bool) -> None:
    reason = should_roll(active(), IncomingBatch(10, 8, timestamp_ms), 10**9, LIMITS)
    assert reason == (RollReason.TIME if rolls else None)


@pytest.mark.parametrize(("now_ms", "rolls"), [(1400, False), (1401, True)])
def test_without_timestamps_it_is_the_clocks(now_ms: int, rolls: bool) -> None:
    reason = should_roll(active(first_timestamp_ms=-1), IncomingBatch(10, 8, 10**9), now_ms, LIMITS)
    assert reason == (RollReason.TIME if rolls else None)


def test_an_empty_segment_does_not_age() -> None:
    assert should_roll(active(0, -1), IncomingBatch(10, 8, 5), 10**9, LIMITS) is None


def test_a_full_index_rolls() -> None:
    assert should_roll(active(index_full=True), IncomingBatch(10, 8, 50), 0, LIMITS) is RollReason.INDEX_FULL


@pytest.mark.parametrize(("last_offset", "rolls"), [(7 + INT32_MAX, False), (8 + INT32_MAX, True)])
def test_relative_offsets_fit_32_bits(last_offset: int, rolls: bool) -> None:
    reason = should_roll(active(), IncomingBatch(10, last_offset, 50), 0, LIMITS)
    assert reason == (RollReason.OFFSET_RANGE if rolls else None)


def segments(*rows: tuple[int, int]) -> list[SegmentInfo]:
    """Of ten offsets each, with (size, highest timestamp); the last is active."""
    return [
        SegmentInfo(
            base_offset=n * 10,
            next_offset=n * 10 + (10 if size else 0),
            size_bytes=size,
            max_timestamp_ms=timestamp_ms,
            created_ms=0,
            modified_ms=0,
            sealed=n < len(rows) - 1,
            files=(),
        )
        for n, (size, timestamp_ms) in enumerate(rows)
    ]


def plan(
    rows: list[SegmentInfo], ms: int = -1, size: int = -1, start: int = 0, hw: int = 10**6
) -> RetentionPlan:
    limits = RetentionLimits(retention_ms=ms, retention_bytes=size)
    return plan_retention(rows, limits, log_start_offset=start, high_watermark=hw, now_ms=1000)


def test_without_limits_everything_stays() -> None:
    assert plan(segments((5, 0), (5, 0))) == RetentionPlan(0, 0, False)


@pytest.mark.parametrize(("retention_ms", "gone"), [(900, 0), (899, 1), (0, 2)])
def test_time_takes_what_is_older(retention_ms: int, gone: int) -> None:
    assert plan(segments((5, 100), (5, 999), (5, 1000)), ms=retention_ms).segments == gone


def test_a_young_segment_protects_those_behind_it() -> None:
    assert plan(segments((5, 1000), (5, 0), (5, 0)), ms=10) == RetentionPlan(0, 0, False)


@pytest.mark.parametrize(("retention_bytes", "gone"), [(15, 0), (11, 0), (10, 1), (5, 2), (0, 3)])
def test_size_takes_segments_while_enough_is_left(retention_bytes: int, gone: int) -> None:
    assert plan(segments((5, 0), (5, 0), (5, 0)), size=retention_bytes).segments == gone


def test_the_active_segment_is_rolled_first() -> None:
    assert plan(segments((5, 0), (5, 0)), ms=10) == RetentionPlan(20, 2, True)
    assert plan(segments((5, 0), (0, -1)), ms=10) == RetentionPlan(10, 1, False)


def test_nothing_above_the_high_watermark_goes() -> None:
    assert plan(segments((5, 0), (5, 0), (5, 0)), ms=10, hw=19) == RetentionPlan(10, 1, False)


def test_what_is_below_the_log_start_goes_without_limits() -> None:
    assert plan(segments((5, 0), (5, 0), (5, 0)), start=15) == RetentionPlan(10, 1, False)


def test_the_log_start_does_not_take_the_active_segment() -> None:
    """As in Kafka: after DeleteRecords of all, the active segment stays until it is old or too much."""
    assert plan(segments((5, 0), (5, 0)), start=20) == RetentionPlan(10, 1, False)


def test_a_time_that_is_to_come_keeps_a_segment() -> None:
    assert plan(segments((5, 9_999), (5, 0)), ms=0) == RetentionPlan(0, 0, False)


@pytest.mark.parametrize(("modified_ms", "gone"), [(100, 0), (99, 2)])
def test_an_empty_sealed_segment_goes_by_its_file_and_does_not_stop_retention(
    modified_ms: int, gone: int
) -> None:
    """What compaction may leave."""
    rows = segments((5, -1), (5, 0), (5, 1000))
    rows[0] = structs.replace(rows[0], size_bytes=0, modified_ms=modified_ms)
    assert plan(rows, ms=900).segments == gone


@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(0, 1000)), min_size=1, max_size=8),
    st.integers(-1, 1000),
    st.integers(-1, 40),
    st.integers(0, 80),
    st.integers(0, 80),
)
def test_each_that_goes_has_a_reason_and_the_next_has_none(
    rows: list[tuple[int, int]], ms: int, size: int, start: int, hw: int
) -> None:
    log = segments(*rows)
    result = plan(log, ms, size, start, hw)

    def has_reason(at: int) -> bool:
        segment = log[at]
        left = sum(other.size_bytes for other in log[at + 1 :])
        reasons = (
            0 <= ms < 1000 - segment.max_timestamp_ms,
            0 <= size <= left,
            segment.sealed and segment.next_offset <= start,
        )
        return any(reasons) and segment.next_offset <= hw

    assert all(has_reason(at) for at in range(result.segments))
    assert result.segments == len(log) or not has_reason(result.segments)
