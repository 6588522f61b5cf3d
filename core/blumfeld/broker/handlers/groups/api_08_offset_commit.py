"""OffsetCommit (key 8), v2-10: offsets of one group, by topic name, from v10 by topic id."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from blumfeld.broker.handlers.groups.common import (
    TOPICS,
    GroupPorts,
    by_rights,
    commit_codes,
    handler_of,
    names_nothing,
)
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


def handlers(ports: GroupPorts) -> list[ApiHandler]:
    """OffsetCommit."""
    commit = OffsetCommit(ports)
    return [handler_of(ApiKey.OFFSET_COMMIT, (2, 10), commit.handle, commit.failed, (TOPICS, TOPICS))]


class OffsetCommit:
    """Commits offsets outside of transactions."""

    def __init__(self, ports: GroupPorts) -> None:
        self._ports = ports

    def handle(self, request: OffsetCommitRequest, context: RequestContext) -> Completion[Any]:
        """OffsetCommit. Topics that may not be read fail on their own: TOPIC_AUTHORIZATION_FAILED."""
        if not context.authorize("Read", "Group", request.group_id):
            raise BrokerError(ErrorCode.GROUP_AUTHORIZATION_FAILED)

        def serve(request: OffsetCommitRequest) -> Completion[Any]:
            if names_nothing(self._ports, request):
                return Completion.of(self.failed(request, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None))
            return self._ports.coordinator.submit(request.group_id, request, context)

        return by_rights(self._ports, request, context, serve, self.failed, _refused_topic)

    def failed(self, request: OffsetCommitRequest, code: int, _message: str | None) -> OffsetCommitResponse:
        """Every partition that was asked has the error, but for those that aren't there."""
        image = self._ports.image()
        return OffsetCommitResponse(
            topics=[_answer(topic, commit_codes(image, topic, code)) for topic in request.topics]
        )


def _refused_topic(topic: OffsetCommitRequestTopic, code: int) -> OffsetCommitResponseTopic:
    """Every partition of the topic has the error."""
    return _answer(topic, [(p.partition_index, code) for p in topic.partitions])


def _answer(topic: OffsetCommitRequestTopic, codes: Sequence[tuple[int, int]]) -> OffsetCommitResponseTopic:
    return OffsetCommitResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetCommitResponsePartition(partition_index=index, error_code=code) for index, code in codes
        ],
    )
