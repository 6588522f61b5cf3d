"""The common part of AlterConfigs and IncrementalAlterConfigs: authorization, and an answer for each resource."""

from __future__ import annotations

from typing import Any

from blumfeld.broker.handlers.controller_requests import forward
from blumfeld.broker.ports import Ports
from blumfeld.spi.cluster import BROKER_RESOURCE, GROUP_RESOURCE, TOPIC_RESOURCE
from blumfeld.spi.completion import Completion
from blumfeld.spi.context import RequestContext
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.schema import Message

TIMEOUT_MS = 30_000
"""Timeout for the controller. The requests have no field for it, so this is the clients' default."""
_REFUSALS = {
    TOPIC_RESOURCE: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    GROUP_RESOURCE: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    BROKER_RESOURCE: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
}


def resource_key(resource: Any) -> tuple[int, str]:
    """Returns the key of a resource. A request may name each key once."""
    return resource.resource_type, resource.resource_name


class ConfigAlteration:
    """Handles one of the two requests. They differ in their classes, and in the controller's way to apply them."""

    def __init__(self, ports: Ports, response: type[Any], result: type[Any]) -> None:
        self._ports = ports
        self._response = response
        self._result = result

    def handle(self, request: Any, context: RequestContext) -> Completion[Message]:
        """Alter the resources that the client may alter. Each of the others gets its own error."""
        refused = [
            self._refusal(resource) for resource in request.resources if not _may_alter(resource, context)
        ]
        request.resources = [resource for resource in request.resources if _may_alter(resource, context)]

        def complete(answer: Any) -> Message:
            answer.responses += refused
            whole: Message = answer
            return whole

        return forward(self._ports, request, context, TIMEOUT_MS, complete)

    def failed(self, request: Any, code: int, message: str | None) -> Message:
        """Returns an answer with this error for every resource."""
        answer: Message = self._response(
            responses=[self._answer(resource, code, message) for resource in request.resources]
        )
        return answer

    def _refusal(self, resource: Any) -> Any:
        code = _REFUSALS.get(resource.resource_type, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        return self._answer(resource, code, None)

    def _answer(self, resource: Any, code: int, message: str | None) -> Any:
        return self._result(
            error_code=code,
            error_message=message,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )


def _may_alter(resource: Any, context: RequestContext) -> bool:
    if resource.resource_type == TOPIC_RESOURCE:
        return context.authorize("AlterConfigs", "Topic", resource.resource_name)
    if resource.resource_type == GROUP_RESOURCE:
        return context.authorize("AlterConfigs", "Group", resource.resource_name)
    return context.authorize("AlterConfigs", "Cluster", "kafka-cluster")
