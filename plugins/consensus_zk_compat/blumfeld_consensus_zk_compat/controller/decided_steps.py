"""Records of a decision, replayed into the controller's image, as the changes that the tree and the brokers get. Pure.

Two rules of a tree shape them. A partition's epoch is the version of its znode, so one write is one step of it: a
partition is at most once in a :class:`Change`. And a replica follows a push only if its leader epoch is new, so each
change that replicas must learn from a push begins a new leader epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

from blumfeld.metadata.image.cluster_image import MetadataImage
from blumfeld.metadata.image.kept import KEPT
from blumfeld.metadata.image.step import NO_LEADER_CHANGE, ImageStep
from blumfeld.metadata.slices import SLICE_RECORDS
from blumfeld.spi.cluster import ImageDelta, PartitionImage, TopicImage
from blumfeld.spi.completion import Steps
from blumfeld.wire.messages.metadata_records import (
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RemoveTopicRecord,
)
from blumfeld.wire.schema import Message
from blumfeld_consensus_zk_compat.change import Change, PartitionStep

Key: TypeAlias = tuple[bytes, int]
"""Topic id and partition."""
_UNSEEN: tuple[type[Message], ...] = (FeatureLevelRecord, ProducerIdsRecord, *KEPT)
"""Records that ``Change.records`` carries."""


class DecidedStep(NamedTuple):
    """One step of the controller's image."""

    change: Change
    records: Sequence[Message]
    """The records that lead to it, for an image that follows."""


def replayed(image: MetadataImage, records: Sequence[Message], epoch: int) -> Steps[list[DecidedStep]]:
    """Replay records into the image, with a ``yield`` after every ``SLICE_RECORDS`` of them. Nothing else may write the
    image, or decide on it, until the steps end.

    :param epoch: of the controller
    :raises BrokenMetadata: they contradict the image
    """
    steps: list[DecidedStep] = []
    for run in _runs(records):
        image_step, before = ImageStep(image), _Before(image)
        for number, record in enumerate(run, start=1):
            before.note(record)
            image_step.replay(record)
            if not number % SLICE_RECORDS and len(run) > SLICE_RECORDS * 2:
                yield None
        delta = image_step.finish(image.offset + 1, epoch)
        steps.append(DecidedStep(_change(delta, before, run), run))
    return steps


def replay_following(image: MetadataImage, records: Iterable[Message], epoch: int) -> None:
    """Replay the records of one step into an image that follows the controller's."""
    image_step = ImageStep(image)
    for record in records:
        image_step.replay(record)
    image_step.finish(image.offset + 1, epoch)


def with_leader_epochs(image: MetadataImage, records: Iterable[Message], *, by_leader: bool) -> None:
    """Begin a new leader epoch where a change needs one in a tree.

    Kafka 3.9 obeys LeaderAndIsr only with a higher leader epoch. So the controller gives one with each change of an ISR
    or of replicas that it decides on by itself. In the log of KRaft the partition epoch alone is enough.

    :param by_leader: the leader has asked for the change (AlterPartition), and learns its ISR from the answer
    """
    led: dict[Key, int] = {}
    for record in records:
        if not isinstance(record, PartitionChangeRecord):
            continue
        key = record.topic_id, record.partition_id
        if record.leader == NO_LEADER_CHANGE and _is_pushed(record, by_leader=by_leader):
            record.leader = led[key] if key in led else _partition(image, key).leader
        if record.leader != NO_LEADER_CHANGE:
            led[key] = record.leader


def _is_pushed(record: PartitionChangeRecord, *, by_leader: bool) -> bool:
    # A broker of a quorum that the cluster migrates to assigns directories: no leader asks for that.
    replicas = (record.replicas, record.adding_replicas, record.removing_replicas, record.directories)
    return any(value is not None for value in (replicas if by_leader else (*replicas, record.isr)))


def _partition(image: MetadataImage, key: Key) -> PartitionImage:
    topic_id, number = key
    return image.topics[image.topic_names[topic_id]].partitions[number]


def _runs(records: Sequence[Message]) -> Iterator[Sequence[Message]]:
    """Cut before each record of a partition that the run has already."""
    seen: set[Key] = set()
    begin = 0
    for at, record in enumerate(records):
        if not isinstance(record, PartitionRecord | PartitionChangeRecord):
            continue
        key = record.topic_id, record.partition_id
        if key in seen:
            yield records[begin:at]
            begin = at
            seen.clear()
        seen.add(key)
    if begin < len(records):
        yield records[begin:]


class _Before:
    """The partitions of one step as they were."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self.partitions: dict[Key, PartitionImage | None] = {}

    def note(self, record: Message) -> None:
        if isinstance(record, PartitionRecord | PartitionChangeRecord):
            topic = self._image.topic_by_id(record.topic_id)
            before = None if topic is None else topic.partitions.get(record.partition_id)
            self.partitions[record.topic_id, record.partition_id] = before
        elif isinstance(record, RemoveTopicRecord):
            topic = self._image.topic_by_id(record.topic_id)
            if topic is not None:
                self.partitions.update(((topic.topic_id, n), p) for n, p in topic.partitions.items())


def _change(delta: ImageDelta, before: _Before, records: Sequence[Message]) -> Change:
    partitions = [
        _step(topic, before.partitions[topic.topic_id, after.partition], after)
        for topic, after in delta.partitions_changed
    ]
    for topic in delta.topics_deleted:
        partitions += [_step(topic, gone, None) for gone in topic.partitions.values()]
    return Change(
        topics_created=delta.topics_created,
        topics_deleted=delta.topics_deleted,
        partitions=tuple(partitions),
        brokers=delta.brokers_changed,
        configs=delta.configs_changed,
        records=tuple(record for record in records if isinstance(record, _UNSEEN)),
    )


def _step(topic: TopicImage, before: PartitionImage | None, after: PartitionImage | None) -> PartitionStep:
    return PartitionStep(topic=topic.name, topic_id=topic.topic_id, before=before, after=after)
