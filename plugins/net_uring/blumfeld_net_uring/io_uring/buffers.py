"""Memory shared with the kernel: addresses of buffers, pooled slabs, and a group of buffers to receive into.

The kernel gets plain addresses. Code that queues an operation must keep its buffer referenced and in place
until the operation has completed, and unchanged while it is sent.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterable, Sequence

from blumfeld_net_uring.io_uring import abi
from blumfeld_net_uring.io_uring.ring import Ring
from blumfeld_net_uring.io_uring.system import register

BUFFER_BYTES = 16 * 1024
BUFFERS_FIRST = 32
"""Few, so that a lightly used broker works in memory that stays in the processor's cache."""
BUFFERS_MAX = 4096
VECTOR_MAX = 64

_BYTES_HEADER = bytes.__basicsize__ - 1
"""CPython stores the content of a ``bytes`` object behind its header, with a zero byte at the end."""

_pack_buffer = abi.BUFFER.pack_into
_pack_header = abi.MESSAGE.pack_into
_pack_vector = abi.VECTOR.pack_into


def address_of(buffer: bytearray | memoryview | mmap.mmap) -> int:
    """Address of the first byte of a *writable*, non-empty buffer; takes 0.15 µs.

    It is valid while ``buffer`` (or the object under the view) is referenced and not resized. A memoryview of
    a ``bytearray`` forbids resizing.
    """
    return ctypes.addressof(ctypes.c_char.from_buffer(buffer))


def address_of_bytes(data: bytes) -> int:
    """Address of the bytes, for reading only (sends); takes 0.04 µs. It is valid while ``data`` is
    referenced.
    """
    return id(data) + _BYTES_HEADER


class Slabs:
    """Buffers of ``size_bytes`` in one piece of memory; view and address of each are made once.

    Take one with ``index = slabs.free.pop()`` when ``slabs.free`` isn't empty, and give it back with
    ``slabs.free.append(index)``: the last one given back is taken first, while the cache still has it. There
    are ``count_first`` of them (all, if that is None) until :meth:`extend` makes more, up to ``count_max``.
    Memory is touched, and so paid for, only where it is used.
    """

    __slots__ = ("_memory", "_start", "addresses", "count_max", "free", "size_bytes", "views")

    def __init__(self, size_bytes: int, count_max: int, count_first: int | None = None) -> None:
        self.size_bytes = size_bytes
        self.count_max = count_max
        memory = mmap.mmap(-1, size_bytes * count_max, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._memory: memoryview | None = memoryview(memory)
        self._start = address_of(memory)
        self.views: list[memoryview] = []
        self.addresses: list[int] = []
        self.free: list[int] = []
        self.extend(count_max if count_first is None else count_first)

    def extend(self, more: int) -> int:
        """Make up to ``more`` buffers more. Returns how many were made."""
        first, size = len(self.views), self.size_bytes
        if self._memory is None:
            return 0
        indexes = range(first, min(first + more, self.count_max))
        self.views += [self._memory[i * size : (i + 1) * size] for i in indexes]
        self.addresses += [self._start + i * size for i in indexes]
        self.free += reversed(indexes)
        return len(indexes)

    @property
    def outstanding(self) -> int:
        """Number of buffers taken and not given back."""
        return len(self.views) - len(self.free)

    def release(self) -> None:
        """Release the memory. It is freed with the last view of it."""
        self._memory = None
        self.views = []
        self.addresses = []
        self.free = []


class BufferGroup:
    """Buffers that the kernel picks from when a receive has bytes (a provided buffer ring, from Linux 5.19).

    A completion with ``CQE_F_BUFFER`` names one: ``view = group.views[buffer_id][:result]``, and
    ``group.taken.append(buffer_id)`` puts it down to be given back by :meth:`end_turn`, so that a frame in it
    stays unchanged until then. (A buffer of which nothing is needed any more may be put down too; it is the
    same.)

    When the kernel finds none it ends the receive with ``-ENOBUFS``: a multishot receive as soon as it has
    used the last one, whether more bytes have come or not. Then call :meth:`grow`, once for each receive that
    ended so, and receive again: at once if it says True, else after the next :meth:`end_turn`. The group
    begins with few buffers and doubles, up to ``count_max``; it doesn't shrink.

    :raises OSError: the kernel has no buffer rings (EINVAL), or the group is in use (EEXIST).
    """

    __slots__ = (
        "_ring",
        "_slabs",
        "_spare",
        "_table",
        "_tail",
        "group",
        "published",
        "size_bytes",
        "taken",
        "views",
    )

    def __init__(
        self,
        ring: Ring,
        group: int = 0,
        size_bytes: int = BUFFER_BYTES,
        count_first: int = BUFFERS_FIRST,
        count_max: int = BUFFERS_MAX,
    ) -> None:
        if count_max & (count_max - 1) or not 0 < count_first <= count_max <= 32768:
            raise ValueError("count_max is a power of two up to 32768, and count_first is not above it")
        self._ring = ring
        self.group = group
        self.size_bytes = size_bytes
        self._table = mmap.mmap(-1, count_max * abi.BUFFER_BYTES)
        registration = abi.BufferRegistration(address_of(self._table), count_max, group)
        register(ring.fd, abi.REGISTER_PBUF_RING, ctypes.byref(registration), 1)
        self._slabs = Slabs(size_bytes, count_max, 0)
        self.views = self._slabs.views
        self.taken: list[int] = []
        """Ids of buffers to give back at the end of the turn."""
        self._tail = 0
        self._spare = 0
        self.published = 0
        """Number of buffers in use, by the kernel or by this turn."""
        ring.keep(self)
        self._publish(count_first)

    def end_turn(self) -> None:
        """Give back all ``taken`` buffers. The kernel may write into them from the next submission on."""
        self._spare = 0
        taken = self.taken
        if not taken:
            return
        self._give(taken)
        taken.clear()

    def _give(self, buffer_ids: Iterable[int]) -> None:
        table, addresses, size = self._table, self._slabs.addresses, self.size_bytes
        tail, mask = self._tail, self._slabs.count_max - 1
        for buffer_id in buffer_ids:
            _pack_buffer(table, (tail & mask) << 4, addresses[buffer_id], size, buffer_id)
            tail += 1
        self._tail = tail
        self._table[abi.BUFFER_TAIL_OFFSET : abi.BUFFER_TAIL_OFFSET + 2] = (tail & 0xFFFF).to_bytes(
            2, "little"
        )

    def grow(self) -> bool:
        """Call this when a receive found no buffer. Doubles the buffers in use, unless an earlier call in
        this turn left one free. Returns ``False`` if all ``count_max`` are in use.
        """
        if not self._spare:
            self._spare = self._publish(self.published)
        if not self._spare:
            return False
        self._spare -= 1
        return True

    def _publish(self, more: int) -> int:
        made = self._slabs.extend(more)
        self._give(range(self.published, self.published + made))
        self.published += made
        return made

    def close(self) -> None:
        """Take the group from the kernel. No receive may be in flight on it. Closing the ring does the same."""
        if self.published and not self._ring.closed:
            registration = abi.BufferRegistration(0, 0, self.group)
            register(self._ring.fd, abi.UNREGISTER_PBUF_RING, ctypes.byref(registration), 1)
        self._ring.unkeep(self)
        self.release()

    def release(self) -> None:
        """Called by the ring when the kernel has let go of all memory."""
        self.views = []
        self.taken = []
        self.published = 0
        self._slabs.release()


class Gather:
    """A ``struct msghdr`` and its vector, in memory of its own, for :meth:`Ring.sendmsg`.

    It describes one send at a time: refill it only after the send has completed.
    """

    __slots__ = ("_memory", "address", "vector_max")

    def __init__(self, vector_max: int = VECTOR_MAX) -> None:
        self.vector_max = vector_max
        self._memory = bytearray(abi.MESSAGE.size + vector_max * abi.VECTOR.size)
        self.address = address_of(self._memory)
        """Address of the header, for ``sendmsg``."""

    def fill(self, parts: Sequence[tuple[int, int]]) -> None:
        """Write (address, size) of each part in order, at most ``vector_max`` parts.

        :raises ValueError: too many parts
        """
        if len(parts) > self.vector_max:
            raise ValueError(f"{len(parts)} parts, and room for {self.vector_max}")
        memory, at = self._memory, abi.MESSAGE.size
        _pack_header(memory, 0, 0, 0, self.address + at, len(parts), 0, 0, 0)
        for address, size in parts:
            _pack_vector(memory, at, address, size)
            at += 16
