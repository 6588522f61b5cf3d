"""Decodes, serves and encodes one request with many elements, in steps (ADR 0045)."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any, Protocol

from blumfeld.broker.serving.request import ConnectionState, Request
from blumfeld.spi.completion import Completion, Steps
from blumfeld.spi.context import ApiHandler, NoAnswer
from blumfeld.spi.parts import Parts
from blumfeld.spi.steps import STEP_ELEMENTS, PartlyFailed, let_go, waited
from blumfeld.spi.transport import OWNED_FRAME_BYTES, Exchange
from blumfeld.wire.api import ApiKey
from blumfeld.wire.codec import encode_parts_in_steps, leave_out
from blumfeld.wire.primitives import DecodeError
from blumfeld.wire.schema import Message, Struct

PRODUCE, FETCH = int(ApiKey.PRODUCE), int(ApiKey.FETCH)


class Answering(Protocol):
    """The methods of a request's route that a large request needs."""

    version: int

    def prefix(self, correlation_id: int) -> bytes:
        """Returns the header of an answer."""
        ...

    def error_in_steps(self, request: Message, error: BaseException) -> Steps[Message]:
        """The steps to the response with this error for every element of the request."""
        ...

    def answered(self, context: Request, parts: Parts | None, frame_bytes: int) -> None:
        """Give the answer to the exchange; ``None``: there is none."""
        ...

    def count_errors(self, answer: Message) -> None:
        """Count the errors in an answer."""
        ...

    def throttle(self, context: Request, answer: Message | NoAnswer) -> None:
        """Set the answer's throttle time, and read no requests from the client meanwhile."""
        ...

    def refuse(self, exchange: Exchange, reason: str) -> None:
        """Close the connection, because no answer is possible."""
        ...

    def unreadable(self, exchange: Exchange, error: DecodeError) -> None:
        """Close the connection, because the request can't be decoded."""
        ...

    def log_defect(self, error: BaseException) -> None:
        """Log a defect of this broker."""
        ...

    def defect(self, exchange: Exchange, error: BaseException) -> None:
        """Log a defect of this broker, and close the connection."""
        ...


def lasting(frame: memoryview) -> memoryview:
    """Returns a frame that stays unchanged after this turn. A small frame lies in the shared receive buffer, which the
    next turn overwrites, so it is copied. A large one has memory of its own, and so has the request in an Envelope."""
    owned = len(frame) > OWNED_FRAME_BYTES or type(frame.obj) is bytes
    return frame if owned else memoryview(bytearray(frame))


class LargeRequest:
    """The work for one request: its steps and their end."""

    def __init__(self, route: Answering, handler: ApiHandler, context: Request, frame_bytes: int) -> None:
        self._route = route
        self._handler = handler
        self._context = context
        self._frame_bytes = frame_bytes
        self._state: ConnectionState = context.exchange.connection.state
        self._request: Message | None = None
        self._answered = False
        self._must_end = context.api_key == PRODUCE
        """Whether the request is served to its end although its connection has gone. Produce is: its producer may not
        wait for an answer (acks=0). A finished answer is, too: it may hold open files, which must be released."""

    def wanted(self) -> bool:
        """Whether the work should go on."""
        return self._must_end or not self._state.gone

    def finished(self, _: None, error: BaseException | None) -> None:
        """End the exchange, if no answer was given. Called once, when the steps have ended or are not wanted any
        more."""
        exchange = self._context.exchange
        if isinstance(error, DecodeError) and self._request is None:
            self._route.unreadable(exchange, error)
        elif error is not None:
            self._route.defect(exchange, error)
        elif not self._answered:
            exchange.no_answer()  # its connection has gone

    def steps(self, decoding: Generator[None, None, tuple[Any, int]]) -> Steps[None]:
        """The steps from the frame to the answer in the exchange."""
        route, context = self._route, self._context
        request, _ = yield from decoding
        del decoding  # frees the frame, unless the request's records refer to it
        self._request = request
        self._must_end |= context.api_key == FETCH
        in_steps: Steps[Any] | None = None
        failure: Exception | None = None
        try:
            if self._handler.in_steps is not None:
                in_steps = self._handler.in_steps(request, context)
            if in_steps is not None:
                answer = yield from in_steps
            else:
                answer = self._handler.handle(request, context)
            if isinstance(answer, Completion):
                answer = yield from waited(answer)
        except PartlyFailed as part:
            route.log_defect(part.__cause__ or part)
            answer = part.answer
        except Exception as error:
            failure = error
        if failure is not None:
            answer = yield from route.error_in_steps(request, failure)
            failure = None  # its traceback leads to this frame: the request would stay until the garbage collector runs
        self._must_end = True
        if context.close_reason is not None:
            self._answered = True
            route.refuse(context.exchange, context.close_reason)
            return
        if context.throttle_ms:
            route.throttle(context, answer)
        parts: Any = None
        if not isinstance(answer, NoAnswer):
            leave_out(answer, route.version)  # a part of it may be an error's answer
            prefix = route.prefix(context.correlation_id)
            parts = yield from encode_parts_in_steps(answer, route.version, prefix)
        self._answered = True
        route.answered(context, parts, self._frame_bytes)
        if not isinstance(answer, NoAnswer):
            route.count_errors(answer)
        if in_steps is not None and not isinstance(answer, NoAnswer):
            yield from let_go(_long_lists(answer))


def _long_lists(value: Any) -> Iterator[list[Any]]:
    """Yields the lists of a message that are too long to be freed in one go on the loop."""
    for name in value.__struct_fields__:
        items = getattr(value, name)
        if type(items) is not list or not items:
            continue
        if len(items) > STEP_ELEMENTS:
            yield items
        elif isinstance(items[0], Struct):
            for item in items:
                yield from _long_lists(item)
