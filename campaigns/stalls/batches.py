"""Batches of some kB that unpack to nearly 100 MB, for topics whose records the broker looks at."""

from __future__ import annotations

import time
from collections.abc import Iterator

from blumfeld.wire.batches.builder import build_batch
from blumfeld.wire.batches.records import Record
from blumfeld.wire.codec import encode
from blumfeld.wire.compression.codec import Codec
from blumfeld.wire.headers import put_request_header
from blumfeld.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from campaigns.stalls.largest import CLIENT_ID, CORRELATION_ID, Case

VERSION = 9
UNPACKED_BYTES = 95 * 1000 * 1000
RECORD_BYTES = 500_000
BATCH_BYTES_MAX = "104857600"
TOPICS = {
    "stalls-compacted": {"cleanup.policy": "compact", "max.message.bytes": BATCH_BYTES_MAX},
    "stalls-zstd": {"compression.type": "zstd", "max.message.bytes": BATCH_BYTES_MAX},
}
"""Topics whose records are decoded: one wants keys, one another codec."""


def cases() -> Iterator[Case]:
    """Large records and small ones, in each codec, to each topic."""
    for topic in TOPICS:
        for codec in Codec:
            yield _case(topic, codec, RECORD_BYTES, UNPACKED_BYTES // RECORD_BYTES)
        yield _case(topic, Codec.ZSTD, 8, 1_000_000)


def _case(topic: str, codec: Codec, record_bytes: int, count: int) -> Case:
    return Case(
        key=0,
        version=VERSION,
        title=f"Produce v{VERSION} {topic} {codec.name.lower()} {count} × {record_bytes} B",
        make=lambda: _frame(topic, codec, record_bytes, count),
    )


def _frame(topic: str, codec: Codec, record_bytes: int, count: int) -> bytes:
    record = Record(b"key", bytes(record_bytes), (), int(time.time() * 1000))
    batch = build_batch([record] * count, codec=codec)
    data = PartitionProduceData(index=0, records=bytes(batch))
    topics = [TopicProduceData(name=topic, partition_data=[data])]
    request = ProduceRequest(acks=1, timeout_ms=10_000, topic_data=topics)
    return put_request_header(0, VERSION, CORRELATION_ID, CLIENT_ID) + encode(request, VERSION)
