"""Produce and Fetch of one partition, as raw connections ask for them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from blumfeld.wire.batches.record_batch import RecordBatch, split_batches
from blumfeld.wire.batches.records import Record, records
from blumfeld.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from blumfeld.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

PRODUCE_VERSION = 9
FETCH_VERSION = 12
FETCH_BYTES_MAX = 32 << 20


def produce_request(
    topic: str, batch: bytes | bytearray | None, partition: int = 0, acks: int = -1
) -> ProduceRequest:
    """One batch, or what is to pass for one."""
    data = PartitionProduceData(index=partition, records=None if batch is None else bytes(batch))
    topic_data = TopicProduceData(name=topic, partition_data=[data])
    return ProduceRequest(acks=acks, timeout_ms=10_000, topic_data=[topic_data])


def fetch_request(
    topic: str,
    offset: int,
    partition: int = 0,
    max_bytes: int = FETCH_BYTES_MAX,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
) -> FetchRequest:
    """A partition from an offset."""
    wanted = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes)
    topics = [FetchTopic(topic=topic, partitions=[wanted])]
    return FetchRequest(max_wait_ms=max_wait_ms, min_bytes=min_bytes, max_bytes=max_bytes, topics=topics)


def batches_of(answer: FetchResponse) -> list[RecordBatch]:
    """The whole batches that came."""
    parts = [part for topic in answer.responses for part in topic.partitions]
    return [
        batch
        for part in parts
        for batch in split_batches(cast("memoryview", part.records or memoryview(b"")), allow_partial=True)
    ]


def records_of(answer: FetchResponse, offset: int) -> Iterator[Record]:
    """The records that came, from an offset: a batch may begin before it."""
    return (record for batch in batches_of(answer) for record in records(batch) if record.offset >= offset)
