"""Requests of other nodes that only the controller serves. A node that isn't the controller passes none of them on."""

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
"""Time to commit a decision. Then the answer is REQUEST_TIMED_OUT, and the other node asks again. Kafka's controller
has a limit for heartbeats only: half of ``broker.heartbeat.interval.ms``."""


def check_controller(ports: Ports) -> None:
    """Refuse a request that only the controller may serve.

    :raises BrokerError: NOT_CONTROLLER: the other node looks for the controller and asks again
    """
    if not is_controller(ports):
        raise BrokerError(ErrorCode.NOT_CONTROLLER)


def is_controller(ports: Ports) -> bool:
    """Whether this node is the controller, as far as it knows."""
    controller = ports.controller.controller
    return controller is not None and controller.node_id == ports.cluster.node_id


def controller_handler(ports: Ports, key: int, min_version: int, max_version: int) -> ApiHandler:
    """Returns a handler that submits a request of another node to this node's controller.

    Errors for the whole answer: CLUSTER_AUTHORIZATION_FAILED; NOT_CONTROLLER, also when this node lost control while it
    decided: the other node looks for the controller again.
    """

    def handle(request: Message, context: RequestContext) -> Completion[Message]:
        if not context.authorize("ClusterAction", "Cluster", CLUSTER_NAME):
            raise BrokerError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        check_controller(ports)
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
