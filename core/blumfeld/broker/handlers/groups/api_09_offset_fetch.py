"""OffsetFetch (key 9), v1-10: one group up to v7, several from v8, topic ids from v10.

A group without a committed offset is no error (Kafka's ``OffsetMetadataManager``): answering GROUP_ID_NOT_FOUND breaks
librdkafka's consumers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from blumfeld.broker.handlers.groups.common import GroupPorts
from blumfeld.coordinator.groups.shard import FetchOffsets
from blumfeld.coordinator.runtime.coordinator import gather
from blumfeld.spi.completion import Completion
from blumfeld.spi.context import ApiHandler, RequestContext
from blumfeld.spi.steps import in_parts
from blumfeld.wire.api import ApiKey
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from blumfeld.wire.schema import Message

GROUPS_SINCE_VERSION = 8
GROUP_ERROR_SINCE_VERSION = 2
"""Before this version the answer has no error for the group: each partition carries it."""
TOPIC_IDS_SINCE_VERSION = 10


def handlers(ports: GroupPorts) -> list[ApiHandler]:
    """OffsetFetch."""
    fetch = OffsetFetch(ports)
    of_groups = in_parts(
        fetch.handle,
        fetch.error,
        ("groups", "topics", "partition_indexes"),
        ("groups", "topics", "partitions"),
        named="group_id",
    )
    of_topics = in_parts(fetch.handle, fetch.error, ("topics", "partition_indexes"), ("topics", "partitions"))

    def handle(request: OffsetFetchRequest, context: RequestContext) -> Any:
        several = context.api_version >= GROUPS_SINCE_VERSION
        return (of_groups if several else of_topics)(request, context)

    return [
        ApiHandler(
            key=ApiKey.OFFSET_FETCH,
            min_version=1,
            max_version=10,
            handle=handle,
            error_response=fetch.error,
        )
    ]


class OffsetFetch:
    """Handles OffsetFetch in its two forms: one group (up to v7), and several."""

    def __init__(self, ports: GroupPorts) -> None:
        self._ports = ports

    def handle(self, request: OffsetFetchRequest, context: RequestContext) -> Completion[Message]:
        """Fetch the committed offsets of each group from its shard."""
        version = context.api_version
        group_requests = request.groups if version >= GROUPS_SINCE_VERSION else [_as_group(request)]
        parts = [self._group(group, request.require_stable, context) for group in group_requests]
        response: Completion[Message] = Completion()

        def merge(done: Completion[list[Completion[Any]]]) -> None:
            groups = [_result(group, item) for group, item in zip(group_requests, done.result(), strict=True)]
            if version >= GROUPS_SINCE_VERSION:
                response.complete(OffsetFetchResponse(groups=groups))
            else:
                response.complete(_as_single(groups[0], request, version))

        gather(parts).when_done(merge)
        return response

    def error(self, request: OffsetFetchRequest, code: int, _message: str | None) -> Message:
        """Returns an answer with this error for every group. The form with one group has it at the top, and for each
        partition."""
        return OffsetFetchResponse(
            error_code=code,
            topics=_single_refused(request, code),
            groups=[
                OffsetFetchResponseGroup(group_id=group.group_id, error_code=code) for group in request.groups
            ],
        )

    def _group(
        self, group_request: OffsetFetchRequestGroup, require_stable: bool, context: RequestContext
    ) -> Completion[Any]:
        if not context.authorize("Describe", "Group", group_request.group_id):
            forbidden: Completion[Any] = Completion()
            forbidden.fail(BrokerError(ErrorCode.GROUP_AUTHORIZATION_FAILED))
            return forbidden
        by_id = context.api_version >= TOPIC_IDS_SINCE_VERSION
        refused: list[OffsetFetchResponseTopics] = []
        topics: list[tuple[str, Sequence[int]]] | None = None
        if group_request.topics is not None:
            topics = []
            for topic in group_request.topics:
                name = self._name_of(topic.topic_id) if by_id else topic.name
                if name is None:
                    refused.append(_refused(topic, ErrorCode.UNKNOWN_TOPIC_ID))
                elif not context.authorize("Describe", "Topic", name):
                    refused.append(_refused(topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
                else:
                    topics.append((name, topic.partition_indexes))
        command = FetchOffsets(
            group_id=group_request.group_id,
            member_id=group_request.member_id,
            member_epoch=group_request.member_epoch,
            topics=topics,
            require_stable=require_stable,
        )
        fetched = self._ports.coordinator.submit(group_request.group_id, command, context)
        return self._completed(fetched, refused, topics is None, context)

    def _name_of(self, topic_id: bytes) -> str | None:
        topic = self._ports.image().topic_by_id(topic_id)
        return None if topic is None else topic.name

    def _completed(
        self,
        fetched: Completion[Any],
        refused: list[OffsetFetchResponseTopics],
        all_asked: bool,
        context: RequestContext,
    ) -> Completion[Any]:
        """Completes with the shard's answer after some corrections.

        The refused topics are added. If the request asked for all topics, those that the client may not describe are
        removed. From v10 on topic ids are filled in, and deleted topics are removed.
        """
        whole: Completion[Any] = Completion()

        def fill(done: Completion[Any]) -> None:
            if done.error is not None:
                whole.fail(done.error)
                return
            group: OffsetFetchResponseGroup = done.result()
            if all_asked:
                group.topics = [
                    t for t in group.topics if context.authorize("Describe", "Topic", t.name, quiet=True)
                ]
            if context.api_version >= TOPIC_IDS_SINCE_VERSION:
                topics = self._ports.image().topics
                group.topics = [topic for topic in group.topics if topic.name in topics]
                for topic in group.topics:
                    topic.topic_id = topics[topic.name].topic_id
            group.topics += refused
            whole.complete(group)

        fetched.when_done(fill)
        return whole


def _as_group(request: OffsetFetchRequest) -> OffsetFetchRequestGroup:
    topics = None
    if request.topics is not None:
        topics = [
            OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in request.topics
        ]
    return OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)


def _result(group_request: OffsetFetchRequestGroup, done: Completion[Any]) -> OffsetFetchResponseGroup:
    if done.error is None:
        group: OffsetFetchResponseGroup = done.result()
        return group
    code = done.error.code if isinstance(done.error, BrokerError) else ErrorCode.UNKNOWN_SERVER_ERROR
    return OffsetFetchResponseGroup(group_id=group_request.group_id, error_code=code)


def _refused(topic_request: OffsetFetchRequestTopics, code: ErrorCode) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        name=topic_request.name,
        topic_id=topic_request.topic_id,
        partitions=[
            OffsetFetchResponsePartitions(partition_index=p, committed_offset=-1, error_code=code)
            for p in topic_request.partition_indexes
        ],
    )


def _single_refused(request: OffsetFetchRequest, code: int) -> list[OffsetFetchResponseTopic]:
    return [
        OffsetFetchResponseTopic(
            name=topic.name,
            partitions=[
                OffsetFetchResponsePartition(partition_index=p, committed_offset=-1, error_code=code)
                for p in topic.partition_indexes
            ],
        )
        for topic in request.topics or []
    ]


def _as_single(
    group: OffsetFetchResponseGroup, request: OffsetFetchRequest, version: int
) -> OffsetFetchResponse:
    if group.error_code and version < GROUP_ERROR_SINCE_VERSION:
        return OffsetFetchResponse(topics=_single_refused(request, group.error_code))
    return OffsetFetchResponse(
        error_code=group.error_code,
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=p.partition_index,
                        committed_offset=p.committed_offset,
                        committed_leader_epoch=p.committed_leader_epoch,
                        metadata=p.metadata,
                        error_code=p.error_code,
                    )
                    for p in topic.partitions
                ],
            )
            for topic in group.topics
        ],
    )
