"""Bounds of the bytes between offsets: never wrong, and exact at the ends of writes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from blumfeld.broker.replicas.watching.written_bytes import MARKS_MAX, UNBOUNDED, WrittenBytes

WRITES = st.lists(
    st.tuples(st.lists(st.tuples(st.integers(1, 3), st.integers(61, 500)), max_size=4), st.booleans()),
    max_size=12,
)


@given(st.integers(0, 9), WRITES)
def test_the_bounds_hold_what_is_between_them(
    start: int, writes: list[tuple[list[tuple[int, int]], bool]]
) -> None:
    """Each write has batches of (records, bytes); some are committed as a whole."""
    counted = WrittenBytes(start)
    totals = {start: 0}
    ends = [start]
    end = total = 0
    end = start
    for batches, committed in writes:
        for records, size in batches:
            end += records
            total += size
            totals[end] = total
            counted.placed += size
        counted.wrote(end)
        ends.append(end)
        if committed:
            counted.committed()
            ends = [end]
        for offset, exact in totals.items():
            assert counted.at_least(offset) <= exact
            if offset >= ends[0]:
                assert counted.at_most(offset) >= exact
        for offset in ends:
            assert counted.at_least(offset) == counted.at_most(offset) == totals[offset]


def test_what_is_placed_and_not_written_counts_at_most() -> None:
    counted = WrittenBytes(5)
    counted.placed += 100
    assert (counted.at_least(6), counted.at_most(6)) == (0, 100)
    assert counted.at_least(4) == -UNBOUNDED


def test_a_log_that_nothing_commits_remembers_so_many_writes() -> None:
    counted = WrittenBytes(0)
    for end in range(1, 3 * MARKS_MAX):
        counted.placed += 10
        counted.wrote(end)
    assert len(counted._ends) <= MARKS_MAX
    assert counted.at_most(end) == counted.at_least(end) == 10 * end
    assert counted.at_least(1) == -UNBOUNDED
