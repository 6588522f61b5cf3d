"""Hands each frame to its handler, and the encoded answer to the transport: the ``ConnectionHandler`` of a listener
kind.

A connection is closed where Kafka's ``SocketServer`` closes it: for an unknown API key, a version that is not
served, a header or body that can't be decoded. The exception is ApiVersions in a version that we don't serve: it is
answered with UNSUPPORTED_VERSION in version 0 (KIP-511), so that a newer client can start over.
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Iterator
from types import GeneratorType
from typing import TYPE_CHECKING, Any, Protocol

from blumfeld.broker.serving.counts import ApiCounts, NodeMetrics
from blumfeld.broker.serving.request import (
    HEADER_BYTES,
    AuthorizedRequest,
    ConnectionState,
    Request,
    client_id_of,
)
from blumfeld.spi.completion import Completion, Steps
from blumfeld.spi.context import ApiHandler, NoAnswer, Principal
from blumfeld.spi.defects import place_of
from blumfeld.spi.hooks import EventLog
from blumfeld.spi.parts import Parts, size_of
from blumfeld.spi.repeated_events import RepeatedEvents
from blumfeld.spi.runtime import Runtime
from blumfeld.spi.scheduler import Lane
from blumfeld.spi.security import Authorizer
from blumfeld.spi.steps import STEP_ELEMENTS, PartlyFailed, drained, let_go, result_of
from blumfeld.spi.transport import OWNED_FRAME_BYTES, Connection, Exchange
from blumfeld.wire.api import API_BY_KEY, ApiKey, request_class
from blumfeld.wire.codec import (
    Decoder,
    StepDecoder,
    decoder,
    encode_parts,
    encode_parts_in_steps,
    leave_out,
    step_decoder,
)
from blumfeld.wire.errors import BrokerError, ErrorCode, PluginContractError
from blumfeld.wire.first_error import errors_in
from blumfeld.wire.headers import response_header, response_is_flexible
from blumfeld.wire.primitives import DecodeError, skip_tags
from blumfeld.wire.schema import Message, Struct

if TYPE_CHECKING:
    from blumfeld.broker.serving.limiting import Limiting

_HEADER = struct.Struct(">hhih")
_UNSUPPORTED_API_VERSIONS = struct.Struct(">ihihhh")
_API_VERSIONS = int(ApiKey.API_VERSIONS)
_PRODUCE, _FETCH = int(ApiKey.PRODUCE), int(ApiKey.FETCH)
STRAIGHT_BYTES_MAX = 4_096
"""A larger frame is decoded in steps, which count its elements. A smaller one can't hold more elements than bytes, so
it can't hold the loop for long."""
STRAIGHT_STEPS_MAX = 4
"""A request that is decoded in this many steps is served at once, whatever its size: it has at most 256 elements. It
may be one record batch of a megabyte."""


class Serve(Protocol):
    """Serves the requests of one (key, version) on a listener kind."""

    flexible: bool
    """Whether the request's header has a tag section."""

    def serve(self, exchange: Exchange, frame: memoryview, position: int, correlation_id: int) -> None:
        """Serve a request whose body begins at ``position``, and answer it now or later. It must not raise."""
        ...


class Watching(Protocol):
    """Tells observers about requests (``serving/observing.py``), if there are any."""

    def route(self, dispatcher: Dispatcher, handler: ApiHandler, version: int) -> Serve:
        """Returns an observed route, which takes the place of a :class:`Route`."""
        ...

    def refused(
        self, exchange: Exchange, closed: str, *, api: tuple[int, int, int] = ..., error_code: int = 0
    ) -> None:
        """Report a request that no handler answered."""
        ...


class Dispatcher:
    """The handlers of one listener kind, by (key, version)."""

    def __init__(
        self,
        kind: str,
        runtime: Runtime,
        events: EventLog,
        authorizer: Authorizer | None = None,
        metrics: NodeMetrics | None = None,
        observing: Watching | None = None,
        limiting: Limiting | None = None,
    ) -> None:
        self.kind = kind
        self.scheduler = runtime.scheduler
        self.events = events
        self.metrics = metrics
        self.authorizer = authorizer
        self.context_class = Request if authorizer is None else AuthorizedRequest
        self.observing = observing
        self.limiting = limiting
        self.monotonic_ms = runtime.monotonic_ms
        self.defects = RepeatedEvents(runtime)
        self._refusals = Refusals(runtime, events)
        self._routes: dict[int, Serve] = {}
        self._handlers: dict[int, list[ApiHandler]] = {}

    def register(self, handler: ApiHandler) -> None:
        """Serve an API with this handler.

        :raises PluginContractError: another handler has one of the versions, or there is no such API
        """
        if handler.key not in API_BY_KEY:
            raise PluginContractError(f"a handler for API key {handler.key}, which the protocol doesn't know")
        for version in range(handler.min_version, handler.max_version + 1):
            place = (handler.key << 16) + version
            if place in self._routes:
                raise PluginContractError(
                    f"two handlers for {API_BY_KEY[handler.key].name} v{version} on {self.kind} listeners"
                )
            made = Route if self.observing is None else self.observing.route
            self._routes[place] = made(self, handler, version)
        self._handlers.setdefault(handler.key, []).append(handler)

    def route(self, key: int, version: int) -> Serve | None:
        """Returns the route that serves this version now."""
        return self._routes.get((key << 16) + version)

    def replace(self, key: int, version: int, route: Serve) -> None:
        """Put another way of serving in front of a registered one."""
        self._routes[(key << 16) + version] = route

    def advertised(self) -> dict[int, tuple[int, int]]:
        """Returns key → (lowest, highest) version for ApiVersions, sorted by key."""
        return {
            key: (
                min(h.min_version if h.advertised_min is None else h.advertised_min for h in handlers),
                max(h.max_version for h in handlers),
            )
            for key, handlers in sorted(self._handlers.items())
        }

    # ConnectionHandler

    def opened(self, connection: Connection) -> None:
        """Set up the state of an accepted connection."""
        connection.state = ConnectionState()
        if self.limiting is not None:
            self.limiting.opened(connection)
        if self.metrics is not None:
            self.metrics.opened(connection.listener)

    def request(self, exchange: Exchange, frame: memoryview) -> None:
        """Read the header of a frame and hand it to its route. Every request passes here."""
        try:
            key, version, correlation_id, client_id_length = _HEADER.unpack_from(frame)
        except struct.error:
            self.refuse(exchange, f"a frame of {len(frame)} bytes is too short for a request header")
            return
        position = HEADER_BYTES + client_id_length if client_id_length > 0 else HEADER_BYTES
        route = self._routes.get((key << 16) + version)
        if route is None:
            self._unserved(exchange, key, version, correlation_id)
            return
        if route.flexible:
            try:
                if frame[position]:
                    position = skip_tags(frame, position, len(frame))
                else:
                    position += 1
            except (IndexError, DecodeError):
                self.refuse(exchange, "the request header is cut off")
                return
        route.serve(exchange, frame, position, correlation_id)

    def set_principal(self, connection: Connection, principal: Principal) -> None:
        """As ``BrokerConnectionHandler.set_principal``."""
        connection.state.log_in(principal)

    def closed(self, connection: Connection, reason: str) -> None:
        """Take note that the connection has gone: stop its large request, and forget its parked one."""
        if self.metrics is not None:
            self.metrics.closed(connection.listener)
        state: ConnectionState = connection.state
        state.gone = True
        if state.when_gone is not None:
            when_gone, state.when_gone = state.when_gone, None
            when_gone()

    # For routes

    def refuse(self, exchange: Exchange, reason: str) -> None:
        """Close the connection, because no answer is possible."""
        if self.observing is not None:
            self.observing.refused(exchange, reason)
        self._refusals.refuse(exchange, reason)

    def _unserved(self, exchange: Exchange, key: int, version: int, correlation_id: int) -> None:
        shown = self.advertised().get(_API_VERSIONS)
        if key == _API_VERSIONS and shown is not None and version >= 0:
            code = int(ErrorCode.UNSUPPORTED_VERSION)
            if self.observing is not None:
                self.observing.refused(exchange, "", api=(key, version, correlation_id), error_code=code)
            exchange.answer((_UNSUPPORTED_API_VERSIONS.pack(correlation_id, code, 1, key, *shown),))
            return
        info = API_BY_KEY.get(key)
        name = f"API key {key}" if info is None else info.name
        self.refuse(exchange, f"{name} v{version} is not served on {self.kind} listeners")


class Route:
    """The general way: the generated decoder, a handler, the generated encoder.

    The codecs are made with the first request, because a start must not pay for APIs that are never called.
    """

    __slots__ = (
        "_counts",
        "_decode",
        "_decode_in_steps",
        "_dispatcher",
        "_handler",
        "_header_flexible",
        "_tells_errors",
        "flexible",
        "version",
    )

    def __init__(self, dispatcher: Dispatcher, handler: ApiHandler, version: int) -> None:
        self.version = version
        self.flexible = version >= API_BY_KEY[handler.key].flexible_from
        self._header_flexible = response_is_flexible(handler.key, version)
        self._dispatcher = dispatcher
        self._handler = handler
        self._tells_errors = handler.key == _FETCH
        """Whether the handler counts the errors of its answers itself. Fetch does: to look for them in each answer
        would take a part of the time of those that have none."""
        self._counts: ApiCounts | None = None
        self._decode: Decoder[Any] | None = None
        self._decode_in_steps: StepDecoder[Any] | None = None

    def serve(self, exchange: Exchange, frame: memoryview, position: int, correlation_id: int) -> None:
        """Decode the request, call the handler, and answer when it does. Many elements are served in steps."""
        dispatcher = self._dispatcher
        decode = self._decode
        request: Any
        try:
            client_id = client_id_of(frame, exchange.connection.state)
            if len(frame) > STRAIGHT_BYTES_MAX:
                request = self._begun(frame, position)
            else:
                if decode is None:
                    decode = self._decode = decoder(request_class(self._handler.key), self.version)
                request, _ = decode(frame, position)
        except DecodeError as error:
            self.unreadable(exchange, error)
            return
        make_context = dispatcher.context_class  # called as an attribute, it would be looked up the slow way
        context = make_context(
            exchange,
            self._handler.key,
            self.version,
            correlation_id,
            client_id,
            dispatcher.monotonic_ms(),
            dispatcher.authorizer,
        )
        if request is None:
            self._serve_in_steps(context, frame, position)
            return
        if dispatcher.limiting is not None:
            context.busy_ms = 0.0
            dispatcher.limiting.begun(context, request)
        try:
            answer = self._handler.handle(request, context)
        except Exception as error:
            self._answer_error(context, request, error, len(frame))
            return
        if isinstance(answer, Completion):
            frame_bytes = len(frame)
            if dispatcher.limiting is not None:
                context.busy_ms = dispatcher.monotonic_ms() - context.received_ms
            answer.when_done(lambda done: self._completed(context, request, done, frame_bytes))
        elif type(answer) is GeneratorType:
            self._serve_in_steps(context, frame, position)
        else:
            self._answer(context, request, answer, len(frame))  # type: ignore[arg-type]

    def _serve_in_steps(self, context: Request, frame: memoryview, position: int) -> None:
        """Serve a request from its frame on. The steps run in later turns, when the receive buffer may hold other
        bytes."""
        frame = lasting(frame)
        large = LargeRequest(self, self._handler, context, len(frame))
        steps = large.steps(self._steps_of(frame, position))
        if self._dispatcher.limiting is not None:
            steps = self._dispatcher.limiting.timed(steps, context)
        self._dispatcher.scheduler.run(Lane.REQUESTS, steps, large.finished, wanted=large.wanted)

    def _begun(self, frame: memoryview, position: int) -> Message | None:
        """Returns the request of a larger frame if it has few elements, else ``None``.

        :raises DecodeError: the request can't be read
        """
        steps = self._steps_of(frame, position)
        try:
            for _ in range(STRAIGHT_STEPS_MAX):
                next(steps)
        except StopIteration as end:
            request: Message = end.value[0]
            return request
        return None

    def _steps_of(self, frame: memoryview, position: int) -> Generator[None, None, tuple[Any, int]]:
        decode = self._decode_in_steps
        if decode is None:
            decode = self._decode_in_steps = step_decoder(request_class(self._handler.key), self.version)
        return decode(frame, position)

    def unreadable(self, exchange: Exchange, error: DecodeError) -> None:
        """Close the connection, because the request can't be decoded."""
        name = API_BY_KEY[self._handler.key].name
        self._dispatcher.refuse(exchange, f"{name} v{self.version} can't be read: {error}")

    def _completed(self, context: Request, request: Message, done: Completion[Any], frame_bytes: int) -> None:
        if done.error is not None:
            self._answer_error(context, request, done.error, frame_bytes)
        else:
            self._answer(context, request, done.result(), frame_bytes)

    def _answer(
        self, context: Request, request: Message, answer: Message | NoAnswer, frame_bytes: int
    ) -> None:
        exchange = context.exchange
        if context.close_reason is not None:
            self.refuse(exchange, context.close_reason)
            return
        limiting = self._dispatcher.limiting
        if limiting is not None:
            limiting.answered(context, request, frame_bytes)
        if context.throttle_ms:
            self.throttle(context, answer)
        if isinstance(answer, NoAnswer):
            self.answered(context, None, frame_bytes)
            return
        try:
            parts = self.encode(answer, context.correlation_id)
            if limiting is not None and limiting.fetched(context, request, parts):
                self.throttle(context, answer)
                parts = self.encode(answer, context.correlation_id)
        except Exception as error:
            self.defect(exchange, error)
            return
        self.answered(context, parts, frame_bytes)
        self.count_errors(answer)

    def count_errors(self, answer: Message) -> None:
        """Count the errors in an answer, if somebody reads the counts. The request was counted before."""
        counts = self._counts
        if counts is not None and counts.measured and not self._tells_errors:
            for code in errors_in(answer):
                counts.failed(code)

    def refuse(self, exchange: Exchange, reason: str) -> None:
        """Close the connection, because no answer is possible."""
        self._dispatcher.refuse(exchange, reason)

    def answered(self, context: Request, parts: Parts | None, frame_bytes: int) -> None:
        """Give the answer to the exchange (``None``: there is none), and count the request."""
        size = 0
        if parts is None:
            context.exchange.no_answer()
        else:
            context.exchange.answer(parts)
            size = size_of(parts) if self._dispatcher.metrics is not None else 0
        self._count(context, frame_bytes, size)

    def throttle(self, context: Request, answer: Message | NoAnswer) -> None:
        """Set the answer's throttle time if its message has one, and read no requests from the client meanwhile."""
        if hasattr(answer, "throttle_time_ms"):
            answer.throttle_time_ms = int(context.throttle_ms)
        context.exchange.connection.mute(self._dispatcher.monotonic_ms() + context.throttle_ms)

    def _answer_error(
        self, context: Request, request: Message, error: BaseException, frame_bytes: int
    ) -> None:
        try:
            answer = self.error_answer(request, error)
        except Exception as unanswerable:
            self.defect(context.exchange, unanswerable)
            return
        self._answer(context, request, answer, frame_bytes)

    def error_answer(self, request: Message, error: BaseException) -> Message:
        """Returns the response with this error for every element of the request. A defect is logged."""
        answer = drained(self.error_steps(request, error))
        leave_out(answer, self.version)
        return answer

    def error_steps(self, request: Message, error: BaseException) -> Steps[Message]:
        """The steps to the response with this error for every element of the request. A defect is logged."""
        answer: Message = yield from result_of(self._handler.error_response(request, *self._told(error)))
        return answer

    def _told(self, error: BaseException) -> tuple[int, str | None]:
        """Returns the code and the message that a client is told of an error. A defect is logged."""
        code, message = ErrorCode.UNKNOWN_SERVER_ERROR, None
        if isinstance(error, BrokerError):
            code, message = error.code, error.message
        else:
            self.log_defect(error)
        counts = self._metered() if self._tells_errors else None
        if counts is not None:
            counts.failed(int(code))
        return int(code), message

    def encode(self, answer: Message, correlation_id: int) -> Parts:
        """Returns the answer with its header, as parts."""
        return encode_parts(answer, self.version, self.prefix(correlation_id))  # type: ignore[return-value]

    @property
    def limiting(self) -> Limiting | None:
        """The build's quotas; ``None`` without them."""
        return self._dispatcher.limiting

    def prefix(self, correlation_id: int) -> bytes:
        """Returns the header of an answer."""
        return response_header(correlation_id, self._header_flexible)

    def _count(self, context: Request, request_bytes: int, response_bytes: int) -> None:
        counts = self._counts or self._metered()
        if counts is not None:
            elapsed_ms = self._dispatcher.monotonic_ms() - context.received_ms
            if counts.measured and not counts.above_ms < elapsed_ms <= counts.up_to_ms:
                counts.enter_bucket(elapsed_ms)
            counts.requests += 1
            counts.time_ms += elapsed_ms
            counts.request_bytes += request_bytes
            counts.response_bytes += response_bytes

    def _metered(self) -> ApiCounts | None:
        """Returns the counts of this API; ``None`` where nothing is counted. An API that is never called has none."""
        metrics = self._dispatcher.metrics
        if self._counts is None and metrics is not None:
            self._counts = metrics.counts_of(self._handler.key)
        return self._counts

    def defect(self, exchange: Exchange, error: BaseException) -> None:
        """Log a defect of this broker, and close the connection."""
        self.log_defect(error)
        exchange.no_answer()
        exchange.connection.close("internal error")

    def log_defect(self, error: BaseException) -> None:
        """Log a defect of this broker. A client may cause it as often as it likes."""
        name = API_BY_KEY[self._handler.key].name
        log, key = self._dispatcher.events.error, (name, place_of(error))
        values = {"api": name, "version": self.version, "exc_info": error}
        self._dispatcher.defects.say(log, "handler failed", key, **values)


def lasting(frame: memoryview) -> memoryview:
    """Returns a frame that stays unchanged after this turn. A small frame lies in the shared receive buffer, which the
    next turn overwrites, so it is copied. A large one has memory of its own, and so has the request in an Envelope."""
    owned = len(frame) > OWNED_FRAME_BYTES or type(frame.obj) is bytes
    return frame if owned else memoryview(bytearray(frame))


class LargeRequest:
    """Decodes, serves and encodes one request with many elements, in steps (ADR 0045)."""

    def __init__(self, route: Route, handler: ApiHandler, context: Request, frame_bytes: int) -> None:
        self._route = route
        self._handler = handler
        self._context = context
        self._frame_bytes = frame_bytes
        self._state: ConnectionState = context.exchange.connection.state
        self._request: Message | None = None
        self._answered = False
        self._must_end = context.api_key == _PRODUCE
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
        self._must_end |= context.api_key == _FETCH
        context.is_large = True
        limiting = route.limiting
        if limiting is not None:
            limiting.begun(context, request)
        made_in_steps = False
        failure: Exception | None = None
        try:
            served = self._handler.handle(request, context)
            made_in_steps = isinstance(served, GeneratorType)
            answer = yield from result_of(served)
        except PartlyFailed as part:
            route.log_defect(part.__cause__ or part)
            answer = part.answer
        except Exception as error:
            failure = error
        if failure is not None:
            answer = yield from route.error_steps(request, failure)
            failure = None  # its traceback leads to this frame: the request would stay until the garbage collector runs
        self._must_end = True
        if context.close_reason is not None:
            self._answered = True
            route.refuse(context.exchange, context.close_reason)
            return
        if limiting is not None:
            limiting.answered(context, request, self._frame_bytes)
        if context.throttle_ms:
            route.throttle(context, answer)
        parts: Any = None
        if not isinstance(answer, NoAnswer):
            leave_out(answer, route.version)  # a part of it may be an error's answer
            prefix = route.prefix(context.correlation_id)
            parts = yield from encode_parts_in_steps(answer, route.version, prefix)
            if limiting is not None and limiting.fetched(context, request, parts):
                route.throttle(context, answer)
                parts = yield from encode_parts_in_steps(answer, route.version, prefix)
        self._answered = True
        route.answered(context, parts, self._frame_bytes)
        if not isinstance(answer, NoAnswer):
            route.count_errors(answer)
            if made_in_steps:
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


class Refusals:
    """Closes connections. A flood of bad requests writes one line per address and kind of reason in ten seconds, with
    the number of further ones."""

    def __init__(self, runtime: Runtime, events: EventLog) -> None:
        self._repeated = RepeatedEvents(runtime)
        self._events = events

    def refuse(self, exchange: Exchange, reason: str) -> None:
        """Close the connection of a request.

        :param reason: the text for the log. Its part before the first colon is the kind by which floods are counted
        """
        peer = exchange.connection.peer_host
        key = (peer, reason.partition(":")[0])
        self._repeated.say(self._events.info, "connection closed", key, reason=reason, peer=peer)
        exchange.no_answer()
        exchange.connection.close(reason)
