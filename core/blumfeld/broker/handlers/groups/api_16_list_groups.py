"""ListGroups (key 16), v0-5: the groups that this broker coordinates (KIP-518, KIP-848)."""

from __future__ import annotations

from typing import Any

from blumfeld.broker.handlers.groups.common import GroupPorts
from blumfeld.coordinator.groups.answers import code_of, merged
from blumfeld.spi.completion import Completion, Steps
from blumfeld.spi.context import ApiHandler, RequestContext
from blumfeld.spi.steps import STEP_ELEMENTS, Buckets
from blumfeld.wire.api import ApiKey
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from blumfeld.wire.schema import Message


def handlers(ports: GroupPorts) -> list[ApiHandler]:
    """ListGroups."""
    listing = ListGroups(ports)
    return [
        ApiHandler(
            key=ApiKey.LIST_GROUPS,
            min_version=0,
            max_version=5,
            handle=listing.handle,
            error_response=failed,
        )
    ]


class ListGroups:
    """Lists groups of all shards here."""

    def __init__(self, ports: GroupPorts) -> None:
        self._ports = ports

    def handle(
        self, request: ListGroupsRequest, context: RequestContext
    ) -> Completion[Message] | Steps[Completion[Message]]:
        """ListGroups, from all shards on this node. Groups that the principal may not describe are left out."""
        return (self._list_by_long_filters if context.is_large else self._list)(request, context)

    def _list(self, request: ListGroupsRequest, context: RequestContext) -> Completion[Message]:
        all_of_them = context.authorize("Describe", "Cluster", "kafka-cluster", quiet=True)

        def may_see(group_id: str) -> bool:
            return all_of_them or context.authorize("Describe", "Group", group_id, quiet=True)

        def merge(done: list[Completion[Any]]) -> Message:
            response = ListGroupsResponse()
            for item in done:
                if item.error is None:
                    response.groups += [group for group in item.result().groups if may_see(group.group_id)]
                # Another node leads that partition by now.
                elif code_of(item.error) != ErrorCode.NOT_COORDINATOR:
                    return ListGroupsResponse(error_code=code_of(item.error))
            return response

        return merged(self._ports.coordinator.submit_to_all(request, context), merge)

    def _list_by_long_filters(
        self, request: ListGroupsRequest, context: RequestContext
    ) -> Steps[Completion[Message]]:
        """:meth:`_list`, with filters that are put into lower case once, not by each shard."""
        filters: list[Buckets] = []
        for name in ("states_filter", "types_filter"):
            filters.append(Buckets())
            for number, value in enumerate(getattr(request, name)):
                filters[-1].of(lowered := value.lower())[lowered] = True
                if not number % STEP_ELEMENTS:
                    yield None
            setattr(request, name, filters[-1])
        listed = self._list(request, context)
        if not listed.done:
            yield listed
        for text in filters:
            yield from text.let_go()
        return listed


def failed(_request: ListGroupsRequest, code: int, _message: str | None) -> Message:
    """The answer as a whole has the error."""
    return ListGroupsResponse(error_code=code)
