"""The messages that the codecs are compared on: everyday traffic of a cluster of three brokers. Pure."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from blumfeld.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from blumfeld.wire.messages.headers import RequestHeader, ResponseHeader
from blumfeld.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from blumfeld.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from blumfeld.wire.schema import Message

TOPICS = 10
BATCH = bytes(range(256)) * 4
"""Content of a batch; no codec parses it."""
TOPIC_IDS_FROM = 13
"""First version in which Fetch names topics by id."""


@attrs.frozen
class Case:
    """A message in one version."""

    message: Message
    version: int
    about: str = ""

    @property
    def name(self) -> str:
        """Name in the table: the message, its version and its size."""
        size = f", {self.about}" if self.about else ""
        return f"{type(self.message).__name__} v{self.version}{size}"


def cases() -> list[Case]:
    """Return all compared cases, in the order of the table."""
    batch = "a batch of 1 KiB"
    all_cases = [Case(metadata_response(1000), 12, "1,000 partitions")]
    all_cases += [Case(request_header(), 2), Case(ResponseHeader(correlation_id=7), 1)]
    all_cases += [Case(produce_request(), version, batch) for version in (9, 10, 11)]
    all_cases += [Case(produce_response(), version) for version in (9, 10, 11)]
    all_cases += [Case(fetch_request(v, 100), v, "100 partitions") for v in (12, 13, 16)]
    all_cases += [Case(fetch_response(v, 1), v, batch) for v in (12, 16)]
    all_cases += [Case(fetch_response(v, 100), v, "100 batches of 1 KiB") for v in (12, 16)]
    return all_cases


def metadata_response(partitions: int) -> MetadataResponse:
    """Return ten topics on three brokers in three racks, each partition on all three and in sync."""
    brokers = [
        MetadataResponseBroker(node_id=n, host=f"broker-{n}.example.org", port=9092, rack=f"rack-{n}")
        for n in (1, 2, 3)
    ]
    return MetadataResponse(
        brokers=brokers,
        cluster_id="kafkaesque-cluster-id0",
        controller_id=1,
        topics=[
            MetadataResponseTopic(
                name=f"orders-{n}",
                topic_id=topic_id(n),
                partitions=[replicated(index) for index in range(partitions // TOPICS)],
            )
            for n in range(TOPICS)
        ],
    )


def replicated(index: int) -> MetadataResponsePartition:
    """Return a partition; the leader moves on with each index."""
    nodes = [1 + (index + step) % 3 for step in range(3)]
    return MetadataResponsePartition(
        partition_index=index,
        leader_id=nodes[0],
        leader_epoch=7,
        replica_nodes=nodes,
        isr_nodes=list(nodes),
    )


def request_header() -> RequestHeader:
    """Return the header of a Produce request."""
    return RequestHeader(request_api_key=0, request_api_version=9, correlation_id=7, client_id="market-feed")


def produce_request() -> ProduceRequest:
    """Return a request with one topic and one partition."""
    partition = PartitionProduceData(index=3, records=BATCH)
    return ProduceRequest(
        acks=-1, timeout_ms=30_000, topic_data=[TopicProduceData(name="orders", partition_data=[partition])]
    )


def produce_response() -> ProduceResponse:
    """Return the answer to :func:`produce_request`."""
    partition = PartitionProduceResponse(index=3, base_offset=123_456, log_start_offset=0)
    return ProduceResponse(responses=[TopicProduceResponse(name="orders", partition_responses=[partition])])


def fetch_request(version: int, partitions: int) -> FetchRequest:
    """Return the first request of a session, with ten topics."""
    fetch_partitions = [
        FetchPartition(
            partition=index, current_leader_epoch=7, fetch_offset=1000 + index, partition_max_bytes=1 << 20
        )
        for index in range(partitions // TOPICS)
    ]
    by_id = version >= TOPIC_IDS_FROM
    topics = [
        FetchTopic(topic_id=topic_id(n), partitions=fetch_partitions)
        if by_id
        else FetchTopic(topic=f"orders-{n}", partitions=fetch_partitions)
        for n in range(TOPICS)
    ]
    return FetchRequest(
        max_wait_ms=500, min_bytes=1, max_bytes=50 << 20, session_epoch=0, topics=topics, rack_id="rack-1"
    )


def fetch_response(version: int, partitions: int) -> FetchResponse:
    """Return a batch for each partition; one topic for one partition, else ten topics."""
    topics = min(TOPICS, partitions)
    answered: Callable[[int], PartitionData] = lambda index: PartitionData(  # noqa: E731
        partition_index=index,
        high_watermark=5000,
        last_stable_offset=5000,
        log_start_offset=0,
        aborted_transactions=[],
        records=BATCH,
    )
    by_id = version >= TOPIC_IDS_FROM
    return FetchResponse(
        session_id=99,
        responses=[
            FetchableTopicResponse(
                **{"topic_id": topic_id(n)} if by_id else {"topic": f"orders-{n}"},
                partitions=[answered(index) for index in range(partitions // topics)],
            )
            for n in range(topics)
        ],
    )


def topic_id(number: int) -> bytes:
    """Return an id that looks like a random UUID: not zero, and version 4."""
    return bytes.fromhex(f"6f1d{number:04x}8a774c2e9b1f0a55d3c9e801")
