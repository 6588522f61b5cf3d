"""The swarm of transactions: its seeds have no anomaly, and all that it should try happens in them."""

from __future__ import annotations

from collections import Counter

import pytest

from blumfeld_kit.simulation.swarm import FaultClass, Shape, Swarm
from blumfeld_kit.simulation.transactions.workload import Transactions
from tests.everyday import first


def run(seed: int, seconds: float, **options: object) -> Counter[str]:
    shape = Shape(seed=seed, clients=4, seconds=seconds, workload="transactions", **options)  # type: ignore[arg-type]
    return Counter(Swarm(shape, Transactions()).run().counts)


@pytest.mark.parametrize("seed", first(1, [4, 3]))
def test_transactions_survive_every_fault_of_the_seed(seed: int) -> None:
    assert run(seed, 12.0)["committed"] > 3


def test_without_faults_everything_is_tried_and_nothing_is_excused() -> None:
    """In seed 5 a producer id is exhausted."""
    counts = run(5, 20.0, faults=())
    for name in ("acked", "read", "committed", "aborted", "late", "reassigned"):
        assert counts[name], name
    assert not counts["excuses"]
    assert not counts["unknown"]


def test_coordinators_end_when_they_decide() -> None:
    """A client dies with its coordinator, and one has a slow transaction open when old markers arrive."""
    counts = run(14, 12.0, faults=(FaultClass.DECISION,))
    for name in ("committed", "died", "lingered"):
        assert counts[name], name


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20, 32))
def test_more_seeds(seed: int) -> None:
    assert run(seed, 30.0)["committed"]
