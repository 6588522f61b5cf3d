"""DeleteGroups (key 42), v0-2: groups without members, with their offsets (KIP-229)."""

from __future__ import annotations

from typing import Any

from blumfeld.broker.handlers.groups.common import GroupPorts, handler_of
from blumfeld.coordinator.groups.answers import code_of, merged, refused
from blumfeld.coordinator.groups.shard import DeleteGroup
from blumfeld.spi.completion import Completion
from blumfeld.spi.context import ApiHandler, RequestContext
from blumfeld.wire.api import ApiKey
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from blumfeld.wire.schema import Message


def handlers(ports: GroupPorts) -> list[ApiHandler]:
    """DeleteGroups."""
    return [
        handler_of(
            ApiKey.DELETE_GROUPS,
            (0, 2),
            DeleteGroups(ports).handle,
            failed,
            (("groups_names",), ("results",)),
            once=lambda group: group,
        )
    ]


class DeleteGroups:
    """Deletes groups."""

    def __init__(self, ports: GroupPorts) -> None:
        self._ports = ports

    def handle(self, request: DeleteGroupsRequest, context: RequestContext) -> Completion[Message]:
        """DeleteGroups: each group on its own, once."""
        group_ids = list(dict.fromkeys(request.groups_names))
        deleted: list[Completion[Any]] = []
        for group in group_ids:
            if context.authorize("Delete", "Group", group):
                deleted.append(self._ports.coordinator.submit(group, DeleteGroup(group), context))
            else:
                deleted.append(refused(ErrorCode.GROUP_AUTHORIZATION_FAILED))

        def merge(done: list[Completion[Any]]) -> Message:
            return DeleteGroupsResponse(
                results=[
                    item.result()
                    if item.error is None
                    else DeletableGroupResult(group_id=group, error_code=code_of(item.error))
                    for group, item in zip(group_ids, done, strict=True)
                ]
            )

        return merged(deleted, merge)


def failed(request: DeleteGroupsRequest, code: int, _message: str | None) -> Message:
    """Every group that was asked has the error."""
    results = [DeletableGroupResult(group_id=group, error_code=code) for group in request.groups_names]
    return DeleteGroupsResponse(results=results)
