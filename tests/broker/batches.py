"""Batches and requests that several tests send."""

from __future__ import annotations

import struct
from typing import Any

from crc32c import crc32c

from blumfeld.wire.batches.builder import build_batch
from blumfeld.wire.batches.record_batch import CRC_FROM
from blumfeld.wire.batches.records import Record
from blumfeld.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from blumfeld.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from blumfeld_kit.fakes.runtime import EPOCH_MS

CRC_AT, LAST_OFFSET_DELTA_AT, COUNT_AT = 17, 23, 57


def batch(*values: bytes, key: bytes | None = b"k", timestamp: int = EPOCH_MS, **options: Any) -> bytearray:
    """One batch of these values (``b"v"`` if none is given)."""
    return build_batch([Record(key, value, (), timestamp) for value in values or (b"v",)], **options)


def declaring(data: bytearray, count: int, last_offset_delta: int | None = None) -> bytearray:
    """The batch with another number of records in its header, and last offset delta and CRC to match."""
    delta = count - 1 if last_offset_delta is None else last_offset_delta
    struct.pack_into(">i", data, LAST_OFFSET_DELTA_AT, delta)
    struct.pack_into(">i", data, COUNT_AT, count)
    struct.pack_into(">I", data, CRC_AT, crc32c(data[CRC_FROM:]))
    return data


def produce(
    data: bytes | bytearray | None,
    *,
    topic: str = "t",
    topic_id: bytes = bytes(16),
    partition: int = 0,
    acks: int = 1,
    timeout_ms: int = 1000,
    transactional_id: str | None = None,
) -> ProduceRequest:
    """One batch for one partition."""
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[
            TopicProduceData(
                name=topic,
                topic_id=topic_id,
                partition_data=[PartitionProduceData(index=partition, records=data)],
            )
        ],
    )


def fetch(
    offset: int = 0,
    *,
    topic: str = "t",
    topic_id: bytes = bytes(16),
    partitions: tuple[int, ...] = (0,),
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    partition_bytes_max: int = 1 << 20,
    **request: Any,
) -> FetchRequest:
    """The same offset of some partitions of one topic."""
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        topics=[
            FetchTopic(
                topic=topic,
                topic_id=topic_id,
                partitions=[
                    FetchPartition(partition=p, fetch_offset=offset, partition_max_bytes=partition_bytes_max)
                    for p in partitions
                ],
            )
        ],
        **request,
    )
