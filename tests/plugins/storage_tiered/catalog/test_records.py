"""The records of ``__remote_log_metadata``: the bytes are those of Apache Kafka 4.3.1."""

from __future__ import annotations

import pytest

from blumfeld.spi.leader_epochs import EpochEntry
from blumfeld.wire.primitives import DecodeError
from blumfeld_storage_tiered.catalog.records import (
    decode_change,
    decode_snapshot_segment,
    encode_change,
    encode_snapshot_segment,
    metadata_partition,
)
from blumfeld_storage_tiered.catalog.segment import (
    PartitionDelete,
    PartitionDeleteState,
    RemoteSegment,
    SegmentState,
    SegmentUpdate,
    TopicIdPartition,
)

GOLDEN = [
    # (partition of __remote_log_metadata, of 7; value), as a broker of Kafka 4.3.1 with LocalTieredStorage wrote them
    (
        1,
        "010000077469636b7332829dc95c768b4cea8c1c8f33583f2e0b0000000100655ed1e54a5a4d4bacff9769b63ed90d"
        "000000000000000000000000000000000800000001000001a2229207fb000001a222920b51020000000000000000000000000000"
        "080120000001000101",
    ),
    (
        1,
        "010000077469636b7332829dc95c768b4cea8c1c8f33583f2e0b00000002006613c2a93ba04b73bb3d6352a384d77d"
        "000000000000000012000000000000001a00000001000001a2229208a0000001a222920c19020000000000000000000000120000"
        "0800e3000000",
    ),
    (
        1,
        "01010005676f6e65550f4288266344aead2301ca69fe27ce0000000000c84a2c98b0814f91a9ffca4691360e65"
        "0000000001000001a222914a63000100",
    ),
    (
        1,
        "01010006676f6e6532cdd6f64d195747b48b714bb88409e37a00000000005f1ba35b67d44fe0ae02c7e30c071db2"
        "0000000001000001a222924d70000200",
    ),
    (
        2,
        "010000077469636b7332829dc95c768b4cea8c1c8f33583f2e0b00000000008ce47d68aa224b4bbd771a70b85965d3"
        "000000000000000000000000000000000800000001000001a2229207fb000001a222920b52020000000000000000000000000000"
        "080120000001000101",
    ),
    (
        5,
        "010000067469636b73de384295700d4b25a17c7c0e57ed5e570000000100d6ab002717fc44c6bab94fd9ee86d5b3"
        "000000000000000000000000000000000800000001000001a22291469e000001a2229149e6020000000000000000000000000000"
        "0800e3000001000101",
    ),
]
AT = TopicIdPartition(bytes(range(16)), 3, "ticks")
SEGMENT = RemoteSegment(
    partition=AT,
    segment_id=bytes(range(16, 32)),
    start_offset=10,
    end_offset=99,
    broker_id=2,
    max_timestamp_ms=1_700_000_000_000,
    event_timestamp_ms=1_700_000_000_001,
    leader_epochs=(EpochEntry(1, 10), EpochEntry(4, 50)),
    size_bytes=1 << 30,
    custom_metadata=b"more",
)


@pytest.mark.parametrize(("partition", "value"), GOLDEN)
def test_kafkas_records_are_read_and_written_byte_for_byte(partition: int, value: str) -> None:
    change = decode_change(bytes.fromhex(value))
    assert encode_change(change).hex() == value
    assert metadata_partition(change.partition, 7) == partition


def test_a_record_of_kafka_says_what_its_broker_knew() -> None:
    segment = decode_change(bytes.fromhex(GOLDEN[1][1]))
    assert isinstance(segment, RemoteSegment)
    assert segment.partition == TopicIdPartition(
        bytes.fromhex("829dc95c768b4cea8c1c8f33583f2e0b"), 2, "ticks2"
    )
    assert (segment.start_offset, segment.end_offset, segment.size_bytes) == (18, 26, 524_515)
    assert segment.leader_epochs == (EpochEntry(0, 18),)
    assert (segment.state, segment.broker_id) == (SegmentState.COPY_STARTED, 1)
    assert not segment.txn_index_empty


@pytest.mark.parametrize(
    "change",
    [
        SEGMENT,
        SegmentUpdate(
            partition=AT,
            segment_id=SEGMENT.segment_id,
            broker_id=1,
            event_timestamp_ms=5,
            state=SegmentState.DELETE_FINISHED,
            custom_metadata=b"",
        ),
        PartitionDelete(partition=AT, broker_id=1, event_timestamp_ms=5, state=PartitionDeleteState.FINISHED),
    ],
)
def test_a_change_is_read_as_it_was_written(change: RemoteSegment) -> None:
    assert decode_change(encode_change(change)) == change


def test_a_segment_of_a_snapshot_is_read_as_it_was_written() -> None:
    assert decode_snapshot_segment(encode_snapshot_segment(SEGMENT), AT) == SEGMENT


def _with(**changed: object) -> bytes:
    from msgspec.structs import replace

    return encode_change(replace(SEGMENT, **changed))


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (_with(leader_epochs=()), "without leader epochs"),
        (_with(start_offset=100), "from 100 to 99"),
        (_with(state=7), "unknown state 7 in remote metadata: allowed is 0 COPY_STARTED"),
        (encode_snapshot_segment(SEGMENT), "only a snapshot file"),
        (b"\x01\x63\x00", "record type 99"),
        (encode_change(SEGMENT)[:-1], "end"),
    ],
)
def test_a_record_that_means_nothing_is_refused(value: bytes, said: str) -> None:
    with pytest.raises(DecodeError, match=said):
        decode_change(value)
