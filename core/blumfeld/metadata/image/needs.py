"""What the cluster's metadata needs of the build that serves it. Pure."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from itertools import chain

from blumfeld.metadata.image.cluster_image import MetadataImage
from blumfeld.metadata.image.kept import KEPT
from blumfeld.spi.cluster import TOPIC_RESOURCE
from blumfeld.spi.consensus import MetadataNeeds
from blumfeld.spi.internal_topics import INTERNAL_TOPICS
from blumfeld.wire.messages.metadata_records import (
    ConfigRecord,
    FeatureLevelRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from blumfeld.wire.schema import Message

TIERED_KEY = "remote.storage.enable"
NEEDING = frozenset((FeatureLevelRecord, TopicRecord, RemoveTopicRecord, ConfigRecord, *KEPT))
"""The types of record that may make a difference."""


def needs_of(image: MetadataImage, behind: Iterable[Message] = ()) -> MetadataNeeds:
    """Returns what an image needs, and the records behind it that it lacks.

    Those records may not be committed, and some of them may be taken back. They count all the same: this node has them
    from a leader that could write them.
    """
    found = _Found(image)
    for record in behind:
        found.add(record)
    return MetadataNeeds(
        features={name: level for name, level in found.features.items() if level},
        records=found.records(),
        internal_topics=frozenset(name for name in INTERNAL_TOPICS if name in found.topics.values()),
        tiered_topics=tuple(found.tiered),
    )


class _Found:
    """What was found so far."""

    def __init__(self, image: MetadataImage) -> None:
        self.features = dict(image.features)
        self._kept = image.kept
        self._changed: dict[tuple[str, Hashable], Message | None] = {}
        """Kept records behind the image, by its keys; ``None``: removed."""
        self._of_image = image.topic_names
        self.topics = {image.topics[name].topic_id: name for name in INTERNAL_TOPICS if name in image.topics}
        """Topics by id: the internal ones of the image, and all of the records behind it."""
        self.tiered = {
            name: None
            for (kind, name), values in image.configs.items()
            if kind == TOPIC_RESOURCE and values.get(TIERED_KEY) == "true"
        }

    def add(self, record: Message) -> None:
        """Take a record behind the image."""
        match record:
            case FeatureLevelRecord():
                self.features[record.name] = record.feature_level
            case TopicRecord():
                self.topics[record.topic_id] = record.name
            case RemoveTopicRecord():
                name = self.topics.pop(record.topic_id, None) or self._of_image.get(record.topic_id, "")
                self.tiered.pop(name, None)
            case ConfigRecord():
                self._configured(record)
            case _ if type(record) in KEPT:
                self._keep(record)

    def _configured(self, record: ConfigRecord) -> None:
        if record.resource_type != TOPIC_RESOURCE or record.name != TIERED_KEY:
            return
        if record.value == "true":
            self.tiered[record.resource_name] = None
        else:
            self.tiered.pop(record.resource_name, None)

    def _keep(self, record: Message) -> None:
        kept = KEPT[type(record)]
        self._changed[kept.part, kept.entity(record)] = record if kept.sets(record) else None

    def records(self) -> dict[str, Message]:
        """Returns one record of each part. A part may have 100,000, so all others are passed over by their keys."""
        records: dict[str, Message] = {}
        for key, kept in chain(self._kept.items(), self._changed.items()):
            if key[0] not in records and (record := self._changed.get(key, kept)) is not None:
                records[key[0]] = record
        return records
