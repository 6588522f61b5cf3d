"""The workload of tiered topics keeps its promises, and its oracle sees what it must."""

from __future__ import annotations

from collections import Counter

import pytest

from blumfeld_kit.simulation.swarm import FaultClass, Shape, Swarm, SwarmFailure
from blumfeld_kit.simulation.tiered.workload import Tiered
from blumfeld_storage_tiered.catalog.catalog import RemoteLogCatalog
from blumfeld_storage_tiered.logs.tiered_log import TieredLog
from blumfeld_storage_tiered.metadata_topic.topic import MetadataTopic
from tests.everyday import first


def test_without_faults_most_records_lie_in_the_store_alone() -> None:
    report = Swarm(Shape(seed=0, clients=4, seconds=8.0, faults=()), Tiered()).run()
    counts = Counter(report.counts)
    assert counts["remote records"] > counts["acked"] // 2
    assert not counts["excuses"]


@pytest.mark.slow
@pytest.mark.parametrize("seed", first(2, range(20)))
def test_tiered_topics_keep_their_promises_under_every_fault_of_the_seed(seed: int) -> None:
    report = Swarm(Shape(seed=seed, clients=4, seconds=30.0), Tiered()).run()
    assert report.progress > 50


def _is_found(seeds: range, *faults: FaultClass) -> bool:
    """Whether a seed fails."""
    for seed in seeds:
        try:
            Swarm(Shape(seed=seed, clients=4, seconds=15.0, faults=faults), Tiered()).run()
        except SwarmFailure:
            return True
    return False


@pytest.mark.slow
def test_a_local_segment_that_goes_before_it_is_copied_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers of these records hear KAFKA_STORAGE_ERROR for ever."""
    monkeypatch.setattr(
        TieredLog, "copied_end_offset", property(lambda log: log.written_end_offset), raising=True
    )
    assert _is_found(range(3), FaultClass.STORE)


@pytest.mark.slow
def test_a_store_that_serves_a_segment_of_another_history_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    find = RemoteLogCatalog.find

    def one_behind(catalog: RemoteLogCatalog, offset: int, epochs: object) -> object:
        served = find(catalog, offset, epochs)  # type: ignore[arg-type]
        behind = find(catalog, served.end_offset, epochs) if served else None  # type: ignore[arg-type]
        return behind or served

    monkeypatch.setattr(RemoteLogCatalog, "find", one_behind)
    assert _is_found(range(3))


@pytest.mark.slow
def test_metadata_that_a_power_cut_takes_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka doesn't flush it: the copies of segments that have left the disks are forgotten then."""
    wanted = MetadataTopic._wanted

    def unflushed(topic: MetadataTopic, factor: int) -> object:
        request = wanted(topic, factor)
        request.configs = [config for config in request.configs if config.name != "flush.messages"]
        return request

    monkeypatch.setattr(MetadataTopic, "_wanted", unflushed)
    assert _is_found(range(8), FaultClass.POWER_TOGETHER)
