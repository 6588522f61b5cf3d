"""An image as records: the content of a snapshot. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableMapping
from typing import Any

from blumfeld.metadata.image.cluster_image import METADATA_VERSION_FEATURE, MetadataImage
from blumfeld.metadata.image.partition_table import CHUNK_PARTITIONS, PartitionTable
from blumfeld.metadata.image.sections import NO_SECTIONS, SectionKinds
from blumfeld.metadata.image.step import ImageStep
from blumfeld.metadata.slices import SLICE_LOOKS
from blumfeld.spi.cluster import PartitionImage, TopicImage
from blumfeld.wire.messages.metadata_records import (
    ConfigRecord,
    FeatureLevelRecord,
    PartitionRecord,
    TopicRecord,
)
from blumfeld.wire.schema import Message


def image_records(image: MetadataImage) -> Iterator[Message]:
    """Yield the records, ``metadata.version`` first: a reader needs it to decode those that follow."""
    yield from feature_records(image.features)
    yield from image.controllers.values()
    yield from image.registrations.values()
    for topic in image.topics.values():
        yield TopicRecord(name=topic.name, topic_id=topic.topic_id)
        for partition in topic.partitions.values():
            yield partition_record(topic, partition)
    for (resource_type, resource_name), values in image.configs.items():
        for name, value in values.items():
            yield ConfigRecord(
                resource_type=resource_type, resource_name=resource_name, name=name, value=value
            )
    if image.producer_ids is not None:
        yield image.producer_ids
    yield from image.kept.values()


def emptied(image: MetadataImage) -> Iterator[None]:
    """Empty an image that nothing reads any more: about 1,024 partitions, or as many entries of a table, in each step.

    To free it at once would hold the loop for as long as its values take: 50 ms for a broker's 750,000 ISRs.
    """
    topics, partitions = image.topics, 0
    while topics:
        _, topic = topics.popitem()
        if isinstance(topic.partitions, PartitionTable):
            chunks = topic.partitions.chunks()
            del topic
            while chunks:
                chunks.pop()
                yield
            continue
        partitions += 1 + len(topic.partitions)
        if partitions >= CHUNK_PARTITIONS:
            partitions = 0
            yield
    tables: list[MutableMapping[Any, Any]] = [image.topic_names, image.configs, image.kept]
    for table in (*tables, *image.index.tables()):
        while table:
            for _ in range(min(len(table), SLICE_LOOKS)):
                table.popitem()
            yield


def feature_records(features: dict[str, int]) -> list[Message]:
    """Returns the levels as records: ``metadata.version``, then the others by name."""
    names = sorted(features, key=lambda name: (name != METADATA_VERSION_FEATURE, name))
    return [FeatureLevelRecord(name=name, feature_level=features[name]) for name in names]


def partition_record(topic: TopicImage, partition: PartitionImage) -> PartitionRecord:
    """Returns the record that describes the whole partition."""
    return PartitionRecord(
        partition_id=partition.partition,
        topic_id=topic.topic_id,
        replicas=list(partition.replicas),
        isr=list(partition.isr),
        removing_replicas=list(partition.removing_replicas),
        adding_replicas=list(partition.adding_replicas),
        leader=partition.leader,
        leader_recovery_state=partition.leader_recovery_state,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        directories=list(partition.directories),
        eligible_leader_replicas=list(partition.eligible_leader_replicas) or None,
        last_known_elr=list(partition.last_known_elr) or None,
    )


def image_of(
    cluster_id: str,
    records: Iterable[Message],
    offset: int = -1,
    epoch: int = -1,
    section_kinds: SectionKinds = NO_SECTIONS,
) -> MetadataImage:
    """Build the image that the records describe."""
    image = MetadataImage(cluster_id, section_kinds)
    step = ImageStep(image)
    for record in records:
        step.replay(record)
    step.finish(offset, epoch)
    return image
