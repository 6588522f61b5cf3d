"""Sending on the ring: one entry for what a connection has to say in a turn, submitted with all others by one call.

Buffers are joined and sent by address. What is too large for a copy, and what has file regions, goes by the socket's
own calls: a ring would do them in worker threads, which costs more than the call. What such a call leaves waits for
the socket to be writable, by an entry that polls.
"""

from __future__ import annotations

import errno
import os

from blumfeld.net.sending import BUFFERS
from blumfeld.net.socket_sending import Socket, SocketCalls, SocketSendQueue
from blumfeld.spi.parts import Part
from blumfeld_net_uring.io_uring.buffers import address_of_bytes
from blumfeld_net_uring.io_uring.ring import Ring

RING_SEND_BYTES_MAX = 65_536
"""What is joined and sent by the ring. Larger parts are gathered from where they lie."""
MSG_NOSIGNAL = 0x4000


def error_of(result: int) -> OSError:
    """What a completion with a result below 0 says."""
    return OSError(-result, os.strerror(-result))


class UringSendQueue(SocketSendQueue):
    """Parts on their way into one socket, at most one entry of them in flight."""

    __slots__ = ("_fd", "_ring_send", "flight", "token")

    def __init__(self, sock: Socket, calls: SocketCalls, ring: Ring) -> None:
        super().__init__(sock, calls)
        self._ring_send = ring.send
        self._fd = sock.fileno()
        self.token = 0
        """Of the entries; whoever owns the queue sets it."""
        self.flight: bytes | None = None
        """What the kernel reads from: held until the entry has completed, also when the connection dies meanwhile."""

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
        """See :meth:`SendQueue.push`. Does nothing while an entry is in flight: its completion pushes on."""
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
        """The entry in flight has completed; what it left is queued again, in front.

        :raises OSError: the peer has gone
        """
        data, self.flight = self.flight, None
        if data is None:
            raise RuntimeError("nothing was in flight")
        if result < 0:
            if result != -errno.EAGAIN:
                raise error_of(result)
            result = 0  # the socket is full, and the kernel would not wait for it
        self.unsent_bytes -= result
        if result < len(data):
            self._items.appendleft(memoryview(data)[result:])
