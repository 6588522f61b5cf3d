"""Requests that the controller decides on.

Those of other nodes only the controller serves; a node that isn't the controller passes none of them on. A client's
request may come to any broker, which forwards it and returns the answer (KIP-590).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from blumfeld.broker.handlers.common import CLUSTER_NAME
from blumfeld.broker.ports import Ports
from blumfeld.spi import consensus
from blumfeld.spi.completion import Completion
from blumfeld.spi.context import ApiHandler, RequestContext
from blumfeld.wire.api import response_class
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.schema import Message

NODE_TIMEOUT_MS = 5_000
"""Time to commit a decision. Then the answer is REQUEST_TIMED_OUT, and the other node asks again. Kafka's controller
has a limit for heartbeats only: half of ``broker.heartbeat.interval.ms``."""
CLIENT_TIMEOUT_MS_MIN = 1_000
"""Shortest wait for the controller. A client may say 0 ("don't wait"), but a decision takes milliseconds, and the
client should learn its outcome."""


def check_controller(ports: Ports) -> None:
    """Refuse a request that only the controller may serve.

    :raises BrokerError: NOT_CONTROLLER: the other node looks for the controller and asks again
    """
    if not is_controller(ports):
        raise BrokerError(ErrorCode.NOT_CONTROLLER)


def is_controller(ports: Ports) -> bool:
    """Whether this node is the controller, as far as it knows."""
    return consensus.is_controller(ports.controller, ports.cluster.node_id)


def may_mutate(ports: Ports, context: RequestContext, count: int, *, strict: bool) -> bool:
    """Count partitions that the client creates or deletes (KIP-599), where the controller is: elsewhere the request is
    passed on, and counted there.

    :param strict: the version knows THROTTLING_QUOTA_EXCEEDED, with which the caller answers ``False``. An older one is
        let through and delayed
    """
    quotas = ports.quotas
    if quotas is None or not is_controller(ports):
        return True
    now_ms, user = ports.runtime.monotonic_ms(), context.principal.name
    waits_ms = quotas.mutated(user, context.client_id, count, now_ms, strict=strict)
    context.throttle(
        quotas.mutation_throttle_ms(user, context.client_id, now_ms) if waits_ms is None else waits_ms
    )
    return waits_ms is not None


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
        return ports.controller.submit(request, NODE_TIMEOUT_MS, wait_image=False)

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


def forward(
    ports: Ports,
    request: Message,
    context: RequestContext,
    timeout_ms: int,
    complete: Callable[[Message], Message],
) -> Completion[Message]:
    """Submit a client's request to the controller. Completes with its answer, which ``complete`` may change, or fails
    with its ``BrokerError``.

    The change is in this node's image by then, and the partitions that it places here are open.

    :raises BrokerError: NOT_CONTROLLER: the request came in on a controller listener, and this node isn't the
        controller. The other node looks for the controller and asks again
    """
    answer = consensus.submit_for(
        context, request, ports.controller, ports.cluster.node_id, max(timeout_ms, CLIENT_TIMEOUT_MS_MIN)
    )
    whole: Completion[Message] = Completion()

    def decided(done: Completion[Message]) -> None:
        if done.error is not None:
            whole.fail(done.error)
        else:
            # The controller counts what its clients change: the wait that it says is this connection's.
            context.throttle(getattr(done.result(), "throttle_time_ms", 0))
            # A client may produce as soon as it has our answer, so new partitions must be open before we answer.
            settled = ports.hosted.settled()
            settled.when_done(lambda _: whole.complete(complete(done.result())))

    answer.when_done(decided)
    return whole
