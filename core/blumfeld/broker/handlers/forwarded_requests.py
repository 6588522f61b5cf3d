"""Forwards requests that the controller decides on, and returns its answer (KIP-590)."""

from __future__ import annotations

from collections.abc import Callable

from blumfeld.broker.handlers.controller_requests import check_controller
from blumfeld.broker.ports import Ports
from blumfeld.spi.completion import Completion
from blumfeld.spi.consensus import OnBehalf
from blumfeld.spi.context import RequestContext
from blumfeld.wire.schema import Message

TIMEOUT_MS_MIN = 1_000
"""Shortest wait for the controller. A client may say 0 ("don't wait"), but a decision takes milliseconds, and the
client should learn its outcome."""


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
    if context.listener.kind == "controller":
        check_controller(ports)
    whole: Completion[Message] = Completion()

    def decided(done: Completion[Message]) -> None:
        if done.error is not None:
            whole.fail(done.error)
        else:
            # A client may produce as soon as it has our answer, so new partitions must be open before we answer.
            settled = ports.hosted.settled()
            settled.when_done(lambda _: whole.complete(complete(done.result())))

    on_behalf = OnBehalf(context.principal, context.peer_host, context.client_id)
    answer = ports.controller.submit(request, max(timeout_ms, TIMEOUT_MS_MIN), on_behalf=on_behalf)
    answer.when_done(decided)
    return whole
