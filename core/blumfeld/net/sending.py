"""What a socket has not taken yet: parts in order, how far the one at the head has gone, and who releases regions.

A queue raises ``OSError`` when the peer has gone; whoever owns it then calls :meth:`SendQueue.clear`, which releases
the regions that were not sent. So each region is released exactly once.
"""

from __future__ import annotations

import errno
from collections import deque

from blumfeld.spi.parts import FileRegion, Part
from blumfeld.spi.transport import ByteLayer

JOIN_BYTES_MAX = 8192
"""Up to here one copy costs less than the vector that a gathering call needs."""
IOV_MAX = 1024
PREAD_BYTES_MAX = 1 << 18
PUSH_BYTES_MAX = 4 << 20
"""What one connection may send before others have their turn."""
LAYERED_BYTES_AHEAD = 1 << 18
"""Bytes of a byte layer that are made before the socket has taken those before them."""

BUFFERS = (bytes, bytearray, memoryview)
"""The parts that are not regions."""


class SendQueue:
    """Parts on their way into one socket. A driver fills in how they get there."""

    __slots__ = ("_items", "_region_sent", "unsent_bytes")

    def __init__(self) -> None:
        self._items: deque[Part] = deque()
        self._region_sent = 0
        """Of the region at the head."""
        self.unsent_bytes = 0

    def send(self, parts: list[Part], size_bytes: int, has_regions: bool) -> bool:
        """Send the parts behind all that is queued; what the socket does not take now is queued.

        Whether something is unsent that must be watched (:meth:`Stream.watch_sending`). The queue owns the regions from
        here on, also when it raises.

        :raises OSError: the peer has gone
        """
        raise NotImplementedError

    def push(self) -> None:
        """Give the socket what it takes now.

        :raises OSError: the peer has gone, or a region's file ended before the region
        """
        raise NotImplementedError

    def _gather(self) -> tuple[list[bytes | bytearray | memoryview], int, bool]:
        """The run of buffers at the head, its bytes, and whether a file's bytes follow at once."""
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
        """The socket took ``count`` bytes of the buffers at the head."""
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
        """The socket took ``count`` bytes of the region at the head; whether that was its end.

        :raises OSError: none, for its file has ended
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
        """Put the next bytes of the region at the head in front of it, as a buffer."""
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
        """What the unsent buffers hold; file regions hold nothing. Looks at every part."""
        return sum(len(item) for item in self._items if isinstance(item, BUFFERS))

    def clear(self) -> None:
        """Drop what is unsent and release its regions. May be called twice."""
        items, self._items = self._items, deque()
        self.unsent_bytes = 0
        self._region_sent = 0
        for item in items:
            if not isinstance(item, BUFFERS):
                item.release()


class LayeredSendQueue(SendQueue):
    """Parts that go through a byte layer first. The layer sees them in order, and not far ahead of the socket."""

    __slots__ = ("_layer", "_plain_bytes", "_raw")

    def __init__(self, raw: SendQueue, layer: ByteLayer) -> None:
        super().__init__()
        self._layer = layer
        self._raw = raw
        self._plain_bytes = 0

    def send(self, parts: list[Part], size_bytes: int, has_regions: bool) -> bool:
        """As :meth:`SendQueue.send`."""
        self._items.extend(parts)
        self._plain_bytes += size_bytes
        self.push()
        return self.unsent_bytes != 0

    def send_raw(self, data: bytes) -> None:
        """Send bytes of the layer itself: a handshake's, a closing alert's.

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
        budget = PUSH_BYTES_MAX
        while items and raw.unsent_bytes < LAYERED_BYTES_AHEAD and (budget > 0 or self._plain_bytes == 0):
            head = items[0]
            if not isinstance(head, BUFFERS):
                if head.size_bytes == self._region_sent:
                    self._release_head(head)
                else:
                    self._read_region(head)
                continue
            items.popleft()
            self._plain_bytes -= len(head)
            budget -= len(head)
            data = self._layer.to_send(bytes(head) if isinstance(head, bytearray) else head)
            raw.send([data], len(data), False)
        self.unsent_bytes = self._plain_bytes + raw.unsent_bytes

    def memory_bytes(self) -> int:
        """As :meth:`SendQueue.memory_bytes`."""
        return super().memory_bytes() + self._raw.memory_bytes()

    def clear(self) -> None:
        """As :meth:`SendQueue.clear`."""
        super().clear()
        self._raw.clear()
        self._plain_bytes = 0
