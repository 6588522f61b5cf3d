"""Requests of a node's own, which the controller decides on: served where the controller is, and nowhere passed on."""

from __future__ import annotations

from typing import Any

from blumfeld.broker.handlers.common import CLUSTER_NAME
from blumfeld.broker.ports import Ports
from blumfeld.spi.completion import Completion
from blumfeld.spi.context import ApiHandler, RequestContext
from blumfeld.wire.api import response_class
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.schema import Message

TIMEOUT_MS = 5_000
"""A node repeats its request before long. Kafka's controller gives such a request less than this."""


def controller_handler(ports: Ports, key: int, min_version: int, max_version: int) -> ApiHandler:
    """Returns a handler that submits a request of another node to this node's controller.

    Errors for the whole answer: CLUSTER_AUTHORIZATION_FAILED; NOT_CONTROLLER, also when this node lost control while it
    decided: the other node looks for the controller again.
    """

    def handle(request: Message, context: RequestContext) -> Completion[Message]:
        if not context.authorize("ClusterAction", "Cluster", CLUSTER_NAME):
            raise BrokerError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        controller = ports.controller.controller
        if controller is None or controller.node_id != ports.cluster.node_id:
            raise BrokerError(ErrorCode.NOT_CONTROLLER)
        # The other node waits for its own image, if it has to.
        return ports.controller.submit(request, TIMEOUT_MS, wait_image=False)

    def failed(_request: Message, code: int, message: str | None) -> Message:
        response: Any = response_class(key)()
        response.error_code = code
        if hasattr(response, "error_message"):
            response.error_message = message
        return response  # type: ignore[no-any-return]

    return ApiHandler(
        key=key,
        min_version=min_version,
        max_version=max_version,
        listeners=("controller",),
        handle=handle,
        error_response=failed,
    )
