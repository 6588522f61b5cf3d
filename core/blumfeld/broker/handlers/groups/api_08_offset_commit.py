"""OffsetCommit (key 8), v2-10: offsets of one group, by topic name, from v10 by topic id."""

from __future__ import annotations

from typing import Any

from blumfeld.broker.handlers.groups.common import TOPICS, GroupPorts, handler_of, submit_for_topics
from blumfeld.spi.completion import Completion
from blumfeld.spi.context import ApiHandler, RequestContext
from blumfeld.wire.api import ApiKey
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from blumfeld.wire.schema import Message


def handlers(ports: GroupPorts) -> list[ApiHandler]:
    """OffsetCommit."""
    return [handler_of(ApiKey.OFFSET_COMMIT, (2, 10), OffsetCommit(ports).handle, failed, (TOPICS, TOPICS))]


class OffsetCommit:
    """Commits offsets outside of transactions."""

    def __init__(self, ports: GroupPorts) -> None:
        self._ports = ports

    def handle(self, request: OffsetCommitRequest, context: RequestContext) -> Completion[Any]:
        """OffsetCommit. Topics that may not be read fail on their own: TOPIC_AUTHORIZATION_FAILED."""
        if not context.authorize("Read", "Group", request.group_id):
            raise BrokerError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        return submit_for_topics(self._ports, request, context, _refused_topic)


def failed(request: OffsetCommitRequest, code: int, _message: str | None) -> Message:
    """Every partition that was asked has the error."""
    return OffsetCommitResponse(topics=[_refused_topic(topic, code) for topic in request.topics])


def _refused_topic(topic: OffsetCommitRequestTopic, code: int) -> OffsetCommitResponseTopic:
    """Every partition of the topic has the error."""
    return OffsetCommitResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetCommitResponsePartition(partition_index=p.partition_index, error_code=code)
            for p in topic.partitions
        ],
    )
