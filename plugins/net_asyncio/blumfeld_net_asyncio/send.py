"""Sending on readiness: buffers gathered into one system call, file regions by ``sendfile``."""

from __future__ import annotations

import os
import socket

from blumfeld.net.sending import BUFFERS, IOV_MAX, JOIN_BYTES_MAX, PUSH_BYTES_MAX, SendQueue
from blumfeld.spi.parts import FileRegion, Part

_MSG_MORE: int = getattr(socket, "MSG_MORE", 0)


class SocketSendQueue(SendQueue):
    """Parts on their way into one non-blocking socket."""

    __slots__ = ("_socket",)

    def __init__(self, sock: socket.socket) -> None:
        super().__init__()
        self._socket = sock

    def send(self, parts: list[Part], size_bytes: int, has_regions: bool) -> None:
        """See :meth:`SendQueue.send`."""
        if self._items or has_regions:
            self._items.extend(parts)
            self.unsent_bytes += size_bytes
            self.push()
            return
        try:
            if size_bytes <= JOIN_BYTES_MAX:
                sent = self._socket.send(b"".join(parts))  # type: ignore[arg-type]
            else:
                sent = self._socket.sendmsg(parts[:IOV_MAX])  # type: ignore[arg-type]
        except (BlockingIOError, InterruptedError):
            sent = 0
        if sent != size_bytes:
            self._items.extend(parts)
            self.unsent_bytes = size_bytes
            self._taken(sent)
            if len(parts) > IOV_MAX:
                self.push()

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
        """Send the run of buffers at the head; whether the socket took all of it."""
        gathered, size_bytes, file_follows = self._gather()
        more = _MSG_MORE if file_follows else 0  # the file's bytes fill the same segment
        sent = self._socket.sendmsg(gathered, (), more)
        self._taken(sent)
        return sent == size_bytes

    def _push_region(self, region: FileRegion) -> bool:
        """Send from the region at the head; whether there may be room for more."""
        at = self._region_sent
        left = region.size_bytes - at
        if left == 0:
            self._release_head(region)
            return True
        try:
            fd = region.fileno()
        except OSError:
            self._read_region(region)
            return True
        asked = min(left, PUSH_BYTES_MAX)
        sent = os.sendfile(self._socket.fileno(), fd, region.position + at, asked)
        self._region_taken(region, sent)
        return sent == asked
