"""What this node asks the controller for, wherever it is: on its broker listener, again until the time is over."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from blumfeld.spi.completion import Completion
from blumfeld.spi.consensus import OnBehalf
from blumfeld.spi.runtime import Runtime, Timer
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.first_error import first_error
from blumfeld.wire.schema import Message

RETRY_MS = 50
"""Pause before the controller is asked again that refused, or couldn't be reached."""

AskController = Callable[[Message, float, bool, OnBehalf | None], Completion[Message] | None]
"""(request, timeout in ms, ``wait_image`` and ``on_behalf`` as of ``ClusterMetadata.submit``) → the answer of the
controller that is known now; ``None`` if none is."""


class _Asked(msgspec.Struct, eq=False):
    command: Message
    deadline_ms: float
    wait_image: bool
    on_behalf: OnBehalf | None
    answer: Completion[Message]
    limit: Timer
    retry: Timer | None = None


class ControllerLink:
    """Asks for the node itself. A client's command is passed on to a controller of KRaft only: any other one the client
    finds."""

    def __init__(self, runtime: Runtime, ask: AskController) -> None:
        self._runtime = runtime
        self._ask_once = ask
        self._waiting: dict[_Asked, None] = {}

    def ask(
        self,
        command: Message,
        timeout_ms: float,
        *,
        wait_image: bool = False,
        on_behalf: OnBehalf | None = None,
    ) -> Completion[Message]:
        """Ask until there is an answer. Fails with ``BrokerError``: REQUEST_TIMED_OUT, or what the controller said."""
        limit = self._runtime.call_later(timeout_ms, lambda: self._expire(asked))
        deadline_ms = self._runtime.monotonic_ms() + timeout_ms
        asked = _Asked(command, deadline_ms, wait_image, on_behalf, Completion(), limit)
        self._waiting[asked] = None
        self._try(asked)
        return asked.answer

    def stop(self) -> None:
        """Ask no more. What waits gets NOT_CONTROLLER."""
        for asked in list(self._waiting):
            self._fail(asked, BrokerError(ErrorCode.NOT_CONTROLLER))

    def _try(self, asked: _Asked) -> None:
        asked.retry = None
        left_ms = max(asked.deadline_ms - self._runtime.monotonic_ms(), 1.0)
        sent = self._ask_once(asked.command, left_ms, asked.wait_image, asked.on_behalf)
        if sent is None:
            self._later(asked)
        else:
            sent.when_done(lambda done: self._answered(asked, done))

    def _answered(self, asked: _Asked, done: Completion[Message]) -> None:
        if asked.answer.done:
            return
        error = done.error
        if isinstance(error, BrokerError) and error.code != ErrorCode.NOT_CONTROLLER:
            self._fail(asked, error)
        elif error is not None or first_error(done.result()) == ErrorCode.NOT_CONTROLLER:
            self._later(asked)
        else:
            self._forget(asked)
            asked.answer.complete(done.result())

    def _later(self, asked: _Asked) -> None:
        asked.retry = self._runtime.call_later(RETRY_MS, lambda: self._try(asked))

    def _expire(self, asked: _Asked) -> None:
        self._fail(asked, BrokerError(ErrorCode.REQUEST_TIMED_OUT, "no controller answered in time"))

    def _fail(self, asked: _Asked, error: BrokerError) -> None:
        self._forget(asked)
        if not asked.answer.done:
            asked.answer.fail(error)

    def _forget(self, asked: _Asked) -> None:
        self._waiting.pop(asked, None)
        asked.limit.cancel()
        if asked.retry is not None:
            asked.retry.cancel()
