"""Connections: frames are cut, requests start in order, answers leave in order and once a turn."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any

from blumfeld.spi.parts import Parts, join, release, size_of
from blumfeld.spi.runtime import Phase
from blumfeld.spi.transport import ByteLayer, ConnectionHandler, FrameReceiver, Limits, Listener

if TYPE_CHECKING:
    from .transport import AcmeTransport

STARTED_AT_ONCE_MAX = 4
"""Requests of one connection that start before others have their turn."""
WAITING_BYTES_MAX = 1 << 16
"""Bytes of requests that wait, beyond which the socket is read no more."""


TLS_HANDSHAKE = b"\x16\x03"
"""The first bytes of a client that begins with TLS. As a frame's size they are above every sensible limit."""


class Frames:
    """Cuts frames: int32 size, then that many bytes."""

    def __init__(self, frame_bytes_max: int) -> None:
        self.frame_bytes_max = frame_bytes_max
        self.buffer = bytearray()

    def next(self) -> memoryview | None:
        """Return the next whole frame, as memory of its own; ``None`` if none has come yet.

        :raises ValueError: its size is too large, or negative
        """
        if len(self.buffer) < 4:
            return None
        size = int.from_bytes(self.buffer[:4], signed=True)
        if self.buffer.startswith(TLS_HANDSHAKE):
            raise ValueError("TLS came to a listener that speaks PLAINTEXT")
        if not 0 <= size <= self.frame_bytes_max:
            raise ValueError(f"a frame of {size} bytes; allowed: up to {self.frame_bytes_max}")
        if len(self.buffer) < 4 + size:
            return None
        frame = self.buffer[4 : 4 + size]
        del self.buffer[: 4 + size]
        return memoryview(frame)


def framed(parts: Parts) -> bytes:
    """Return a frame of these parts, and release them. WRITE HERE: send regions of files without a copy.

    :raises OSError: a file is shorter than its region
    """
    try:
        size, body = size_of(parts), join(parts)
    finally:
        release(parts)
    if len(body) != size:
        raise OSError(f"{len(body)} of {size} bytes of an answer are in its files")
    return size.to_bytes(4) + body


class Exchange:
    """``Exchange``: one request, and the place of its answer."""

    def __init__(self, connection: AcceptedConnection) -> None:
        self.connection = connection
        self.parts: Parts | None = None
        self.has_answer = True
        self.passed = False
        """Whether the next request may start."""

    def answer(self, parts: Parts) -> None:
        """Keep the answer until the end of the turn."""
        if self.parts is not None:
            raise RuntimeError("the request was already answered")
        self.parts = parts
        self.passed = True
        self.connection.answered(self)

    def no_answer(self) -> None:
        """End a request that has no answer."""
        self.has_answer = False
        self.answer(())

    def let_next_start(self) -> None:
        """Let the next request start before this one is answered."""
        self.passed = True
        self.connection.wake()


class AcceptedConnection(asyncio.Protocol):
    """``Connection``: one of a client."""

    transport: asyncio.Transport

    def __init__(self, owner: AcmeTransport, listener: Listener, handler: ConnectionHandler) -> None:
        self.id = owner.next_id()
        self.listener = listener
        self.peer_host, self.peer_port = "", 0
        self.state: Any = None
        self.layer: ByteLayer | None = None
        self._owner = owner
        self._handler = handler
        self._limits = owner.limits[listener.name]
        self._frames = Frames(self._limits.frame_bytes_max)
        self._open: deque[Exchange] = deque()
        self._reason = "the peer closed"
        self._muted_until_ms = 0.0
        self._ended = self._closing = self._gone = False
        self._full = self._flushing = self._waking = self._refused = False
        self._moved_ms = owner.runtime.monotonic_ms()

    # asyncio's calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Tell the handler."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.set_write_buffer_limits(high=self._limits.unsent_bytes_max)
        self.peer_host, self.peer_port = transport.get_extra_info("peername")[:2]
        if self._owner.is_full(self, self._limits):
            self._refused = True
            transport.abort()
            return
        self._owner.connections.add(self)
        self._handler.opened(self)
        self._close_if_idle()

    def data_received(self, data: bytes) -> None:
        """Start the requests that are whole."""
        self._moved_ms = self._owner.runtime.monotonic_ms()
        self._frames.buffer += data
        self._start_requests()

    def eof_received(self) -> bool:
        """Answer what is open. The client has no more to say."""
        self._ended = True
        self._close_if_done()
        return True

    def pause_writing(self) -> None:
        """Read no more from a client that doesn't take its answers."""
        self._full = True
        self._start_requests()

    def resume_writing(self) -> None:
        """Go on."""
        self._full = False
        self._moved_ms = self._owner.runtime.monotonic_ms()
        self._start_requests()

    def connection_lost(self, exc: Exception | None) -> None:
        """Release what is unsent, and tell the handler."""
        self._gone = True
        if self._refused:
            return
        for exchange in self._open:
            release(exchange.parts or ())
        self._open.clear()
        self._owner.connections.discard(self)
        self._owner.gone.set()
        self._handler.closed(self, self._reason)

    # Requests

    def wake(self) -> None:
        """Look for requests that may start, soon."""
        if not self._waking and not self._gone:
            self._waking = True
            asyncio.get_running_loop().call_soon(self._start_requests)

    def _start_requests(self) -> None:
        self._waking = False
        started = 0
        while not self._held() and started < STARTED_AT_ONCE_MAX:
            try:
                frame = self._frames.next()
            except ValueError as error:
                self.abort(str(error))
                return
            if frame is None:
                break
            started += 1
            exchange = Exchange(self)
            self._open.append(exchange)
            self._handler.request(exchange, frame)
        if started == STARTED_AT_ONCE_MAX:
            self.wake()
        self._close_if_done()
        self._read_or_not()

    def _held(self) -> bool:
        """Return whether the next request must wait."""
        if self._closing or self._gone or self._full:
            return True
        if self._owner.runtime.monotonic_ms() < self._muted_until_ms:
            return True
        return bool(self._open) and (
            not self._open[-1].passed or len(self._open) >= self._limits.in_flight_max
        )

    def _read_or_not(self) -> None:
        if self._gone or self.transport.is_closing():
            return
        if self._held() and (self._full or self._closing or len(self._frames.buffer) > WAITING_BYTES_MAX):
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()

    # Answers

    def answered(self, exchange: Exchange) -> None:
        """Send at the end of the turn what can be sent in order."""
        if self._gone:
            release(exchange.parts or ())
            return
        if not self._flushing:
            self._flushing = True
            self._owner.runtime.at_end_of_turn(Phase.ANSWER, self._flush)
        self.wake()

    def _flush(self) -> None:
        self._flushing = False
        self._moved_ms = self._owner.runtime.monotonic_ms()
        while self._open and self._open[0].parts is not None:
            exchange = self._open.popleft()
            if not exchange.has_answer:
                continue
            try:
                self.transport.write(framed(exchange.parts or ()))
            except OSError as error:
                self.abort(f"a file could not be read: {error}")
        self._close_if_done()

    # The end

    def limit_frames(self, bytes_max: int) -> None:
        """Take no larger frame from now on."""
        self._frames.frame_bytes_max = bytes_max

    def mute(self, until_ms: float) -> None:
        """Start no request until then."""
        self._muted_until_ms = until_ms
        self._owner.runtime.call_later(max(0.0, until_ms - self._owner.runtime.monotonic_ms()), self.wake)

    def drain(self, reason: str) -> None:
        """Start nothing more, and close when everything that is open was answered."""
        self._reason, self._closing, self._ended = reason, True, True
        self._close_if_done()

    def close(self, reason: str) -> None:
        """Send answers that are ready, then close."""
        if self._gone or self._closing:
            return
        self._reason, self._closing = reason, True
        self._owner.runtime.at_end_of_turn(Phase.ANSWER, self._close)

    def abort(self, reason: str) -> None:
        """Close now."""
        if not self._gone and not self.transport.is_closing():
            self._reason, self._closing = reason, True
            self.transport.abort()

    def _close(self) -> None:
        self._flush()
        self.transport.close()

    def _close_if_idle(self) -> None:
        """Close a connection on which nothing moved, unless it waits for us; then look again, until it has gone."""
        idle_ms_max = self._limits.idle_ms_max
        if self._gone or idle_ms_max < 0:
            return
        left_ms = self._moved_ms + idle_ms_max - self._owner.runtime.monotonic_ms()
        if left_ms <= 0 and (self._ended or not self._open):
            self.abort(f"idle for {idle_ms_max} ms")
        else:
            self._owner.runtime.call_later(left_ms if left_ms > 0 else idle_ms_max, self._close_if_idle)

    def _close_if_done(self) -> None:
        if self._ended and not self._open and (self._closing or not self._whole_frame_waits()):
            self.transport.close()

    def _whole_frame_waits(self) -> bool:
        buffer = self._frames.buffer
        return len(buffer) >= 4 and len(buffer) >= 4 + int.from_bytes(buffer[:4], signed=True)


class OutboundConnection(asyncio.Protocol):
    """``DialedConnection``: one to another node."""

    transport: asyncio.Transport

    def __init__(self, owner: AcmeTransport, receiver: FrameReceiver, limits: Limits) -> None:
        self._owner = owner
        self._receiver = receiver
        self._frames = Frames(limits.frame_bytes_max)
        self._reason = "the peer closed"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember the socket."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._owner.dialled.add(self)

    def data_received(self, data: bytes) -> None:
        """Hand every whole frame over."""
        self._frames.buffer += data
        try:
            while not self.transport.is_closing() and (frame := self._frames.next()) is not None:
                self._receiver.frame(frame)
        except ValueError as error:
            self._reason = str(error)
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the receiver."""
        self._owner.dialled.discard(self)
        self._owner.gone.set()
        self._receiver.lost(self._reason)

    def send(self, parts: Parts) -> None:
        """Send one frame; after the end release it."""
        if self.transport.is_closing():
            release(parts)
        else:
            self.transport.write(framed(parts))

    def close(self) -> None:
        """Close after what is unsent."""
        self.transport.close()
