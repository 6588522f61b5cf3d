"""The swarm of whole clusters: its seeds keep every promise, and no class of faults is without faults."""

from __future__ import annotations

from collections import Counter

import pytest

from blumfeld_consensus_kraft.raft.pauses import Pauses
from blumfeld_kit.simulation.cluster import watch
from blumfeld_kit.simulation.cluster.workload import Cluster
from blumfeld_kit.simulation.swarm import FaultClass, Shape, Swarm, SwarmFailure
from tests.everyday import first


@pytest.mark.parametrize("seed", first(1, [0, 3]))
def test_a_cluster_keeps_its_promises_under_every_fault_of_the_seed(seed: int) -> None:
    report = Swarm(Shape(seed=seed, clients=4, seconds=40.0), Cluster()).run()
    assert report.progress > 200
    assert sum(report.faults.values()) > 5
    assert report.converged_s < 60.0


def test_without_faults_everything_is_done_and_nothing_is_excused() -> None:
    """In seed 1 the controllers are apart from the brokers."""
    report = Swarm(Shape(seed=1, clients=4, seconds=20.0, faults=()), Cluster()).run()
    counts = Counter(report.counts)
    for name in (
        "acked",
        "read",
        "commits",
        "records deleted",
        "topics created",
        "metadata batches compared",
    ):
        assert counts[name], name
    assert not counts["excuses"]
    assert not counts["ids given up"]


def test_a_controller_that_is_replaced_late_fails_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Pauses, "refused_ms", lambda _: 1_000.0)
    with pytest.raises(SwarmFailure, match=r"no controller 0\.9 s after node \d's process died"):
        Swarm(Shape(seed=0, clients=4, seconds=1.0, faults=()), Cluster()).run()


def test_an_oracle_that_looks_at_no_metadata_log_fails_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "metadata_log", lambda _: None)
    with pytest.raises(SwarmFailure, match="the oracle has compared no metadata batches"):
        Swarm(Shape(seed=1, clients=4, seconds=1.0, faults=()), Cluster()).run()


def test_an_oracle_that_looks_at_no_replica_fails_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch.Watch, "_watched", lambda *_: iter(()))
    with pytest.raises(SwarmFailure, match="the oracle has compared no batches"):
        Swarm(Shape(seed=1, clients=4, seconds=1.0, faults=()), Cluster()).run()


@pytest.mark.slow
def test_no_class_of_faults_is_without_faults() -> None:
    """Processes are killed in any case: otherwise no follower would ever join an ISR again."""
    missing = {fault_class.value for fault_class in Cluster.survives}
    for seed in range(40):
        classes = tuple(FaultClass(name) for name in sorted(missing | {FaultClass.KILL_TWICE.value}))
        shape = Shape(seed=seed, clients=4, seconds=25.0, faults=classes)
        missing -= {name for name, count in Swarm(shape, Cluster()).run().faults.items() if count}
        if not missing:
            return
    pytest.fail(f"no fault of the classes {sorted(missing)}")
