"""Coordinator records: Kafka's bytes, with the type before a key and the version before a value."""

from __future__ import annotations

import pytest
from msgspec import structs

from blumfeld.coordinator.groups.offsets import CommittedOffset, offset_record, tombstone
from blumfeld.coordinator.groups.records import decode_record
from blumfeld.spi.groups import CoordinatorRecord
from blumfeld.wire.messages.group_coordinator_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from blumfeld.wire.primitives import DecodeError
from blumfeld.wire.schema import Message

TYPES: dict[int, tuple[type[Message], type[Message]]] = {
    1: (OffsetCommitKey, OffsetCommitValue),
    2: (GroupMetadataKey, GroupMetadataValue),
}
TOPIC_ID = bytes.fromhex("010203040506070d1112131415161718")
COMMITTED = CommittedOffset(
    offset=1099511627777,
    leader_epoch=100002,
    metadata="metadata-é3",
    commit_timestamp_ms=1099511627780,
    expire_timestamp_ms=-1,
    topic_id=TOPIC_ID,
)
KEY = bytes.fromhex("0001" + "000967726f75702dc3a931" + "0009746f7069632dc3a932" + "fffffff8")


@pytest.mark.parametrize(
    ("committed", "value"),
    [
        (
            COMMITTED,
            "0004 0000010000000001 000186a2 0d6d657461646174612dc3a933 0000010000000004 01 00"
            "10 010203040506070d1112131415161718",
        ),
        (
            structs.replace(COMMITTED, expire_timestamp_ms=1099511627781),
            "0001 0000010000000001 000c6d657461646174612dc3a933 0000010000000004 0000010000000005",
        ),
        (
            CommittedOffset(0, -1, "", 0, -1, bytes(16)),
            "0004 0000000000000000 ffffffff 01 0000000000000000 00",
        ),
    ],
    ids=[
        "with the topic's id as a tag",
        "with a retention, which version 1 alone has",
        "of a topic without an id",
    ],
)
def test_a_committed_offset_has_the_bytes_that_kafka_writes(committed: CommittedOffset, value: str) -> None:
    written = offset_record("group-é1", "topic-é2", -8, committed)
    assert (written.key, written.value) == (KEY, bytes.fromhex(value))


def test_a_tombstone_is_a_key_without_a_value() -> None:
    """It has the same key as what it deletes, or compaction keeps both."""
    assert tombstone("group-é1", "topic-é2", -8) == CoordinatorRecord(KEY, None)


def test_a_record_of_a_type_that_is_not_loaded_is_left_alone() -> None:
    assert decode_record(TYPES, CoordinatorRecord(b"\x00\x0b\x00\x01g", b"\x00\x00")) is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        pytest.param(b"", None, id="no key type"),
        pytest.param(b"\x00", None, id="half a key type"),
        pytest.param(b"\x00\x02\x00\x09g", None, id="cut key"),
        pytest.param(b"\x00\x02\x00\x01g", b"", id="no version"),
        pytest.param(b"\x00\x02\x00\x01g", b"\x00", id="half a version"),
        pytest.param(b"\x00\x02\x00\x01g", b"\x00\x63", id="version of the future"),
        pytest.param(b"\x00\x02\x00\x01g", b"\x00\x03\x00", id="cut value"),
    ],
)
def test_a_damaged_record_is_one_clear_error(key: bytes, value: bytes | None) -> None:
    with pytest.raises(DecodeError):
        decode_record(TYPES, CoordinatorRecord(key, value))
