"""kazoo's side of the edge: its one thread, its sockets, and the queue through which everything reaches the loop."""

from __future__ import annotations

import contextlib
import math
import os
import select
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from kazoo.handlers.threading import SequentialThreadingHandler

from blumfeld.spi.runtime import Runtime

DRAIN_MS = 1.0
"""The longest that the queue holds the loop in one turn."""
PIECE_BYTES = 1 << 16
"""Bytes that are read or sent at once."""


class LoopQueue:
    """Brings calls from kazoo's thread to the loop, in order: answers, watch events and states alike."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._calls: deque[Callable[[], None]] = deque()
        self._scheduled = False

    def put(self, call: Callable[[], None]) -> None:
        """Call it on the loop, after all that was put before. Any thread may put."""
        self._calls.append(call)
        if not self._scheduled:
            self._scheduled = True
            with contextlib.suppress(RuntimeError):  # the loop is closed: the node has ended
                self._runtime.in_thread(self._drain)

    def _drain(self) -> None:
        # First: what is put from now on, and not seen below, is drained by a call of its own.
        self._scheduled = False
        end_ms = self._runtime.monotonic_ms() + DRAIN_MS
        try:
            while self._calls:
                self._calls.popleft()()
                if self._runtime.monotonic_ms() > end_ms:
                    return
        finally:  # also when a call raises: what waits behind it has its turn
            if self._calls and not self._scheduled:
                self._scheduled = True
                self._runtime.call_later(0, self._drain)


class _Event:
    """What a thread waits for in the kernel: Linux's counter."""

    def __init__(self) -> None:
        self._fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def fileno(self) -> int:
        return self._fd

    def set(self) -> None:
        os.eventfd_write(self._fd, 1)

    def clear(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._fd)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class _PairEvent:
    """As :class:`_Event`, where the system has no such counter. A pair that is full is set already."""

    def __init__(self) -> None:
        self._read, self._write = socket.socketpair()
        self._read.setblocking(False)
        self._write.setblocking(False)
        self.fileno = self._read.fileno

    def set(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._write.send(b"\0")

    def clear(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._read.recv(PIECE_BYTES)

    def close(self) -> None:
        self._read.close()
        self._write.close()


class Bell:
    """In place of the socket pair that wakes kazoo's thread: it counts, and it never blocks the thread that rings.

    kazoo sends one byte for each request. A socket pair is full after some 280 of them, and would stop the loop. While
    kazoo's thread is busy, a ring is no system call.
    """

    def __init__(self) -> None:
        self._event = _Event() if hasattr(os, "eventfd") else _PairEvent()
        self._rings: deque[None] = deque()
        self._sleeping = False

    def fileno(self) -> int:
        """As a socket."""
        return self._event.fileno()

    def send(self, data: bytes) -> int:
        """Ring once."""
        self._rings.append(None)
        if self._sleeping:
            self._event.set()
        return len(data)

    def recv(self, _: int) -> bytes:
        """Take one ring."""
        if not self._rings:
            raise BlockingIOError("nobody has rung")
        self._rings.pop()
        return b"\0"

    def rings(self) -> bool:
        """Return whether a ring waits."""
        return bool(self._rings)

    def sleep(self) -> bool:
        """Let the next ring wake the thread. Return whether it may sleep: nobody has rung."""
        self._sleeping = True
        return not self._rings

    def wake(self) -> None:
        """The thread is awake."""
        self._sleeping = False
        self._event.clear()

    def close(self) -> None:
        """Give the descriptors back. kazoo closes both ends of its pair, and this is both."""
        self._event.close()


class BufferedSocket:
    """A connection that reads and writes in large pieces. kazoo asks for each frame's length and body apart, and waits
    for the socket each time: eight system calls a request without this."""

    def __init__(self, connection: socket.socket, timeout_s: float) -> None:
        self._socket = connection
        self.greeted = False
        """The server has said something."""
        self._timeout_ms = timeout_s * 1000.0
        self._read = b""
        self._at = 0
        self._unsent = bytearray()
        self.fileno = connection.fileno
        self.setblocking = connection.setblocking
        self.getpeername = connection.getpeername
        self.sendall = connection.sendall
        self.close = connection.close

    def pending(self) -> int:
        """Return the number of bytes that were read and not taken. kazoo asks for them as it does with TLS."""
        return len(self._read) - self._at

    def recv(self, size: int) -> bytes:
        """Take what was read, or read."""
        if self._at == len(self._read):
            self._read, self._at = self._socket.recv(max(size, PIECE_BYTES)), 0
            self.greeted = True
        at = self._at
        self._at = min(at + size, len(self._read))
        return self._read[at : self._at]

    def send(self, data: bytes | memoryview) -> int:
        """Keep ``data`` for :meth:`flush`, which is called before anything is waited for."""
        self._unsent += data
        return len(data)

    @property
    def unsent_bytes(self) -> int:
        """The bytes that wait for :meth:`flush`."""
        return len(self._unsent)

    def flush(self) -> None:
        """Send what waits.

        :raises OSError: the connection is gone, or the server takes nothing for long
        """
        while self._unsent:
            try:
                del self._unsent[: self._socket.send(self._unsent)]
            except (BlockingIOError, ssl.SSLWantWriteError):
                poll = select.poll()
                poll.register(self._socket, select.POLLOUT)
                if not poll.poll(self._timeout_ms):
                    raise TimeoutError("the server takes no more requests") from None


class LoopHandler(SequentialThreadingHandler):  # type: ignore[misc]
    """kazoo's handler with no thread but that of its connection: callbacks run on the loop.

    kazoo's own has a thread for watch events and one for answers, so the order between the two is lost.
    """

    name = "blumfeld_loop_handler"

    def __init__(self, queue: LoopQueue, connect_timeout_s: float) -> None:
        super().__init__()
        self.over = False
        """Connect no more. kazoo begins a new session after one that expired; this session object is at its end."""
        self._queue = queue
        self._connect_timeout_s = connect_timeout_s

    def start(self) -> None:
        """Begin: there is no thread to start."""
        self._running = True

    def stop(self) -> None:
        """End."""
        self._running = False

    def dispatch_callback(self, callback: Any) -> None:
        """Call a watch on the loop."""
        self._queue.put(lambda: callback.func(*callback.args))

    def create_socket_pair(self) -> tuple[Bell, Bell]:
        """Return both ends of what wakes kazoo's thread."""
        bell = Bell()
        return bell, bell

    def create_connection(self, *args: Any, **kwargs: Any) -> Any:
        """Connect, unless the session is over. No server may take the time that the others need."""
        if self.over:
            raise ConnectionRefusedError("the session is over")
        kwargs["timeout"] = min(self._connect_timeout_s, kwargs["timeout"])
        connection = super().create_connection(*args, **kwargs)
        return BufferedSocket(connection, self._connect_timeout_s)

    def select(
        self, readers: Sequence[Any], writers: Sequence[Any], _: Sequence[Any], timeout: float | None = None
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """As ``select.select``, of a connection, or of a connection and the bell. A connection is always writable: it
        keeps what it is given, and sends it here before the thread waits."""
        if writers:
            return [], list(writers), []
        connection: BufferedSocket = readers[0]
        bell: Bell | None = readers[1] if len(readers) > 1 else None
        if connection.pending():
            return [connection, bell] if bell is not None and bell.rings() else [connection], [], []
        if bell is not None and bell.rings() and connection.unsent_bytes < PIECE_BYTES:
            return [bell], [], []
        connection.flush()
        if not connection.greeted:
            # kazoo waits for the greeting of a lone server as long as the session lasts, and so loses the session.
            timeout = min(self._connect_timeout_s, math.inf if timeout is None else timeout)
        return self._wait(connection, bell, timeout), [], []

    def _wait(self, connection: BufferedSocket, bell: Bell | None, timeout: float | None) -> list[Any]:
        end_s = time.monotonic() + (math.inf if timeout is None else timeout)
        while True:
            left_s = max(0.0, end_s - time.monotonic())
            ends = self._ready(connection, bell, None if left_s == math.inf else left_s * 1000.0)
            # A ring may wake the thread after it was taken. To kazoo, nothing to do means that the time is over.
            if ends or left_s == 0.0:
                return ends

    def _ready(self, connection: BufferedSocket, bell: Bell | None, timeout_ms: float | None) -> list[Any]:
        poll = select.poll()
        poll.register(connection, select.POLLIN)
        if bell is None:
            return [connection] if poll.poll(timeout_ms) else []
        poll.register(bell, select.POLLIN)
        ready = {fd for fd, _ in poll.poll(timeout_ms if bell.sleep() else 0)}
        bell.wake()
        ends: list[Any] = [connection] if connection.fileno() in ready else []
        return [*ends, bell] if bell.rings() else ends
