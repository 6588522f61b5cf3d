"""The requests that tell brokers of the cluster's state, made from what the tree has. Pure.

The forms are those of Apache Kafka 3.9's controller: LeaderAndIsr for replicas, UpdateMetadata for everybody, and
StopReplica. One difference: a request has up to :data:`SLICE_PARTITIONS` partitions, where Kafka's has all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import msgspec

from blumfeld.metadata.image.cluster_image import MetadataImage
from blumfeld.metadata.partitions.directories import directory_of, has_online_directory
from blumfeld.spi.cluster import BrokerImage, Endpoint, PartitionImage, TopicImage
from blumfeld.spi.consensus import Controller as ControllerId
from blumfeld.spi.storage import TopicPartition
from blumfeld.wire.messages.leader_and_isr import (
    LeaderAndIsrLiveLeader,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from blumfeld.wire.messages.stop_replica import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
)
from blumfeld.wire.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from blumfeld_consensus_zk_compat.change import Change, PartitionStep

SLICE_PARTITIONS = 500
"""Partitions of one request. To make and encode it takes some milliseconds."""
LOOKS = 2_000
"""Partitions that are looked at between two yields while a full set is gathered."""
DURING_DELETE = -2
"""As leader in UpdateMetadata, and as leader epoch in StopReplica: the topic is being deleted."""
NO_LEADER = -1

Key: TypeAlias = tuple[bytes, int]


class Placed(NamedTuple):
    """One partition as a broker is to be told of it."""

    topic: str
    topic_id: bytes
    image: PartitionImage
    is_new: bool = False
    """LeaderAndIsr tells the broker to create the log: no broker has one yet."""
    deleted: bool = False
    """UpdateMetadata tells the broker that the topic is being deleted."""
    is_moved: bool = False
    """It has another leader than before: clients wait."""

    @property
    def key(self) -> Key:
        """Topic id and partition."""
        return self.topic_id, self.image.partition


class Stop(NamedTuple):
    """One replica that a broker is to stop."""

    leader_epoch: int
    delete: bool


class Sender(msgspec.Struct, frozen=True):
    """The controller and the broker's process that a request names."""

    controller: ControllerId
    broker_epoch: int


class TreeTopics:
    """The topics as the tree has them. The controller's image may be ahead of the tree: a decision is replayed before
    it is written, and no broker may hear of it if the write fails."""

    def __init__(self, topics: Mapping[str, TopicImage]) -> None:
        self.by_name: dict[str, TopicImage] = dict(topics)
        self._own: dict[str, dict[int, PartitionImage]] = {}
        """Partitions of topics that have changed since: the others are the image's, which replaces its topics."""

    def apply(self, change: Change) -> None:
        """Take over a change that the tree has."""
        for topic in change.topics_deleted:
            known = self.by_name.get(topic.name)
            if known is not None and known.topic_id == topic.topic_id:
                self._forget(topic.name)
        for topic in change.topics_created:
            self._forget(topic.name)
            self.by_name[topic.name] = topic
        for step in change.partitions:
            if step.after is not None:
                self._partitions(step)[step.after.partition] = step.after

    def partition(self, at: TopicPartition) -> PartitionImage | None:
        """Returns a partition as the tree has it."""
        topic = self.by_name.get(at.topic)
        return None if topic is None else topic.partitions.get(at.partition)

    def _forget(self, name: str) -> None:
        self.by_name.pop(name, None)
        self._own.pop(name, None)

    def _partitions(self, step: PartitionStep) -> dict[int, PartitionImage]:
        own = self._own.get(step.topic)
        if own is None:
            known = self.by_name.get(step.topic)
            own = self._own[step.topic] = {} if known is None else dict(known.partitions)
            self.by_name[step.topic] = TopicImage(name=step.topic, topic_id=step.topic_id, partitions=own)
        return own


def told(step: PartitionStep, broker_id: int) -> bool:
    """Whether a broker is sent LeaderAndIsr for this change: it has a replica, and the leader epoch is new.

    The controller begins a leader epoch with each change that replicas must hear of. A change of the ISR alone was
    asked for by the leader, which learns of it from its answer.
    """
    before, after = step.before, step.after
    if after is None or broker_id not in after.replicas:
        return False
    return before is None or before.leader_epoch != after.leader_epoch


def removed_from(step: PartitionStep) -> tuple[int, ...]:
    """Returns the brokers whose replica a reassignment removed."""
    if step.before is None or step.after is None:
        return ()
    return tuple(replica for replica in step.before.replicas if replica not in step.after.replicas)


def hosted(topics: TreeTopics, broker_id: int | None) -> Iterator[Placed | None]:
    """Yields every partition that has a replica on a broker, of all if it is ``None``; now and then ``None``, where a
    turn for others may come. Changes meanwhile are the caller's to send behind it."""
    looks = 0
    for name in list(topics.by_name):
        topic = topics.by_name.get(name)
        for image in () if topic is None else list(topic.partitions.values()):
            looks += 1
            if not looks % LOOKS:
                yield None
            # Without a state in the tree it has no leader epoch to tell: its first state comes as a change.
            has_state = image.partition_epoch >= 0
            if topic is not None and has_state and (broker_id is None or broker_id in image.replicas):
                yield Placed(name, topic.topic_id, image)


def leader_and_isr(
    sender: Sender, placed: Sequence[Placed], live_leaders: LiveBrokers
) -> LeaderAndIsrRequest:
    """Returns the request for these replicas."""
    topics: dict[bytes, LeaderAndIsrTopicState] = {}
    leaders: dict[int, None] = {}
    for topic, topic_id, image, is_new, _, _ in placed:
        state = topics.get(topic_id)
        if state is None:
            state = topics[topic_id] = LeaderAndIsrTopicState(topic_name=topic, topic_id=topic_id)
        state.partition_states.append(
            LeaderAndIsrPartitionState(
                partition_index=image.partition,
                controller_epoch=sender.controller.epoch,
                leader=image.leader,
                leader_epoch=image.leader_epoch,
                isr=list(image.isr),
                partition_epoch=image.partition_epoch,
                replicas=list(image.replicas),
                adding_replicas=list(image.adding_replicas),
                removing_replicas=list(image.removing_replicas),
                is_new=is_new,
                leader_recovery_state=image.leader_recovery_state,
            )
        )
        leaders[image.leader] = None
    return LeaderAndIsrRequest(
        controller_id=sender.controller.node_id,
        controller_epoch=sender.controller.epoch,
        broker_epoch=sender.broker_epoch,
        topic_states=list(topics.values()),
        live_leaders=live_leaders.leaders(leaders),
    )


def update_metadata(sender: Sender, placed: Sequence[Placed], live: LiveBrokers) -> UpdateMetadataRequest:
    """Returns the request for these partitions. It always lists all live brokers."""
    topics: dict[bytes, UpdateMetadataTopicState] = {}
    for topic, topic_id, image, _, deleted, _ in placed:
        state = topics.get(topic_id)
        if state is None:
            state = topics[topic_id] = UpdateMetadataTopicState(topic_name=topic, topic_id=topic_id)
        state.partition_states.append(
            UpdateMetadataPartitionState(
                partition_index=image.partition,
                controller_epoch=sender.controller.epoch,
                leader=DURING_DELETE if deleted else image.leader,
                leader_epoch=image.leader_epoch,
                isr=list(image.isr),
                zk_version=image.partition_epoch,
                replicas=list(image.replicas),
                offline_replicas=[replica for replica in image.replicas if _is_offline(image, replica, live)],
            )
        )
    return UpdateMetadataRequest(
        controller_id=sender.controller.node_id,
        controller_epoch=sender.controller.epoch,
        broker_epoch=sender.broker_epoch,
        topic_states=list(topics.values()),
        live_brokers=live.brokers,
    )


def _is_offline(image: PartitionImage, replica: int, live: LiveBrokers) -> bool:
    if replica not in live.ids:
        return True
    return bool(image.directories) and not live.has_online(replica, directory_of(image, replica))


def stop_replica(sender: Sender, stops: Iterable[tuple[TopicPartition, Stop]]) -> StopReplicaRequest:
    """Returns the request that stops these replicas."""
    topics: dict[str, StopReplicaTopicState] = {}
    for at, stop in stops:
        state = topics.setdefault(at.topic, StopReplicaTopicState(topic_name=at.topic))
        state.partition_states.append(
            StopReplicaPartitionState(
                partition_index=at.partition, leader_epoch=stop.leader_epoch, delete_partition=stop.delete
            )
        )
    return StopReplicaRequest(
        controller_id=sender.controller.node_id,
        controller_epoch=sender.controller.epoch,
        broker_epoch=sender.broker_epoch,
        topic_states=list(topics.values()),
    )


def reached_at(broker: BrokerImage, listener: str) -> Endpoint | None:
    """Returns where other brokers, and controllers, reach a broker.

    :param listener: the one that brokers use among themselves; "" for the first one of each broker
    """
    return broker.endpoint(listener) if listener else next(iter(broker.endpoints), None)


class LiveBrokers:
    """The brokers that have a znode now, in the forms that requests list them.

    :param listener: as of :func:`reached_at`
    """

    def __init__(self, image: MetadataImage, listener: str) -> None:
        self._image = image
        self._listener = listener
        self.ids = frozenset(broker.broker_id for broker in image.brokers.values() if not broker.fenced)
        self.brokers = [
            UpdateMetadataBroker(
                id=broker_id,
                endpoints=[
                    UpdateMetadataEndpoint(
                        port=at.port, host=at.host, listener=at.name, security_protocol=at.security_protocol
                    )
                    for at in image.registrations[broker_id].end_points
                ],
                rack=image.registrations[broker_id].rack,
            )
            for broker_id in sorted(self.ids)
        ]

    def has_online(self, broker_id: int, directory_id: bytes) -> bool:
        """Returns whether a replica in this directory of a live broker can be used."""
        return has_online_directory(self._image.brokers[broker_id], directory_id)

    def leaders(self, ids: Iterable[int]) -> list[LeaderAndIsrLiveLeader]:
        """Returns those of these brokers that live and have the listener."""
        found = []
        for broker_id in ids:
            at = reached_at(self._image.brokers[broker_id], self._listener) if broker_id in self.ids else None
            if at is not None:
                found.append(LeaderAndIsrLiveLeader(broker_id=broker_id, host_name=at.host, port=at.port))
        return found
