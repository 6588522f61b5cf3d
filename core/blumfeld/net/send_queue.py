"""Queues of parts that a socket has not taken yet, in order.

A queue releases each file region exactly once: when it is sent, or in :meth:`SendQueue.clear`. A queue raises
``OSError`` when the peer has gone, and its owner must then call ``clear``.
"""

from __future__ import annotations

import errno
from collections import deque

from blumfeld.spi.parts import FileRegion, Part, join, release
from blumfeld.spi.transport import ByteLayer

JOIN_BYTES_MAX = 8192
"""Up to this size, joining the parts by a copy costs less than the vector that a gathering call needs."""
IOV_MAX = 1024
"""Buffers in one gathering call: Linux's limit."""
PREAD_BYTES_MAX = 1 << 18
"""Bytes of a region that are read at a time where ``sendfile`` can't be used."""
PUSH_BYTES_MAX = 4 << 20
"""Bytes that one connection may send before other connections get their turn."""
LAYERED_CHUNK_BYTES = 1 << 17
"""Bytes that a byte layer gets at a time. Small parts are joined: each call makes a record."""
LAYERED_PUSH_BYTES_MAX = 1 << 20
"""Bytes that a byte layer gets for one connection before other connections get their turn: encryption is work on the
loop."""
LAYERED_BYTES_AHEAD = 1 << 18
"""Bytes that a byte layer may produce before the socket has taken the earlier ones, so that memory stays bounded."""

BUFFERS = (bytes, bytearray, memoryview)
"""The parts that are not regions."""


class SendQueue:
    """Parts on their way into one socket. A driver implements :meth:`send` and :meth:`push`."""

    __slots__ = ("_items", "_region_sent", "unsent_bytes")

    def __init__(self) -> None:
        self._items: deque[Part] = deque()
        self._region_sent = 0
        """Bytes of the region at the head that were sent."""
        self.unsent_bytes = 0

    def send(self, parts: list[Part], size_bytes: int, has_regions: bool) -> bool:
        """Send the parts after everything that is queued. Parts that the socket does not take now are queued.

        Returns whether unsent bytes are left, so that :meth:`Stream.watch_sending` must be called. The queue owns the
        regions from here on, even if it raises.

        :raises OSError: the peer has gone
        """
        raise NotImplementedError

    def push(self) -> None:
        """Send as many queued bytes as the socket takes now.

        :raises OSError: the peer has gone, or a region's file ended before the region
        """
        raise NotImplementedError

    def _gather(self) -> tuple[list[bytes | bytearray | memoryview], int, bool]:
        """Returns the buffers at the head up to the first region, their bytes, and whether a region follows."""
        gathered: list[bytes | bytearray | memoryview] = []
        size_bytes = 0
        for item in self._items:
            if not isinstance(item, BUFFERS):
                return gathered, size_bytes, item.size_bytes > 0
            if len(gathered) == IOV_MAX:
                break
            gathered.append(item)
            size_bytes += len(item)
        return gathered, size_bytes, False

    def _taken(self, count: int) -> None:
        """Remove ``count`` bytes of the buffers at the head: the socket took them."""
        self.unsent_bytes -= count
        items = self._items
        while items:
            head = items[0]
            if not isinstance(head, BUFFERS):
                return
            size_bytes = len(head)
            if size_bytes > count:
                if count:
                    items[0] = memoryview(head)[count:]
                return
            count -= size_bytes
            items.popleft()

    def _region_taken(self, region: FileRegion, count: int) -> bool:
        """Count ``count`` bytes of the region at the head as sent. Returns whether that was its end.

        :raises OSError: ``count`` is 0, because the file has ended before the region
        """
        if count == 0:
            left = region.size_bytes - self._region_sent
            raise OSError(errno.EIO, f"the file ended {left} bytes before the region that was to be sent")
        self.unsent_bytes -= count
        self._region_sent += count
        if self._region_sent < region.size_bytes:
            return False
        self._release_head(region)
        return True

    def _read_region(self, region: FileRegion) -> None:
        """Read the next bytes of the region at the head, and queue them in front of it as a buffer."""
        at = self._region_sent
        data = region.pread(at, min(region.size_bytes - at, PREAD_BYTES_MAX))
        if not data:
            raise OSError(errno.EIO, "the file ended before the region that was to be sent")
        self._region_sent = at + len(data)
        if self._region_sent == region.size_bytes:
            self._release_head(region)
        self._items.appendleft(data)

    def _release_head(self, region: FileRegion) -> None:
        self._items.popleft()
        self._region_sent = 0
        region.release()

    def memory_bytes(self) -> int:
        """Returns the bytes of memory in unsent buffers. File regions count 0. It looks at every part."""
        return sum(len(item) for item in self._items if isinstance(item, BUFFERS))

    def clear(self) -> None:
        """Drop everything unsent, and release its regions. May be called twice."""
        items, self._items = self._items, deque()
        self.unsent_bytes = 0
        self._region_sent = 0
        for item in items:
            if not isinstance(item, BUFFERS):
                item.release()


class LayeredSendQueue(SendQueue):
    """Parts that pass a byte layer first. The layer gets them in order, at most :data:`LAYERED_BYTES_AHEAD` before the
    socket takes its output."""

    __slots__ = ("_layer", "_plain_bytes", "_raw")

    def __init__(self, raw: SendQueue, layer: ByteLayer) -> None:
        super().__init__()
        self._layer = layer
        self._raw = raw
        self._plain_bytes = 0

    def send(self, parts: list[Part], size_bytes: int, has_regions: bool) -> bool:
        """As :meth:`SendQueue.send`."""
        raw = self._raw
        if size_bytes <= LAYERED_CHUNK_BYTES and not self._items and not raw.unsent_bytes:
            # A short cut for what the layer gets in one piece, which is nearly every answer.
            plain = _whole(parts)
            if len(plain) == size_bytes:
                if has_regions:
                    release(parts)
                data = self._layer.to_send(plain)
                waits = raw.send([data], len(data), False) if data else False
                self.unsent_bytes = raw.unsent_bytes
                return waits
        self._items.extend(parts)
        self._plain_bytes += size_bytes
        self.push()
        return self.unsent_bytes != 0

    def send_raw(self, data: bytes) -> None:
        """Send bytes that the layer made itself, such as a handshake or a closing alert.

        :raises OSError: the peer has gone
        """
        if data:
            self._raw.send([data], len(data), False)
            self.unsent_bytes = self._plain_bytes + self._raw.unsent_bytes

    def push(self) -> None:
        """As :meth:`SendQueue.push`."""
        raw, items = self._raw, self._items
        if raw.unsent_bytes:
            raw.push()
        budget = LAYERED_PUSH_BYTES_MAX
        while items and raw.unsent_bytes < LAYERED_BYTES_AHEAD and (budget > 0 or self._plain_bytes == 0):
            plain = self._next_plain()
            budget -= len(plain)
            data = self._layer.to_send(plain) if plain else b""
            if data:
                raw.send([data], len(data), False)
        self.unsent_bytes = self._plain_bytes + raw.unsent_bytes

    def _next_plain(self) -> bytes | memoryview:
        """Take the next plain bytes from the queue, at most :data:`LAYERED_CHUNK_BYTES`."""
        items = self._items
        pieces: list[bytes | memoryview] = []
        size_bytes = 0
        while items and size_bytes < LAYERED_CHUNK_BYTES:
            head = items[0]
            if not isinstance(head, BUFFERS):
                if head.size_bytes == self._region_sent:
                    self._release_head(head)
                else:
                    self._read_region(head)
                continue
            left = LAYERED_CHUNK_BYTES - size_bytes
            if len(head) > left:
                items[0] = memoryview(head)[left:]
                head = memoryview(head)[:left]
            else:
                items.popleft()
            pieces.append(memoryview(head) if isinstance(head, bytearray) else head)
            size_bytes += len(head)
        self._plain_bytes -= size_bytes
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def memory_bytes(self) -> int:
        """As :meth:`SendQueue.memory_bytes`."""
        return super().memory_bytes() + self._raw.memory_bytes()

    def clear(self) -> None:
        """As :meth:`SendQueue.clear`."""
        super().clear()
        self._raw.clear()
        self._plain_bytes = 0


def _whole(parts: list[Part]) -> bytes:
    """Returns all parts as one piece; none of them if a region can't be read, which :meth:`SendQueue.push` then finds,
    too."""
    try:
        return join(parts)
    except OSError:
        return b""
