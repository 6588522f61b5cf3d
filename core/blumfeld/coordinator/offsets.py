"""Committed offsets of all groups in one shard, as their records say."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from blumfeld.coordinator.records import record
from blumfeld.spi.groups import CoordinatorRecord
from blumfeld.wire.messages.group_coordinator_records import (
    LegacyOffsetCommitKey,
    OffsetCommitKey,
    OffsetCommitValue,
)
from blumfeld.wire.schema import Message

OFFSET_RECORD_TYPES = (0, 1)
VALUE_VERSION = 4
"""What 4.3.1 writes: flexible, with the topic id."""
VALUE_VERSION_WITH_RETENTION = 1
"""Written where the request named a retention (OffsetCommit v2–4)."""
RETENTION_OF_THE_BROKER = -1


class CommittedOffset(msgspec.Struct, frozen=True):
    """What a group committed for one partition."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int
    topic_id: bytes


class OffsetStore:
    """Offsets by group, topic, partition. Only :meth:`replay` writes."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[tuple[str, int], CommittedOffset]] = {}

    def replay(self, key: Message, value: Message | None) -> None:
        """Apply an offset record; a tombstone forgets the offset."""
        assert isinstance(key, OffsetCommitKey | LegacyOffsetCommitKey)
        place = (key.topic, key.partition)
        if value is None:
            offsets = self._groups.get(key.group)
            if offsets is not None:
                offsets.pop(place, None)
                if not offsets:
                    del self._groups[key.group]
            return
        assert isinstance(value, OffsetCommitValue)
        self._groups.setdefault(key.group, {})[place] = CommittedOffset(
            value.offset,
            value.leader_epoch,
            value.metadata,
            value.commit_timestamp,
            value.expire_timestamp,
            value.topic_id,
        )

    def groups(self) -> Iterable[str]:
        """Groups with an offset, in the order of their first commit."""
        return self._groups.keys()

    def of_group(self, group_id: str) -> dict[tuple[str, int], CommittedOffset]:
        """(topic, partition) → offset of a group; empty if it has none. Not to be changed."""
        return self._groups.get(group_id, {})

    def tombstones(self, group_id: str) -> list[CoordinatorRecord]:
        """Records that forget all offsets of a group."""
        return [tombstone(group_id, topic, partition) for topic, partition in self.of_group(group_id)]

    def tombstones_of_topics(self, topics: tuple[str, ...]) -> list[CoordinatorRecord]:
        """Records that forget what all groups committed for these topics."""
        return [
            tombstone(group_id, topic, partition)
            for group_id, offsets in self._groups.items()
            for topic, partition in offsets
            if topic in topics
        ]


def tombstone(group_id: str, topic: str, partition: int) -> CoordinatorRecord:
    """The record that forgets one offset."""
    return record(OffsetCommitKey(group=group_id, topic=topic, partition=partition), None)


def offset_record(group_id: str, topic: str, partition: int, committed: CommittedOffset) -> CoordinatorRecord:
    """The record that commits one offset, in the version that 4.3.1 writes."""
    retained = committed.expire_timestamp_ms != RETENTION_OF_THE_BROKER
    value = OffsetCommitValue(
        offset=committed.offset,
        leader_epoch=-1 if retained else committed.leader_epoch,
        metadata=committed.metadata,
        commit_timestamp=committed.commit_timestamp_ms,
        expire_timestamp=committed.expire_timestamp_ms,
        topic_id=committed.topic_id if not retained else bytes(16),
    )
    key = OffsetCommitKey(group=group_id, topic=topic, partition=partition)
    return record(key, value, VALUE_VERSION_WITH_RETENTION if retained else VALUE_VERSION)
