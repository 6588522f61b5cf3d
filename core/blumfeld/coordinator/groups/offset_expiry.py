"""Expiry of committed offsets, and of groups without members and offsets (KIP-211)."""

from __future__ import annotations

from collections.abc import Sequence

from blumfeld.coordinator.groups.offsets import (
    RETENTION_OF_THE_BROKER,
    CommittedOffset,
    OffsetStore,
    tombstone,
)
from blumfeld.coordinator.groups.pending_offsets import PendingOffsets
from blumfeld.coordinator.groups.records import record
from blumfeld.spi.groups import SINCE_COMMIT, CoordinatorRecord, GroupShard
from blumfeld.wire.messages.group_coordinator_records import GroupMetadataKey


def is_expired(committed: CommittedOffset, idle_since_ms: int, retention_ms: int, now_ms: int) -> bool:
    """Whether an unused offset has expired. A retention of its own (OffsetCommit v2–4) goes before the broker's."""
    if committed.expire_timestamp_ms != RETENTION_OF_THE_BROKER:
        return now_ms >= committed.expire_timestamp_ms
    since_ms = committed.commit_timestamp_ms if idle_since_ms == SINCE_COMMIT else idle_since_ms
    return now_ms - since_ms >= retention_ms


def expire(
    group_id: str,
    store: OffsetStore,
    pending: PendingOffsets,
    owner: GroupShard | None,
    retention_ms: int,
    now_ms: int,
) -> Sequence[CoordinatorRecord]:
    """Returns tombstones for the expired offsets of one group, and for the group itself if it is empty without them.

    An offset that an open transaction has committed stays, and so does its group.
    """
    idle_since_ms = SINCE_COMMIT if owner is None else owner.offsets_idle_since(group_id)
    if idle_since_ms is None:
        return ()
    offsets = store.of_group(group_id)
    records = [
        tombstone(group_id, topic, partition)
        for (topic, partition), committed in offsets.items()
        if not (owner is not None and owner.is_subscribed(group_id, topic))
        and not pending.is_pending(group_id, (topic, partition))
        and is_expired(committed, idle_since_ms, retention_ms, now_ms)
    ]
    nothing_left = len(records) == len(offsets) and not pending.has_group(group_id)
    if nothing_left and owner is None:
        records.append(end_of_simple(group_id))
    elif nothing_left and owner is not None and owner.is_empty(group_id):
        records += owner.delete(group_id).records
    return records


def end_of_simple(group_id: str) -> CoordinatorRecord:
    """Returns the record that ends a group without a type. It is a classic group's tombstone, as in Kafka, even if this
    build has no classic groups."""
    return record(GroupMetadataKey(group=group_id), None)
