"""Writes that fail are told in the log, a few at a time, and counted; so is their end."""

from __future__ import annotations

import errno
from typing import Any

from blumfeld.broker.replicas.refused_writes import INTERVAL_MS, NAMED_MAX, RefusedWrites
from blumfeld.spi.storage import TopicPartition
from blumfeld.wire.errors import ErrorCode
from blumfeld_kit.fakes.runtime import FakeRuntime
from tests.broker.harness import BrokerHarness, Quiet


def full(path: str = "/data/t-0/0.log") -> OSError:
    return OSError(errno.ENOSPC, "No space left on device", path)


class Scene:
    """Some partitions on a disk."""

    def __init__(self, count: int) -> None:
        self.runtime = FakeRuntime(1)
        self.events = Quiet()
        self.refused = RefusedWrites(self.runtime, self.events)
        self.partitions = [TopicPartition("t", number) for number in range(count)]

    def gauge(self, name: str) -> float:
        return float(next(metric.read() for metric in self.refused.gauges() if metric.name == name))

    def names(self) -> list[str]:
        return [event for _, event, _ in self.events.events]

    def values(self) -> list[dict[str, Any]]:
        return [values for _, _, values in self.events.events]


def test_a_failed_write_is_told_with_partition_path_and_errno() -> None:
    scene = Scene(1)
    scene.refused.failed(scene.partitions[0], full())
    assert scene.names() == ["write failed"]
    (values,) = scene.values()
    assert (values["partition"], values["path"], values["errno"]) == ("t-0", "/data/t-0/0.log", "ENOSPC")


def test_a_partition_is_told_once_until_it_is_over() -> None:
    scene = Scene(1)
    for _ in range(100):
        scene.refused.failed(scene.partitions[0], full())
    assert scene.names() == ["write failed"]
    scene.refused.succeeded(scene.partitions[0])
    assert scene.names()[1:] == ["writes succeed again"]
    assert scene.values()[1] == {"partition": "t-0", "failed": 100, "still_refusing": 0}


def test_of_many_partitions_a_few_are_named_and_the_rest_is_a_sum() -> None:
    scene = Scene(1000)
    for _ in range(3):
        for partition in scene.partitions:
            scene.refused.failed(partition, full())
    assert scene.names() == ["write failed"] * NAMED_MAX
    scene.runtime.advance(INTERVAL_MS)
    assert scene.names()[-1] == "writes keep failing"
    assert scene.values()[-1] == {"writes": 3000 - NAMED_MAX, "seconds": 10, "partitions": 1000}
    before = len(scene.names())
    for partition in scene.partitions:
        scene.refused.succeeded(partition)
    assert len(scene.names()) - before == NAMED_MAX + 1, "the last one says that it is over"
    assert scene.values()[-1]["still_refusing"] == 0
    scene.runtime.advance(INTERVAL_MS * 3)
    assert scene.names()[-1] == "writes succeed again", "nothing more to tell"


def test_the_gauge_counts_partitions_that_refuse() -> None:
    scene = Scene(3)
    for partition in scene.partitions:
        scene.refused.failed(partition, full())
    scene.refused.offline(scene.partitions[0])
    assert scene.gauge("blumfeld_partitions_refusing_writes") == 3
    scene.refused.succeeded(scene.partitions[1])
    scene.refused.forget(scene.partitions[2])
    assert scene.gauge("blumfeld_partitions_refusing_writes") == 1, "the one that is offline"
    assert scene.gauge("blumfeld_failed_writes_total") == 3


def test_a_brokers_write_that_fails_and_the_next_one_are_told() -> None:
    broker = BrokerHarness(partitions=1)
    before = len(broker.log.events)
    broker.log_of("t").fail_next_write = True
    codes = [broker.produced() for _ in range(3)]
    assert codes == [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NONE, ErrorCode.NONE]
    assert [event for _, event, _ in broker.log.events[before:]] == ["write failed", "writes succeed again"]
