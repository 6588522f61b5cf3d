"""Coordinator records: Kafka's bytes, with the type before a key and the version before a value."""

from __future__ import annotations

import pytest

from blumfeld.coordinator.groups.offsets import OFFSET_RECORD_TYPES, CommittedOffset, offset_record, tombstone
from blumfeld.coordinator.groups.records import decode_record, record, record_type
from blumfeld.spi.groups import CoordinatorRecord
from blumfeld.wire.json_form import from_json
from blumfeld.wire.messages.group_coordinator_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from blumfeld.wire.primitives import DecodeError
from blumfeld.wire.schema import Message
from tests.kafka_facts import golden_messages

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


def test_a_committed_offset_has_the_bytes_that_kafka_writes() -> None:
    """Key type 1, value version 4 with the topic's id as a tag."""
    written = offset_record("group-é1", "topic-é2", -8, COMMITTED)
    assert written.key == KEY
    assert written.value == bytes.fromhex(
        "0004" + "0000010000000001000186a20d6d657461646174612dc3a93300000100000000040100"
        "10010203040506070d1112131415161718"
    )


def test_an_offset_with_a_retention_of_its_own_has_the_version_that_can_say_so() -> None:
    """Value version 1 (OffsetCommit v2 to v4), which knows neither leader epoch nor topic id."""
    kept = CommittedOffset(
        offset=1099511627777,
        leader_epoch=7,
        metadata="metadata-é2",
        commit_timestamp_ms=1099511627779,
        expire_timestamp_ms=1099511627780,
        topic_id=TOPIC_ID,
    )
    assert offset_record("g", "t", 0, kept).value == bytes.fromhex(
        "0001" + "0000010000000001000c6d657461646174612dc3a93200000100000000030000010000000004"
    )


def test_an_offset_of_a_topic_without_an_id_leaves_the_tag_out() -> None:
    plain = CommittedOffset(
        offset=0,
        leader_epoch=-1,
        metadata="",
        commit_timestamp_ms=0,
        expire_timestamp_ms=-1,
        topic_id=bytes(16),
    )
    assert offset_record("", "", 0, plain).value == bytes.fromhex(
        "00040000000000000000ffffffff01000000000000000000"
    )


def test_a_tombstone_is_a_key_without_a_value() -> None:
    """It has the same key as what it deletes, or compaction keeps both."""
    assert tombstone("group-é1", "topic-é2", -8) == CoordinatorRecord(KEY, None)


@pytest.mark.parametrize("message", ["GroupMetadataValue", "OffsetCommitValue"])
def test_values_of_every_version_are_read(message: str) -> None:
    number = 1 if message == "OffsetCommitValue" else 2
    key = record(OffsetCommitKey() if number == 1 else GroupMetadataKey(), None).key
    cases = 0
    for golden in golden_messages():
        if golden["message"] != message:
            continue
        cases += 1
        value = golden["version"].to_bytes(2) + bytes.fromhex(golden["hex"])
        decoded = decode_record(TYPES, CoordinatorRecord(key, value))
        assert decoded is not None
        assert decoded[0] == number
        assert decoded[2] == from_json(TYPES[number][1], golden["version"], golden["json"])
    assert cases >= 10


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


def test_record_types_are_what_stands_before_the_key() -> None:
    """Offsets have two: 0 is what brokers before 0.9 wrote."""
    assert record_type(KEY) in OFFSET_RECORD_TYPES
    assert record_type(record(GroupMetadataKey(group="g"), None).key) == 2
