"""The walk over a crashed segment: it ends at the first byte that is wrong, wherever the chunks fall."""

from __future__ import annotations

import struct
from collections.abc import Generator
from typing import TypeVar
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blumfeld.log.leader_epochs import LeaderEpochCache
from blumfeld.log.producers.state import ProducerState
from blumfeld.log.segments.recovery import (
    LegacyFormat,
    Read,
    RecoveredSegment,
    WalkEnd,
    recover_segment,
)
from blumfeld.wire.batches.record_batch import RecordBatch
from tests.everyday import for_each
from tests.log.batches import batch_bytes, marker

T = TypeVar("T")
R = TypeVar("R")


def reader(data: bytes) -> Read:
    return lambda position, size: data[position : position + size]


def drive(steps: Generator[T, None, R]) -> tuple[list[T], R]:
    slices = []
    while True:
        try:
            slices.append(next(steps))
        except StopIteration as stop:
            return slices, stop.value


def walked(
    data: bytes, base_offset: int = 0, chunk_bytes: int = 1 << 20
) -> tuple[list[tuple[int, int]], WalkEnd]:
    """(position, last offset) of each whole batch: with such an interval each gets an index entry, but the first."""
    steps = recover_segment(reader(data), len(data), base_offset, interval_bytes=0, chunk_bytes=chunk_bytes)
    recovery = drive(steps)[1]
    entries = [recovery.offsets.entry(at) for at in range(len(recovery.offsets))]
    first = [(0, RecordBatch(memoryview(data)).last_offset)] if recovery.end.position else []
    return first + [(entry.position, entry.offset) for entry in entries], recovery.end


def recovered(data: bytes, interval_bytes: int = 100) -> RecoveredSegment:
    return drive(recover_segment(reader(data), len(data), 0, interval_bytes=interval_bytes))[1]


def test_a_sound_segment_is_walked_to_its_end() -> None:
    data = batch_bytes(5, 3) + batch_bytes(8) + batch_bytes(20, 2)
    batches, end = walked(data, 5)
    assert batches == [(0, 7), (68, 8), (136, 21)]
    assert end == WalkEnd(len(data), 22, None)


TAILS = {
    "cut in the header": (batch_bytes(1)[:30], "cut off"),
    "cut in the records": (batch_bytes(1)[:-1], "cut off"),
    "a few bytes": (b"\0" * 5, "cut off"),
    "zeros, as a power cut leaves them": (b"\0" * 4096, "format 0"),
    "a flipped bit": (batch_bytes(1)[:-1] + b"t", "CRC"),
    "a length of nothing": (struct.pack(">qi", 1, 3) + batch_bytes(1)[12:], "batch length of 3"),
    "a length beyond the file": (struct.pack(">qi", 1, 2**31 - 1) + batch_bytes(1)[12:], "cut off"),
    "an offset twice": (batch_bytes(0), "offset 0 where 1 or more should follow"),
    "an offset far away": (batch_bytes(2**31), "can't be in a segment"),
    "no records at all": (batch_bytes(1, 0), "offsets 1..0"),
    "a format to come": (batch_bytes(1)[:16] + b"\x03" + batch_bytes(1)[17:], "format 3"),
}


@for_each((tail, chunk_bytes) for tail in TAILS for chunk_bytes in (1 << 20, 64, 1))
def test_the_walk_ends_before(tail: str, chunk_bytes: int) -> None:
    data, problem = TAILS[tail]
    whole = batch_bytes(0)
    batches, end = walked(whole + data, chunk_bytes=chunk_bytes)
    assert len(batches) == 1
    assert (end.position, end.next_offset) == (len(whole), 1)
    assert problem in (end.problem or "")


def test_a_file_that_is_shorter_than_it_says_ends_there() -> None:
    data = batch_bytes(0)
    end = drive(recover_segment(reader(data), len(data) + 10, 0, interval_bytes=4096))[1].end
    assert (end.position, end.problem is None) == (len(data), False)


def test_a_batch_larger_than_a_chunk_is_whole_or_not() -> None:
    large = batch_bytes(0, payload=b"x" * 1000)
    batches, end = walked(large + batch_bytes(1), chunk_bytes=100)
    assert batches == [(0, 0), (1061, 1)]
    _, end = walked(large[:-1] + b"y" + batch_bytes(1), chunk_bytes=100)
    assert (end.position, "CRC" in (end.problem or "")) == (0, True)


def test_a_wrong_length_costs_reading_but_no_memory() -> None:
    """A length that swallows the rest of the file is found out in chunks, never in one piece."""
    data = struct.pack(">qi", 0, 5000) + batch_bytes(0)[12:] + b"x" * 9000
    sizes = []

    def read(position: int, size: int) -> bytes:
        sizes.append(size)
        return data[position : position + size]

    end = drive(recover_segment(read, len(data), 0, interval_bytes=4096, chunk_bytes=100))[1].end
    assert "CRC" in (end.problem or "")
    assert max(sizes) <= 100


@pytest.mark.parametrize("magic", [0, 1])
def test_data_of_an_old_kafka_is_not_cut_away(magic: int) -> None:
    body = bytes([magic, 0]) + b"\0" * 8 * magic + struct.pack(">ii", -1, 1) + b"v"
    message = struct.pack(">I", crc32(body)) + body
    data = struct.pack(">qi", 1, len(message)) + message
    with pytest.raises(LegacyFormat, match=f"format {magic} stands at byte 68"):
        walked(batch_bytes(0) + data)
    assert walked(batch_bytes(0) + data[:-1] + b"w")[1].position == 68


def test_a_segment_is_rebuilt_with_its_indexes() -> None:
    data = b"".join(batch_bytes(n, timestamp_ms=1000 + n % 3) for n in range(6))
    segment = recovered(data)
    assert [segment.offsets.entry(n) for n in range(len(segment.offsets))] == [(2, 136), (4, 272)]
    assert [segment.times.entry(n) for n in range(len(segment.times))] == [(1002, 2)]
    assert (segment.max_timestamp_ms, segment.max_timestamp_offset, segment.first_timestamp_ms) == (
        1002,
        2,
        1000,
    )


def test_it_tells_of_producers_and_epochs_in_order_and_of_whole_batches_only() -> None:
    data = b"".join(batch_bytes(n, producer_id=7, epoch=0, sequence=n, leader_epoch=n // 2) for n in range(4))
    state, epochs = ProducerState(), LeaderEpochCache()

    def hear(batch: RecordBatch) -> None:
        state.replay(batch)
        epochs.assign(batch.partition_leader_epoch, batch.base_offset)

    size = len(data) - 1
    steps = recover_segment(reader(data[:-1]), size, 0, interval_bytes=4096, listener=hear, chunk_bytes=150)
    walked_bytes, segment = drive(steps)
    assert walked_bytes == [136, 204]
    assert segment.end.next_offset == state.end_offset == 3
    assert epochs.entries == [(0, 0), (1, 2)]


@pytest.mark.parametrize("chunk_bytes", [1 << 20, 70])
def test_batches_that_say_nothing_new_are_not_told_of(chunk_bytes: int) -> None:
    """The first of a segment, an epoch's first, and every producer's; a control batch comes whole, however large."""
    control = bytes(marker(4, 9, 0, committed=True).data)
    batches = [
        batch_bytes(0),
        batch_bytes(1),
        batch_bytes(2, leader_epoch=1),
        batch_bytes(3, leader_epoch=1),
        control,
        batch_bytes(5, producer_id=9, epoch=0, sequence=0),
        batch_bytes(6),
    ]
    data, heard = b"".join(batches), list[RecordBatch]()
    drive(
        recover_segment(
            reader(data), len(data), 0, interval_bytes=4096, listener=heard.append, chunk_bytes=chunk_bytes
        )
    )
    assert [batch.base_offset for batch in heard] == [0, 2, 4, 5]
    assert [len(batch.data) for batch in heard] == [61, 61, len(control), 61]
    assert bytes(heard[2].data) == control


@given(
    st.lists(st.tuples(st.integers(1, 5), st.integers(0, 200)), max_size=8),
    st.integers(0, 2000),
    st.integers(0, 7),
    st.integers(1, 300),
)
def test_a_flipped_bit_anywhere_ends_the_walk_at_its_batch(
    shapes: list[tuple[int, int]], byte: int, bit: int, chunk_bytes: int
) -> None:
    offset, data, starts = 0, b"", []
    for records, size in shapes:
        starts.append(len(data))
        data += batch_bytes(offset, records, payload=b"p" * size)
        offset += records
    assert walked(data, chunk_bytes=chunk_bytes)[1] == WalkEnd(len(data), offset, None)
    if byte >= len(data):
        return
    at = max(start for start in starts if start <= byte)
    if byte - at < 8 or 12 <= byte - at < 16:
        return  # neither the offset nor the leader epoch is under the CRC
    damaged = bytearray(data)
    damaged[byte] ^= 1 << bit
    _, end = walked(bytes(damaged), chunk_bytes=chunk_bytes)
    assert end.position == at
    assert end.problem is not None
