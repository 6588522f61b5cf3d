"""The description of a topic in the store: a small JSON object for each tiered topic. A restored cluster gets from it
what no segment says: the number of partitions and of replicas, and the topic's settings::

    blumfeld-topics/ticks-qUiBghE1SjWuUlRKwlHGrQ.json
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import NamedTuple

import msgspec

from blumfeld.spi.cluster import TOPIC_RESOURCE, ClusterImage
from blumfeld.spi.object_store import ObjectBytes, ObjectInfo, ObjectNotFoundError, ObjectStore
from blumfeld.wire.primitives import uuid_bytes, uuid_text
from blumfeld_storage_tiered.catalog.segment import TopicIdPartition
from blumfeld_storage_tiered.objects.manifest import SegmentCorruptError

PREFIX = "blumfeld-topics/"
VERSION = 1
BYTES_MAX = 1 << 20
_NAME = re.compile(rf"{PREFIX}([A-Za-z0-9._-]{{1,249}})-([A-Za-z0-9_-]{{22}})\.json")


class TopicDescription(msgspec.Struct, frozen=True, kw_only=True):
    """The facts about a topic. A later version may add fields; it changes the meaning of none."""

    version: int = VERSION
    topic: str
    topic_id: str
    """In Kafka's text form."""
    partitions: int
    replication_factor: int
    """Replicas of its first partition."""
    configs: dict[str, str]
    """The settings that the topic has of its own, not those that it has from its brokers."""
    deleted: bool = False
    """Somebody has deleted the topic, and its objects are being deleted."""


class StoredTopic(NamedTuple):
    """A description as a listing shows it."""

    topic: str
    topic_id: bytes
    info: ObjectInfo


_encoder = msgspec.json.Encoder(order="deterministic")
_decoder = msgspec.json.Decoder(TopicDescription)


def described(image: ClusterImage, partition: TopicIdPartition) -> TopicDescription | None:
    """Returns the description of a partition's topic; ``None`` if the image doesn't have this topic."""
    topic = image.topics.get(partition.topic)
    if topic is None or topic.topic_id != partition.topic_id:
        return None
    return TopicDescription(
        topic=topic.name,
        topic_id=uuid_text(topic.topic_id),
        partitions=len(topic.partitions),
        replication_factor=len(topic.partitions[0].replicas),
        configs=dict(image.config(TOPIC_RESOURCE, topic.name)),
    )


def topic_key(topic: str, topic_id: bytes) -> str:
    """Returns the key of a topic's description."""
    return f"{PREFIX}{topic}-{uuid_text(topic_id)}.json"


def decode_description(key: str, data: ObjectBytes) -> TopicDescription:
    """Returns the description in an object.

    :raises SegmentCorruptError: it is none, or that of another topic, or has a version that this build doesn't know
    """
    try:
        description = _decoder.decode(data)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise SegmentCorruptError(key, f"no description ({error})", "a topic's description") from None
    if description.version != VERSION or description.partitions < 1 or description.replication_factor < 1:
        found = f"version {description.version}, {description.partitions} partitions"
        raise SegmentCorruptError(key, found, f"version {VERSION}, and a partition at least")
    match = _NAME.fullmatch(key)
    if match is None or (match[1], match[2]) != (description.topic, description.topic_id):
        raise SegmentCorruptError(key, f"that of {description.topic}-{description.topic_id}", "its own name")
    return description


class TopicObjects:
    """The descriptions in one store. Everything may raise :class:`StoreError`; nothing is retried here."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    async def write(self, description: TopicDescription) -> None:
        """Write a description, unless the store has the same one."""
        key = topic_key(description.topic, uuid_bytes(description.topic_id))
        data = _encoder.encode(description)
        try:
            if bytes(await self._store.get_range(key, 0, BYTES_MAX)) == data:
                return
        except ObjectNotFoundError:
            pass
        await self._store.put(key, data)

    async def read(self, topic: str, topic_id: bytes) -> TopicDescription:
        """Returns the description of a topic.

        :raises ObjectNotFoundError: it has none
        :raises SegmentCorruptError: as :func:`decode_description`
        """
        key = topic_key(topic, topic_id)
        return decode_description(key, await self._store.get_range(key, 0, BYTES_MAX))

    async def mark_deleted(self, partition: TopicIdPartition) -> None:
        """Let the description of a partition's topic, if there is one, say that the topic is deleted."""
        with suppress(ObjectNotFoundError, SegmentCorruptError):
            there = await self.read(partition.topic, partition.topic_id)
            await self.write(msgspec.structs.replace(there, deleted=True))

    async def delete(self, partition: TopicIdPartition) -> None:
        """Delete the description of a partition's topic. It may be absent."""
        await self._store.delete(topic_key(partition.topic, partition.topic_id))

    async def list(self) -> AsyncIterator[StoredTopic]:
        """Yields all descriptions. Objects with other names belong to somebody else."""
        async for info in self._store.list(PREFIX):
            match = _NAME.fullmatch(info.key)
            if match is not None:
                yield StoredTopic(match[1], uuid_bytes(match[2]), info)
