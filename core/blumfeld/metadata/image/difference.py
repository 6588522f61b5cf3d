"""The delta between two images, when the records between them are not to be had: one comes from a snapshot. Pure.

Two images of a large cluster take long to compare, and the old one takes long to free. Both are done in steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeVar

from blumfeld.metadata.image.cluster_image import MetadataImage
from blumfeld.metadata.image.partition_table import PartitionTable
from blumfeld.metadata.slices import SLICE_LOOKS
from blumfeld.spi.cluster import ImageDelta, PartitionImage, TopicImage
from blumfeld.spi.completion import Steps
from blumfeld.wire.schema import Message

Key = TypeVar("Key")


class Difference(NamedTuple):
    """The way from an old image to a new one."""

    delta: ImageDelta
    gone: list[PartitionImage | Message]
    """Partitions of the old image that the new one doesn't share, and the records that the old one keeps for plug-ins.
    They are kept so that the caller can free them in slices. Otherwise the end of the old image would free them all in
    one turn.
    """


def difference(old: MetadataImage, new: MetadataImage) -> Steps[Difference]:
    """Returns the delta that leads from ``old`` to ``new``, in steps of about ``SLICE_LOOKS`` partitions. The images
    may not change between them. ``new`` takes over the topics that are the same in ``old``, so that their copies are
    freed on the way.

    A topic that was deleted and created again has another id and is in both tuples. ``section_records`` names every
    section, with all its records of the new image: a plug-in's section is as new, also one that has become empty.
    """
    created: list[TopicImage] = []
    deleted: list[TopicImage] = []
    changed: list[tuple[TopicImage, PartitionImage]] = []
    gone: list[PartitionImage | Message] = []
    looks = 0
    for name, topic in new.topics.items():
        before = old.topics.get(name)
        there = before.partitions if before is not None and before.topic_id == topic.topic_id else {}
        if topic.topic_id not in old.topic_names:
            created.append(topic)
        number = len(changed)
        for part in _parts(topic):
            changed += ((topic, entry) for index, entry in part.items() if there.get(index) != entry)
            looks += 1 + len(part)
            if looks >= SLICE_LOOKS:
                looks = 0
                yield None
        if before is not None and len(changed) == number and len(there) == len(topic.partitions):
            new.topics[name] = before
        elif before is not None:
            yield from _collect(before, gone)
    for topic in old.topics.values():
        looks += 1
        if topic.topic_id not in new.topic_names:
            deleted.append(topic)
            if topic.name not in new.topics:
                yield from _collect(topic, gone)
        if looks >= SLICE_LOOKS:
            looks = 0
            yield None
    for number, record in enumerate(old.kept.values(), 1):
        gone.append(record)
        if not number % SLICE_LOOKS:
            yield None
    section_records = yield from new.records_by_section()
    delta = ImageDelta(
        topics_created=tuple(created),
        topics_deleted=tuple(deleted),
        partitions_changed=tuple(changed),
        brokers_changed=(yield from _differing(old.brokers, new.brokers)),
        configs_changed=(yield from _differing(old.configs, new.configs)),
        features_changed=old.features != new.features,
        section_records={**dict.fromkeys(new.section_kinds.by_name, ()), **section_records},
    )
    return Difference(delta, gone)


def _parts(topic: TopicImage) -> list[Mapping[int, PartitionImage]]:
    partitions = topic.partitions
    return partitions.chunks() if isinstance(partitions, PartitionTable) else [partitions]


def _collect(topic: TopicImage, gone: list[PartitionImage | Message]) -> Steps[None]:
    for number, part in enumerate(_parts(topic)):
        if number:
            yield None
        gone += part.values()


def _differing(old: Mapping[Key, object], new: Mapping[Key, object]) -> Steps[tuple[Key, ...]]:
    differing: list[Key] = []
    for looks, key in enumerate(old, start=1):
        if key not in new:
            differing.append(key)
        if not looks % SLICE_LOOKS:
            yield None
    for looks, (key, value) in enumerate(new.items(), start=1):
        if old.get(key) != value:
            differing.append(key)
        if not looks % SLICE_LOOKS:
            yield None
    return tuple(differing)
