"""Committed offsets of all groups in one shard.

A value is kept as its encoded bytes, and decoded when it is read: most of a million offsets are loaded and never read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping

from blumfeld.coordinator.groups.offset_values import (
    OFFSET_KEY_TYPES,
    RETENTION_OF_THE_BROKER,
    VALUE_VERSION,
    VALUE_VERSION_WITH_RETENTION,
    VALUE_VERSIONS,
    CommittedOffset,
    Place,
    committed_of,
    decode_group,
    decode_place,
    decode_value,
    encode_key,
    encode_value,
)
from blumfeld.coordinator.runtime.record_runs import RecordRun
from blumfeld.spi.groups import CoordinatorRecord
from blumfeld.wire.messages.group_coordinator_records import (
    LegacyOffsetCommitKey,
    OffsetCommitKey,
    OffsetCommitValue,
)
from blumfeld.wire.primitives import ZERO_UUID, DecodeError
from blumfeld.wire.schema import Message

__all__ = [
    "OFFSET_RECORD_TYPES",
    "RETENTION_OF_THE_BROKER",
    "VALUE_VERSION",
    "VALUE_VERSION_WITH_RETENTION",
    "CommittedOffset",
    "GroupOffsets",
    "OffsetStore",
    "Place",
    "offset_record",
    "tombstone",
]

OFFSET_RECORD_TYPES = (0, 1)
PLACES_MAX = 50_000
"""(topic, partition) objects that are cached by their encoded bytes, so that all groups share one for each."""

Kept = bytes | CommittedOffset
"""A value as encoded bytes, or one that was decoded before it came here."""


class GroupOffsets(Mapping[Place, CommittedOffset]):
    """(topic, partition) → offset of one group, in the order of the first commits.

    A view: it shows later commits, too, and decodes a value each time it is read.
    """

    __slots__ = ("_kept",)

    def __init__(self, kept: Mapping[Place, Kept]) -> None:
        self._kept = kept

    def __getitem__(self, place: Place) -> CommittedOffset:
        kept = self._kept[place]
        return decode_value(kept) if isinstance(kept, bytes) else kept

    def __iter__(self) -> Iterator[Place]:
        return iter(self._kept)

    def __len__(self) -> int:
        return len(self._kept)

    def __contains__(self, place: object) -> bool:
        return place in self._kept


class OffsetStore:
    """Offsets by group, topic and partition. Only replay changes it."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[Place, Kept]] = {}
        self._places: dict[bytes, Place] = {}
        self._emptied: dict[str, None] = {}

    def __len__(self) -> int:
        """Number of offsets of all groups."""
        return sum(map(len, self._groups.values()))

    def replay(self, key: Message, value: Message | None) -> None:
        """Apply a decoded offset record. A tombstone removes the offset."""
        assert isinstance(key, OffsetCommitKey | LegacyOffsetCommitKey)
        place = (key.topic, key.partition)
        if value is None:
            self._forget(key.group, place)
        else:
            assert isinstance(value, OffsetCommitValue)
            self._groups.setdefault(key.group, {})[place] = committed_of(value)

    def replay_encoded(self, key: bytes, value: bytes | None) -> None:
        """Apply an encoded offset record. Its value is decoded when it is read.

        :raises DecodeError: the key is not an offset's, or the value's version is unknown
        """
        group_id, at = decode_group(key)
        place = self._place(key[at:])
        if value is None:
            self._forget(group_id, place)
        else:
            if value[:2] not in VALUE_VERSIONS:
                raise _unknown_version(value)
            self._groups.setdefault(group_id, {})[place] = value

    def replay_run(self, run: RecordRun, other: Callable[[bytes, bytes | None], None]) -> None:
        """Apply many records in order. Tombstones, and records that aren't offsets, are passed to ``other``.

        The result is that of :meth:`replay_encoded` for each offset, at a tenth of the cost. A load spends most of its
        time here. The trick: consecutive records mostly belong to one group, so its bytes are compared and not decoded.

        :raises DecodeError: as :meth:`replay_encoded`
        """
        groups, places = self._groups, self._places
        prefix: bytes | tuple[()] = ()  # no key begins with the empty tuple
        cut = 0
        offsets: dict[Place, Kept] = {}
        for key, value in zip(run.keys, run.values, strict=True):
            if value is None or not key.startswith(prefix):
                if value is None or key[:2] not in OFFSET_KEY_TYPES:
                    prefix = ()  # the group may be forgotten now
                    other(key, value)
                    continue
                group_id, cut = decode_group(key)
                prefix = key[:cut]
                offsets = groups.setdefault(group_id, {})
            suffix = key[cut:]
            place = places.get(suffix) or self._place(suffix)
            if value[:2] not in VALUE_VERSIONS:
                raise _unknown_version(value)
            offsets[place] = value

    def _place(self, encoded: bytes) -> Place:
        place = self._places.get(encoded)
        if place is None:
            place = decode_place(encoded, 0)
            if len(self._places) >= PLACES_MAX:
                self._places.clear()
            self._places[encoded] = place
        return place

    def _forget(self, group_id: str, place: Place) -> None:
        offsets = self._groups.get(group_id)
        if offsets is None:
            return
        offsets.pop(place, None)
        if not offsets:
            del self._groups[group_id]
            self._emptied[group_id] = None

    def emptied(self) -> list[str]:
        """Returns the groups that had an offset and have none now. They exist until :meth:`forget_group`."""
        return [group_id for group_id in self._emptied if group_id not in self._groups]

    def has_emptied(self, group_id: str) -> bool:
        """Whether it is one of :meth:`emptied`."""
        return group_id in self._emptied and group_id not in self._groups

    def remember(self, group_id: str) -> None:
        """Let a group exist whose only offset is pending: even if its transaction is aborted, the group stays."""
        self._emptied[group_id] = None

    def forget_group(self, group_id: str) -> None:
        """Let a group end that has no offsets. Offsets, if it has any, stay."""
        self._emptied.pop(group_id, None)

    def groups(self) -> Collection[str]:
        """Returns the groups with an offset, in the order of their first commits."""
        return self._groups.keys()

    def of_group(self, group_id: str) -> Mapping[Place, CommittedOffset]:
        """Returns (topic, partition) → offset of a group; empty if it has none. A value is decoded when it is read."""
        return GroupOffsets(self._groups.get(group_id, {}))

    def tombstones(self, group_id: str) -> list[CoordinatorRecord]:
        """Returns the records that remove all offsets of a group."""
        return [tombstone(group_id, topic, partition) for topic, partition in self.of_group(group_id)]

    def tombstones_of_topics(
        self, topics: tuple[str, ...], topic_ids: tuple[bytes, ...] = ()
    ) -> list[CoordinatorRecord]:
        """Returns the records that remove the offsets of all groups for these topics.

        :param topic_ids: ids of the topics. Offsets of a newer topic of the same name have another id, and stay. Empty:
            all offsets for these names are removed
        """
        return [
            tombstone(group_id, topic, partition)
            for group_id, offsets in self._groups.items()
            for (topic, partition), kept in offsets.items()
            if topic in topics and (not topic_ids or _topic_id(kept) in (ZERO_UUID, *topic_ids))
        ]


def _topic_id(kept: Kept) -> bytes:
    return (decode_value(kept) if isinstance(kept, bytes) else kept).topic_id


def _unknown_version(value: bytes) -> DecodeError:
    version = int.from_bytes(value[:2])
    return DecodeError(f"a committed offset of version {version} in {len(value)} bytes")


def tombstone(group_id: str, topic: str, partition: int) -> CoordinatorRecord:
    """Returns the record that removes one offset."""
    return CoordinatorRecord(encode_key(group_id, topic, partition), None)


def offset_record(group_id: str, topic: str, partition: int, committed: CommittedOffset) -> CoordinatorRecord:
    """Returns the record that commits one offset, in the version that Kafka 4.3.1 writes."""
    return CoordinatorRecord(encode_key(group_id, topic, partition), encode_value(committed))
