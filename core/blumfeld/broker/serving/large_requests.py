"""One request of many elements on its way through decoding, serving and encoding, in steps (ADR 0014)."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any, Protocol

from blumfeld.broker.serving.request import ConnectionState, Request
from blumfeld.broker.serving.slices import waited
from blumfeld.spi.completion import Completion, Steps
from blumfeld.spi.context import ApiHandler, NoAnswer
from blumfeld.spi.parts import Parts
from blumfeld.spi.steps import STEP_ELEMENTS, let_go
from blumfeld.spi.transport import OWNED_FRAME_BYTES, Exchange
from blumfeld.wire.api import ApiKey
from blumfeld.wire.codec import encode_parts_in_steps
from blumfeld.wire.primitives import DecodeError
from blumfeld.wire.schema import Message, Struct

PRODUCE, FETCH = int(ApiKey.PRODUCE), int(ApiKey.FETCH)


class Answering(Protocol):
    """The route of the request, as far as a large request needs it."""

    version: int

    def prefix(self, correlation_id: int) -> bytes:
        """The header of an answer."""
        ...

    def error_answer(self, request: Message, error: BaseException) -> Message:
        """The response that says the error for everything asked."""
        ...

    def answered(self, context: Request, parts: Parts | None, frame_bytes: int) -> None:
        """Put the answer in its place, none if it is ``None``."""
        ...

    def throttle(self, context: Request, answer: Message | NoAnswer) -> None:
        """Tell the client that it is throttled, and read no more from it meanwhile."""
        ...

    def refuse(self, exchange: Exchange, reason: str) -> None:
        """Close the connection: no answer is possible."""
        ...

    def unreadable(self, exchange: Exchange, error: DecodeError) -> None:
        """Close the connection: the request's bytes are none."""
        ...

    def defect(self, exchange: Exchange, error: BaseException) -> None:
        """Close the connection for a mistake of ours."""
        ...


def lasting(frame: memoryview) -> memoryview:
    """A frame that stays as it is beyond this turn: a copy, where the next turn's bytes would be received over it."""
    return frame if len(frame) > OWNED_FRAME_BYTES else memoryview(bytearray(frame))


class LargeRequest:
    """The work for one request: its steps, and what is done at their end."""

    def __init__(self, route: Answering, handler: ApiHandler, context: Request, frame_bytes: int) -> None:
        self._route = route
        self._handler = handler
        self._context = context
        self._frame_bytes = frame_bytes
        self._state: ConnectionState = context.exchange.connection.state
        self._request: Message | None = None
        self._answered = False
        self._must_end = context.api_key == PRODUCE
        """Whether it is served to its end when its connection has gone. Records that were received are written: their
        producer may not wait for an answer. And an answer may hold files: it is sent, or released."""

    def wanted(self) -> bool:
        """Whether to go on."""
        return self._must_end or not self._state.gone

    def finished(self, _: None, error: BaseException | None) -> None:
        """The steps have come to their end, or are not wanted any more."""
        exchange = self._context.exchange
        if isinstance(error, DecodeError) and self._request is None:
            self._route.unreadable(exchange, error)
        elif error is not None:
            self._route.defect(exchange, error)
        elif not self._answered:
            exchange.no_answer()  # its connection has gone

    def steps(self, decoding: Generator[None, None, tuple[Any, int]]) -> Steps[None]:
        """From the frame to the answer in its place."""
        route, context = self._route, self._context
        request, _ = yield from decoding
        del decoding  # the frame with it: only the request's records need it
        self._request = request
        self._must_end |= context.api_key == FETCH
        in_steps: Steps[Any] | None = None
        try:
            if self._handler.in_steps is not None:
                in_steps = self._handler.in_steps(request, context)
            if in_steps is not None:
                answer = yield from in_steps
            else:
                answer = self._handler.handle(request, context)
            if isinstance(answer, Completion):
                answer = yield from waited(answer)
        except Exception as error:
            in_steps = None
            answer = route.error_answer(request, error)
        self._must_end = True
        if context.close_reason is not None:
            self._answered = True
            route.refuse(context.exchange, context.close_reason)
            return
        if context.throttle_ms:
            route.throttle(context, answer)
        parts: Any = None
        if not isinstance(answer, NoAnswer):
            prefix = route.prefix(context.correlation_id)
            parts = yield from encode_parts_in_steps(answer, route.version, prefix)
        self._answered = True
        route.answered(context, parts, self._frame_bytes)
        if in_steps is not None and not isinstance(answer, NoAnswer):
            yield from let_go(_long_lists(answer))


def _long_lists(value: Any) -> Iterator[list[Any]]:
    """The lists of a message that are too long to be freed at once."""
    for name in value.__struct_fields__:
        items = getattr(value, name)
        if type(items) is not list or not items:
            continue
        if len(items) > STEP_ELEMENTS:
            yield items
        elif isinstance(items[0], Struct):
            for item in items:
                yield from _long_lists(item)
