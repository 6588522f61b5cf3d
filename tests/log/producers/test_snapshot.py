"""Producer snapshots: bytes that Apache Kafka 4.3.1 wrote, bytes by hand, and damage."""

from __future__ import annotations

import struct

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from blumfeld.log.producers.snapshot import (
    CorruptSnapshot,
    ProducerEntry,
    WrittenBatch,
    decode_snapshot,
    encode_snapshot,
)

BY_KAFKA_WITH_OPEN_TRANSACTION = bytes.fromhex(
    "0001fb008acf00000001"
    "000000000000000000020000013e00000000000007fa00000017000001a1fd99d7370000000000000000000006bc"
)
BY_KAFKA_AFTER_A_MARKER = bytes.fromhex(
    "0001dd7eebc900000001"
    "00000000000000000005ffffffffffffffffffffffff00000000000001a1fd99d92c00000000ffffffffffffffff"
)


@pytest.mark.parametrize(
    ("data", "entry"),
    [
        pytest.param(
            BY_KAFKA_WITH_OPEN_TRANSACTION,
            ProducerEntry(
                producer_id=0,
                epoch=2,
                batches=(WrittenBatch(0x13E, 0x7FA, 23, 0x1A1FD99D737),),
                last_timestamp_ms=0x1A1FD99D737,
                coordinator_epoch=0,
                txn_first_offset=0x6BC,
            ),
            id="an open transaction",
        ),
        pytest.param(
            BY_KAFKA_AFTER_A_MARKER,
            ProducerEntry(producer_id=0, epoch=5, last_timestamp_ms=0x1A1FD99D92C, coordinator_epoch=0),
            id="a marker began a new epoch",
        ),
    ],
)
def test_a_snapshot_of_kafka_both_ways(data: bytes, entry: ProducerEntry) -> None:
    assert decode_snapshot(data) == [entry]
    assert encode_snapshot([entry]) == data


def test_an_empty_snapshot_is_ten_bytes() -> None:
    assert encode_snapshot([]) == b"\0\1" + struct.pack(">I", crc32c(b"\0\0\0\0")) + b"\0\0\0\0"


def test_only_the_last_batch_survives() -> None:
    batches = tuple(WrittenBatch(n, n, 0, 5) for n in range(3))
    (entry,) = decode_snapshot(
        encode_snapshot([ProducerEntry(producer_id=1, last_timestamp_ms=5, batches=batches)])
    )
    assert entry.batches == batches[-1:]


@pytest.mark.parametrize("cut", [0, 5, 9, 20, 55])
def test_a_cut_snapshot_is_refused(cut: int) -> None:
    with pytest.raises(CorruptSnapshot):
        decode_snapshot(BY_KAFKA_AFTER_A_MARKER[:cut])


def test_another_version_is_refused() -> None:
    with pytest.raises(CorruptSnapshot, match="version 2"):
        decode_snapshot(b"\0\2" + BY_KAFKA_AFTER_A_MARKER[2:])


@pytest.mark.parametrize("count", [-1, 0, 2])
def test_a_count_that_the_file_does_not_hold_is_refused(count: int) -> None:
    body = struct.pack(">i", count) + BY_KAFKA_AFTER_A_MARKER[10:]
    with pytest.raises(CorruptSnapshot, match="can't hold"):
        decode_snapshot(b"\0\1" + struct.pack(">I", crc32c(body)) + body)


@given(st.integers(0, len(BY_KAFKA_AFTER_A_MARKER) * 8 - 1))
def test_every_flipped_bit_is_seen(bit: int) -> None:
    damaged = bytearray(BY_KAFKA_AFTER_A_MARKER)
    damaged[bit // 8] ^= 1 << bit % 8
    with pytest.raises(CorruptSnapshot):
        decode_snapshot(bytes(damaged))


@pytest.mark.parametrize(("last", "delta", "first"), [(9, 4, 5), (1, 3, 2**31 - 2), (-1, 2, -1)])
def test_the_first_sequence_is_before_the_wrap(last: int, delta: int, first: int) -> None:
    assert WrittenBatch(last, 100, delta, 0).first_sequence == first
