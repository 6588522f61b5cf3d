"""Sending on the ring: a connection's bytes of one turn are one entry, and one system call submits all
entries.

Small buffers are joined and sent by address. Large ones and file regions go through the socket's own calls,
because a ring would run them in worker threads, which costs more. If such a call leaves bytes, a polling
entry waits until the socket is writable.
"""

from __future__ import annotations

import errno
import os

from blumfeld.net.readiness.streams import Socket, SocketCalls, SocketSendQueue
from blumfeld.net.send_queue import BUFFERS
from blumfeld.spi.parts import Part
from blumfeld_net_uring.io_uring.buffers import address_of_bytes
from blumfeld_net_uring.io_uring.ring import Ring

RING_SEND_BYTES_MAX = 65_536
"""Maximum bytes joined and sent by the ring. Larger parts are gathered from their places."""
MSG_NOSIGNAL = 0x4000


def error_of(result: int) -> OSError:
    """The error in a completion's negative result."""
    return OSError(-result, os.strerror(-result))


class UringSendQueue(SocketSendQueue):
    """Parts to send on one socket, with at most one entry of them in flight."""

    __slots__ = ("_fd", "_ring_send", "flight", "token")

    def __init__(self, sock: Socket, calls: SocketCalls, ring: Ring) -> None:
        super().__init__(sock, calls)
        self._ring_send = ring.send
        self._fd = sock.fileno()
        self.token = 0
        """Token of the entries; set by the queue's owner."""
        self.flight: bytes | None = None
        """The bytes that the kernel reads. Held until the entry has completed, even if the connection dies.
        """

    def send(self, parts: list[Part], size_bytes: int, has_regions: bool) -> bool:
        """See :meth:`SendQueue.send`."""
        if self.flight is None and not has_regions and size_bytes <= RING_SEND_BYTES_MAX and not self._items:
            self.flight = data = b"".join(parts)  # type: ignore[arg-type]
            self.unsent_bytes = size_bytes
            self._ring_send(self.token, self._fd, address_of_bytes(data), size_bytes, MSG_NOSIGNAL)
            return False
        self._items.extend(parts)
        self.unsent_bytes += size_bytes
        if self.flight is None and len(self._items) == len(parts):
            self.push()
        return self.unsent_bytes != 0

    def memory_bytes(self) -> int:
        """See :meth:`SendQueue.memory_bytes`."""
        return super().memory_bytes() + (0 if self.flight is None else len(self.flight))

    def push(self) -> None:
        """See :meth:`SendQueue.push`. Does nothing while an entry is in flight: its completion calls this
        again.
        """
        if self.flight is not None or not self._items:
            return
        if isinstance(self._items[0], BUFFERS):
            gathered, size_bytes, file_follows = self._gather()
            if 0 < size_bytes <= RING_SEND_BYTES_MAX and not file_follows:
                for _ in gathered:
                    self._items.popleft()
                self.flight = data = b"".join(gathered)
                self._ring_send(self.token, self._fd, address_of_bytes(data), size_bytes, MSG_NOSIGNAL)
                return
        super().push()

    def completed(self, result: int) -> None:
        """Handle the completion of the entry in flight. Unsent bytes go back to the front of the queue.

        :raises OSError: the peer has gone
        """
        data, self.flight = self.flight, None
        if data is None:
            raise RuntimeError("nothing was in flight")
        if result < 0:
            if result != -errno.EAGAIN:
                raise error_of(result)
            result = 0  # the socket is full, and the kernel did not wait
        self.unsent_bytes -= result
        if result < len(data):
            self._items.appendleft(memoryview(data)[result:])
