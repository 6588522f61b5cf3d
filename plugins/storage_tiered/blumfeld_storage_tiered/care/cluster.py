"""What a running cluster says of its tiered topics, over the protocol: from any broker, ours or Kafka's."""

from __future__ import annotations

from typing import TypeVar, cast

from blumfeld.client.blocking_connection import BlockingConnection
from blumfeld.client.errors import check
from blumfeld.client.metadata import ClusterView
from blumfeld.client.security.command_config import PLAINTEXT, ClientSecurity
from blumfeld.client.versions import SPOKEN
from blumfeld.spi.internal_topics import REMOTE_LOG_METADATA_TOPIC
from blumfeld.wire.batches.record_batch import split_batches
from blumfeld.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from blumfeld.wire.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from blumfeld.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from blumfeld.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from blumfeld.wire.messages.metadata import MetadataResponse
from blumfeld.wire.schema import Message
from blumfeld_storage_tiered.care.standing import PartitionEnds
from blumfeld_storage_tiered.catalog.segment import RemoteSegment
from blumfeld_storage_tiered.metadata_topic.metadata_partition import MetadataPartition

R = TypeVar("R", bound=Message)

CLIENT_ID = "blumfeld-tiered"
ANSWER_S = 30.0
FETCH_BYTES = 1 << 20
TOPIC_NAMES_TO = 12
"""The last version of Fetch that names topics."""
TOPIC = 2
"""The type of a topic among the resources of DescribeConfigs."""
ENABLE = "remote.storage.enable"
LATEST, EARLIEST_LOCAL, LATEST_TIERED = -1, -4, -5


class RunningCluster:
    """A cluster that is asked. Every method may raise ``OSError``, ``RefusedError`` and ``DecodeError``.

    :param host: of one broker
    """

    def __init__(self, host: str, port: int, security: ClientSecurity = PLAINTEXT) -> None:
        self._security = security
        self._connections: dict[tuple[str, int], BlockingConnection] = {}
        self._bootstrap = (host, port)
        try:
            answer = self._ask(self._bootstrap, ClusterView.request(None), MetadataResponse)
        except BaseException:
            self.close()
            raise
        self.cluster_id = answer.cluster_id or ""
        self._view = ClusterView()
        self._view.take(answer)
        self._topics = [topic.name for topic in answer.topics if topic.name is not None]
        self.topic_ids = frozenset(topic.topic_id for topic in answer.topics)
        """The ids of all topics."""

    def close(self) -> None:
        """Hang up."""
        for connection in self._connections.values():
            connection.close()

    def _ask(
        self, address: tuple[str, int], request: Message, expected: type[R], version: int | None = None
    ) -> R:
        connection = self._connections.get(address)
        if connection is None:
            connection = self._connections[address] = BlockingConnection(
                *address, CLIENT_ID, ANSWER_S, security=self._security
            )
            connection.negotiate(SPOKEN)
        return connection.ask(request, expected, version)

    # The metadata topic

    def records(self) -> dict[bytes, RemoteSegment]:
        """Return the segments that ``__remote_log_metadata`` speaks of, in any state, by id."""
        segments: dict[bytes, RemoteSegment] = {}
        if REMOTE_LOG_METADATA_TOPIC not in self._topics:
            return segments
        for partition, leader in enumerate(self._view.leaders(REMOTE_LOG_METADATA_TOPIC)):
            read = self._read((leader.host, leader.port), partition)
            segments.update({each.segment_id: each for catalog in read.catalogs.values() for each in catalog})
        return segments

    def _read(self, leader: tuple[str, int], partition: int) -> MetadataPartition:
        metadata = MetadataPartition(partition)
        end = self._offset(leader, REMOTE_LOG_METADATA_TOPIC, partition, LATEST)
        while metadata.position < end:
            wanted = FetchPartition(
                partition=partition, fetch_offset=metadata.position, partition_max_bytes=FETCH_BYTES
            )
            topic = FetchTopic(topic=REMOTE_LOG_METADATA_TOPIC, partitions=[wanted])
            request = FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=FETCH_BYTES, topics=[topic])
            answer = self._ask(leader, request, FetchResponse, TOPIC_NAMES_TO)
            check(answer.error_code, REMOTE_LOG_METADATA_TOPIC)
            for data in (data for topic in answer.responses for data in topic.partitions):
                check(data.error_code, f"{REMOTE_LOG_METADATA_TOPIC}-{partition}")
                batches = split_batches(memoryview(cast("bytes", data.records or b"")), allow_partial=True)
                metadata.take(batches, lambda place, error: None)
        return metadata

    # Partitions

    def tiered_topics(self) -> list[str]:
        """Return the topics with ``remote.storage.enable``."""
        resources = [
            DescribeConfigsResource(resource_type=TOPIC, resource_name=name, configuration_keys=[ENABLE])
            for name in self._topics
        ]
        answer = self._ask(
            self._bootstrap, DescribeConfigsRequest(resources=resources), DescribeConfigsResponse
        )
        return [
            result.resource_name
            for result in answer.results
            if any(config.name == ENABLE and config.value == "true" for config in result.configs)
        ]

    def ends(self) -> dict[tuple[str, int], PartitionEnds]:
        """Return what the leaders say of the partitions of the tiered topics."""
        found: dict[tuple[str, int], PartitionEnds] = {}
        sizes: dict[tuple[str, int], dict[tuple[str, int], int]] = {}
        for topic in self.tiered_topics():
            for partition, broker in enumerate(self._view.leaders(topic)):
                leader = (broker.host, broker.port)
                if leader not in sizes:
                    sizes[leader] = self._local_bytes(leader)
                found[topic, partition] = PartitionEnds(
                    local_bytes=sizes[leader].get((topic, partition), 0),
                    local_start_offset=self._offset(leader, topic, partition, EARLIEST_LOCAL),
                    copied_end_offset=self._offset(leader, topic, partition, LATEST_TIERED) + 1,
                    log_end_offset=self._offset(leader, topic, partition, LATEST),
                )
        return found

    def _offset(self, leader: tuple[str, int], topic: str, partition: int, timestamp: int) -> int:
        wanted = ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
        request = ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[wanted])], timeout_ms=10_000
        )
        answer = self._ask(leader, request, ListOffsetsResponse)
        (found,) = (each for answered in answer.topics for each in answered.partitions)
        check(found.error_code, f"{topic}-{partition}")
        return found.offset

    def _local_bytes(self, broker: tuple[str, int]) -> dict[tuple[str, int], int]:
        answer = self._ask(broker, DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse)
        return {
            (topic.name, partition.partition_index): partition.partition_size
            for directory in answer.results
            for topic in directory.topics
            for partition in topic.partitions
            if not partition.is_future_key
        }
