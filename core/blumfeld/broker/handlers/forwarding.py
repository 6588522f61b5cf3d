"""Requests that the controller decides on: a broker passes them on and gives back the answer (KIP-590)."""

from __future__ import annotations

from collections.abc import Callable

from blumfeld.broker.ports import Ports
from blumfeld.spi.completion import Completion
from blumfeld.wire.schema import Message

TIMEOUT_MS_MIN = 1_000
"""A client may say 0, "don't wait": the decision is a matter of milliseconds, and its outcome is worth knowing.
"""


def forward(
    ports: Ports, request: Message, timeout_ms: int, complete: Callable[[Message], Message]
) -> Completion[Message]:
    """The controller's answer, once it is in this node's image, as ``complete`` leaves it; its ``BrokerError``
    otherwise.
    """
    whole: Completion[Message] = Completion()

    def decided(done: Completion[Message]) -> None:
        if done.error is not None:
            whole.fail(done.error)
        else:
            settled = ports.hosted.settled()  # who is told of a topic may produce to it at once
            settled.when_done(lambda _: whole.complete(complete(done.result())))

    ports.controller.submit(request, max(timeout_ms, TIMEOUT_MS_MIN)).when_done(decided)
    return whole
