"""A driver on readiness: when a loop reports a socket as readable or writable, it receives or sends as much as it can.

It is pure: the socket and all other system calls (:class:`SocketCalls`) are handed to it. :class:`ReadableStream` is
its receiving half, for a driver that sends in another way. :class:`SocketSendQueue` gathers buffers into one call of
the socket's, and sends file regions by ``sendfile``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from blumfeld.net.connections.accepted import AcceptedConnection
from blumfeld.net.connections.dialled import OutboundConnection
from blumfeld.net.connections.stream import Stream
from blumfeld.net.send_queue import BUFFERS, IOV_MAX, JOIN_BYTES_MAX, PUSH_BYTES_MAX, SendQueue
from blumfeld.net.turn import CARRY_BYTES_MAX, LargeFrame, ReceivePool, Report, Turn
from blumfeld.spi.parts import FileRegion, Part
from blumfeld.spi.runtime import Runtime
from blumfeld.spi.transport import ByteLayer, ConnectionHandler, FrameReceiver, Limits, Listener

GREETINGS_MAX = 32
"""Connections that a turn reads of those whose byte layer has given no plain bytes yet: a thousand that begin at once
would hold the turn for 30 ms. Each read costs some 30 µs."""


class Socket(Protocol):
    """The methods that are needed of a non-blocking socket. ``socket.socket`` has them."""

    def fileno(self) -> int:
        """Returns the descriptor."""
        ...

    def recv_into(self, buffer: Any, /) -> int:
        """Receive into a buffer. Returns the number of bytes."""
        ...

    def send(self, data: Any, /) -> int:
        """Send. Returns the number of bytes that were taken."""
        ...

    def sendmsg(self, buffers: Any, ancillary: Any = ..., flags: int = ..., /) -> int:
        """Gather and send. Returns the number of bytes that were taken."""
        ...

    def close(self) -> None:
        """Give the descriptor back."""
        ...


class SocketCalls:
    """System calls that a socket object doesn't have as methods."""

    __slots__ = ("more_flag", "sendfile")

    def __init__(self, sendfile: Callable[[int, int, int, int], int] | None, more_flag: int = 0) -> None:
        self.sendfile = sendfile
        """``os.sendfile``: (socket, file, position, count) → count sent. With ``None`` regions are read and copied."""
        self.more_flag = more_flag
        """``MSG_MORE``; 0 where the system has none."""


class SocketSendQueue(SendQueue):
    """Parts on their way into one non-blocking socket."""

    __slots__ = ("_calls", "_socket")

    def __init__(self, sock: Socket, calls: SocketCalls) -> None:
        super().__init__()
        self._socket = sock
        self._calls = calls

    def send(self, parts: list[Part], size_bytes: int, has_regions: bool) -> bool:
        """See :meth:`SendQueue.send`."""
        if self._items or has_regions:
            self._items.extend(parts)
            self.unsent_bytes += size_bytes
            self.push()
            return self.unsent_bytes != 0
        try:
            if len(parts) == 1:
                sent = self._socket.send(parts[0])
            elif size_bytes <= JOIN_BYTES_MAX:
                sent = self._socket.send(b"".join(parts))  # type: ignore[arg-type]
            else:
                sent = self._socket.sendmsg(parts[:IOV_MAX])
        except (BlockingIOError, InterruptedError):
            sent = 0
        if sent == size_bytes:
            return False
        self._items.extend(parts)
        self.unsent_bytes = size_bytes
        self._taken(sent)
        if len(parts) > IOV_MAX:
            self.push()
        return self.unsent_bytes != 0

    def push(self) -> None:
        """See :meth:`SendQueue.push`."""
        items = self._items
        budget = PUSH_BYTES_MAX
        while items and (budget > 0 or self.unsent_bytes == 0):
            head = items[0]
            before = self.unsent_bytes
            try:
                done = self._push_buffers() if isinstance(head, BUFFERS) else self._push_region(head)
            except (BlockingIOError, InterruptedError):
                return
            budget -= before - self.unsent_bytes
            if not done:
                return

    def _push_buffers(self) -> bool:
        """Send the buffers at the head. Returns whether the socket took all of them."""
        gathered, size_bytes, file_follows = self._gather()
        more = self._calls.more_flag if file_follows else 0  # lets the file's bytes fill the same TCP segment
        sent = self._socket.sendmsg(gathered, (), more)
        self._taken(sent)
        return sent == size_bytes

    def _push_region(self, region: FileRegion) -> bool:
        """Send from the region at the head. Returns whether the socket may take more."""
        at = self._region_sent
        left = region.size_bytes - at
        if left == 0:
            self._release_head(region)
            return True
        sendfile = self._calls.sendfile
        if sendfile is None:
            self._read_region(region)
            return True
        try:
            fd = region.fileno()
        except OSError:
            self._read_region(region)
            return True
        size_bytes = min(left, PUSH_BYTES_MAX)
        sent = sendfile(self._socket.fileno(), fd, region.position + at, size_bytes)
        self._region_taken(region, sent)
        return sent == size_bytes


Callback = Callable[[], None]


class Readiness(Protocol):
    """Calls us when a descriptor is ready. Any asyncio loop does."""

    def add_reader(self, fd: int, callback: Callback, /) -> Any:
        """Call ``callback()`` whenever ``fd`` has bytes, or its end, to read."""
        ...

    def remove_reader(self, fd: int, /) -> Any:
        """End the calls of :meth:`add_reader`."""
        ...

    def add_writer(self, fd: int, callback: Callback, /) -> Any:
        """Call ``callback()`` whenever ``fd`` takes bytes, or has failed."""
        ...

    def remove_writer(self, fd: int, /) -> Any:
        """End the calls of :meth:`add_writer`."""
        ...


def _nothing() -> None:
    """The read callback of a dead stream. Its own method would be a cycle of references, freed only by the
    collector."""


class ReadinessTurn(Turn):
    """The turn of a readiness driver, with the loop's callbacks and the bytes to receive in one call."""

    __slots__ = ("calls", "read_bytes", "readiness")

    def __init__(
        self, runtime: Runtime, report: Report, readiness: Readiness, read_bytes: int, calls: SocketCalls
    ) -> None:
        super().__init__(runtime, report, ReceivePool(read_bytes))
        self.readiness = readiness
        self.read_bytes = read_bytes
        self.calls = calls


class ReadableStream(Stream):
    """Receives when :meth:`_readable` is called. The concrete classes have its slots."""

    __slots__ = ()

    _read_bytes: int
    _recv_into: Callable[[memoryview], int]

    def _readable(self) -> None:
        if self._stall or (self._rest is not None and self.held()):
            self.pause_reading()
            return
        if self._large is not None:
            self._read_large(self._large)
            return
        turn = self.turn
        pool = turn.pool
        chunk = pool.chunk
        start = at = pool.position
        rest = self._rest
        if rest is not None:
            if len(rest) > CARRY_BYTES_MAX:  # complete frames that were held a moment ago: start them first
                self.consume_rest()
                return
            at += len(rest)
            chunk[start:at] = rest
        try:
            count = self._recv_into(chunk[at : at + self._read_bytes])
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self.die(f"receive: {error.strerror}")
            return
        if count == 0:
            self._ended()
            return
        self._rest = None
        if not turn.begun:
            turn.begin()
        self._active_ms = turn.now_ms
        end = at + count
        pool.position = end
        used = self.consume(chunk, start, end)
        if used != end:
            self._keep(chunk, used, end)
            if self._large is not None and count == self._read_bytes:
                self._read_large(self._large)
        if pool.position > pool.limit:
            pool.next_chunk()

    def _read_large(self, large: LargeFrame) -> None:
        """Receive the next bytes of a large frame, and no byte after it."""
        turn = self.turn
        while not large.complete:
            if large.starved():
                self._starve()
                return
            room = large.room()
            try:
                count = self._recv_into(room)
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                self.die(f"receive: {error.strerror}")
                return
            if count == 0:
                self._ended()
                return
            if not turn.begun:
                turn.begin()
            self._active_ms = turn.now_ms
            if not large.filled(count) and count < len(room):
                return
        self._large = None
        self.consume_large(large.take())

    def _readable_layered(self) -> None:
        if self._stall or (self._rest is not None and self.held()):
            self.pause_reading()
            return
        turn = self.turn
        if self._greeting and turn.greetings == GREETINGS_MAX:
            return  # the next poll reports it again
        pool = turn.pool
        view = pool.chunk[pool.position : pool.position + self._read_bytes]
        try:
            count = self._recv_into(view)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self.die(f"receive: {error.strerror}")
            return
        if count == 0:
            self._ended()
            return
        if not turn.begun:
            turn.begin()
        self._active_ms = turn.now_ms
        turn.greetings += self._greeting
        self.take_layered(view[:count])


class ReadinessStream(ReadableStream):
    """The driver's part of :class:`Stream`. The concrete classes have its slots."""

    __slots__ = ()

    turn: ReadinessTurn
    _fd: int
    _reader: Callback
    _socket: Socket

    # Receiving.

    def resume_reading(self) -> None:
        """Have the loop call us when bytes arrive."""
        if not self._reading and not self.dead:
            self._reading = True
            self.turn.readiness.add_reader(self._fd, self._reader)

    def pause_reading(self) -> None:
        """Receive nothing from now on: the kernel's buffer fills and holds the peer back."""
        if self._reading:
            self._reading = False
            self.turn.readiness.remove_reader(self._fd)

    # Sending.

    def watch_sending(self) -> None:
        """Have the loop call us when the socket takes more, as long as bytes are unsent."""
        if self._sending.unsent_bytes:
            if not self._writing and not self.dead:
                self._writing = True
                self.turn.readiness.add_writer(self._fd, self._writable)
        elif self._writing:
            self._writing = False
            self.turn.readiness.remove_writer(self._fd)

    def _writable(self) -> None:
        turn = self.turn
        if not turn.begun:
            turn.begin()
        sending = self._sending
        before = sending.unsent_bytes
        try:
            sending.push()
        except OSError as error:
            self.die(f"send: {error.strerror or error}")
            return
        if sending.unsent_bytes < before:
            self._active_ms = turn.now_ms
        self.watch_sending()
        self.drained()
        self.check_ending()

    # Ending.

    def hang_up(self, reason: str) -> None:
        """Close the socket at once: with readiness the kernel uses none of our memory."""
        if self._writing:
            self._writing = False
            self.turn.readiness.remove_writer(self._fd)
        self._socket.close()
        self._reader = _nothing
        self.hung_up(reason)


class ReadinessAccepted(ReadinessStream, AcceptedConnection):
    """An accepted connection on readiness."""

    __slots__ = ("_fd", "_read_bytes", "_reader", "_recv_into", "_socket")

    def __init__(
        self,
        turn: ReadinessTurn,
        sock: Socket,
        peer: tuple[str, int],
        identity: int,
        listener: Listener,
        handler: ConnectionHandler,
        limits: Limits,
        layer: ByteLayer | None,
        forget: Callable[[AcceptedConnection], None],
    ) -> None:
        AcceptedConnection.__init__(
            self,
            turn,
            SocketSendQueue(sock, turn.calls),
            peer,
            identity,
            listener,
            handler,
            limits,
            layer,
            forget,
        )
        attach(self, sock)

    def begin(self) -> None:
        """Read at once: the client may have sent its first request already, and this saves a turn."""
        if not self._stall:
            self.resume_reading()
            self._reader()


class ReadinessOutbound(ReadinessStream, OutboundConnection):
    """A dialled connection on readiness."""

    __slots__ = ("_fd", "_read_bytes", "_reader", "_recv_into", "_socket")

    def __init__(
        self,
        turn: ReadinessTurn,
        sock: Socket,
        receiver: FrameReceiver,
        limits: Limits,
        layer: ByteLayer | None,
        forget: Callable[[OutboundConnection], None],
    ) -> None:
        OutboundConnection.__init__(
            self, turn, SocketSendQueue(sock, turn.calls), receiver, limits, layer, forget
        )
        attach(self, sock)


def attach(stream: ReadinessAccepted | ReadinessOutbound, sock: Socket) -> None:
    """Give a new stream its socket, and the bound methods that the hot path calls."""
    stream._socket = sock
    stream._fd = sock.fileno()
    stream._recv_into = sock.recv_into
    stream._read_bytes = stream.turn.read_bytes
    stream._reader = stream._readable if stream.layer is None else stream._readable_layered
