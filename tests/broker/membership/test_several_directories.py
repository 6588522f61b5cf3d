"""A real broker on two log directories: placement, a move while it serves, a directory that is gone and comes back.

With Kafka's own tools where Kafka is at hand (slow).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from blumfeld.testing.process import BrokerProcess
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from blumfeld.wire.messages.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)
from blumfeld.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from campaigns.raw_connection import RawConnection
from tests.kafka_peer import kafka_on, peer_script, tool

TOPIC = "spread"
PARTITIONS = 4
RECORDS = 40
CHECKPOINT_KEY = '"replica.high.watermark.checkpoint.interval.ms"'
"""A directory that is gone is seen by the next file that is to be made in it."""


class Node:
    """A broker on two directories, ours or Kafka's, as its clients and its disks see it."""

    def __init__(self, address: str, first: Path, second: Path) -> None:
        self.address = address
        self.first, self.second = first, second

    def create(self) -> None:
        """The topic."""
        from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

        admin = AdminClient({"bootstrap.servers": self.address})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(timeout=60)

    def placed(self) -> dict[str, str]:
        """Log → directory, by the names on disk; what is on its way or deleted isn't counted."""
        found = {}
        for directory in (self.first, self.second):
            for path in directory.glob(f"{TOPIC}-*"):
                if path.name.rpartition("-")[2].isdigit():
                    found[path.name] = directory.name
        return found

    def log_dirs(self) -> list[DescribeLogDirsResult]:
        """As the broker says it."""
        with RawConnection(self.address) as connection:
            request = DescribeLogDirsRequest(topics=None)
            return connection.ask(request, 4, DescribeLogDirsResponse).results

    def described(self) -> dict[str, str]:
        """As :meth:`placed`, by what the broker says."""
        return {
            f"{topic.name}-{partition.partition_index}": Path(result.log_dir).name
            for result in self.log_dirs()
            for topic in result.topics
            for partition in topic.partitions
            if not partition.is_future_key
        }

    def move(self, partition: int, directory: Path) -> None:
        """Have a replica move."""
        topics = [AlterReplicaLogDirTopic(name=TOPIC, partitions=[partition])]
        request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=str(directory), topics=topics)])
        with RawConnection(self.address) as connection:
            answer = connection.ask(request, 2, AlterReplicaLogDirsResponse)
        assert [p.error_code for t in answer.results for p in t.partitions] == [0]

    def other(self, name: str) -> Path:
        """The directory that hasn't this name."""
        return self.second if name == self.first.name else self.first

    def leaders(self) -> dict[int, int]:
        """The leader of each partition, as Metadata says it; -1 is none."""
        with RawConnection(self.address) as connection:
            request = MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)])
            (topic,) = connection.ask(request, 9, MetadataResponse).topics
        return {p.partition_index: p.leader_id for p in topic.partitions}

    def produce(self, first: int) -> None:
        """Records from this number on, each to a partition in turn."""
        from confluent_kafka import Producer

        failed: list[str] = []
        producer = Producer({"bootstrap.servers": self.address, "enable.idempotence": True})
        for n in range(first, first + RECORDS):
            producer.produce(
                TOPIC,
                b"record %d" % n,
                partition=n % PARTITIONS,
                on_delivery=lambda error, _: failed.append(str(error)) if error else None,
            )
        assert producer.flush(20) == 0
        assert not failed

    def consume(self, partitions: Sequence[int], count: int) -> set[bytes]:
        """What these partitions have, up to ``count`` records."""
        from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

        consumer = Consumer(
            {"bootstrap.servers": self.address, "group.id": "none", "enable.auto.commit": False}
        )
        consumer.assign([TopicPartition(TOPIC, p, OFFSET_BEGINNING) for p in partitions])
        seen: set[bytes] = set()
        while len(seen) < count and (message := consumer.poll(10)) is not None:
            assert message.error() is None, message.error()
            seen.add(message.value() or b"")
        consumer.close()
        return seen


class OurNode(Node):
    """A process of this build on directories ``data`` and ``more`` of a folder."""

    def __init__(self, folder: Path) -> None:
        first, second = folder / "data", folder / "more"
        dirs, checkpoints = f'node.data_dirs=["{first}", "{second}"]', f"config.{CHECKPOINT_KEY}=200"
        self.process = BrokerProcess(folder, settings=[dirs, checkpoints])
        super().__init__(self.process.address, first, second)


def records(first: int, count: int = RECORDS) -> set[bytes]:
    return {b"record %d" % n for n in range(first, first + count)}


def wait_until(done: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.05)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[OurNode]:
    node = OurNode(tmp_path)
    node.process.start()
    node.create()
    node.produce(0)
    yield node
    node.process.stop()


@pytest.mark.timeout(120)
def test_replicas_are_spread_moved_and_found_again(node: OurNode) -> None:
    before = node.placed()
    assert sorted(before.values()) == ["data", "data", "more", "more"]
    assert node.described() == before
    assert node.first.joinpath("__cluster_metadata-0").is_dir()
    assert not node.second.joinpath("__cluster_metadata-0").exists()
    moved = f"{TOPIC}-0"
    other = node.other(before[moved])
    node.move(0, other)
    wait_until(lambda: node.described()[moved] == other.name)
    node.produce(RECORDS)
    node.process.stop()
    node.process.start()
    assert node.described() == node.placed() == {**before, moved: other.name}
    every = list(range(PARTITIONS))
    assert node.consume(every, 2 * RECORDS) == records(0, 2 * RECORDS)


@pytest.mark.timeout(120)
def test_a_directory_that_is_gone_takes_only_its_partitions_until_it_is_back(node: OurNode) -> None:
    placed = node.placed()
    here = [p for p in range(PARTITIONS) if placed[f"{TOPIC}-{p}"] == "data"]
    away = node.second.rename(node.second.with_name("away"))
    node.second.write_text("no directory")
    wait_until(lambda: node.log_dirs()[1].error_code == ErrorCode.KAFKA_STORAGE_ERROR)
    check_only(node, here)
    node.process.stop()
    node.process.start()
    check_only(node, here)
    assert node.placed() == {f"{TOPIC}-{p}": "data" for p in here}
    node.process.stop()
    node.second.unlink()
    away.rename(node.second)
    node.process.start()
    assert node.consume(range(PARTITIONS), RECORDS) == records(0)
    node.produce(RECORDS)


def check_only(node: Node, here: Sequence[int]) -> None:
    """These partitions are served, and the others have no leader."""
    wait_until(lambda: node.leaders() == {p: 1 if p in here else -1 for p in range(PARTITIONS)})
    served = {b"record %d" % n for n in range(RECORDS) if n % PARTITIONS in here}
    assert node.consume(here, len(served)) == served
    assert [result.error_code for result in node.log_dirs()] == [0, ErrorCode.KAFKA_STORAGE_ERROR]


@pytest.mark.timeout(120)
def test_without_the_directory_of_the_metadata_the_node_ends(node: OurNode) -> None:
    node.first.rename(node.first.with_name("away"))
    node.first.write_text("no directory")
    assert node.process.wait() == 1
    assert node.process.says("the node stops: a log directory failed")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_kafkas_tool_sees_where_replicas_lie(node: OurNode) -> None:
    """``kafka-log-dirs``, before and after a move."""
    peer = peer_script()
    placed = node.placed()
    assert seen_by_kafka(peer, node) == placed
    other = node.other(placed[f"{TOPIC}-1"])
    node.move(1, other)
    wait_until(lambda: node.described()[f"{TOPIC}-1"] == other.name)
    assert seen_by_kafka(peer, node) == {**placed, f"{TOPIC}-1": other.name}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_kafkas_tool_moves_replicas_between_directories(node: OurNode, tmp_path: Path) -> None:
    """``kafka-reassign-partitions`` with ``log_dirs``: the way that an operator has."""
    peer = peer_script()
    before = node.placed()
    other = node.other(before[f"{TOPIC}-2"])
    wanted = {"topic": TOPIC, "partition": 2, "replicas": [1], "log_dirs": [str(other)]}
    plan = tmp_path / "moves.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [wanted]}))
    reassign = (
        "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
        *("--bootstrap-server", node.address, "--reassignment-json-file", str(plan)),
    )
    said = tool(peer, *reassign, "--execute")
    assert f"log directory to {other} for replica {TOPIC}-2 with broker 1" in said
    wait_until(lambda: node.described()[f"{TOPIC}-2"] == other.name)
    assert node.placed() == {**before, f"{TOPIC}-2": other.name}
    said = tool(peer, *reassign, "--verify")
    assert f"Reassignment of replica {TOPIC}-2-1 completed successfully" in said, said
    assert node.consume(range(PARTITIONS), RECORDS) == records(0)


def seen_by_kafka(peer: str, node: Node) -> dict[str, str]:
    """As :meth:`Node.placed`, by Kafka's tool."""
    described = tool(
        peer,
        "org.apache.kafka.tools.LogDirsCommand",
        *("--bootstrap-server", node.address, "--describe", "--topic-list", TOPIC),
    )
    line = next(line for line in described.splitlines() if line.startswith("{"))
    (broker,) = json.loads(line)["brokers"]
    assert all(directory["error"] is None for directory in broker["logDirs"])
    return {
        partition["partition"]: Path(directory["logDir"]).name
        for directory in broker["logDirs"]
        for partition in directory["partitions"]
    }


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_kafka_and_we_take_turns_on_two_directories(tmp_path: Path) -> None:
    """Each finds every replica where the other left it, and its controller knows so."""
    peer = peer_script()
    dirs = tmp_path / "data", tmp_path / "more"
    setting = f"log.dirs={dirs[0]},{dirs[1]}"
    with kafka_on(peer, tmp_path, setting) as address:
        kafka = Node(address, *dirs)
        kafka.create()
        kafka.produce(0)
        by_kafka = move_one(kafka, 0)
    ours = OurNode(tmp_path)
    ours.process.start()
    try:
        assert ours.described() == ours.placed() == by_kafka
        assert ours.consume(range(PARTITIONS), RECORDS) == records(0)
        by_us = move_one(ours, 1)
        ours.produce(RECORDS)
        time.sleep(1)  # the controller is told within half a second
    finally:
        ours.process.stop()
    with kafka_on(peer, tmp_path, setting) as address:
        kafka = Node(address, *dirs)
        wait_until(lambda: all(leader == 1 for leader in kafka.leaders().values()))
        wait_until(lambda: kafka.described() == by_us)
        assert kafka.consume(range(PARTITIONS), 2 * RECORDS) == records(0, 2 * RECORDS)
        kafka.produce(2 * RECORDS)


def move_one(node: Node, partition: int) -> dict[str, str]:
    """Have a replica move, and wait until it has; where all lie then."""
    before, name = node.described(), f"{TOPIC}-{partition}"
    other = node.other(before[name])
    node.move(partition, other)
    wait_until(lambda: node.described()[name] == other.name)
    return {**before, name: other.name}
