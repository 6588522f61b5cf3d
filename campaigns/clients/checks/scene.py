"""Topics, groups and logs as the broker has them, seen past the client: by raw requests."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import cast

from blumfeld.wire.batches.record_batch import RecordBatch, split_batches
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
from blumfeld.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from blumfeld.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from blumfeld.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from campaigns.clients.client import CheckFailed
from campaigns.raw_connection import RawConnection

POLL_S = 0.05
FETCH_BYTES_MAX = 32 * 1024 * 1024


class Scene:
    """One check's own names on a broker, and a raw connection to look behind the client."""

    def __init__(self, bootstrap: str, tag: str) -> None:
        self.bootstrap = bootstrap
        self.tag = tag
        self.raw = RawConnection(bootstrap)

    def close(self) -> None:
        """End the raw connection."""
        self.raw.close()

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
            replication_factor=1,
            configs=[CreatableTopicConfig(name=k, value=v) for k, v in given.items()],
        )
        request = CreateTopicsRequest(topics=[wanted], timeout_ms=15_000)
        for topic in self.raw.ask(request, 5, CreateTopicsResponse).topics:
            if topic.error_code:
                raise CheckFailed(f"set-up: {ErrorCode(topic.error_code).name} {topic.error_message}")
        self.wait("a leader for each partition", lambda: self.led_partitions(name) == partitions)
        return name

    def led_partitions(self, topic: str) -> int:
        """How many partitions of the topic have a leader; 0 if there is no such topic."""
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        (found,) = self.raw.ask(request, 9, MetadataResponse).topics
        return sum(not p.error_code and p.leader_id >= 0 for p in found.partitions)

    def batches(self, topic: str, partition: int) -> list[RecordBatch]:
        """All batches in the log of a partition."""
        at, found = 0, list[RecordBatch]()
        while True:
            wanted = FetchPartition(partition=partition, fetch_offset=at, partition_max_bytes=FETCH_BYTES_MAX)
            request = FetchRequest(
                max_wait_ms=0,
                max_bytes=FETCH_BYTES_MAX,
                topics=[FetchTopic(topic=topic, partitions=[wanted])],
            )
            (answered,) = self.raw.ask(request, 12, FetchResponse).responses
            (data,) = answered.partitions
            if data.error_code:
                raise CheckFailed(f"raw fetch of {topic}-{partition}: {ErrorCode(data.error_code).name}")
            records = cast("memoryview", data.records or memoryview(b""))
            more = list(split_batches(records, allow_partial=True))
            if not more:
                return found
            found += more
            at = more[-1].next_offset

    def group_type(self, group: str) -> str:
        """``classic`` or ``consumer`` as ListGroups has it; empty if it lists no such group."""
        listed = self.raw.ask(ListGroupsRequest(), 5, ListGroupsResponse).groups
        return next((g.group_type.lower() for g in listed if g.group_id == group), "")

    def modern(self, group: str) -> DescribedGroup:
        """A KIP-848 group as ConsumerGroupDescribe has it.

        :raises CheckFailed: an error
        """
        request = ConsumerGroupDescribeRequest(group_ids=[group])
        (described,) = self.raw.ask(request, 1, ConsumerGroupDescribeResponse).groups
        if described.error_code:
            error = ErrorCode(described.error_code).name
            raise CheckFailed(f"describe {group}: {error} {described.error_message}")
        return described

    def members(self, group: str) -> int:
        """How many members a stable group of either type has; 0 while it is not stable."""
        if self.group_type(group) == "consumer":
            modern = self.modern(group)
            return len(modern.members) if modern.group_state == "Stable" else 0
        request = DescribeGroupsRequest(groups=[group])
        (described,) = self.raw.ask(request, 5, DescribeGroupsResponse).groups
        return len(described.members) if described.group_state == "Stable" else 0

    def wait(self, what: str, done: Callable[[], bool], timeout_s: float = 30.0) -> None:
        """Until ``done()`` is true.

        :raises CheckFailed: it never was
        """
        deadline = time.monotonic() + timeout_s
        while not done():
            if time.monotonic() > deadline:
                raise CheckFailed(f"waited {timeout_s:.0f} s in vain for {what}")
            time.sleep(POLL_S)
