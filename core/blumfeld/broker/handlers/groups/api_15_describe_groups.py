"""DescribeGroups (key 15), v0-6: classic groups and their members."""

from __future__ import annotations

from typing import Any

from blumfeld.broker.handlers.groups.common import GroupPorts, handler_of
from blumfeld.coordinator.groups.answers import authorized_operations, code_of, merged, refused
from blumfeld.coordinator.groups.shard import DescribeGroup
from blumfeld.spi.completion import Completion
from blumfeld.spi.context import ApiHandler, RequestContext
from blumfeld.wire.api import ApiKey
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from blumfeld.wire.schema import Message


def handlers(ports: GroupPorts) -> list[ApiHandler]:
    """DescribeGroups."""
    return [
        handler_of(
            ApiKey.DESCRIBE_GROUPS, (0, 6), DescribeGroups(ports).handle, failed, (("groups",), ("groups",))
        )
    ]


class DescribeGroups:
    """Describes groups, each from its shard."""

    def __init__(self, ports: GroupPorts) -> None:
        self._ports = ports

    def handle(self, request: DescribeGroupsRequest, context: RequestContext) -> Completion[Message]:
        """DescribeGroups: each group from its shard, in the order asked."""
        group_ids = list(request.groups)
        described: list[Completion[Any]] = []
        for group in group_ids:
            if context.authorize("Describe", "Group", group):
                command = DescribeGroup(group, context.api_version)
                described.append(self._ports.coordinator.submit(group, command, context))
            else:
                described.append(refused(ErrorCode.GROUP_AUTHORIZATION_FAILED))

        def merge(done: list[Completion[Any]]) -> Message:
            response = DescribeGroupsResponse()
            for group, item in zip(group_ids, done, strict=True):
                if item.error is not None:
                    response.groups.append(_dead(group, code_of(item.error)))
                    continue
                described: DescribedGroup = item.result()
                if request.include_authorized_operations and not described.error_code:
                    described.authorized_operations = authorized_operations(group, context)
                response.groups.append(described)
            return response

        return merged(described, merge)


def failed(request: DescribeGroupsRequest, code: int, _message: str | None) -> Message:
    """Every group that was asked has the error."""
    return DescribeGroupsResponse(groups=[_dead(group, code) for group in request.groups])


def _dead(group: str, code: int) -> DescribedGroup:
    """Returns the answer for a group that can't be described."""
    return DescribedGroup(group_id=group, error_code=code)
