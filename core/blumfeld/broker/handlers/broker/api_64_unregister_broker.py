"""UnregisterBroker (key 64), v0: forget a broker that is gone for good (KIP-500).

As in Kafka, a live broker can be unregistered, too. Its heartbeats are refused from then on, and it stays out of the
cluster until its next start.
"""

from __future__ import annotations

from blumfeld.broker.handlers.common import CLUSTER_NAME
from blumfeld.broker.handlers.controller_requests import forward
from blumfeld.broker.ports import Ports
from blumfeld.spi.completion import Completion
from blumfeld.spi.context import ApiHandler, RequestContext
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from blumfeld.wire.schema import Message

TIMEOUT_MS = 30_000
"""The request has no time-out of its own. This is the clients' default for one request (``request.timeout.ms``)."""


def handlers(ports: Ports) -> list[ApiHandler]:
    """Returns the handler of UnregisterBroker.

    Errors: BROKER_ID_NOT_REGISTERED, CLUSTER_AUTHORIZATION_FAILED.
    """

    def handle(request: UnregisterBrokerRequest, context: RequestContext) -> Message | Completion[Message]:
        if not context.authorize("Alter", "Cluster", CLUSTER_NAME):
            return failed(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, None)
        return forward(ports, request, context, TIMEOUT_MS, lambda answer: answer)

    return [
        ApiHandler(
            key=64,
            min_version=0,
            max_version=0,
            listeners=("broker", "controller"),
            handle=handle,
            error_response=failed,
        )
    ]


def failed(_request: UnregisterBrokerRequest, code: int, message: str | None) -> Message:
    """Returns an answer with this error."""
    return UnregisterBrokerResponse(error_code=code, error_message=message)
