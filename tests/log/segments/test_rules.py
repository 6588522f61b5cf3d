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


T, SIZE = 50, 10
"""The batch's timestamp is that of the segment's first, unless a case says otherwise."""


@pytest.mark.parametrize(
    ("segment", "batch", "now_ms", "reason"),
    [
        pytest.param(active(900), IncomingBatch(100, 8, T), 1000, None, id="it just fits"),
        pytest.param(active(901), IncomingBatch(100, 8, T), 1000, RollReason.SIZE, id="a byte too many"),
        pytest.param(active(0), IncomingBatch(1000, 8, T), 1000, None, id="an empty one takes any batch"),
        pytest.param(active(), IncomingBatch(SIZE, 8, 450), 10**9, None, id="as old as allowed"),
        pytest.param(active(), IncomingBatch(SIZE, 8, 451), 10**9, RollReason.TIME, id="too old by records"),
        pytest.param(active(), IncomingBatch(SIZE, 8, -1), 10**9, None, id="a batch without a time"),
        pytest.param(
            active(SIZE, -1), IncomingBatch(SIZE, 8, 10**9), 1400, None, id="without times: the clock"
        ),
        pytest.param(
            active(SIZE, -1), IncomingBatch(SIZE, 8, 10**9), 1401, RollReason.TIME, id="too old by the clock"
        ),
        pytest.param(active(0, -1), IncomingBatch(SIZE, 8, 5), 10**9, None, id="an empty one does not age"),
        pytest.param(
            active(index_full=True), IncomingBatch(SIZE, 8, T), 0, RollReason.INDEX_FULL, id="a full index"
        ),
        pytest.param(
            active(), IncomingBatch(SIZE, 7 + INT32_MAX, T), 0, None, id="the last offset of 32 bits"
        ),
        pytest.param(
            active(),
            IncomingBatch(SIZE, 8 + INT32_MAX, T),
            0,
            RollReason.OFFSET_RANGE,
            id="an offset too far",
        ),
    ],
)
def test_when_a_segment_rolls(
    segment: ActiveSegment, batch: IncomingBatch, now_ms: int, reason: RollReason | None
) -> None:
    assert should_roll(segment, batch, now_ms, LIMITS) == reason


def segments(*rows: tuple[int, int]) -> list[SegmentInfo]:
    """Segments of ten offsets each, from (size, highest timestamp); the last is active."""
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
    rows: list[SegmentInfo],
    ms: int = -1,
    size: int = -1,
    start: int = 0,
    hw: int = 10**6,
    copied: int | None = None,
) -> RetentionPlan:
    limits = RetentionLimits(retention_ms=ms, retention_bytes=size)
    return plan_retention(
        rows, limits, log_start_offset=start, high_watermark=hw, now_ms=1000, copied_end_offset=copied
    )


THREE = segments((5, 0), (5, 0), (5, 0))
AGED = segments((5, 100), (5, 999), (5, 1000))


@pytest.mark.parametrize(
    ("rows", "limits", "expected"),
    [
        pytest.param(THREE, {}, RetentionPlan(0, 0, False), id="without limits everything stays"),
        pytest.param(AGED, {"ms": 900}, RetentionPlan(0, 0, False), id="as old as allowed"),
        pytest.param(AGED, {"ms": 899}, RetentionPlan(10, 1, False), id="a millisecond older"),
        pytest.param(AGED, {"ms": 0}, RetentionPlan(20, 2, False), id="what is of this very time stays"),
        pytest.param(
            segments((5, 1000), (5, 0), (5, 0)),
            {"ms": 10},
            RetentionPlan(0, 0, False),
            id="a young one first",
        ),
        pytest.param(
            segments((5, 9_999), (5, 0)), {"ms": 0}, RetentionPlan(0, 0, False), id="a time that is to come"
        ),
        pytest.param(THREE, {"size": 11}, RetentionPlan(0, 0, False), id="too little would be left"),
        pytest.param(THREE, {"size": 10}, RetentionPlan(10, 1, False), id="enough is left"),
        pytest.param(THREE, {"size": 0}, RetentionPlan(30, 3, True), id="nothing need be left"),
        pytest.param(THREE, {"ms": 10}, RetentionPlan(30, 3, True), id="the active one is rolled first"),
        pytest.param(
            segments((5, 0), (0, -1)), {"ms": 10}, RetentionPlan(10, 1, False), id="an empty active one stays"
        ),
        pytest.param(THREE, {"ms": 10, "hw": 19}, RetentionPlan(10, 1, False), id="above the high watermark"),
        pytest.param(THREE, {"start": 15}, RetentionPlan(10, 1, False), id="below the log start"),
        pytest.param(
            THREE,
            {"start": 30},
            RetentionPlan(20, 2, False),
            id="the log start takes no active segment, as Kafka",
        ),
        pytest.param(THREE, {"ms": 10, "copied": 20}, RetentionPlan(20, 2, False), id="what the store has"),
        pytest.param(THREE, {"ms": 10, "copied": 19}, RetentionPlan(10, 1, False), id="a part isn't enough"),
        pytest.param(THREE, {"size": 0, "copied": -1}, RetentionPlan(0, 0, False), id="nobody knows"),
        pytest.param(
            THREE, {"start": 15, "copied": -1}, RetentionPlan(10, 1, False), id="no record is left to copy"
        ),
    ],
)
def test_what_retention_takes(
    rows: list[SegmentInfo], limits: dict[str, int], expected: RetentionPlan
) -> None:
    assert plan(rows, **limits) == expected


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
