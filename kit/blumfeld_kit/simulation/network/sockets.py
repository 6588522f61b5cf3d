"""Sockets of the simulated network, and the readiness that a loop would report of them."""

from __future__ import annotations

import asyncio
import errno
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from blumfeld_kit.simulation.network.network import Network, Wire

Callback = Callable[[], None]


class Readable(Protocol):
    """A socket, as its readiness sees it."""

    @property
    def is_readable(self) -> bool:
        """Whether something can be read, or accepted."""
        ...

    def fileno(self) -> int:
        """Return its number."""
        ...


class SimulatedReadiness:
    """Calls back when a socket is ready, until it is no more: as epoll does. Every socket always takes what is sent.

    An arrival is read in the turn in which it comes. After :meth:`die` nobody is called.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._sockets: dict[int, Readable] = {}
        self._readers: dict[int, Callback] = {}
        self._writers: dict[int, Callback] = {}
        self._last_fd = 2

    def open(self, socket: Readable) -> int:
        """Return the number of a new socket."""
        self._last_fd += 1
        self._sockets[self._last_fd] = socket
        return self._last_fd

    def close(self, fd: int) -> None:
        """Forget a socket."""
        self._sockets.pop(fd, None)
        self._readers.pop(fd, None)
        self._writers.pop(fd, None)

    def die(self) -> None:
        """Call nobody any more: the process is gone."""
        for known in (self._sockets, self._readers, self._writers):
            known.clear()

    def add_reader(self, fd: int, callback: Callback, /) -> None:
        """Call ``callback()`` whenever the socket has something to read."""
        self._readers[fd] = callback
        if self._sockets[fd].is_readable:
            self.soon(fd)

    def remove_reader(self, fd: int, /) -> None:
        """End the calls of :meth:`add_reader`."""
        self._readers.pop(fd, None)

    def add_writer(self, fd: int, callback: Callback, /) -> None:
        """Call ``callback()`` in each turn."""
        self._writers[fd] = callback
        self._loop.call_soon(self._writable, fd)

    def remove_writer(self, fd: int, /) -> None:
        """End the calls of :meth:`add_writer`."""
        self._writers.pop(fd, None)

    def soon(self, fd: int) -> None:
        """Let a socket be read in the next turn."""
        self._loop.call_soon(self.arrived, fd)

    def arrived(self, fd: int) -> None:
        """Let a socket be read now, and in the next turn if something is left."""
        socket, reader = self._sockets.get(fd), self._readers.get(fd)
        if socket is None or reader is None or not socket.is_readable:
            return
        reader()
        if socket.is_readable and fd in self._readers:
            self.soon(fd)

    def _writable(self, fd: int) -> None:
        writer = self._writers.get(fd)
        if writer is not None:
            writer()
            if fd in self._writers:
                self._loop.call_soon(self._writable, fd)


class SimulatedSocket:
    """One end of a connection. Implements the ``Socket`` of a transport, and the network's ``End``."""

    __slots__ = ("_arrived", "_fd", "_is_over", "_readiness", "_wire")

    def __init__(self, readiness: SimulatedReadiness, wire: Wire) -> None:
        self._readiness = readiness
        self._wire = wire
        self._arrived = bytearray()
        self._is_over = False
        self._fd = readiness.open(self)

    @property
    def is_readable(self) -> bool:
        """Whether bytes, or the end, can be read."""
        return bool(self._arrived) or self._is_over

    @property
    def peer(self) -> tuple[str, int]:
        """Host and port of the other end."""
        return self._wire.peer.site.name, self._wire.peer.port

    def fileno(self) -> int:
        """Return its number."""
        return self._fd

    def recv_into(self, buffer: Any, /) -> int:
        """Receive into a buffer. Return the number of bytes; 0 is the end.

        :raises BlockingIOError: nothing has arrived
        :raises ConnectionResetError: the connection was reset
        """
        arrived = self._arrived
        if self._is_over and not self._wire.closed_in_order:
            raise ConnectionResetError(errno.ECONNRESET, "reset by the peer")
        if not arrived and not self._is_over:
            raise BlockingIOError
        count = min(len(buffer), len(arrived))
        buffer[:count] = arrived[:count]
        del arrived[:count]
        return count

    def send(self, data: Any, /) -> int:
        """Send. The network takes all of it. :raises BrokenPipeError: the connection is over"""
        if not self._wire.is_open:
            raise BrokenPipeError(errno.EPIPE, "the connection is over")
        self._wire.send(bytes(data))
        return len(data)

    def sendmsg(self, buffers: Iterable[Any], ancillary: Any = (), flags: int = 0, /) -> int:
        """Gather and send."""
        return self.send(b"".join(buffers))

    def close(self) -> None:
        """Close behind all bytes that were sent; by a reset if bytes were left unread, as the system does."""
        self._readiness.close(self._fd)
        if self._arrived:
            self._wire.reset("closed with bytes unread")
        else:
            self._wire.close("closed by the node")

    # From the network

    def data(self, data: bytes) -> None:
        """Take bytes that arrived."""
        self._arrived += data
        self._readiness.arrived(self._fd)

    def lost(self, reason: str) -> None:
        """Note that the connection is over."""
        self._is_over = True
        self._readiness.arrived(self._fd)


class ListeningSocket:
    """A port of a machine. Its backlog has no end."""

    def __init__(self, readiness: SimulatedReadiness, network: Network, host: str, port: int) -> None:
        """:raises OSError: the port is taken"""
        self._readiness = readiness
        self._network = network
        self._host = host
        self._backlog: deque[SimulatedSocket] = deque()
        self.port = network.listen(host, port, self._connected)
        self._fd = readiness.open(self)

    @property
    def is_readable(self) -> bool:
        """Whether a connection waits."""
        return bool(self._backlog)

    def fileno(self) -> int:
        """Return its number."""
        return self._fd

    def _connected(self, wire: Wire) -> SimulatedSocket:
        made = SimulatedSocket(self._readiness, wire)
        self._backlog.append(made)
        self._readiness.soon(self._fd)  # the wire doesn't know its end yet
        return made

    def accept(self) -> tuple[SimulatedSocket, tuple[str, int]]:
        """Return the next connection, and its peer. :raises BlockingIOError: none waits"""
        if not self._backlog:
            raise BlockingIOError
        made = self._backlog.popleft()
        return made, made.peer

    def close(self) -> None:
        """Free the port. Connections that nobody has accepted are closed."""
        self._readiness.close(self._fd)
        self._network.unlisten(self._host, self.port)
        for waiting in self._backlog:
            waiting.close()
