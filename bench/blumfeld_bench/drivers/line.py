"""A connection on a loop that has at most one request open."""

from __future__ import annotations

import socket
from collections.abc import Callable

from blumfeld_bench.drivers.loop import EPOLLOUT, Loop

RECEIVE_BYTES = 256 * 1024


class Line:
    """One connection.

    :param answered: called with each answer, without its size
    :param broken: called once if the connection ends, or gives more than one answer
    """

    def __init__(
        self,
        loop: Loop,
        sock: socket.socket,
        answered: Callable[[bytes], None],
        broken: Callable[[Exception], None],
    ) -> None:
        self._loop, self._socket = loop, sock
        self._answered, self._broken = answered, broken
        self._unsent = memoryview(b"")
        self._received = b""
        loop.add(sock, self._ready)

    def send(self, frame: bytes | bytearray) -> None:
        """Send a request, whose bytes must not change before its answer."""
        self._unsent = memoryview(frame)
        self._flush()

    def close(self) -> None:
        """Close the connection; harmless twice."""
        self._loop.remove(self._socket)
        self._socket.close()

    def _flush(self) -> None:
        try:
            sent = self._socket.send(self._unsent)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            self._broken(error)
            return
        self._unsent = self._unsent[sent:]
        if self._unsent:
            self._loop.watch_writing(self._socket, True)

    def _ready(self, mask: int) -> None:
        if mask & EPOLLOUT:
            self._loop.watch_writing(self._socket, False)
            self._flush()
        if not mask & ~EPOLLOUT:
            return
        try:
            data = self._socket.recv(RECEIVE_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            self._broken(error)
            return
        if not data:
            self._broken(ConnectionResetError("the server hung up"))
            return
        received = self._received + data if self._received else data
        size = 4 + int.from_bytes(received[:4], "big")
        if len(received) < max(8, size):
            self._received = received
            return
        self._received = b""
        if len(received) > size:
            self._broken(ValueError(f"{len(received) - size} bytes after an answer that were not asked for"))
            return
        self._answered(received[4:])
