"""Directories of a cluster: written by three nodes of Apache Kafka 4.3.1, served by three of this build, and back; and
the other way round.

Every node is a broker and a controller. Slow: starts Java.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient

from blumfeld.testing.cluster import COMBINED, LOOPBACK, NodePlace, node_places
from blumfeld.testing.process import STOP_TIMEOUT_S
from blumfeld.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from blumfeld.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from blumfeld_kit.cluster import Cluster, Node
from campaigns.cluster.observer import Observer
from tests.interop.clients import WAIT_S, commit, committed, make_topic, produce, values, wait_for
from tests.interop.mixed_cluster import Member, mixed_cluster
from tests.kafka_peer import peer_script

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

RECORDS, MOVING = "records", "moving"
GROUP = "readers"
A_TURN = 200
"""Records that the nodes of a turn write to each topic."""
SETTINGS = ("offsets.topic.num.partitions=3", "offsets.topic.replication.factor=3")
MOVES = ((3, 1), (2, 1), (3, 2))
"""Replicas that the second topic gets at the end of each turn. The first one is new, and its node is down by then."""


@contextmanager
def served(kind: str, folder: Path, places: Sequence[NodePlace]) -> Iterator[Cluster]:
    """Serve the directories with nodes of one kind. At the end every node stops in good order."""
    members = [Member(kind, COMBINED, SETTINGS)] * len(places)
    cluster = mixed_cluster(members, Path(peer_script()), folder, places)
    try:
        cluster.start()
        yield cluster
        for node in cluster.nodes:
            node.terminate()
        ended = [node.await_end(STOP_TIMEOUT_S) for node in cluster.nodes]
        assert all(ended), f"a node did not stop in good order: {ended}"
    finally:
        cluster.stop()


@pytest.mark.parametrize("kinds", [("kafka", "blumfeld"), ("blumfeld", "kafka")], ids="-then-".join)
def test_a_cluster_is_served_by_the_other_kind_and_again_by_its_own(
    tmp_path: Path, kinds: tuple[str, str]
) -> None:
    """All records, committed offsets and topic ids are there each time, and a reassignment that was under way ends."""
    places = node_places([LOOPBACK] * 3)
    written: list[str] = []
    ids: dict[str, str] = {}
    replicas = (1, 2)
    for turn, kind in enumerate(kinds * 2):
        with served(kind, tmp_path, places) as cluster:
            if not turn:
                make_topic(cluster.addresses, RECORDS, [(1, 2, 3)], {})
                make_topic(cluster.addresses, MOVING, [replicas], {})
            await_replicas(cluster, RECORDS, (1, 2, 3))
            await_replicas(cluster, MOVING, replicas)
            assert topic_ids(cluster) == (ids or topic_ids(cluster))
            ids = topic_ids(cluster)
            for topic in (RECORDS, MOVING):
                assert values(cluster.addresses, topic) == written, f"{topic} by {kind} in turn {turn}"
            if turn:
                assert committed(cluster.addresses, GROUP, RECORDS) == len(written)
            written += [f"turn {turn} record {nth}" for nth in range(A_TURN)]
            for topic in (RECORDS, MOVING):
                produce(cluster.addresses, topic, written[-A_TURN:])
            member = Consumer({"bootstrap.servers": cluster.addresses, "group.id": GROUP})
            commit(member, [TopicPartition(RECORDS, 0, len(written))])
            member.close()
            if turn < len(MOVES):
                replicas = MOVES[turn]
                begin_to_move(cluster, replicas)


def begin_to_move(cluster: Cluster, replicas: tuple[int, ...]) -> None:
    """Stop the node of the first replica, which is new, and then give the partition to it: it can't come in sync."""
    away = cluster.node(replicas[0])
    away.terminate()
    assert away.await_end(STOP_TIMEOUT_S)
    partition = ReassignablePartition(partition_index=0, replicas=list(replicas))
    topic = ReassignableTopic(name=MOVING, partitions=[partition])
    other = cluster.node(replicas[1])

    def begun() -> bool:
        with other.connect(WAIT_S) as connection:
            request = AlterPartitionReassignmentsRequest(topics=[topic])
            answer = connection.ask(request, AlterPartitionReassignmentsResponse, 0)
        return not answer.error_code and not answer.responses[0].partitions[0].error_code

    wait_for(begun, lambda: "the reassignment was refused")
    assert replicas[0] in moving(other)


def moving(node: Node) -> list[int]:
    """Return the replicas that are being added."""
    with node.connect(WAIT_S) as connection:
        answer = connection.ask(ListPartitionReassignmentsRequest(), ListPartitionReassignmentsResponse, 0)
    return [
        added
        for topic in answer.topics
        for partition in topic.partitions
        for added in partition.adding_replicas
    ]


def await_replicas(cluster: Cluster, topic: str, replicas: tuple[int, ...]) -> None:
    """Wait until every node says that these are the replicas in sync, and that nothing moves any more."""
    observer = Observer(cluster, topic)

    def there() -> bool:
        states = [observer.topic_of(node) for node in cluster.nodes]
        return all(
            state is not None and state.in_sync == (frozenset(replicas),) and state.leaders[0] in replicas
            for state in states
        ) and not any(map(moving, cluster.nodes))

    wait_for(there, lambda: f"{topic} is not on {replicas}: {observer.describe()}")


def topic_ids(cluster: Cluster) -> dict[str, str]:
    """Return the topics' ids."""
    admin = AdminClient({"bootstrap.servers": cluster.addresses})
    futures = admin.describe_topics(TopicCollection([RECORDS, MOVING]))
    return {name: str(future.result(timeout=WAIT_S).topic_id) for name, future in futures.items()}
