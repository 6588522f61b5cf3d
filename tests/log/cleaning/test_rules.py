"""Which log is cleaned next, and how far."""

from __future__ import annotations

import msgspec
import pytest

from blumfeld.log.cleaning.rules import CheckpointReset, CleanableLog, CleaningPlan, choose, plan_cleaning
from blumfeld.spi.storage import SegmentInfo, TopicPartition

NOW = 1_000_000
FOREVER = (1 << 63) - 1


def segment(
    base: int, end: int, size: int = 100, newest_ms: int = 10, created_ms: int = 5, sealed: bool = True
) -> SegmentInfo:
    return SegmentInfo(
        base_offset=base,
        next_offset=end,
        size_bytes=size,
        max_timestamp_ms=newest_ms,
        created_ms=created_ms,
        modified_ms=newest_ms,
        sealed=sealed,
        files=(),
    )


LOG = CleanableLog(
    partition=TopicPartition("t", 0),
    segments=[
        segment(0, 10),
        segment(10, 20, 300),
        segment(20, 30, 200, newest_ms=500),
        segment(30, 35, 50, sealed=False),
    ],
    log_start_offset=0,
    log_end_offset=35,
    cleaned_end_offset=10,
    last_stable_offset=35,
    min_compaction_lag_ms=0,
    max_compaction_lag_ms=FOREVER,
    min_cleanable_dirty_ratio=0.5,
)


def planned(now_ms: int = NOW, **changes: object) -> CleaningPlan:
    return plan_cleaning(msgspec.structs.replace(LOG, **changes), now_ms)


def test_what_was_cleaned_is_the_head_and_the_active_segment_is_left_alone() -> None:
    plan = planned()
    assert (plan.first_dirty_offset, plan.end_offset) == (10, 30)
    assert (plan.clean_bytes, plan.dirty_bytes, plan.reset) == (100, 500, None)
    assert plan.dirty_ratio == 500 / 600
    assert planned(min_cleanable_dirty_ratio=0.83).is_due
    assert not planned(min_cleanable_dirty_ratio=500 / 600).is_due, "the ratio must be above the limit"


@pytest.mark.parametrize(("stable", "end"), [(35, 30), (30, 30), (29, 20), (20, 20), (19, 10), (3, 0)])
def test_only_whole_segments_that_are_stable_are_cleaned(stable: int, end: int) -> None:
    plan = planned(last_stable_offset=stable)
    assert plan.end_offset == end
    assert plan.dirty_bytes == {30: 500, 20: 300}.get(end, 0)


@pytest.mark.parametrize(
    ("young", "lag_ms", "end"),
    [
        pytest.param(None, 0, 30, id="no lag"),
        pytest.param(None, NOW - 500, 30, id="as old as the lag"),
        pytest.param(None, NOW - 499, 20, id="younger than the lag"),
        pytest.param(None, NOW - 9, 10, id="the first dirty one is younger"),
        pytest.param(0, 1000, 30, id="what was cleaned once holds up nothing"),
        pytest.param(1, 1000, 10, id="an old one behind a young one waits too"),
    ],
)
def test_young_segments_wait(young: int | None, lag_ms: int, end: int) -> None:
    segments = [
        msgspec.structs.replace(it, max_timestamp_ms=NOW, modified_ms=NOW) if at == young else it
        for at, it in enumerate(LOG.segments)
    ]
    assert planned(segments=segments, min_compaction_lag_ms=lag_ms).end_offset == end


@pytest.mark.parametrize(
    ("checkpoint", "start", "first_dirty", "reset"),
    [
        (None, 4, 4, None),
        (4, 4, 4, None),
        (3, 4, 4, CheckpointReset.BELOW_LOG_START),
        (35, 4, 35, None),
        (36, 4, 4, CheckpointReset.ABOVE_LOG_END),
    ],
)
def test_a_checkpoint_outside_of_the_log_is_reset(
    checkpoint: int | None, start: int, first_dirty: int, reset: CheckpointReset | None
) -> None:
    plan = planned(cleaned_end_offset=checkpoint, log_start_offset=start)
    assert (plan.first_dirty_offset, plan.reset) == (first_dirty, reset)


def test_an_overdue_log_is_due_whatever_its_ratio() -> None:
    """By the first record of its oldest dirty segment; if there is anything that may be cleaned."""
    first = {0: 1, 10: 400, 20: 300}
    assert planned(500, max_compaction_lag_ms=200, first_timestamps_ms=first).overdue_ms == 0
    late = {"max_compaction_lag_ms": 199, "first_timestamps_ms": first, "min_cleanable_dirty_ratio": 1.0}
    plan = planned(500, **late)
    assert plan.overdue_ms == 1
    assert plan.is_due
    assert not planned(500, **late, last_stable_offset=10).is_due


def test_a_segment_whose_first_time_is_not_known_counts_from_its_creation() -> None:
    """And one without a time doesn't count, nor does an empty one."""
    assert planned(105, max_compaction_lag_ms=10).overdue_ms == 90
    assert planned(105, max_compaction_lag_ms=10, first_timestamps_ms={10: -1, 20: 80}).overdue_ms == 15
    segments = [LOG.segments[0], segment(10, 20, 0, created_ms=1), *LOG.segments[2:]]
    assert (
        planned(105, max_compaction_lag_ms=10, first_timestamps_ms={20: 80}, segments=segments).overdue_ms
        == 15
    )


def test_a_log_of_an_active_segment_only_has_nothing_to_clean() -> None:
    plan = planned(segments=[segment(0, 35, sealed=False)], cleaned_end_offset=None)
    assert (plan.end_offset, plan.dirty_ratio, plan.is_due) == (0, 0.0, False)


def plan_of(name: str, dirty: int, overdue_ms: int = 0) -> CleaningPlan:
    """With 100 bytes in all."""
    return CleaningPlan(
        partition=TopicPartition(name, 0),
        first_dirty_offset=0,
        end_offset=10,
        clean_bytes=100 - dirty,
        dirty_bytes=dirty,
        overdue_ms=overdue_ms,
        min_cleanable_dirty_ratio=0.5,
        reset=None,
    )


def test_the_dirtiest_log_goes_first_and_the_overdue_before_it() -> None:
    a, b, c, late = plan_of("a", 60), plan_of("b", 80), plan_of("c", 80), plan_of("d", 10, 1)
    assert choose([]) is None
    assert choose([plan_of("a", 50)]) is None
    assert choose([c, a, b]) == b
    assert choose([a, late, b]) == late
