"""The longest silence around a fault."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from campaigns.cluster.gaps import Gap, gap_of

INSTANTS = st.lists(st.integers(0, 1000), max_size=60).map(sorted)


@pytest.mark.parametrize(
    ("acks", "gap"),
    [
        ([9, 10, 18, 19, 20], Gap(0, 8, recovered=True)),
        ([8, 18, 19, 20], Gap(-2, 10, recovered=True)),  # it was silent before the fault already
        ([1, 8, 9, 11, 14, 20], Gap(4, 6, recovered=True)),
        ([9, 10, 12, 14, 16, 18, 23], Gap(8, 5, recovered=True)),  # it is open where the window ends
        ([9, 10, 11, 19], Gap(1, 8, recovered=True)),
        ([2, 9], Gap(-1, 11, recovered=False)),
        ([], Gap(0, 10, recovered=False)),
        ([15], Gap(0, 5, recovered=True)),
    ],
)
def test_the_longest_silence_of_the_window_counts_and_its_end(acks: list[float], gap: Gap) -> None:
    assert gap_of(acks, 10, 20) == gap


@given(INSTANTS, st.integers(0, 500), st.integers(1, 500))
def test_no_stretch_of_the_window_is_silent_for_longer(acks: list[int], begin: int, lasts: int) -> None:
    """It is the widest step between neighbours: the acknowledgements, the last one before them, the first behind."""
    end = begin + lasts
    gap = gap_of(acks, begin, end)
    before = max((at for at in acks if at < begin), default=begin)
    behind = min((at for at in acks if at >= end), default=end)
    edges = [before, *(at for at in acks if begin <= at < end), behind]
    assert gap.longest_s == max(b - a for a, b in itertools.pairwise(edges))
    assert 0 <= gap.recovered_s <= behind - begin
    assert gap.recovered or gap.recovered_s == lasts


def test_only_the_neighbours_of_the_window_count_outside_of_it() -> None:
    assert gap_of([1, 9, 12, 19, 21, 25, 90], 10, 20) == gap_of([9, 12, 19, 21], 10, 20)
