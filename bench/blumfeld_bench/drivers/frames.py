"""Requests that are encoded once, so that a send patches only a few bytes.

A :class:`ProduceFrame` is one Produce request of one batch for one partition. Each send changes its correlation id.
If the step measures end to end, a send also sets the batch's timestamps, the first 8 bytes of the first record's
value (the intended send time in ns) and the CRC. The first record of a batch waited longest, so its time stands for
the whole batch.

Produce uses version 7 and Fetch version 11, the newest versions that have every field at a fixed place. Brokers from
Kafka 2.3 to 4.x take both.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence

from crc32c import crc32c

from blumfeld.client.frames import request_frame
from blumfeld.wire.batches.builder import build_batch
from blumfeld.wire.batches.record_batch import CRC_FROM, HEADER_BYTES
from blumfeld.wire.batches.records import Record
from blumfeld.wire.batches.varint import read_varint
from blumfeld.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from blumfeld.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from blumfeld.wire.schema import Message
from blumfeld_bench.workload import Produce

PRODUCE_VERSION = 7
FETCH_VERSION = 11
CLIENT_ID = "blumfeld-bench"
STAMP_BYTES = 8
"""First bytes of a record's value: the intended send time in ns; 0 if the step doesn't measure end to end."""
REQUEST_TIMEOUT_MS = 30_000
POOL_FRAMES = 1024
POOL_BYTES = 16 * 1024 * 1024
POOL_FRAMES_MIN = 16
"""Least number of frames of each kind. With one frame alone, a server's caches would see the same batch again and
again.
"""

_CORRELATION_AT = 8
_I32 = struct.Struct(">i")
_U32 = struct.Struct(">I")
_STAMP = struct.Struct(">q")
_TIMES = struct.Struct(">qq")
_TIMES_AT = 27
_CRC_AT = 17


class Frame:
    """One request, ready to be sent again and again. A send must be complete, or have its own copy, before the next
    patch.
    """

    __slots__ = ("data",)

    def __init__(self, request: Message, version: int) -> None:
        self.data = bytearray(request_frame(request, version, 0, CLIENT_ID))

    def number(self, correlation_id: int) -> None:
        """Write the correlation id into the frame."""
        _I32.pack_into(self.data, _CORRELATION_AT, correlation_id)


class ProduceFrame(Frame):
    """One Produce request of one batch for one partition."""

    __slots__ = ("_batch", "_batch_at", "_stamp_at", "partition", "records", "value_bytes")

    def __init__(self, topic: str, partition: int, acks: int, records: Sequence[Record]) -> None:
        batch = bytes(build_batch(records))
        partition_data = PartitionProduceData(index=partition, records=batch)
        request = ProduceRequest(
            acks=acks,
            timeout_ms=REQUEST_TIMEOUT_MS,
            topic_data=[TopicProduceData(name=topic, partition_data=[partition_data])],
        )
        super().__init__(request, PRODUCE_VERSION)
        self.partition = partition
        self.records = len(records)
        self.value_bytes = sum(len(record.value or b"") for record in records)
        self._batch_at = len(self.data) - len(batch)
        self._batch = memoryview(self.data)[self._batch_at :]
        self._stamp_at = self._batch_at + first_value(self._batch, HEADER_BYTES)[0]

    def stamp(self, intended_ns: int, timestamp_ms: int) -> None:
        """Write the intended time into the first value, the batch's timestamps, and the CRC."""
        _STAMP.pack_into(self.data, self._stamp_at, intended_ns)
        _TIMES.pack_into(self._batch, _TIMES_AT, timestamp_ms, timestamp_ms)
        _U32.pack_into(self._batch, _CRC_AT, crc32c(self._batch[CRC_FROM:]))


def first_value(batch: bytes | memoryview, at: int) -> tuple[int, int, int]:
    """Return where the value of the record at ``at`` starts, the value's length, and where the record ends."""
    # mypy knows no common protocol for the indexing of both
    data: bytes = batch  # type: ignore[assignment]
    length, at = read_varint(data, at)
    end = at + length
    _, at = read_varint(data, at + 1)  # skip the timestamp delta, which follows the attributes
    _, at = read_varint(data, at)  # skip the offset delta
    key, at = read_varint(data, at)
    value, at = read_varint(data, at + max(key, 0))
    return at, max(value, 0), end


def produce_pool(
    topic: str, partitions: Sequence[int], produce: Produce, seed: int, timestamp_ms: int
) -> list[ProduceFrame]:
    """Return requests to be sent in turn, drawn by the seed: sizes evenly, partitions by key or in turn.

    :param partitions: partitions that this process's connections may write to
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
    """Draw a record. Keys are dealt to the partitions in turn, so that a key's records go to one partition."""
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
    """Return a Fetch without a session (KIP-227: epoch -1), and the place of each partition's offset in it."""
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
    data = Frame(request, FETCH_VERSION).data
    # version 11, from behind: no rack (2), no forgotten topics (4), then 28 bytes for each partition
    first = len(data) - 6 - 28 * len(wanted)
    return data, {index: first + 28 * place + 8 for place, index in enumerate(offsets)}
