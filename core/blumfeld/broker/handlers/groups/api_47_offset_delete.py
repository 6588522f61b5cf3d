"""OffsetDelete (key 47), v0: committed offsets of topics that no member reads (KIP-496)."""

from __future__ import annotations

from typing import Any

from blumfeld.broker.handlers.groups.common import TOPICS, GroupPorts, by_rights, handler_of
from blumfeld.spi.completion import Completion
from blumfeld.spi.context import ApiHandler, RequestContext
from blumfeld.wire.api import ApiKey
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from blumfeld.wire.schema import Message


def handlers(ports: GroupPorts) -> list[ApiHandler]:
    """OffsetDelete."""
    return [handler_of(ApiKey.OFFSET_DELETE, (0, 0), OffsetDelete(ports).handle, failed, (TOPICS, TOPICS))]


class OffsetDelete:
    """Deletes committed offsets."""

    def __init__(self, ports: GroupPorts) -> None:
        self._ports = ports

    def handle(self, request: OffsetDeleteRequest, context: RequestContext) -> Completion[Any]:
        """OffsetDelete. Topics that may not be read fail on their own: TOPIC_AUTHORIZATION_FAILED."""
        if not context.authorize("Delete", "Group", request.group_id):
            raise BrokerError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        if not request.group_id:
            raise BrokerError(ErrorCode.INVALID_GROUP_ID)

        def serve(request: OffsetDeleteRequest) -> Completion[Any]:
            return self._ports.coordinator.submit(request.group_id, request, context)

        return by_rights(self._ports, request, context, serve, failed, _refused_topic)


def failed(_request: OffsetDeleteRequest, code: int, _message: str | None) -> Message:
    """The answer as a whole has the error."""
    return OffsetDeleteResponse(error_code=code)


def _refused_topic(topic: OffsetDeleteRequestTopic, code: int) -> OffsetDeleteResponseTopic:
    """Every partition of the topic has the error."""
    return OffsetDeleteResponseTopic(
        name=topic.name,
        partitions=[
            OffsetDeleteResponsePartition(partition_index=p.partition_index, error_code=code)
            for p in topic.partitions
        ],
    )
