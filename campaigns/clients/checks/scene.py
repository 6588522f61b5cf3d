"""Topics, groups and logs as the brokers have them, seen past the client: by raw requests.

With several brokers a log is read from its leader, and a group is asked for at its coordinator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from blumfeld.wire.batches.record_batch import RecordBatch
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)
from blumfeld.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from blumfeld.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from blumfeld.wire.messages.fetch import FetchResponse
from blumfeld.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from blumfeld.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from campaigns.clients.client import BROKERS_DEFAULT, CheckFailed
from campaigns.consensus import KRAFT
from campaigns.coordinators import coordinator_address
from campaigns.raw_connection import RawConnection
from campaigns.raw_requests import FETCH_VERSION, batches_of, fetch_request
from campaigns.waits import answer_of, await_true

POLL_S = 0.05
WAIT_S = 30.0


class Scene:
    """One check's own names on the brokers, and raw connections to look behind the client.

    :param bootstrap: ``host:port`` of every broker of the cluster, with commas
    """

    def __init__(self, bootstrap: str, tag: str, consensus: str = KRAFT) -> None:
        self.consensus = consensus
        """What keeps the brokers' metadata (:mod:`campaigns.consensus`)."""
        self.bootstrap = bootstrap
        self.servers = tuple(bootstrap.split(","))
        self.tag = tag
        self._connections: dict[str, RawConnection] = {}
        self.raw = self._connection(self.servers[0])

    def close(self) -> None:
        """End the raw connections."""
        for connection in self._connections.values():
            connection.close()

    def _connection(self, address: str) -> RawConnection:
        if address not in self._connections:
            self._connections[address] = RawConnection(address)
        return self._connections[address]

    def topic(self, what: str = "t") -> str:
        """A name for a topic of this check."""
        return f"{self.tag}-{what}"

    def group(self, what: str = "g") -> str:
        """A name for a group of this check."""
        return f"{self.tag}-{what}"

    def new_topic(self, partitions: int, configs: Mapping[str, str] | None = None, what: str = "t") -> str:
        """Create a topic that keeps its records however old they are, and wait until it is led."""
        name = self.topic(what)
        given = {"retention.ms": "-1", **(configs or {})}
        wanted = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=BROKERS_DEFAULT,
            configs=[CreatableTopicConfig(name=k, value=v) for k, v in given.items()],
        )
        request = CreateTopicsRequest(topics=[wanted], timeout_ms=15_000)
        for topic in self._controller().ask(request, 5, CreateTopicsResponse).topics:
            if topic.error_code:
                raise CheckFailed(f"set-up: {ErrorCode(topic.error_code).name} {topic.error_message}")
        self.wait("a leader for each partition", lambda: self.led_partitions(name) == partitions)
        return name

    def _controller(self) -> RawConnection:
        """The broker that Metadata names as the controller: on a ZooKeeper no other one takes the request."""
        answer = self.raw.ask(MetadataRequest(topics=[]), 9, MetadataResponse)
        named = [f"{b.host}:{b.port}" for b in answer.brokers if b.node_id == answer.controller_id]
        return self._connection(named[0]) if named else self.raw

    def led_partitions(self, topic: str) -> int:
        """Return the number of partitions with a leader; 0 if there is no such topic, -1 while brokers differ."""
        counts = {self._led_partitions(self._connection(server), topic) for server in self.servers}
        return counts.pop() if len(counts) == 1 else -1

    def _led_partitions(self, raw: RawConnection, topic: str) -> int:
        (topic_metadata,) = raw.ask(_metadata_request(topic), 9, MetadataResponse).topics
        return sum(not p.error_code and p.leader_id >= 0 for p in topic_metadata.partitions)

    def _leader(self, topic: str, partition: int) -> RawConnection:
        answer = self.raw.ask(_metadata_request(topic), 9, MetadataResponse)
        addresses = {broker.node_id: f"{broker.host}:{broker.port}" for broker in answer.brokers}
        leaders = [
            candidate.leader_id
            for candidate in answer.topics[0].partitions
            if candidate.partition_index == partition
        ]
        if not leaders or leaders[0] not in addresses:
            raise CheckFailed(f"{topic}-{partition} has no leader that is there: {leaders}")
        return self._connection(addresses[leaders[0]])

    def at_coordinator(self, group: str) -> RawConnection:
        """A connection to the group's coordinator.

        :raises NoAnswerError: there was none for 30 s
        """
        return self._connection(answer_of(partial(coordinator_address, self.bootstrap, group), WAIT_S)[1])

    def batches(self, topic: str, partition: int) -> list[RecordBatch]:
        """All batches in the log of a partition."""
        at, batches = 0, list[RecordBatch]()
        leader = self._leader(topic, partition)
        while True:
            answer = leader.ask(fetch_request(topic, at, partition), FETCH_VERSION, FetchResponse)
            (data,) = answer.responses[0].partitions
            if data.error_code:
                raise CheckFailed(f"raw fetch of {topic}-{partition}: {ErrorCode(data.error_code).name}")
            more = batches_of(answer)
            if not more:
                return batches
            batches += more
            at = more[-1].next_offset

    def group_type(self, group: str) -> str:
        """``classic`` or ``consumer`` as ListGroups has it; empty if it lists no such group."""
        for server in self.servers:  # a broker lists the groups that it coordinates
            listed = self._connection(server).ask(ListGroupsRequest(), 5, ListGroupsResponse).groups
            for listed_group in listed:
                if listed_group.group_id == group:
                    return listed_group.group_type.lower()
        return ""

    def modern(self, group: str) -> DescribedGroup:
        """A KIP-848 group as ConsumerGroupDescribe has it.

        :raises CheckFailed: an error
        """
        request = ConsumerGroupDescribeRequest(group_ids=[group])
        (described,) = self.at_coordinator(group).ask(request, 1, ConsumerGroupDescribeResponse).groups
        if described.error_code:
            error = ErrorCode(described.error_code).name
            raise CheckFailed(f"describe {group}: {error} {described.error_message}")
        return described

    def members(self, group: str) -> int:
        """Return the number of members of a stable group of either type; 0 while it is not stable."""
        if self.group_type(group) == "consumer":
            modern = self.modern(group)
            return len(modern.members) if modern.group_state == "Stable" else 0
        request = DescribeGroupsRequest(groups=[group])
        (described,) = self.at_coordinator(group).ask(request, 5, DescribeGroupsResponse).groups
        return len(described.members) if described.group_state == "Stable" else 0

    def wait(self, what: str, done: Callable[[], bool], timeout_s: float = WAIT_S) -> None:
        """Until ``done()`` is true.

        :raises CheckFailed: it never was
        """
        if not await_true(done, timeout_s, POLL_S):
            raise CheckFailed(f"waited {timeout_s:.0f} s in vain for {what}")


def _metadata_request(topic: str) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
