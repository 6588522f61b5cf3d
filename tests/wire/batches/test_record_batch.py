"""Record batches: Kafka's bytes, round trips, patches in place, and nothing but BrokerError for garbage."""

from __future__ import annotations

from contextlib import suppress

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from blumfeld.wire.batches.builder import build_batch, build_empty_batch
from blumfeld.wire.batches.control_records import (
    ControlType,
    build_kraft_control_batch,
    build_transaction_marker,
    control_key,
    control_type_of,
    coordinator_epoch_of,
)
from blumfeld.wire.batches.record_batch import (
    RecordBatch,
    TruncatedBatch,
    UnsupportedMagic,
    assign_offset,
    set_log_append_time,
    split_batches,
)
from blumfeld.wire.batches.records import Record, records, times, validate_records
from blumfeld.wire.compression.codec import Codec, DecompressedTooLarge
from blumfeld.wire.errors import BrokerError, CorruptBatch, InvalidRecord
from tests.everyday import examples, for_each
from tests.kafka_facts import golden_batches
from tests.wire.golden import ABORT_MARKER, PLAIN, RECORDS, SNAPPY, V0, ZSTD, T, golden


def view(data: bytes | bytearray) -> RecordBatch:
    return RecordBatch(memoryview(data))


def decoded(data: bytes | bytearray) -> list[Record]:
    batch = view(data)
    batch.verify_crc()
    return list(records(batch))


def rebuilt(batch: RecordBatch, inner: list[Record]) -> bytearray:
    return build_batch(
        inner,
        base_offset=batch.base_offset,
        codec=batch.codec,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        leader_epoch=batch.partition_leader_epoch,
        transactional=batch.is_transactional,
        control=batch.is_control,
        log_append_time_ms=batch.max_timestamp if batch.is_log_append_time else None,
    )


def with_payload(payload: bytes, count: int, attributes: int = 0) -> bytearray:
    """A batch with a right CRC around whatever the records section is."""
    data = build_batch([]) + payload
    data[8:12] = (len(data) - 12).to_bytes(4, "big")
    data[21:23] = attributes.to_bytes(2, "big")
    data[57:61] = count.to_bytes(4, "big", signed=True)
    data[17:21] = crc32c(bytes(data[21:])).to_bytes(4, "big")
    return data


@pytest.mark.parametrize("data", [PLAIN, SNAPPY, ZSTD], ids=["plain", "snappy", "zstd"])
def test_what_kafka_wrote_is_read(data: bytes) -> None:
    assert decoded(data) == list(RECORDS)


@pytest.mark.parametrize(("codec", "data"), [(Codec.NONE, PLAIN), (Codec.SNAPPY, SNAPPY)])
def test_what_we_write_is_what_kafka_wrote(codec: Codec, data: bytes) -> None:
    assert build_batch(RECORDS, base_offset=42, leader_epoch=7, codec=codec) == data


def test_the_header_is_read_by_its_fields() -> None:
    batch = view(PLAIN)
    assert (batch.base_offset, batch.last_offset, batch.next_offset) == (42, 45, 46)
    assert (batch.batch_length, batch.size_bytes) == (111, 123) == (len(PLAIN) - 12, len(batch.data))
    assert (batch.partition_leader_epoch, batch.magic, batch.crc) == (7, 2, 0x3B6EF2E8)
    assert (batch.base_timestamp, batch.max_timestamp, batch.record_count) == (T, T + 100, 4)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.last_sequence) == (-1,) * 4
    assert (batch.codec, batch.delete_horizon_ms) == (Codec.NONE, None)
    flags = (batch.is_transactional, batch.is_control, batch.is_log_append_time, batch.has_producer_id)
    assert flags == (False,) * 4
    assert view(ABORT_MARKER).is_control
    assert view(ABORT_MARKER).is_transactional
    assert "offsets=42..45" in repr(batch)


def test_every_golden_batch_is_read_and_written_again() -> None:
    """All codecs, control batches, producers: decoded, rebuilt, and decoded to the same."""
    same = 0
    for case, data in golden_batches().items():
        if case.startswith("legacy"):
            with pytest.raises(UnsupportedMagic):
                view(data)
            continue
        batch = view(data)
        inner = decoded(data)
        assert len(inner) == batch.record_count
        assert validate_records(batch).offsets_in_order
        again = rebuilt(batch, inner)
        assert decoded(again) == inner
        same += again == data
    assert same >= 11, "at most gzip, zstd and the lost deltas of LogAppendTime may differ in bytes"


def test_sequences_wrap_to_zero() -> None:
    data = build_batch([Record()] * 4, producer_id=1001, producer_epoch=3, base_sequence=2147483646)
    assert view(data).last_sequence == 1
    assert [record.sequence for record in decoded(data)] == [2147483646, 2147483647, 0, 1]
    assert view(golden("v2_transactional_pid1001_epoch3_seq2147483646")).last_sequence == 1


def test_offset_and_epoch_are_patched_without_touching_the_crc() -> None:
    data = bytearray(PLAIN)
    assign_offset(memoryview(data), 1 << 40, 9)
    batch = view(data)
    batch.verify_crc()
    assert (batch.base_offset, batch.partition_leader_epoch) == (1 << 40, 9)
    batch.assign_offset(5, -1)
    assert (batch.base_offset, batch.partition_leader_epoch) == (5, -1)
    assert (view(data).base_offset, view(data).partition_leader_epoch) == (5, -1)
    assert data[12:16] == b"\xff\xff\xff\xff"
    assert data[8:12] + data[16:] == PLAIN[8:12] + PLAIN[16:]


def test_copies_are_equal_and_have_bytes_of_their_own() -> None:
    data = bytes(build_batch([Record(offset=0, timestamp=5, key=b"k", value=b"v")], producer_id=7))
    original = RecordBatch(memoryview(data))
    first, second = original.copies(2)
    for name in RecordBatch.__slots__:
        assert getattr(first, name) == getattr(second, name) == getattr(original, name), name
    first.assign_offset(9, 3)
    assert (first.base_offset, second.base_offset, original.base_offset) == (9, 0, 0)
    assert [bytes(copy.data[:8]) for copy in (first, second, original)] == [
        (9).to_bytes(8),
        bytes(8),
        bytes(8),
    ]


def test_patching_bytes_that_are_read_only_fails() -> None:
    with pytest.raises(TypeError):
        view(PLAIN).assign_offset(1, 1)


def test_log_append_time_is_the_time_of_every_record() -> None:
    data = bytearray(PLAIN)
    set_log_append_time(memoryview(data), T + 9999)
    assert {record.timestamp for record in decoded(data)} == {T + 9999}
    assign_offset(memoryview(data), 7, 6)
    assert data == golden("v2_logappendtime_1700000009999")
    batch = view(bytearray(PLAIN))
    batch.set_log_append_time(T + 9999)
    batch.verify_crc()
    assert batch.is_log_append_time
    assert batch.max_timestamp == T + 9999


def test_a_wrong_crc_is_found() -> None:
    data = bytearray(PLAIN)
    data[-1] ^= 1
    with pytest.raises(CorruptBatch, match="CRC"):
        view(data).verify_crc()


@for_each(range(len(PLAIN)))
def test_a_batch_that_is_cut_off_anywhere_is_truncated(cut: int) -> None:
    data = memoryview(PLAIN + PLAIN[:cut])
    if cut == 0:
        assert len(list(split_batches(data))) == 2 - 1
        return
    with pytest.raises(TruncatedBatch):
        list(split_batches(data))
    assert len(list(split_batches(data, allow_partial=True))) == 1


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 48])
def test_a_length_that_no_batch_has_is_corrupt(length: int) -> None:
    data = bytearray(PLAIN)
    data[8:12] = length.to_bytes(4, "big", signed=True)
    with pytest.raises(CorruptBatch, match="batch length") as caught:
        list(split_batches(memoryview(data), allow_partial=True))
    assert not isinstance(caught.value, TruncatedBatch)


def test_other_formats_are_named() -> None:
    with pytest.raises(UnsupportedMagic, match="format 0") as caught:
        view(V0)
    assert caught.value.magic == 0
    for magic, named in ((0xFF, "format -1"), (9, "format 9")):  # CORRUPT_MESSAGE, as Kafka 4.3.1 says
        data = bytearray(PLAIN)
        data[16] = magic
        with pytest.raises(CorruptBatch, match=named):
            view(data)


def test_batches_are_split_where_they_end() -> None:
    data = memoryview(PLAIN + SNAPPY + ABORT_MARKER)
    assert [bytes(batch.data) for batch in split_batches(data)] == [PLAIN, SNAPPY, ABORT_MARKER]
    assert list(split_batches(memoryview(b""))) == []


def test_the_header_alone_can_be_read() -> None:
    batch = RecordBatch.peek(memoryview(PLAIN[:61]))
    assert (batch.size_bytes, batch.last_offset, batch.max_timestamp) == (123, 45, T + 100)
    with pytest.raises(TruncatedBatch):
        RecordBatch.peek(memoryview(PLAIN[:60]))
    with pytest.raises(UnsupportedMagic):
        RecordBatch.peek(memoryview(V0 + bytes(61)))


def test_a_codec_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidRecord, match="number 7"):
        list(records(view(with_payload(b"?", 0, attributes=7))))


def test_a_batch_that_compaction_emptied_keeps_its_place() -> None:
    full = build_batch(
        [Record(b"k", b"v", timestamp=T)] * 3,
        base_offset=100,
        producer_id=5,
        producer_epoch=2,
        base_sequence=7,
        codec=Codec.LZ4,
        transactional=True,
    )
    data = build_empty_batch(view(full))
    batch = view(data)
    assert decoded(data) == []
    assert validate_records(batch).max_timestamp == -1
    assert (batch.size_bytes, batch.record_count, batch.base_timestamp, batch.max_timestamp) == (
        61,
        0,
        -1,
        T,
    )
    assert (batch.base_offset, batch.last_offset, batch.last_sequence, batch.producer_id) == (100, 102, 9, 5)
    assert batch.is_transactional
    assert batch.codec is Codec.NONE


def test_holes_and_horizon_of_compaction_are_kept() -> None:
    kept = [Record(b"a", b"1", timestamp=T, offset=11), Record(b"b", None, timestamp=T + 3, offset=14)]
    data = build_batch(
        kept,
        base_offset=10,
        keep_offsets=True,
        last_offset_delta=9,
        delete_horizon_ms=T + 50,
        codec=Codec.ZSTD,
    )
    batch = view(data)
    assert decoded(data) == kept
    assert (batch.last_offset, batch.delete_horizon_ms, batch.max_timestamp) == (19, T + 50, T + 3)
    assert not validate_records(batch).offsets_in_order
    with pytest.raises(ValueError, match="before"):
        build_batch(kept, base_offset=12, keep_offsets=True)


def test_markers_are_kafkas() -> None:
    marker = build_transaction_marker(
        commit=False,
        producer_id=77,
        producer_epoch=1,
        coordinator_epoch=5,
        timestamp_ms=T,
        base_offset=9,
        leader_epoch=2,
    )
    assert marker == ABORT_MARKER
    (record,) = decoded(marker)
    assert control_type_of(record.key) is ControlType.ABORT
    assert coordinator_epoch_of(record.value) == 5


@pytest.mark.parametrize(
    ("case", "kind", "offset"),
    [
        ("ctrl_leader_change_off0_ts1700000000000_epoch4", ControlType.LEADER_CHANGE, 0),
        ("ctrl_snapshot_header_off0_epoch4", ControlType.SNAPSHOT_HEADER, 0),
        ("ctrl_kraft_version1_off1_epoch4", ControlType.KRAFT_VERSION, 1),
        ("ctrl_voters_off2_epoch4", ControlType.KRAFT_VOTERS, 2),
    ],
)
def test_control_batches_of_kraft_are_kafkas(case: str, kind: ControlType, offset: int) -> None:
    """The value of each, put into a batch again, gives the golden bytes."""
    data = golden(case)
    (record,) = decoded(data)
    assert control_type_of(record.key) is kind
    assert record.value is not None
    again = build_kraft_control_batch(
        [(kind, record.value)], timestamp_ms=T, base_offset=offset, leader_epoch=4
    )
    assert again == data


def test_control_keys_that_are_none() -> None:
    """Unknown types are skipped, newer versions read as 0, what is too short is refused."""
    assert control_type_of(b"\x00\x00\x00\x63") is None
    assert control_type_of(b"\x00\x05\x00\x01\xff") is ControlType.COMMIT
    assert control_key(ControlType.COMMIT) == b"\x00\x00\x00\x01"
    for key in (None, b"", b"\x00\x00\x00", b"\xff\xff\x00\x00"):
        with pytest.raises(InvalidRecord):
            control_type_of(key)
    for value in (None, b"\x00\x00", b"\xff\xff\x00\x00\x00\x00"):
        with pytest.raises(InvalidRecord):
            coordinator_epoch_of(value)


# Each payload stands for one rule of the record format.
BAD_PAYLOADS = {
    "one record too few": (PLAIN[61:], 3),
    "one record too many": (PLAIN[61:], 5),
    "negative count": (PLAIN[61:], -1),
    "huge count": (b"", 2**31 - 1),
    "length beyond the batch": (b"\x10\x00\x00\x00\x01\x01\x00", 1),
    "negative length": (b"\x01\x00\x00\x00\x01\x01\x00", 1),
    "length that is too short": (b"\x0a\x00\x00\x00\x01\x01\x00", 1),
    "varint without an end": (b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 1),
    "varint of 36 bits": (b"\xff\xff\xff\xff\x7f" + bytes(20), 1),
    "key of -2": (b"\x0c\x00\x00\x00\x03\x01\x00", 1),
    "value of -2": (b"\x0c\x00\x00\x00\x01\x03\x00", 1),
    "key of 2**31-1": (b"\x14\x00\x00\x00\xfe\xff\xff\xff\x0f\x01\x00", 1),
    "-1 headers": (b"\x0c\x00\x00\x00\x01\x01\x01", 1),
    "many headers": (b"\x14\x00\x00\x00\x01\x01\xfe\xff\xff\xff\x0f", 1),
    "null header key": (b"\x10\x00\x00\x00\x01\x01\x02\x01\x00", 1),
    "header value of -2": (b"\x10\x00\x00\x00\x01\x01\x02\x00\x03", 1),
    "header beyond the record": (b"\x10\x00\x00\x00\x01\x01\x02\x00\x7e" + bytes(80), 1),
}


@pytest.mark.parametrize(("payload", "count"), BAD_PAYLOADS.values(), ids=BAD_PAYLOADS)
def test_records_that_break_the_format_are_refused(payload: bytes, count: int) -> None:
    """Behind a CRC that is right, by both walks."""
    batch = view(with_payload(payload, count))
    batch.verify_crc()
    with pytest.raises(InvalidRecord):
        list(records(batch))
    with pytest.raises(InvalidRecord):
        validate_records(batch)


@pytest.mark.parametrize("codec", Codec)
def test_a_batch_that_holds_too_much_is_refused(codec: Codec) -> None:
    data = build_batch([Record(None, bytes(100_000))], codec=codec)
    size = validate_records(view(data)).decompressed_bytes
    assert len(list(records(view(data), size))) == 1
    with pytest.raises(DecompressedTooLarge):
        list(records(view(data), size - 1))


def test_validation_tells_what_a_topic_asks() -> None:
    checked = validate_records(view(PLAIN))
    assert (checked.offsets_in_order, checked.null_keys, checked.null_key_indexes) == (True, 1, [1])
    assert (checked.min_timestamp, checked.max_timestamp) == (T - 10, T + 100)


def test_times_are_read_without_the_headers() -> None:
    """The headers of this record are no headers: nothing looks at them."""
    batch = view(with_payload(b"\x14\x00\x05\x00\x01\x01\xfe\xff\xff\xff\x0f", 1))
    assert list(times(batch)) == [(batch.base_timestamp - 3, batch.base_offset)]


@pytest.mark.parametrize(
    ("payload", "count"),
    [(b"\x0c\x00", 1), (b"\x02\x00\x00\x00", 1), (b"\x0c\x00\x00\x00\x01\x01\x00", 2), (b"\x01", 1)],
    ids=["cut off", "longer than its length", "fewer than counted", "of a length below 0"],
)
def test_times_of_records_that_break_the_format_are_refused(payload: bytes, count: int) -> None:
    with pytest.raises(InvalidRecord):
        list(times(view(with_payload(payload, count))))


RECORD = st.builds(
    Record,
    key=st.none() | st.binary(max_size=80),
    value=st.none() | st.binary(max_size=300),
    headers=st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=9)), max_size=3).map(
        tuple
    ),
    timestamp=st.integers(-1, 2**62),
)


@settings(max_examples=examples(150), deadline=None)
@given(
    inner=st.lists(RECORD, max_size=12),
    codec=st.sampled_from(Codec),
    base_offset=st.integers(0, 2**62),
    base_sequence=st.integers(0, 2**31 - 1),
    leader_epoch=st.integers(-1, 2**31 - 1),
)
def test_round_trip(
    inner: list[Record], codec: Codec, base_offset: int, base_sequence: int, leader_epoch: int
) -> None:
    data = build_batch(
        inner,
        base_offset=base_offset,
        codec=codec,
        producer_id=1,
        producer_epoch=0,
        base_sequence=base_sequence,
        leader_epoch=leader_epoch,
    )
    decoded_records = decoded(data)
    assert [(r.key, r.value, r.headers, r.timestamp) for r in decoded_records] == [
        (r.key, r.value, r.headers, r.timestamp) for r in inner
    ]
    assert [r.offset for r in decoded_records] == [base_offset + index for index in range(len(inner))]
    assert [r.sequence for r in decoded_records] == [
        (base_sequence + index) % 2**31 for index in range(len(inner))
    ]
    assert list(times(view(data))) == [(r.timestamp, r.offset) for r in decoded_records]
    assert view(data).partition_leader_epoch == leader_epoch


def test_a_header_key_that_is_no_text_keeps_its_bytes() -> None:
    """A broker that writes a batch anew changes nothing in it."""
    payload = b"\x12\x00\x00\x00\x01\x01\x02\x02\xff\x01"
    (record,) = records(view(with_payload(payload, 1)))
    assert build_batch([record])[61:] == payload


@settings(max_examples=examples(400), deadline=None)
@given(
    data=st.binary(max_size=200), cut=st.integers(0, 140), at=st.integers(0, 140), byte=st.integers(0, 255)
)
def test_garbage_raises_broker_errors_only(data: bytes, cut: int, at: int, byte: int) -> None:
    """Bytes from nowhere, a damaged batch, garbage records behind a right CRC under each codec."""
    damaged = bytearray(SNAPPY[:cut] + data)
    if at < len(damaged):
        damaged[at] = byte
    for start in (data, bytes(damaged)):
        with suppress(BrokerError):
            for batch in split_batches(memoryview(start), allow_partial=True):
                list(records(batch, 1 << 16))
    for attributes in range(8):
        with suppress(BrokerError):
            list(records(view(with_payload(data, byte, attributes)), 1 << 16))
