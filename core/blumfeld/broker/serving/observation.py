"""Tells observers about requests. Only a broker with observers makes these routes, so no other broker pays for them.

With observers Produce takes the general way, because only that one makes the answer as a message. ``docs/hooks.md``
has the cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import GeneratorType
from typing import Any

import msgspec

from blumfeld.broker.serving.dispatch import Dispatcher, Route
from blumfeld.broker.serving.request import ConnectionState, Request
from blumfeld.spi.completion import Completion, Steps
from blumfeld.spi.context import ApiHandler, RequestContext
from blumfeld.spi.hooks import EventLog
from blumfeld.spi.observer import UNKNOWN_API, Observer, RequestSeen
from blumfeld.spi.parts import Parts, size_of
from blumfeld.spi.runtime import Phase, Runtime
from blumfeld.spi.transport import Exchange
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.first_error import first_error


class Observation:
    """Gathers the requests of a turn, and passes them to the observers after their answers were sent.

    :param observers: (name of the plug-in, its observer)
    """

    def __init__(self, runtime: Runtime, events: EventLog, observers: Sequence[tuple[str, Observer]]) -> None:
        self._runtime = runtime
        self._events = events
        self._observers = list(observers)
        self._seen: list[RequestSeen] = []

    def route(self, dispatcher: Dispatcher, handler: ApiHandler, version: int) -> Route:
        """Returns an observed route, which takes the place of a :class:`Route`."""
        return ObservedRoute(dispatcher, handler, version, self)

    def watched(self, handler: ApiHandler) -> ApiHandler:
        """Returns the same handler with a check of each answer for an error code, before it is encoded."""
        handle = handler.handle

        def watch(request: Any, context: RequestContext) -> Any:
            try:
                answer = handle(request, context)
            except Exception as error:
                _note(context, _code(error))
                raise
            if isinstance(answer, GeneratorType):
                return _watched_steps(answer, context)
            _note_answer(context, answer)
            return answer

        return msgspec.structs.replace(handler, handle=watch)

    def answered(self, context: Request, parts: Parts | None, request_bytes: int) -> None:
        """Report a request that was answered, or ended without an answer."""
        self._add(
            RequestSeen(
                time_ms=self._runtime.now_ms(),
                listener=context.listener.name,
                peer_host=context.peer_host,
                peer_port=context.peer_port,
                principal=str(context.principal),
                client_id=context.client_id,
                api_key=context.api_key,
                api_version=context.api_version,
                correlation_id=context.correlation_id,
                request_bytes=request_bytes,
                response_bytes=0 if parts is None else size_of(parts),
                error_code=getattr(context, "error_code", 0),
                elapsed_ms=self._runtime.monotonic_ms() - context.received_ms,
            )
        )

    def refused(
        self,
        exchange: Exchange,
        closed: str,
        *,
        api: tuple[int, int, int] = (UNKNOWN_API, -1, -1),
        error_code: int = 0,
    ) -> None:
        """Report a request whose connection was closed, or that was answered without a handler.

        :param closed: the reason for closing; "" if there was an answer
        :param api: key, version and correlation id, where they are known
        """
        connection = exchange.connection
        state: ConnectionState = connection.state
        self._add(
            RequestSeen(
                time_ms=self._runtime.now_ms(),
                listener=connection.listener.name,
                peer_host=connection.peer_host,
                peer_port=connection.peer_port,
                principal=str(state.principal),
                client_id=state.client_id,
                api_key=api[0],
                api_version=api[1],
                correlation_id=api[2],
                request_bytes=0,
                response_bytes=0,
                error_code=error_code,
                elapsed_ms=0.0,
                closed=closed,
            )
        )

    def _add(self, seen: RequestSeen) -> None:
        self._seen.append(seen)
        if len(self._seen) == 1:
            self._runtime.at_end_of_turn(Phase.ANSWER, self._tell_next)

    def _tell_next(self) -> None:
        self._runtime.call_later(0, self._tell)

    def _tell(self) -> None:
        seen, self._seen = self._seen, []
        for name, observer in list(self._observers):
            try:
                observer.requests(seen)
            except BaseException as error:
                # An observer is foreign code. Its defect must not harm the requests that it was told about, and its own
                # sys.exit() or CancelledError must not end the broker.
                if isinstance(error, KeyboardInterrupt):
                    raise
                self._observers = [entry for entry in self._observers if entry[1] is not observer]
                self._events.error(
                    "an observer failed, and is told nothing more", plugin=name, exc_info=error
                )


def _watched_steps(steps: Steps[Any], context: RequestContext) -> Steps[Any]:
    try:
        answer = yield from steps
    except Exception as error:
        _note(context, _code(error))
        raise
    _note_answer(context, answer)
    return answer


def _note_answer(context: RequestContext, answer: Any) -> None:
    if isinstance(answer, Completion):
        answer.when_done(lambda done: _note_completed(context, done))
    else:
        _note(context, first_error(answer))


def _note_completed(context: RequestContext, done: Completion[Any]) -> None:
    _note(context, first_error(done.result()) if done.error is None else _code(done.error))


def _note(context: RequestContext, code: int) -> None:
    if code:
        context.error_code = code  # type: ignore[attr-defined]


def _code(error: BaseException) -> int:
    return int(error.code if isinstance(error, BrokerError) else ErrorCode.UNKNOWN_SERVER_ERROR)


class ObservedRoute(Route):
    """The general way, with a report to the observers for each answer."""

    __slots__ = ("_observing",)

    def __init__(
        self, dispatcher: Dispatcher, handler: ApiHandler, version: int, observing: Observation
    ) -> None:
        super().__init__(dispatcher, observing.watched(handler), version)
        self._observing = observing

    def answered(self, context: Request, parts: Parts | None, frame_bytes: int) -> None:
        """As :meth:`Route.answered`, with a report to the observers."""
        self._observing.answered(context, parts, frame_bytes)
        super().answered(context, parts, frame_bytes)
