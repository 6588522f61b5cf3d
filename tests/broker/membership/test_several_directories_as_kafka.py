"""The same requests to Apache Kafka 4.3.1 and to our node, each on two log directories: answers must be the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from blumfeld.wire.api import response_class
from blumfeld.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from blumfeld.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from blumfeld.wire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from blumfeld.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from blumfeld.wire.schema import Message
from campaigns.raw_connection import RawConnection
from tests.broker.membership.test_several_directories import TOPIC, Node, OurNode, wait_until
from tests.kafka_peer import kafka_on, peer_script

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

OWN = ("error_message", "throttle_time_ms", "usable_bytes", "partition_size")
"""Fields that each broker fills in its own way."""


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Node, Node]]:
    """Kafka and our node, each with the topic on ``data`` and ``more``."""
    theirs, ours = tmp_path_factory.mktemp("kafka"), OurNode(tmp_path_factory.mktemp("ours"))
    dirs = theirs / "data", theirs / "more"
    with kafka_on(peer_script(), theirs, f"log.dirs={dirs[0]},{dirs[1]}") as address:
        ours.process.start()
        try:
            kafka = Node(address, *dirs)
            for node in (kafka, ours):
                node.create()
                node.produce(0)
            even_out(kafka, ours)
            yield kafka, ours
        finally:
            ours.process.stop()


def even_out(kafka: Node, ours: Node) -> None:
    """The same placement in both."""
    wanted = {name: kafka.first.parent / directory for name, directory in ours.described().items()}
    for name, directory in wanted.items():
        if kafka.described()[name] != directory.name:
            kafka.move(int(name.rpartition("-")[2]), directory)
    wait_until(lambda: kafka.described() == ours.described())


def agree(pair: tuple[Node, Node], request: Message, version: int) -> None:
    """Both nodes must give the same answer. ``{}`` in a path stands for the node's folder."""
    answers = []
    for node in pair:
        folder = str(node.first.parent)
        asked = msgspec.structs.replace(request)
        if isinstance(asked, AlterReplicaLogDirsRequest):
            asked.dirs = [
                AlterReplicaLogDir(path=d.path.replace("{}", folder), topics=d.topics) for d in asked.dirs
            ]
        key = request.meta.key
        assert key is not None
        with RawConnection(node.address) as connection:
            answers.append(plain(connection.ask(asked, version, response_class(key)), folder))
    kafka, ours = answers
    assert ours == kafka, f"{request} in v{version}"


def plain(value: Any, folder: str) -> Any:
    """Paths are below the folder; directories, topics and partitions in their order by name."""
    if isinstance(value, msgspec.Struct):
        names = [name for name in value.__struct_fields__ if name not in OWN]
        return {name: plain(getattr(value, name), folder) for name in names}
    if isinstance(value, list):
        return sorted((plain(one, folder) for one in value), key=str)
    return value.replace(folder, "{}") if isinstance(value, str) else value


def test_moves_that_can_be_and_that_cannot(pair: tuple[Node, Node]) -> None:
    def asked(path: str, topic: str = TOPIC, partition: int = 0) -> AlterReplicaLogDir:
        return AlterReplicaLogDir(
            path=path, topics=[AlterReplicaLogDirTopic(name=topic, partitions=[partition])]
        )

    placed = pair[0].described()
    own, other = "{}/" + placed[f"{TOPIC}-0"], "{}/" + pair[0].other(placed[f"{TOPIC}-0"]).name
    for dirs in (
        [asked("/nowhere")],
        [asked("data")],
        [asked("")],
        [asked("{}")],
        [asked("{}/data/")],
        [asked("{}/more", topic="nowhere")],
        [asked("{}/more", partition=99)],
        [asked("{}/more", topic="t" * 249)],
        [asked("{}/more", topic="t" * 211)],
        [asked("/nowhere", topic="nowhere")],
        [asked(own)],
        [asked(other), asked(own)],
        [],
    ):
        for version in (1, 2):
            agree(pair, AlterReplicaLogDirsRequest(dirs=dirs), version)


def test_what_lies_where(pair: tuple[Node, Node]) -> None:
    for topics in (None, [], [(TOPIC, [0, 1])], [(TOPIC, [0]), ("nowhere", [0])], [(TOPIC, [77])]):
        wanted = None
        if topics is not None:
            wanted = [DescribableLogDirTopic(topic=name, partitions=list(ps)) for name, ps in topics]
        for version in range(1, 6):
            agree(pair, DescribeLogDirsRequest(topics=wanted), version)


def test_reassignments(pair: tuple[Node, Node]) -> None:
    for replicas in ([1], [1, 1], [], [9], [1, 9], [-1], None):
        for topic, partition in ((TOPIC, 0), (TOPIC, 99), ("nowhere", 0)):
            for version in (0, 1):
                wanted = [ReassignablePartition(partition_index=partition, replicas=replicas)]
                request = AlterPartitionReassignmentsRequest(
                    topics=[ReassignableTopic(name=topic, partitions=wanted)]
                )
                agree(pair, request, version)
    for names in (None, [], [(TOPIC, [0, 99])], [("nowhere", [0])]):
        listed = None
        if names is not None:
            listed = [ListPartitionReassignmentsTopics(name=n, partition_indexes=ps) for n, ps in names]
        agree(pair, ListPartitionReassignmentsRequest(topics=listed), 0)
