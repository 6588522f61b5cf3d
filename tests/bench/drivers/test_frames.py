"""Prepared requests: right before the first send, and after every patch."""

from __future__ import annotations

import struct

from blumfeld.wire.batches.record_batch import HEADER_BYTES, RecordBatch
from blumfeld.wire.batches.records import Record
from blumfeld.wire.codec import decode
from blumfeld.wire.headers import request_header
from blumfeld.wire.messages.fetch import FetchRequest
from blumfeld.wire.messages.produce import ProduceRequest
from blumfeld_bench.drivers.frames import (
    FETCH_VERSION,
    POOL_FRAMES,
    PRODUCE_VERSION,
    ProduceFrame,
    fetch_frame,
    first_value,
    produce_pool,
)
from blumfeld_bench.workload import Produce


def batch_of(frame: ProduceFrame) -> tuple[int, RecordBatch]:
    """The correlation id, and the batch, as a broker would read them."""
    data = memoryview(bytes(frame.data))[4:]
    assert len(data) == struct.unpack(">i", frame.data[:4])[0]
    header = request_header(data)
    request = decode(ProduceRequest, data, PRODUCE_VERSION, header.body_offset)
    records = request.topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    batch = RecordBatch(records)
    batch.verify_crc()
    return header.correlation_id, batch


def test_a_patched_frame_is_a_valid_request() -> None:
    frame = ProduceFrame("ticks", 3, 1, [Record(key=b"k", value=bytes(200), timestamp=1)] * 2)
    frame.number(77)
    frame.stamp(123_456_789, 1_700_000_000_000)
    number, batch = batch_of(frame)
    at, size, _ = first_value(batch.data, HEADER_BYTES)
    assert number == 77
    assert struct.unpack_from(">q", batch.data, at) == (123_456_789,)
    assert (batch.base_timestamp, batch.max_timestamp) == (1_700_000_000_000, 1_700_000_000_000)
    assert (size, batch.record_count, frame.value_bytes) == (200, 2, 400)


def test_a_pool_has_the_sizes_and_keys_that_were_asked_for_by_the_seed() -> None:
    """All sizes in the range occur, a key stays with its partition, another seed gives other bytes."""
    produce = Produce(record_bytes_min=64, record_bytes_max=70, keys=10)
    pool = produce_pool("t", [0, 1, 2], produce, 5, 0)
    assert len(pool) == POOL_FRAMES
    assert {frame.value_bytes for frame in pool} == set(range(64, 71))
    homes: dict[bytes, set[int]] = {}
    for frame in pool:
        _, batch = batch_of(frame)
        at = bytes(batch.data).index(b"key-")
        homes.setdefault(bytes(batch.data[at : at + 12]), set()).add(frame.partition)
    assert len(homes) == 10
    assert all(len(partitions) == 1 for partitions in homes.values())
    again = produce_pool("t", [0, 1, 2], produce, 5, 0)
    other = produce_pool("t", [0, 1, 2], produce, 6, 0)
    assert [frame.data for frame in pool] == [frame.data for frame in again]
    assert [frame.data for frame in pool] != [frame.data for frame in other]


def test_a_fetch_frame_s_offsets_are_where_it_says() -> None:
    data, places = fetch_frame("t", {4: 10, 7: 20}, 500, 1, 1_048_576)
    struct.pack_into(">q", data, places[7], 99)
    frame = memoryview(bytes(data))[4:]
    request = decode(FetchRequest, frame, FETCH_VERSION, request_header(frame).body_offset)
    offsets = {each.partition: each.fetch_offset for each in request.topics[0].partitions}
    assert offsets == {4: 10, 7: 99}
    assert (request.session_epoch, request.max_wait_ms) == (-1, 500)
