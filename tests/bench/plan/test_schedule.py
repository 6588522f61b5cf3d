"""Order, rounds and lengths, and the time they take."""

from __future__ import annotations

import msgspec
import pytest

from blumfeld_bench.plan.schedule import (
    QUICK_ROUNDS_MAX,
    QUICK_ROUNDS_MIN,
    QUICK_S,
    Costs,
    estimate_s,
    quick,
    shape,
    turns_of,
)
from blumfeld_bench.workload import Workload, load_workload, shipped
from tests.bench.synthetic import CATCH_UP, CLOSED, OPEN

AB = ("a", "b")
OURS = Costs(turn_s={"a": 0.7, "b": 0.7})


def test_variants_take_turns_forward_and_back() -> None:
    order = "".join(turn.variant for turn in turns_of(("a", "b", "c"), 4))
    assert order == "abccbaabccba"


def test_over_two_rounds_every_variant_stands_at_the_same_place_in_time() -> None:
    places: dict[str, list[int]] = {}
    for turn in turns_of(("a", "b", "c", "d"), 2):
        places.setdefault(turn.variant, []).append(turn.position)
    assert {sum(positions) for positions in places.values()} == {7}


@pytest.mark.parametrize("name", sorted(shipped()))
def test_a_quick_run_of_two_of_ours_fits_into_two_minutes(name: str) -> None:
    workload, rounds = quick(load_workload(name), AB, OURS)
    assert estimate_s(workload, AB, rounds, OURS) <= QUICK_S
    assert QUICK_ROUNDS_MIN <= rounds <= QUICK_ROUNDS_MAX
    assert len(workload.steps) >= 1


def test_a_quick_run_uses_the_time_it_has() -> None:
    """With one short step there are all rounds, and they are longer than the shortest."""
    workload, rounds = quick(Workload(name="w", description="d", steps=(OPEN,)), AB, OURS)
    assert rounds == QUICK_ROUNDS_MAX
    assert workload.steps[0].measure_s > 1.5
    assert estimate_s(workload, AB, rounds, OURS) > 0.9 * QUICK_S


def test_a_quick_run_drops_steps_before_rounds() -> None:
    steps = tuple(msgspec.structs.replace(OPEN, name=str(number)) for number in range(12))
    workload, rounds = quick(Workload(name="w", description="d", steps=steps), AB, OURS)
    assert rounds >= 8
    assert 1 <= len(workload.steps) < 12


def test_a_slow_starter_gets_the_fewest_rounds_and_an_honest_estimate() -> None:
    costs = Costs(turn_s={"a": 0.7, "b": 30.0})
    workload, rounds = quick(Workload(name="w", description="d", steps=(OPEN,)), AB, costs)
    assert rounds == QUICK_ROUNDS_MIN
    assert estimate_s(workload, AB, rounds, costs) > 30 * rounds


def test_steps_never_grow_beyond_what_the_workload_says() -> None:
    short = msgspec.structs.replace(OPEN, measure_s=0.5, warm_up_s=0.1)
    workload, _ = quick(Workload(name="w", description="d", steps=(short,)), AB, OURS)
    assert workload.steps[0].measure_s == 0.5
    assert workload.steps[0].warm_up_s == 0.1


def test_rates_do_not_make_another_shape_and_connections_do() -> None:
    assert OPEN.produce is not None
    faster = msgspec.structs.replace(
        OPEN, name="x", produce=msgspec.structs.replace(OPEN.produce, rate_per_s=9.0)
    )
    wider = msgspec.structs.replace(OPEN, produce=msgspec.structs.replace(OPEN.produce, connections=99))
    assert shape(OPEN) == shape(faster) != shape(wider)
    assert len({shape(CLOSED), shape(CATCH_UP), shape(OPEN)}) == 3
