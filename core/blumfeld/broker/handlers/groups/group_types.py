"""APIs that a group type brings: JoinGroup, ConsumerGroupHeartbeat and the like go to the shard of their group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from blumfeld.broker.handlers.groups.common import ErrorResponse, GroupPorts
from blumfeld.coordinator.groups.shard import TypeCommand
from blumfeld.spi.completion import Completion
from blumfeld.spi.context import ApiHandler, RequestContext
from blumfeld.spi.groups import GroupProtocol, Submit
from blumfeld.spi.steps import in_parts
from blumfeld.wire.api import API_BY_KEY, ApiKey, response_class
from blumfeld.wire.errors import BrokerError, ErrorCode

WITHOUT_KIP_848 = (
    "this broker has no plug-in for group.protocol=consumer (KIP-848); set group.protocol=classic"
)


def handlers(ports: GroupPorts, protocols: Sequence[GroupProtocol]) -> list[ApiHandler]:
    """The handlers that each type brings, and one for each API that types share: the group decides which answers.

    A build without KIP-848 refuses ConsumerGroupHeartbeat as Kafka does whose ``group.version`` is 0. Without the API
    librdkafka asks nothing, says nothing and waits for good.
    """
    apis = TypeApis(ports)
    served: list[ApiHandler] = []
    taken: set[int] = set()
    for protocol in protocols:
        served += protocol.handlers(apis.submit_to(protocol.name))
        for api, (low, high) in protocol.apis.items():
            if api not in taken:
                taken.add(api)
                served.append(apis.handler(api, low, high, protocol.error_response))
    if protocols and ApiKey.CONSUMER_GROUP_HEARTBEAT not in {handler.key for handler in served}:
        served.append(_refused_heartbeat())
    return served


def _refused_heartbeat() -> ApiHandler:
    key = ApiKey.CONSUMER_GROUP_HEARTBEAT

    def failed(_: Any, code: int, message: str | None) -> Any:
        return response_class(key)(error_code=code, error_message=message)

    def refuse(request: Any, _: RequestContext) -> Any:
        return failed(request, int(ErrorCode.UNSUPPORTED_VERSION), WITHOUT_KIP_848)

    versions = API_BY_KEY[key]
    return ApiHandler(
        key=int(key),
        min_version=versions.min_version,
        max_version=versions.max_version,
        handle=refuse,
        error_response=failed,
    )


class TypeApis:
    """Routes by the group's id."""

    def __init__(self, ports: GroupPorts) -> None:
        self._ports = ports

    def handler(self, api: int, low: int, high: int, error_response: ErrorResponse) -> ApiHandler:
        """The handler of one API. Only LeaveGroup has an array that grows."""
        members = ("members",)
        leaves = api == ApiKey.LEAVE_GROUP
        return ApiHandler(
            key=api,
            min_version=low,
            max_version=high,
            handle=in_parts(self.handle, error_response, members, members) if leaves else self.handle,
            error_response=error_response,
        )

    def handle(self, request: Any, context: RequestContext) -> Completion[Any]:
        """Serve any API of a group type: its command goes to the shard of ``request.group_id``."""
        if not context.authorize("Read", "Group", request.group_id):
            raise BrokerError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        if not request.group_id:
            new = context.api_key == ApiKey.CONSUMER_GROUP_HEARTBEAT
            raise BrokerError(ErrorCode.INVALID_REQUEST if new else ErrorCode.INVALID_GROUP_ID)
        return self._ports.coordinator.submit(request.group_id, request, context)

    def submit_to(self, group_type: str) -> Submit:
        """Returns the function with which a group type's own handlers submit commands."""

        def submit(group_id: str, command: Any, context: RequestContext) -> Completion[Any]:
            return self._ports.coordinator.submit(group_id, TypeCommand(group_type, command), context)

        return submit
