"""Topics on their way out: which replicas must still be deleted, and when nothing of a topic is left. Pure.

A topic goes once each of its replicas was deleted by a live broker. A replica that is offline keeps its topic: it is
deleted when its broker comes back. The mark in ``/admin/delete_topics`` lasts until then, so the next controller goes
on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TypeAlias

import msgspec

from blumfeld.spi.cluster import TopicImage
from blumfeld.spi.storage import TopicPartition
from blumfeld.wire.errors import ErrorCode
from blumfeld_consensus_zk_compat.change import Change, PartitionStep


class StopReplicas(msgspec.Struct, frozen=True):
    """Have the broker delete its replicas of these partitions, and tell :meth:`Deletions.answered`.

    Without an answer, :meth:`Deletions.ask_again`.
    """

    broker_id: int
    partitions: tuple[TopicPartition, ...]


class RemoveTopic(msgspec.Struct, frozen=True):
    """No replica is left: remove the topic from the tree, then call :meth:`Deletions.removed`."""

    topic: TopicImage


Effect: TypeAlias = StopReplicas | RemoveTopic


class _Deletion(msgspec.Struct):
    """One topic."""

    topic: TopicImage
    left: dict[int, set[int]]
    """Broker → partitions whose replica it has not deleted."""
    asked: set[int] = msgspec.field(default_factory=set)
    """Brokers that are asked, and have not answered."""
    goes: bool = False
    """Whether :class:`RemoveTopic` was said."""


class Deletions:
    """The topics that are being deleted under one controller."""

    def __init__(self) -> None:
        self._by_name: dict[str, _Deletion] = {}

    def __contains__(self, name: object) -> bool:
        """Whether a topic of this name is being deleted: it can't be created before it is gone."""
        return name in self._by_name

    def __len__(self) -> int:
        """The number of topics on their way out."""
        return len(self._by_name)

    def changes(self) -> list[Change]:
        """Return the deletions under way as the changes that began them: for a broker that has come since."""
        return [deletion_of(deletion.topic) for deletion in self._by_name.values()]

    def begin(self, topics: Iterable[TopicImage], alive: Collection[int]) -> list[Effect]:
        """The tree has the marks of these topics. Nothing happens for a topic that is marked already."""
        begun = []
        for topic in topics:
            if topic.name not in self._by_name:
                self._by_name[topic.name] = _Deletion(topic, _replicas(topic))
                begun.append(topic.name)
        return self._go_on(begun, alive)

    def ask_again(self, broker_id: int, alive: Collection[int]) -> list[Effect]:
        """The broker's process is a new one, or it was not reached: it is asked for what its id still has."""
        for deletion in self._by_name.values():
            deletion.asked.discard(broker_id)
        return self._go_on([name for name, d in self._by_name.items() if broker_id in d.left], alive)

    def answered(self, broker_id: int, answers: Mapping[TopicPartition, ErrorCode]) -> list[Effect]:
        """The broker has deleted what has no error. The rest stays until its next process comes, as in Kafka."""
        topics = dict.fromkeys(partition.topic for partition in answers)
        for partition, error in answers.items():
            deletion = self._by_name.get(partition.topic)
            if deletion is not None and broker_id in deletion.left and error == ErrorCode.NONE:
                deletion.left[broker_id].discard(partition.partition)
                if not deletion.left[broker_id]:
                    del deletion.left[broker_id]
                    deletion.asked.discard(broker_id)
        return [effect for name in topics for effect in self._removal(name)]

    def removed(self, name: str) -> None:
        """Nothing of the topic is in the tree."""
        del self._by_name[name]

    def _go_on(self, names: Iterable[str], alive: Collection[int]) -> list[Effect]:
        wanted: dict[int, list[TopicPartition]] = {}
        removals: list[Effect] = []
        for name in names:
            deletion = self._by_name[name]
            for broker_id, numbers in deletion.left.items():
                if broker_id in alive and broker_id not in deletion.asked:
                    deletion.asked.add(broker_id)
                    wanted.setdefault(broker_id, []).extend(TopicPartition(name, n) for n in sorted(numbers))
            removals += self._removal(name)
        return [*(StopReplicas(broker_id, tuple(them)) for broker_id, them in wanted.items()), *removals]

    def _removal(self, name: str) -> list[Effect]:
        deletion = self._by_name.get(name)
        if deletion is None or deletion.left or deletion.goes:
            return []
        deletion.goes = True
        return [RemoveTopic(deletion.topic)]


def deletion_of(topic: TopicImage) -> Change:
    """Return the change that deletes a topic."""
    partitions = tuple(
        PartitionStep(topic.name, topic.topic_id, before, None) for before in topic.partitions.values()
    )
    return Change(topics_deleted=(topic,), partitions=partitions)


def _replicas(topic: TopicImage) -> dict[int, set[int]]:
    by_broker: dict[int, set[int]] = {}
    for partition in topic.partitions.values():
        for replica in partition.replicas:
            by_broker.setdefault(replica, set()).add(partition.partition)
    return by_broker
