"""Forms of the nodes of topics and partitions, and of what is asked for them. Pure. See :mod:`.forms`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated

import msgspec
from msgspec import UNSET, UnsetType

from blumfeld.spi.cluster import PartitionImage
from blumfeld.spi.storage import TopicPartition
from blumfeld.wire.primitives import uuid_bytes, uuid_text
from blumfeld_consensus_zk_compat.tree.forms import TreeError, reader, written

Replicas = tuple[int, ...]
Assignment = Mapping[int, Replicas]


class _TopicForm(msgspec.Struct, frozen=True, kw_only=True):
    partitions: dict[int, Replicas] = {}
    topic_id: Annotated[str, msgspec.Meta(pattern="^[A-Za-z0-9_-]{22}$")] | UnsetType = UNSET
    adding_replicas: dict[int, Replicas] = {}
    removing_replicas: dict[int, Replicas] = {}
    version: int = 3


_read_topic = reader(_TopicForm, "a topic's assignment in version 1 to 3")


class TopicNode(msgspec.Struct, frozen=True, gc=False):
    """``/brokers/topics/T``: replicas of each partition, and the topic's id."""

    partitions: Assignment
    """All replicas; during a reassignment those that come and those that go."""
    topic_id: bytes | None = None
    """``None``: a topic that Kafka before 2.8 has created."""
    adding: Assignment = {}
    removing: Assignment = {}


def decode_topic(path: str, data: bytes) -> TopicNode:
    """Read version 1 to 3. Kafka looks at the fields only, and so does this.

    :raises TreeError: it can't be read
    """
    form = _read_topic(path, data)
    topic_id = None if form.topic_id is UNSET else uuid_bytes(form.topic_id)
    if list(form.partitions) != list(range(len(form.partitions))):
        partitions = {number: form.partitions[number] for number in sorted(form.partitions)}
        if list(partitions) != list(range(len(partitions))):
            raise TreeError(path, data, "a topic's assignment that has every partition from 0 on")
    else:
        partitions = form.partitions
    return TopicNode(partitions, topic_id, form.adding_replicas, form.removing_replicas)


def encode_topic(node: TopicNode) -> bytes:
    """Write version 3, as Kafka 3.9.2. Up to 11 partitions stand in Kafka's order, which is that of a hash table."""
    return written(
        _TopicForm(
            partitions=dict(node.partitions),
            topic_id=UNSET if node.topic_id is None else uuid_text(node.topic_id),
            adding_replicas=dict(node.adding),
            removing_replicas=dict(node.removing),
        )
    )


def topic_node(topic_id: bytes | None, partitions: Iterable[PartitionImage]) -> TopicNode:
    """The node of a topic with these partitions."""
    replicas, adding, removing = {}, {}, {}
    for partition in partitions:
        replicas[partition.partition] = partition.replicas
        if partition.adding_replicas:
            adding[partition.partition] = partition.adding_replicas
        if partition.removing_replicas:
            removing[partition.partition] = partition.removing_replicas
    return TopicNode(replicas, topic_id, adding, removing)


class StateNode(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """``/brokers/topics/T/partitions/P/state``: a partition's leader and ISR. The node's version is the partition's
    epoch."""

    controller_epoch: int
    """The epoch of the controller that wrote it."""
    leader: int
    """-1 when there is none."""
    version: int = 1
    leader_recovery_state: int | UnsetType = UNSET
    """1 after an unclean election. Left out when it is 0."""
    leader_epoch: int
    isr: Replicas


decode_state = reader(StateNode, "leader, leader_epoch, isr and controller_epoch of a partition")
"""Reads a partition's state; raises :class:`TreeError`."""


def encode_state(partition: PartitionImage, controller_epoch: int) -> bytes:
    """Write a partition's state.

    :param controller_epoch: of the controller that writes it
    """
    return written(
        StateNode(
            controller_epoch=controller_epoch,
            leader=partition.leader,
            leader_recovery_state=partition.leader_recovery_state or UNSET,
            leader_epoch=partition.leader_epoch,
            isr=partition.isr,
        )
    )


class _Asked(msgspec.Struct, frozen=True):
    topic: str
    partition: int


class _AskedForm(msgspec.Struct, frozen=True, kw_only=True):
    version: int = 1
    partitions: list[_Asked]


class _AskedReplicas(msgspec.Struct, frozen=True):
    topic: str
    partition: int
    replicas: Replicas


class _AskedReplicasForm(msgspec.Struct, frozen=True, kw_only=True):
    version: int = 1
    partitions: list[_AskedReplicas]


_read_asked = reader(_AskedForm, "partitions by topic and partition")
_read_asked_replicas = reader(_AskedReplicasForm, "partitions by topic, partition and replicas")


def decode_partitions(path: str, data: bytes) -> tuple[TopicPartition, ...]:
    """Read the partitions of ``/admin/preferred_replica_election``, or of an ISR notification.

    :raises TreeError: they can't be read
    """
    return tuple(TopicPartition(at.topic, at.partition) for at in _read_asked(path, data).partitions)


def encode_partitions(partitions: Sequence[TopicPartition]) -> bytes:
    """Write ``/admin/preferred_replica_election``, or an ISR notification."""
    return written(_AskedForm(partitions=[_Asked(at.topic, at.partition) for at in partitions]))


def decode_reassignments(path: str, data: bytes) -> dict[TopicPartition, Replicas]:
    """Read ``/admin/reassign_partitions``, which tools before Kafka 2.4 write.

    :raises TreeError: it can't be read
    """
    asked = _read_asked_replicas(path, data).partitions
    return {TopicPartition(at.topic, at.partition): at.replicas for at in asked}


def encode_reassignments(asked: Mapping[TopicPartition, Replicas]) -> bytes:
    """Write ``/admin/reassign_partitions``."""
    return written(
        _AskedReplicasForm(
            partitions=[_AskedReplicas(at.topic, at.partition, replicas) for at, replicas in asked.items()]
        )
    )


class _LogDirEventForm(msgspec.Struct, frozen=True, kw_only=True):
    version: int = 1
    broker: int
    event: int = 1


_read_log_dir_event = reader(_LogDirEventForm, "the broker of a failed log directory")


def decode_log_dir_event(path: str, data: bytes) -> int:
    """Read a node of ``/log_dir_event_notification``: the broker that has lost a log directory.

    :raises TreeError: it can't be read
    """
    return _read_log_dir_event(path, data).broker


def encode_log_dir_event(broker_id: int) -> bytes:
    """Write a node of ``/log_dir_event_notification``: this broker has lost a log directory."""
    return written(_LogDirEventForm(broker=broker_id))
