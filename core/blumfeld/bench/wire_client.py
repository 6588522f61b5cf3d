"""A small blocking client on our own codec: what a bench asks of a server before there is load.

Only versions that every broker since Kafka 2.1 speaks are used, so that a foreign one can be asked too.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import NamedTuple, Self, TypeVar

from blumfeld.bench.driver import DriverError
from blumfeld.testing.raw_connection import ConnectionEnded, RawConnection
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from blumfeld.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from blumfeld.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from blumfeld.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from blumfeld.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from blumfeld.wire.primitives import DecodeError
from blumfeld.wire.schema import Message

R = TypeVar("R", bound=Message)

API_VERSIONS_VERSION = 0
METADATA_VERSION = 8
CREATE_TOPICS_VERSION = 4
ALTER_CONFIGS_VERSION = 0
LIST_OFFSETS_VERSION = 4

TOPIC_RESOURCE = 2
"""Of a configuration: what it is of."""

LATEST = -1
EARLIEST = -2
POLL_S = 0.02


class Leader(NamedTuple):
    """Who leads a partition, and where."""

    node: int
    host: str
    port: int


class WireClient:
    """One connection. Every method raises DriverError, with the broker's name of the error, where it is refused."""

    def __init__(self, host: str, port: int, timeout_s: float = 30.0) -> None:
        """Connect.

        :raises DriverError: nobody listens there
        """
        self.host, self.port, self._timeout_s = host, port, timeout_s
        with _told(f"{host}:{port}"):
            self._connection = RawConnection(f"{host}:{port}", timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Hang up; harmless twice."""
        self._connection.close()

    def versions(self) -> dict[int, tuple[int, int]]:
        """API key → lowest and highest version that the server takes."""
        answer = self._ask(ApiVersionsRequest(), API_VERSIONS_VERSION, ApiVersionsResponse)
        _check(answer.error_code, "ApiVersions")
        return {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}

    def broker_count(self) -> int:
        """Brokers in the cluster, as this one sees it."""
        return len(self._metadata([]).brokers)

    def create_topic(
        self, name: str, partitions: int, replication_factor: int = 1, config: Mapping[str, str] | None = None
    ) -> None:
        """Make a topic; see :meth:`wait_for_leaders` for when it can be used."""
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=replication_factor,
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in (config or {}).items()],
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=int(self._timeout_s * 1000))
        answer = self._ask(request, CREATE_TOPICS_VERSION, CreateTopicsResponse)
        _check(answer.topics[0].error_code, f"topic {name}", answer.topics[0].error_message)

    def set_topic_config(self, name: str, key: str, value: str) -> None:
        """Set one key of a topic; the others stay (KIP-339)."""
        resource = AlterConfigsResource(
            resource_type=TOPIC_RESOURCE, resource_name=name, configs=[AlterableConfig(name=key, value=value)]
        )
        request = IncrementalAlterConfigsRequest(resources=[resource])
        answer = self._ask(request, ALTER_CONFIGS_VERSION, IncrementalAlterConfigsResponse)
        _check(answer.responses[0].error_code, f"{key} of topic {name}", answer.responses[0].error_message)

    def wait_for_leaders(self, name: str, patience_s: float | None = None) -> list[Leader]:
        """Wait until all partitions of a topic have leaders that answer for them: the leaders, by partition.

        :param patience_s: the client's timeout if it is None
        :raises DriverError: it took longer; the message has the last answer
        """
        deadline = time.monotonic() + (self._timeout_s if patience_s is None else patience_s)
        while True:
            try:
                leaders = self.leaders(name)
                self.latest_offsets(name, leaders)
            except DriverError as error:
                if time.monotonic() > deadline:
                    raise DriverError(f"topic {name} has no leaders yet: {error}") from error
                time.sleep(POLL_S)
            else:
                return leaders

    def latest_offsets(self, name: str, leaders: Sequence[Leader]) -> list[int]:
        """The end of each partition, asked of its leader."""
        return self.offsets(name, leaders, LATEST)

    def offsets(self, name: str, leaders: Sequence[Leader], timestamp: int) -> list[int]:
        """The offsets that stand at a time, or LATEST, or EARLIEST, asked of each partition's leader."""
        found = [-1] * len(leaders)
        for leader in sorted(set(leaders)):
            mine = [index for index, at in enumerate(leaders) if at == leader]
            with WireClient(leader.host, leader.port, self._timeout_s) as client:
                found_here = client._list_offsets(name, mine, timestamp)
            for index, offset in found_here.items():
                found[index] = offset
        return found

    def _list_offsets(self, name: str, partitions: Sequence[int], timestamp: int) -> dict[int, int]:
        wanted = [ListOffsetsPartition(partition_index=index, timestamp=timestamp) for index in partitions]
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=name, partitions=wanted)])
        answer = self._ask(request, LIST_OFFSETS_VERSION, ListOffsetsResponse)
        offsets = {}
        for partition in answer.topics[0].partitions:
            _check(partition.error_code, f"{name}-{partition.partition_index}")
            offsets[partition.partition_index] = partition.offset
        return offsets

    def leaders(self, name: str) -> list[Leader]:
        """The leaders of a topic, by partition, as they are now."""
        metadata = self._metadata([MetadataRequestTopic(name=name)])
        brokers = {broker.node_id: broker for broker in metadata.brokers}
        topic = metadata.topics[0]
        _check(topic.error_code, f"topic {name}")
        leaders = []
        for partition in sorted(topic.partitions, key=lambda partition: partition.partition_index):
            _check(partition.error_code, f"{name}-{partition.partition_index}")
            broker = brokers.get(partition.leader_id)
            if broker is None:
                raise DriverError(f"{name}-{partition.partition_index}: LEADER_NOT_AVAILABLE")
            leaders.append(Leader(broker.node_id, broker.host, broker.port))
        return leaders

    def _metadata(self, topics: list[MetadataRequestTopic]) -> MetadataResponse:
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        return self._ask(request, METADATA_VERSION, MetadataResponse)

    def _ask(self, message: Message, version: int, answer: type[R]) -> R:
        with _told(f"{type(message).__name__} to {self.host}:{self.port}"):
            return self._connection.ask(message, version, answer)


def _check(code: int, what: str, message: str | None = None) -> None:
    if code != 0:
        raise DriverError(f"{what}: {error_name(code)}" + (f" ({message})" if message else ""))


def error_name(code: int) -> str:
    """Kafka's name of an error code, or the number where there is none."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"


@contextmanager
def _told(what: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ConnectionEnded, DecodeError) as error:
        raise DriverError(f"{what}: {error or type(error).__name__}") from error
