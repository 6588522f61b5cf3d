"""Serves a request that came inside another one: its answer goes to the caller and not to a connection (KIP-590)."""

from __future__ import annotations

from blumfeld.broker.serving.dispatch import Dispatcher
from blumfeld.broker.serving.request import ConnectionState
from blumfeld.client.envelope import Forwarded
from blumfeld.spi.completion import Completion
from blumfeld.spi.context import RequestContext
from blumfeld.spi.parts import Parts, join, release
from blumfeld.spi.transport import ByteLayer
from blumfeld.wire.errors import BrokerError, ErrorCode


class InnerConnection:
    """Stands for the client's connection to the node that forwarded its request: implements ``Connection``."""

    def __init__(self, forwarded: Forwarded, outer: RequestContext, answer: Completion[bytes]) -> None:
        self.id = outer.connection_id
        self.listener = outer.listener
        self.peer_host = forwarded.on_behalf.client_host
        self.peer_port = outer.peer_port
        self.state = ConnectionState()
        self.state.principal = forwarded.on_behalf.principal
        self.layer: ByteLayer | None = None
        self._answer = answer

    def limit_frames(self, bytes_max: int) -> None:
        """Do nothing: the outer connection has the limit."""

    def mute(self, until_ms: float) -> None:
        """Do nothing: the answer's throttle time tells the client, and other clients share the connection."""

    def close(self, reason: str) -> None:
        """Fail the inner request, which can't be read or answered."""
        if not self._answer.done:
            self._answer.fail(BrokerError(ErrorCode.INVALID_REQUEST, reason))

    abort = close


class InnerExchange:
    """The inner request: implements ``Exchange``."""

    def __init__(self, connection: InnerConnection, answer: Completion[bytes]) -> None:
        self.connection = connection
        self._answer = answer

    def answer(self, parts: Parts) -> None:
        """Complete with the answer as one frame."""
        frame = join(parts)
        release(parts)
        if not self._answer.done:
            self._answer.complete(frame)

    def no_answer(self) -> None:
        """Do nothing: every API that may be forwarded has an answer, so the connection is closed next, with the
        reason."""

    def let_next_start(self) -> None:
        """Do nothing: no other request follows in the Envelope."""


class InnerRequests:
    """Serves inner requests with the handlers of broker listeners."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher

    def serve(self, forwarded: Forwarded, outer: RequestContext) -> Completion[bytes]:
        """Serve a request with its client's principal and address. Completes with the answer, header included.

        Fails with ``BrokerError``: UNSUPPORTED_VERSION: this build doesn't serve it; INVALID_REQUEST: it can't be read.
        """
        answer: Completion[bytes] = Completion()
        if self._dispatcher.route(forwarded.api_key, forwarded.api_version) is None:
            answer.fail(BrokerError(ErrorCode.UNSUPPORTED_VERSION))
            return answer
        exchange = InnerExchange(InnerConnection(forwarded, outer, answer), answer)
        # Not copied: no handler changes a request that may be forwarded, because only Produce patches what it is given.
        self._dispatcher.request(exchange, memoryview(forwarded.frame))
        return answer
