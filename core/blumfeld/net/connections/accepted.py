"""An accepted connection: its requests start in order, its answers leave in order, once a turn."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

from blumfeld.net.connections.stream import CLOSING, FULL, MUTED, SIZE, Stream
from blumfeld.net.memory import UNCOUNTED_BYTES
from blumfeld.net.send_queue import BUFFERS, SendQueue
from blumfeld.net.turn import Turn
from blumfeld.spi.parts import Part, Parts, release
from blumfeld.spi.runtime import Phase
from blumfeld.spi.transport import ByteLayer, ConnectionHandler, Limits, Listener

AT_ONCE_MAX = 4
"""Requests that one connection may start in a turn, once the first of them was answered at once. Such requests have had
their whole work in the turn, and other connections wait. Requests that wait for the turn's write (Produce) share that
write, so only ``in_flight_max`` bounds them.
"""

TLS_HANDSHAKE = 0x1603
"""The first two bytes of a client that begins with TLS. As a frame's size they are above any limit but the largest."""
_NO_ANSWER: tuple[Part, ...] = (b"no answer",)
"""Stands for "no answer". It is compared by identity, so no real answer can equal it."""
_pack_size = SIZE.pack
_unpack_size = SIZE.unpack_from


class RequestExchange(msgspec.Struct, eq=False, gc=False):
    """One request and the place of its answer. See ``blumfeld.spi.transport.Exchange``.

    One is made for each request, so it is kept out of garbage collection (``gc=False``). That leaks nothing, because a
    connection that is gone leads nowhere: ``gone`` drops its newest exchange, its handler and its transport.
    """

    connection: Any
    """The :class:`AcceptedConnection`."""
    parts: Parts | None = None
    passed: bool = False
    """Whether the next request may start."""

    def answer(self, parts: Parts) -> None:
        """Store the answer. It is sent at the end of a turn, after the answers of all earlier requests.

        :raises RuntimeError: the request was already answered
        """
        if self.parts is not None:
            raise RuntimeError("the request was already answered")
        self.parts = parts
        self.passed = True
        connection = self.connection
        if connection.deaf:
            release(parts)
        elif not connection.dirty and connection.open[0] is self:
            # Only the oldest open request lets anything be sent: later answers must wait for it.
            connection.dirty = True
            turn = connection.turn
            turn.dirty.append(connection)
            if not turn.begun:
                turn.begin()

    def no_answer(self) -> None:
        """End a request that has no answer, such as Produce with acks=0."""
        self.answer(_NO_ANSWER)

    def let_next_start(self) -> None:
        """Let the connection's next request start before this one is answered."""
        if not self.passed:
            self.passed = True
            connection = self.connection
            # Otherwise no request waits, and this hot path needn't wake anything.
            if connection._rest is not None or not connection._reading:
                connection.wake()


_NOBODY = RequestExchange(None)
"""The newest request of a closed connection. It never lets a next request start."""


class AcceptedConnection(Stream):
    """The connection of one client. See ``blumfeld.spi.transport.Connection``."""

    __slots__ = (
        "_abandoning",
        "_counted_bytes",
        "_counted_unsent_bytes",
        "_forget",
        "_handler",
        "_in_flight_max",
        "_muted_until_ms",
        "_newest",
        "_unsent_bytes_max",
        "_waking",
        "deaf",
        "dirty",
        "id",
        "idle_ms_max",
        "listener",
        "open",
        "peer_host",
        "peer_port",
        "state",
    )

    def __init__(
        self,
        turn: Turn,
        queue: SendQueue,
        peer: tuple[str, int],
        identity: int,
        listener: Listener,
        handler: ConnectionHandler,
        limits: Limits,
        layer: ByteLayer | None,
        forget: Callable[[AcceptedConnection], None],
    ) -> None:
        super().__init__(turn, queue, limits, layer)
        self.id = identity
        self.listener = listener
        self.peer_host, self.peer_port = peer
        self.state: Any = None
        self.open: deque[RequestExchange] = deque()
        """Requests that were started and whose answers were not handed to the socket yet, in order."""
        self.dirty = False
        """Whether :meth:`flush` is due at the end of this turn."""
        self.deaf = False
        """Whether answers are released without being sent."""
        self._newest = RequestExchange(self)
        self._newest.passed = True
        self._muted_until_ms = 0.0
        self._abandoning = False
        self._waking = False
        self._handler = handler
        self._in_flight_max = limits.in_flight_max
        self._unsent_bytes_max = limits.unsent_bytes_max
        self.idle_ms_max = limits.idle_ms_max
        self._forget = forget
        self._counted_bytes = 0
        """Bytes of this connection's answers that are counted against the memory of all connections."""
        self._counted_unsent_bytes = 0
        """Unsent bytes at the time of that count."""

    # Requests.

    def held(self) -> bool:
        """Whether the next request must wait: for the one before it, for a limit, or because the connection closes."""
        opened = len(self.open)
        return (
            not self._newest.passed
            or self._stall != 0
            or opened >= self._in_flight_max
            or (self.dirty and opened >= AT_ONCE_MAX)
        )

    def busy(self) -> bool:
        """Whether answers are still to come."""
        return len(self.open) != 0

    def consume(self, view: memoryview, at: int, end: int) -> int:
        """Start the requests in ``view[at:end]`` until one must wait. Returns the position where that one begins."""
        # The conditions of held() are repeated inline here, because this loop runs for each request.
        opened = self.open
        if not self._newest.passed or self._stall or len(opened) >= self._in_flight_max:
            return at
        request = self._handler.request
        while end - at >= 4:
            size = _unpack_size(view, at)[0]
            body = at + 4
            if not 0 <= size <= self._frame_bytes_max:
                self.refuse(size)
                return end
            after = body + size
            if after > end:
                break
            self._newest = exchange = RequestExchange(self)
            opened.append(exchange)
            try:
                request(exchange, view[body:after])
            except Exception as error:
                self._defect(error)
                return end
            at = after
            if (
                not exchange.passed
                or self._stall
                or len(opened) >= self._in_flight_max
                or (self.dirty and len(opened) >= AT_ONCE_MAX)
            ):
                break
        return at

    def consume_large(self, frame: memoryview) -> None:
        """Start the request of a large frame, which has a buffer of its own."""
        self._newest = exchange = RequestExchange(self)
        self.open.append(exchange)
        try:
            self._handler.request(exchange, frame)
        except Exception as error:
            self._defect(error)

    def refuse(self, size: int) -> None:
        """Close the connection: the peer announced a frame of an illegal size."""
        reason = f"a frame of {size} bytes is not within 0 and {self._frame_bytes_max}"
        if size >> 16 == TLS_HANDSHAKE:
            reason = f"TLS came to a listener that speaks {self.listener.security_protocol}"
        self.close(reason)
        if self.turn.on_refused is not None:
            self.turn.on_refused(reason, self)

    def _defect(self, error: Exception) -> None:
        self.turn.defect(error, "ConnectionHandler.request")
        self.die("a defect of ours")

    def wake(self) -> None:
        """Check whether a hold is over. If a request waits for that, it starts in the next turn."""
        if self._waking or self.dead or (self._rest is None and self._reading):
            return
        if not self.held():
            self._waking = True
            self.turn.runtime.call_later(0, self._wake)

    def _wake(self) -> None:
        self._waking = False
        if not self.dead and not self.held():
            self.consume_rest()

    # Answers.

    def flush(self) -> None:
        """Hand all answers that are ready to the socket, in order and in one call."""
        self.dirty = False
        if self.dead:
            return
        opened = self.open
        if len(opened) == 1 and (parts := opened[0].parts) is not None and len(parts) == 1:
            part = parts[0]
            # A short cut for one small answer, which is nearly every case.
            if type(part) is bytes and parts is not _NO_ANSWER:
                opened.pop().parts = _NO_ANSWER
                size = len(part)
                self._send([_pack_size(size), part], size + 4, False)
                return
        out: list[Part] = []
        total = 0
        has_regions = False
        while opened and (parts := opened[0].parts) is not None:
            exchange = opened.popleft()
            if parts is _NO_ANSWER:
                continue
            # Else an idle connection's newest exchange would keep its parts alive.
            exchange.parts = _NO_ANSWER
            size = 0
            for part in parts:
                if isinstance(part, BUFFERS):
                    size += len(part)
                else:
                    size += part.size_bytes
                    has_regions = True
            out.append(_pack_size(size))
            out += parts
            total += size + 4
        self._send(out, total, has_regions)

    def _send(self, out: list[Part], total: int, has_regions: bool) -> None:
        if out:
            try:
                waits = self._sending.send(out, total, has_regions)
            except OSError as error:
                self.die(f"send: {error.strerror or error}")
                return
            self._active_ms = self.turn.now_ms
            if waits or self._writing:
                self.watch_sending()
                self.bound_unsent()
        if self._rest is not None or not self._reading:
            self._after_flush()

    def _after_flush(self) -> None:
        if self._abandoning:
            self.abandon()
        self.check_ending()
        self.wake()

    def bound_unsent(self) -> None:
        """Count the unsent bytes, and read no more while there are too many."""
        unsent_bytes = self._sending.unsent_bytes
        if unsent_bytes > UNCOUNTED_BYTES or self._counted_bytes:
            self._count_unsent()
        if unsent_bytes > self._unsent_bytes_max:
            self._stall |= FULL

    def _count_unsent(self) -> None:
        """Count the memory of the unsent answers. While all connections together hold too much, this one isn't read."""
        memory, before_bytes = self.turn.memory, self._counted_bytes
        self._counted_unsent_bytes = unsent_bytes = self._sending.unsent_bytes
        now_bytes = self._sending.memory_bytes() if unsent_bytes > UNCOUNTED_BYTES else 0
        self._counted_bytes = now_bytes = now_bytes if now_bytes > UNCOUNTED_BYTES else 0
        memory.unsent(self, before_bytes, now_bytes)
        if now_bytes and memory.answers_full:
            self._stall |= FULL

    def drained(self) -> None:
        """Take note that the socket took bytes, and read on once few enough are unsent."""
        unsent_bytes = self._sending.unsent_bytes
        # A count looks at every part of the queue, so it is done only after each eighth.
        if self._counted_bytes and (
            unsent_bytes <= UNCOUNTED_BYTES or 8 * unsent_bytes <= 7 * self._counted_unsent_bytes
        ):
            self._count_unsent()
        if self._stall & FULL and unsent_bytes <= self._unsent_bytes_max:
            if self._counted_bytes and self.turn.memory.answers_full:
                return
            self._stall &= ~FULL
            self.wake()

    # The handler's side.

    def limit_frames(self, bytes_max: int) -> None:
        """Take no larger frame from now on."""
        self._frame_bytes_max = bytes_max

    def mute(self, until_ms: float) -> None:
        """Read nothing and start no request until ``until_ms`` (monotonic). The latest of several times counts."""
        if self.dead or self._stall & CLOSING:
            return
        self._muted_until_ms = max(until_ms, self._muted_until_ms)
        if not self._stall & MUTED:
            self._stall |= MUTED
            self.pause_reading()
            self._unmute()

    def _unmute(self) -> None:
        runtime = self.turn.runtime
        left_ms = self._muted_until_ms - runtime.monotonic_ms()
        if left_ms > 0 and not self.dead:
            runtime.call_later(left_ms, self._unmute)
        else:
            self._stall &= ~MUTED
            self.wake()

    def close(self, reason: str) -> None:
        """Close at the end of this turn: answers that are ready by then are sent, all others are dropped."""
        if self.dead or self._abandoning:
            return
        self._abandoning = True
        self._ending = None
        self.pause_reading()
        if not self.dirty:
            self.dirty = True
            self.turn.flush_at_end(self)
        self._stall |= CLOSING
        self._rest = None
        self._drop_large()
        self._ending = reason

    def abort(self, reason: str) -> None:
        """Close now."""
        self.die(reason)

    def drain(self, reason: str) -> None:
        """Start no more requests, and close after the open ones are answered and sent."""
        if not self.dead:
            self.end_when_sent(reason)

    def abandon(self) -> None:
        """Release the answers that are ready; later ones will be released when they come."""
        self.deaf = True
        opened, self.open = self.open, deque()
        for exchange in opened:
            if exchange.parts is not None:
                release(exchange.parts)

    def gone(self, reason: str) -> None:
        """Tell the handler in this turn, before answers are sent."""
        if self._counted_bytes:
            self.turn.memory.unsent(self, self._counted_bytes, 0)
            self._counted_bytes = 0
        # Garbage collection can't look into an exchange. A handler that keeps one would never be freed.
        self._newest = _NOBODY

        def tell() -> None:
            try:
                self._handler.closed(self, reason)
            except Exception as error:
                self.turn.defect(error, "ConnectionHandler.closed")
            self._forget(self)
            del self._handler, self._forget

        self.turn.runtime.at_end_of_turn(Phase.COMPLETE, tell)
