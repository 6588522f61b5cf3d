"""Requests prepared once, so that a send patches a few bytes and no more.

A :class:`ProduceFrame` is one Produce request of one batch for one partition. Per send its correlation id
changes; where somebody measures end to end, also its timestamps, and the first 8 bytes of its first record's
value, which hold the intended send time in ns, and so the CRC. Of a batch the first record is the one that
waited longest: it stands for all.

Produce goes by version 7 and Fetch by version 11, the newest forms that have everything at fixed places;
brokers from Kafka 2.3 to 4.x take both.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence

from crc32c import crc32c

from blumfeld.bench.plan.workload import Produce
from blumfeld.wire.batches.builder import build_batch
from blumfeld.wire.batches.record_batch import CRC_FROM, HEADER_BYTES
from blumfeld.wire.batches.records import Record
from blumfeld.wire.batches.varint import read_varint
from blumfeld.wire.codec import encode
from blumfeld.wire.headers import put_request_header
from blumfeld.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from blumfeld.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

PRODUCE_VERSION = 7
FETCH_VERSION = 11
CLIENT_ID = "blumfeld-bench"
STAMP_BYTES = 8
"""Of a record's value: when it was meant to leave, ns; 0 where nobody asked."""
REQUEST_TIMEOUT_MS = 30_000
POOL_FRAMES = 1024
POOL_BYTES = 16 * 1024 * 1024
POOL_FRAMES_MIN = 16
"""Of each kind; several, that no cache of the server's sees one batch only."""

_CORRELATION_AT = 8
_I32 = struct.Struct(">i")
_U32 = struct.Struct(">I")
_STAMP = struct.Struct(">q")
_TIMES = struct.Struct(">qq")
_TIMES_AT = 27
_CRC_AT = 17


class ProduceFrame:
    """One request, ready to be sent again and again; a send must be over, or have its own copy, before the next."""

    __slots__ = ("_batch", "_batch_at", "_stamp_at", "data", "partition", "records", "value_bytes")

    def __init__(self, topic: str, partition: int, acks: int, records: Sequence[Record]) -> None:
        batch = bytes(build_batch(records))
        partition_data = PartitionProduceData(index=partition, records=batch)
        request = ProduceRequest(
            acks=acks,
            timeout_ms=REQUEST_TIMEOUT_MS,
            topic_data=[TopicProduceData(name=topic, partition_data=[partition_data])],
        )
        body = put_request_header(0, PRODUCE_VERSION, 0, CLIENT_ID) + encode(request, PRODUCE_VERSION)
        self.data = bytearray(_I32.pack(len(body)) + body)
        self.partition = partition
        self.records = len(records)
        self.value_bytes = sum(len(record.value or b"") for record in records)
        self._batch_at = len(self.data) - len(batch)
        self._batch = memoryview(self.data)[self._batch_at :]
        self._stamp_at = self._batch_at + first_value(self._batch, HEADER_BYTES)[0]

    def number(self, correlation_id: int) -> None:
        """Patch the correlation id."""
        _I32.pack_into(self.data, _CORRELATION_AT, correlation_id)

    def stamp(self, intended_ns: int, timestamp_ms: int) -> None:
        """Patch the intended time into the first value, the batch's timestamps, and the CRC."""
        _STAMP.pack_into(self.data, self._stamp_at, intended_ns)
        _TIMES.pack_into(self._batch, _TIMES_AT, timestamp_ms, timestamp_ms)
        _U32.pack_into(self._batch, _CRC_AT, crc32c(self._batch[CRC_FROM:]))


def first_value(batch: bytes | memoryview, at: int) -> tuple[int, int, int]:
    """Of the record that starts at ``at``: where its value starts, its length, and where the record ends."""
    # mypy knows no common protocol for the indexing of both
    data: bytes = batch  # type: ignore[assignment]
    length, at = read_varint(data, at)
    end = at + length
    _, at = read_varint(data, at + 1)  # the timestamp's delta, behind the attributes
    _, at = read_varint(data, at)  # the offset's delta
    key, at = read_varint(data, at)
    value, at = read_varint(data, at + max(key, 0))
    return at, max(value, 0), end


def produce_pool(
    topic: str, partitions: Sequence[int], produce: Produce, seed: int, timestamp_ms: int
) -> list[ProduceFrame]:
    """Requests to be sent in turn, drawn by the seed: sizes evenly, partitions by key or in turn.

    :param partitions: those that may be written to, by this process's connections
    """
    draw = random.Random(seed)
    batch_bytes = produce.batch_records * produce.record_bytes_max
    count = max(POOL_FRAMES_MIN, min(POOL_FRAMES, POOL_BYTES // batch_bytes))
    frames = []
    for number in range(count):
        partition = partitions[number % len(partitions)]
        records = [
            _record(draw, produce, partitions, partition, timestamp_ms) for _ in range(produce.batch_records)
        ]
        frames.append(ProduceFrame(topic, partition, produce.acks, records))
    return frames


def _record(
    draw: random.Random, produce: Produce, partitions: Sequence[int], partition: int, timestamp_ms: int
) -> Record:
    """A key's records go to one partition: keys are dealt to the partitions in turn."""
    key = None
    if produce.keys:
        rank = partitions.index(partition)
        mine = max(1, (produce.keys - rank + len(partitions) - 1) // len(partitions))
        key = b"key-%08d" % (draw.randrange(mine) * len(partitions) + rank)
    size = draw.randint(produce.record_bytes_min, produce.record_bytes_max)
    value = bytes(min(STAMP_BYTES, size)) + draw.randbytes(max(0, size - STAMP_BYTES))
    return Record(key=key, value=value, timestamp=timestamp_ms)


def fetch_frame(
    topic: str, offsets: dict[int, int], max_wait_ms: int, min_bytes: int, partition_max_bytes: int
) -> tuple[bytearray, dict[int, int]]:
    """A Fetch without a session (KIP-227: epoch -1), and where each partition's offset stands in it."""
    wanted = [
        FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=partition_max_bytes)
        for index, offset in offsets.items()
    ]
    request = FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max(52_428_800, partition_max_bytes),
        topics=[FetchTopic(topic=topic, partitions=wanted)],
    )
    body = put_request_header(1, FETCH_VERSION, 0, CLIENT_ID) + encode(request, FETCH_VERSION)
    data = bytearray(_I32.pack(len(body)) + body)
    # version 11, from behind: no rack (2), no forgotten topics (4), then 28 bytes for each partition
    first = len(data) - 6 - 28 * len(wanted)
    return data, {index: first + 28 * place + 8 for place, index in enumerate(offsets)}
