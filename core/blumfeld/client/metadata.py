"""A client's view of a cluster: its brokers, and the leader of each partition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from blumfeld.client.errors import RefusedError, check
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

NO_ID = bytes(16)
"""Topic id in versions below 10 (KIP-516)."""


class Broker(NamedTuple):
    """A broker and its address."""

    node: int
    host: str
    port: int


class ClusterView:
    """The contents of the newest Metadata answers. The caller asks again when a leader refuses a request or
    is lost.
    """

    def __init__(self) -> None:
        self.brokers: dict[int, Broker] = {}
        self._topics: dict[str, MetadataResponseTopic] = {}

    @staticmethod
    def request(topics: Sequence[str] | None) -> MetadataRequest:
        """Return the request that asks for these topics, or for all if None. It creates none."""
        names = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        return MetadataRequest(topics=names, allow_auto_topic_creation=False)

    def take(self, answer: MetadataResponse) -> None:
        """Take an answer. A partition keeps its leader if the answer's leader epoch is older (KIP-320).

        Brokers learn of a change one after the other, so the answer may come from one that does not know it
        yet. Epochs are compared only within one topic id: a topic that was deleted and created again begins
        at 0. Without ids the two cannot be told apart.
        """
        self.brokers = {each.node_id: Broker(each.node_id, each.host, each.port) for each in answer.brokers}
        for topic in answer.topics:
            if topic.name is None:  # The topic was requested by id, which this client never does.
                continue
            before = self._topics.get(topic.name)
            if before is not None and before.topic_id == topic.topic_id != NO_ID and not topic.error_code:
                newer = {each.partition_index: each for each in before.partitions}
                topic.partitions = [
                    _newer(newer.get(each.partition_index), each) for each in topic.partitions
                ]
            self._topics[topic.name] = topic

    def topic(self, name: str) -> MetadataResponseTopic:
        """Return the topic's part of the last answer.

        :raises RefusedError: the topic's part carries an error, or is missing (UNKNOWN_TOPIC_OR_PARTITION)
        """
        topic = self._topics.get(name)
        if topic is None:
            raise RefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name}")
        check(topic.error_code, f"topic {name}")
        return topic

    def leader(self, topic: str, partition: int) -> Broker:
        """Return the broker that leads a partition.

        :raises RefusedError: the topic or the partition carries an error, or has no leader now (LEADER_NOT_AVAILABLE)
        """
        for each in self.topic(topic).partitions:
            if each.partition_index == partition:
                return self._leader(topic, each)
        raise RefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic}-{partition}")

    def leaders(self, topic: str) -> list[Broker]:
        """Return the leaders of a topic, by partition.

        :raises RefusedError: as :meth:`leader`
        """
        partitions = sorted(self.topic(topic).partitions, key=lambda each: each.partition_index)
        return [self._leader(topic, each) for each in partitions]

    def _leader(self, topic: str, partition: MetadataResponsePartition) -> Broker:
        about = f"{topic}-{partition.partition_index}"
        check(partition.error_code, about)
        if partition.leader_id not in self.brokers:
            raise RefusedError(ErrorCode.LEADER_NOT_AVAILABLE, about)
        return self.brokers[partition.leader_id]


def _newer(
    before: MetadataResponsePartition | None, after: MetadataResponsePartition
) -> MetadataResponsePartition:
    if before is None or after.leader_epoch < 0 or after.leader_epoch >= before.leader_epoch:
        return after
    return before
