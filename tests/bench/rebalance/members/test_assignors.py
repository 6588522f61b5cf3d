"""The assignments that leaders of the rebalance bench deal: range, and cooperative-sticky with its two steps."""

from __future__ import annotations

from itertools import chain

import pytest

from blumfeld_bench.rebalance.members.assignors import (
    cooperative_assignment,
    range_assignment,
    sticky_assignment,
)


def test_range_deals_consecutive_partitions_in_the_order_of_ids() -> None:
    assert range_assignment(["b", "a", "c"], 7) == {"a": [0, 1, 2], "b": [3, 4], "c": [5, 6]}


@pytest.mark.parametrize("partitions", [3, 6, 7, 20])
@pytest.mark.parametrize(
    "owned",
    [
        {"a": [], "b": [], "c": []},
        {"a": [0, 1, 2], "b": [3, 4, 5], "c": []},
        {"a": [0, 1, 2, 3, 4, 5, 6], "b": [], "c": [5, 6]},
        {"a": [19, 18], "b": [0], "c": [1]},
    ],
)
def test_sticky_deals_everything_once_and_evenly(owned: dict[str, list[int]], partitions: int) -> None:
    dealt = sticky_assignment(owned, partitions)
    assert sorted(chain(*dealt.values())) == list(range(partitions))
    sizes = [len(mine) for mine in dealt.values()]
    assert max(sizes) - min(sizes) <= 1


def test_sticky_moves_no_more_than_balance_asks_for() -> None:
    owned = {"a": [0, 1, 2, 3], "b": [4, 5, 6, 7], "c": []}
    dealt = sticky_assignment(owned, 8)
    moved = sum(len(set(mine) - set(owned[member])) for member, mine in dealt.items())
    assert moved == 2, "two for the new one, and none between the others"


def test_cooperative_gives_nothing_that_another_has_yet_to_give_up() -> None:
    owned = {"a": [0, 1, 2, 3], "b": []}
    first = cooperative_assignment(owned, 4)
    assert first == {"a": [0, 1], "b": []}
    assert cooperative_assignment(first, 4) == {"a": [0, 1], "b": [2, 3]}
