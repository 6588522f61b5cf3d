"""The delta between two images, when the records between them are not to be had: one comes from a snapshot. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from blumfeld.metadata.image.cluster_image import MetadataImage
from blumfeld.spi.cluster import ImageDelta, PartitionImage, TopicImage

Key = TypeVar("Key")


def difference(old: MetadataImage, new: MetadataImage) -> ImageDelta:
    """Returns the delta that leads from ``old`` to ``new``. A topic that was deleted and created again has another id
    and is in both tuples. ``section_records`` has all records of the new image: a plug-in's section is as new.
    """
    created = tuple(topic for topic in new.topics.values() if topic.topic_id not in old.topic_names)
    return ImageDelta(
        topics_created=created,
        topics_deleted=tuple(topic for topic in old.topics.values() if topic.topic_id not in new.topic_names),
        partitions_changed=tuple(
            (topic, partition) for topic in new.topics.values() for partition in _changed(old, topic)
        ),
        brokers_changed=_differing(old.brokers, new.brokers),
        configs_changed=_differing(old.configs, new.configs),
        features_changed=old.features != new.features,
        section_records=new.first_delta().section_records,
    )


def _changed(old: MetadataImage, topic: TopicImage) -> list[PartitionImage]:
    before = old.topics.get(topic.name)
    if before is topic:
        return []
    if before is None or before.topic_id != topic.topic_id:
        return list(topic.partitions.values())
    return [one for number, one in topic.partitions.items() if before.partitions.get(number) != one]


def _differing(old: Mapping[Key, object], new: Mapping[Key, object]) -> tuple[Key, ...]:
    gone = tuple(key for key in old if key not in new)
    return gone + tuple(key for key, value in new.items() if old.get(key) != value)
