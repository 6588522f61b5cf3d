"""A small blocking client on our own codec, for the requests of a bench before there is load.

It uses only versions that every broker since Kafka 2.1 speaks, so that it works with foreign brokers too; only a
topic's id takes a broker that has ids (2.8).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Self, TypeVar

from blumfeld.client.blocking_connection import BlockingConnection
from blumfeld.client.errors import NotSecuredError, NotServedError, RefusedError, check, error_name
from blumfeld.client.metadata import Broker, ClusterView
from blumfeld.client.security.command_config import PLAINTEXT, ClientSecurity, CommandConfigError
from blumfeld.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from blumfeld.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from blumfeld.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from blumfeld.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
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
from blumfeld_bench.drivers.contract import DriverError

R = TypeVar("R", bound=Message)

CLIENT_ID = "blumfeld-bench"
API_VERSIONS_VERSION = 0
METADATA_VERSION = 8
CREATE_TOPICS_VERSION = 4
ALTER_CONFIGS_VERSION = 0
LIST_OFFSETS_VERSION = 4
TIERED_OFFSETS_VERSION = 9
"""Version of ListOffsets that knows the special offsets of a tiered log."""
FIND_COORDINATOR_VERSION, TOPIC_ID_VERSION, DESCRIBE_CONFIGS_VERSION = 2, 12, 2

TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4
"""Resource types of a topic and of a broker in the configuration APIs."""

LATEST = -1
EARLIEST = -2
EARLIEST_LOCAL, LATEST_TIERED = -4, -5
POLL_S = 0.02

Leader = Broker
"""A partition's leader with its address."""


class WireClient:
    """One connection to a broker. Every method raises DriverError, with the broker's error name, when a request is
    refused.
    """

    def __init__(
        self, host: str, port: int, timeout_s: float = 30.0, security: ClientSecurity = PLAINTEXT
    ) -> None:
        """Connect, and log in.

        :raises DriverError: the connection was refused, or TLS or the login failed
        """
        self.host, self.port, self._timeout_s, self._security = host, port, timeout_s, security
        with _told(f"{host}:{port}"):
            self._connection = BlockingConnection(host, port, CLIENT_ID, timeout_s, security=security)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; harmless twice."""
        self._connection.close()

    def versions(self) -> dict[int, tuple[int, int]]:
        """Return the lowest and highest version of each API key that the server takes."""
        answer = self._ask(ApiVersionsRequest(), API_VERSIONS_VERSION, ApiVersionsResponse)
        _refused(answer.error_code, "ApiVersions")
        return {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}

    def broker_count(self) -> int:
        """Return the number of brokers that this server knows."""
        return len(self._metadata([]).brokers)

    def create_topic(
        self, name: str, partitions: int, replication_factor: int = 1, config: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic; :meth:`wait_for_leaders` returns when it can be used."""
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=replication_factor,
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in (config or {}).items()],
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=int(self._timeout_s * 1000))
        answer = self._ask(request, CREATE_TOPICS_VERSION, CreateTopicsResponse)
        _refused(answer.topics[0].error_code, f"topic {name}", answer.topics[0].error_message)

    def set_topic_config(self, name: str, key: str, value: str) -> None:
        """Set one key of a topic; the other keys stay (KIP-339)."""
        resource = AlterConfigsResource(
            resource_type=TOPIC_RESOURCE, resource_name=name, configs=[AlterableConfig(name=key, value=value)]
        )
        request = IncrementalAlterConfigsRequest(resources=[resource])
        answer = self._ask(request, ALTER_CONFIGS_VERSION, IncrementalAlterConfigsResponse)
        _refused(answer.responses[0].error_code, f"{key} of topic {name}", answer.responses[0].error_message)

    def wait_for_leaders(self, name: str, patience_s: float | None = None) -> list[Leader]:
        """Wait until each partition's leader answers for it; return the leaders by partition.

        :param patience_s: longest wait; None is the client's timeout
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
        """Return the end offset of each partition, asked of its leader."""
        return self.offsets(name, leaders, LATEST)

    def offsets(self, name: str, leaders: Sequence[Leader], timestamp: int) -> list[int]:
        """Return the offset for a timestamp or a special one (LATEST …), asked of each partition's leader."""
        offsets = [-1] * len(leaders)
        for leader in sorted(set(leaders)):
            mine = [index for index, at in enumerate(leaders) if at == leader]
            with WireClient(leader.host, leader.port, self._timeout_s, self._security) as client:
                found_here = client._list_offsets(name, mine, timestamp)
            for index, offset in found_here.items():
                offsets[index] = offset
        return offsets

    def _list_offsets(self, name: str, partitions: Sequence[int], timestamp: int) -> dict[int, int]:
        wanted = [ListOffsetsPartition(partition_index=index, timestamp=timestamp) for index in partitions]
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=name, partitions=wanted)])
        version = LIST_OFFSETS_VERSION if timestamp > EARLIEST_LOCAL else TIERED_OFFSETS_VERSION
        answer = self._ask(request, version, ListOffsetsResponse)
        offsets = {}
        for partition in answer.topics[0].partitions:
            _refused(partition.error_code, f"{name}-{partition.partition_index}")
            offsets[partition.partition_index] = partition.offset
        return offsets

    def leaders(self, name: str) -> list[Leader]:
        """Return the present leaders of a topic, by partition."""
        view = ClusterView()
        view.take(self._metadata([name]))
        try:
            return view.leaders(name)
        except RefusedError as error:
            raise DriverError(str(error)) from None

    def broker_config(self, keys: Sequence[str]) -> dict[str, str | None]:
        """Return the values of these keys at the only broker; None where it has no such key.

        :raises DriverError: there are several brokers, or the broker refuses
        """
        brokers = self._metadata([]).brokers
        if len(brokers) != 1:
            raise DriverError(f"the configuration of one broker is asked for; there are {len(brokers)}")
        resource = DescribeConfigsResource(
            resource_type=BROKER_RESOURCE,
            resource_name=str(brokers[0].node_id),
            configuration_keys=list(keys),
        )
        request = DescribeConfigsRequest(resources=[resource])
        result = self._ask(request, DESCRIBE_CONFIGS_VERSION, DescribeConfigsResponse).results[0]
        _refused(result.error_code, "DescribeConfigs")
        values = {config.name: config.value for config in result.configs}
        return {key: values.get(key) for key in keys}

    def topic_id(self, name: str) -> bytes:
        """Return the id of an existing topic."""
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
        topic = self._ask(request, TOPIC_ID_VERSION, MetadataResponse).topics[0]
        _refused(topic.error_code, f"topic {name}")
        return topic.topic_id

    def await_coordinator(self, group_id: str) -> None:
        """Wait until the group has a coordinator.

        :raises DriverError: it took longer than the client's timeout
        """
        deadline = time.monotonic() + self._timeout_s
        request = FindCoordinatorRequest(key=group_id, key_type=0)
        while code := self._ask(request, FIND_COORDINATOR_VERSION, FindCoordinatorResponse).error_code:
            if time.monotonic() > deadline:
                raise DriverError(f"group {group_id}: {error_name(code)}")
            time.sleep(POLL_S)

    def _metadata(self, topics: Sequence[str]) -> MetadataResponse:
        return self._ask(ClusterView.request(topics), METADATA_VERSION, MetadataResponse)

    def _ask(self, message: Message, version: int, answer: type[R]) -> R:
        with _told(f"{type(message).__name__} to {self.host}:{self.port}"):
            return self._connection.ask(message, answer, version)


def _refused(code: int, about: str, message: str | None = None) -> None:
    try:
        check(code, about, message)
    except RefusedError as error:
        raise DriverError(str(error)) from None


@contextmanager
def _told(what: str) -> Iterator[None]:
    try:
        yield
    except (OSError, DecodeError, CommandConfigError) as error:
        told = error.reason if isinstance(error, NotSecuredError | NotServedError) else error
        raise DriverError(f"{what}: {told or type(error).__name__}") from error
