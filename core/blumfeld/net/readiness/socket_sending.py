"""Sending on readiness: buffers gathered into one call of the socket's, file regions by ``sendfile``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from blumfeld.net.sending import BUFFERS, IOV_MAX, JOIN_BYTES_MAX, PUSH_BYTES_MAX, SendQueue
from blumfeld.spi.parts import FileRegion, Part


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
            if size_bytes <= JOIN_BYTES_MAX:
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
