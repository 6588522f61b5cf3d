"""The swarm of clusters on a simulated ZooKeeper: its seeds keep every promise, and no class of faults lacks faults."""

from __future__ import annotations

from collections import Counter

import pytest

from blumfeld_consensus_zk_compat.controller.election import Election
from blumfeld_kit.simulation.cluster.workload import Cluster
from blumfeld_kit.simulation.swarm import FaultClass, Shape, Swarm, SwarmFailure, SwarmReport
from blumfeld_kit.simulation.swarm.faults import OF_ZOOKEEPER
from blumfeld_kit.simulation.swarm.shape import ZOOKEEPER
from tests.everyday import first


def run(seed: int, seconds: float, faults: tuple[FaultClass, ...] | None = None) -> SwarmReport:
    shape = Shape(seed=seed, clients=4, seconds=seconds, consensus=ZOOKEEPER, faults=faults)
    return Swarm(shape, Cluster()).run()


@pytest.mark.parametrize("seed", first(2, [0, 3, *range(40)]))
def test_a_cluster_on_a_zookeeper_keeps_its_promises_under_every_fault_of_the_seed(seed: int) -> None:
    report = run(seed, 10.0)
    assert report.progress > 20
    assert report.converged_s < 80.0


def test_without_faults_everything_is_done_and_nothing_is_excused() -> None:
    counts = Counter(run(1, 15.0, ()).counts)
    for name in ("acked", "read", "commits", "topics created"):
        assert counts[name], name
    assert not counts["excuses"]
    assert not counts["ids given up"]
    assert counts["controllers elected"] == 2, "the second, when the first one's process died"


def test_a_seed_is_always_the_same_run() -> None:
    assert run(5, 5.0).digest == run(5, 5.0).digest


def test_a_controller_that_nobody_replaces_fails_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    stand = Election._stand

    def stand_once(election: Election) -> None:
        if election._runtime.monotonic_ms() < 5_000:
            stand(election)

    monkeypatch.setattr(Election, "_stand", stand_once)
    with pytest.raises(SwarmFailure, match=r"no controller 4\.4 s after node \d's process died"):
        run(0, 8.0, ())


@pytest.mark.slow
def test_no_class_of_faults_of_a_zookeeper_is_without_faults() -> None:
    missing = {fault_class.value for fault_class in OF_ZOOKEEPER}
    for seed in range(12):
        faults = run(seed, 25.0, tuple(sorted(OF_ZOOKEEPER))).faults
        missing -= {name for name, count in faults.items() if count}
    assert not missing
