"""The offsets at which queries without a checkpoint begin; no Spark."""

from __future__ import annotations

import pytest

from blumfeld_sink_spark.errors import LedgerConflictError
from blumfeld_sink_spark.spark.run.progress import Event, Notice
from blumfeld_sink_spark.spark.run.start_offsets import behind, nothing_behind, uncovered
from blumfeld_sink_spark.spark.topics.client import TopicState

P0, P1 = ("t", 0), ("t", 1)


def _texts(events: list[Event]) -> list[str]:
    return [event.text for event in events if isinstance(event, Notice)]


def test_a_query_without_its_checkpoint_goes_on_at_the_ledgers_end() -> None:
    """A partition that isn't in the ledger yet begins at its first offset, so that none of it is lost."""
    events: list[Event] = []
    starts = behind({P0: 100, P1: 100}, {P0: [(0, 40), (60, 80)]}, {P0: 5, P1: 3}, events.append)
    assert starts == {P0: 80, P1: 3}
    assert "t-0 at 80, t-1 at 3" in _texts(events)[0]


@pytest.mark.parametrize(
    ("spans", "left"),
    [
        ([], (10, 50)),
        ([(0, 20)], (20, 50)),
        ([(30, 90)], (10, 30)),
        ([(0, 20), (45, 60)], (20, 45)),
        ([(50, 60)], (10, 50)),
    ],
)
def test_a_backfill_takes_what_isnt_archived_yet(spans: list[tuple[int, int]], left: tuple[int, int]) -> None:
    events: list[Event] = []
    start, end = uncovered({P0: 10}, {P0: 50}, {P0: spans}, events.append)
    assert (start[P0], end[P0]) == left
    assert bool(events) == (left != (10, 50))


def test_a_backfill_of_what_is_archived_reads_nothing() -> None:
    start, end = uncovered({P0: 10}, {P0: 50}, {P0: [(0, 60)]}, lambda event: None)
    assert start == end


def test_a_backfill_with_something_archived_in_its_middle_is_refused() -> None:
    with pytest.raises(LedgerConflictError, match=r"10\.\.20, 30\.\.50"):
        uncovered({P0: 10}, {P0: 50}, {P0: [(20, 30)]}, lambda event: None)


@pytest.mark.parametrize(
    ("ends", "latest", "nothing"),
    [
        ({P0: 7}, {P0: 7}, True),
        ({P0: 7}, {P0: 8}, False),
        ({P0: 7, P1: 3}, {P0: 7}, True),
        ({P0: 7}, {P0: 7, P1: 2}, True),
        ({P0: 7}, {P0: 7, P1: 3}, False),
        ({P0: 7}, {P0: 6}, False),
    ],
    ids=["same", "more", "a partition is gone", "a new one is empty", "a new one has something", "made anew"],
)
def test_there_is_nothing_new_only_where_no_offset_and_no_fault_is(
    ends: dict[tuple[str, int], int], latest: dict[tuple[str, int], int], nothing: bool
) -> None:
    state = TopicState(earliest=dict.fromkeys(latest, 2), latest=latest)
    assert nothing_behind(ends, state) == nothing


def test_a_backfill_has_nothing_left_where_it_ends() -> None:
    state = TopicState(earliest={P0: 0, P1: 0}, latest={P0: 9, P1: 9})
    assert nothing_behind({P0: 5}, state, {P0: 5})
    assert not nothing_behind({P0: 4}, state, {P0: 5})
    assert not nothing_behind({P0: 8}, state, {P0: 12})


def test_an_end_before_the_start_reads_nothing() -> None:
    assert uncovered({P0: 10}, {P0: 5}, {}, lambda event: None) == ({P0: 10}, {P0: 10})
