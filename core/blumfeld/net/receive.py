"""Where received bytes lie: one run of memory for all connections of a turn, and buffers for frames that come in
pieces.

A frame stays unchanged until the end of the turn in which it was given out. So nothing here is written again before
:meth:`ReceivePool.end_turn`, and idle connections hold no memory at all.
"""

from __future__ import annotations

from blumfeld.net.memory import UNCOUNTED_BYTES, Memory, Receiver

CHUNK_BYTES = 1 << 20
CARRY_BYTES_MAX = 16_384
"""A larger frame that comes in pieces gets a buffer of its own. The beginning of a smaller one is copied in front of
what is received next: cheaper than a system call for the exact remainder."""
FIRST_BYTES_MAX = 1 << 20
"""What a large frame may claim before its bytes arrive; from there it doubles as it fills."""
POOLED_BYTES_MAX = 4 << 20
"""Larger buffers are not kept."""
SPARE_BYTES_MAX = 16 << 20
"""All spare buffers together."""


class ReceivePool:
    """Memory for receiving, shared by the connections of one transport.

    Receive into ``chunk[position : position + read_bytes + CARRY_BYTES_MAX]``, which always has room, then set
    ``position`` behind what was used and call :meth:`next_chunk` if it is above ``limit``.
    """

    __slots__ = (
        "_spare",
        "_spare_bytes",
        "_spare_chunks",
        "_used",
        "_used_chunks",
        "chunk",
        "limit",
        "memory",
        "position",
    )

    def __init__(self, read_bytes: int) -> None:
        room = read_bytes + CARRY_BYTES_MAX
        self.chunk = memoryview(bytearray(max(CHUNK_BYTES, 2 * room)))
        self.position = 0
        self.limit = len(self.chunk) - room
        self._used_chunks: list[memoryview] = []
        self._spare_chunks: list[memoryview] = []
        self._used: list[memoryview] = []
        self._spare: dict[int, list[memoryview]] = {}
        self._spare_bytes = 0
        self.memory: Memory | None = None
        """The bound that large frames are counted against."""

    def next_chunk(self) -> None:
        """Go on in a fresh chunk: this one holds frames of the turn."""
        self._used_chunks.append(self.chunk)
        spare = self._spare_chunks
        self.chunk = spare.pop() if spare else memoryview(bytearray(len(self.chunk)))
        self.position = 0

    def end_turn(self) -> None:
        """Every frame given out so far may be overwritten from now on."""
        self.position = 0
        if self._used_chunks:
            self._spare_chunks += self._used_chunks
            self._used_chunks.clear()
            del self._spare_chunks[SPARE_BYTES_MAX // len(self.chunk) :]
        if self._used:
            used, self._used = self._used, []
            for buffer in used:
                self.give_back(buffer)
            if self.memory is not None:
                self.memory.turn_ended()

    def take(self, size_bytes: int) -> memoryview:
        """A buffer of at least that size, with any content."""
        if size_bytes > POOLED_BYTES_MAX:
            return memoryview(bytearray(size_bytes))
        capacity = max(1 << (size_bytes - 1).bit_length(), CARRY_BYTES_MAX)
        spare = self._spare.get(capacity)
        if spare:
            self._spare_bytes -= capacity
            return spare.pop()
        return memoryview(bytearray(capacity))

    def give_back(self, buffer: memoryview) -> None:
        """The buffer holds nothing that anyone reads."""
        capacity = len(buffer)
        if capacity <= POOLED_BYTES_MAX and self._spare_bytes + capacity <= SPARE_BYTES_MAX:
            self._spare.setdefault(capacity, []).append(buffer)
            self._spare_bytes += capacity

    def give_back_after_turn(self, buffer: memoryview) -> None:
        """The buffer holds a frame of this turn."""
        self._used.append(buffer)


class LargeFrame:
    """A frame that arrives in pieces, in a buffer of its own that grows only as bytes arrive.

    With a ``receiver`` its buffer is counted against the pool's memory, unless the frame is small
    (``UNCOUNTED_BYTES``). Then ask :meth:`starved` before :meth:`room`.
    """

    __slots__ = ("_buffer", "_have", "_memory", "_pool", "size_bytes")

    def __init__(
        self, pool: ReceivePool, size_bytes: int, first: memoryview, receiver: Receiver | None = None
    ) -> None:
        self.size_bytes = size_bytes
        self._pool = pool
        self._have = len(first)
        capacity = max(min(size_bytes, FIRST_BYTES_MAX), self._have)
        self._memory: Memory | None = None
        if size_bytes > UNCOUNTED_BYTES and receiver is not None:
            self._memory = memory = pool.memory
            if memory is not None and not memory.has_room(capacity, size_bytes):
                capacity = self._have  # what has arrived must lie somewhere; for more it waits
        self._buffer = pool.take(capacity)
        self._buffer[: self._have] = first
        if self._memory is not None and receiver is not None:
            self._memory.begin(self, receiver, len(self._buffer))

    def _next_capacity(self) -> int:
        return min(self.size_bytes, max(2 * self._have, FIRST_BYTES_MAX))

    def starved(self) -> bool:
        """Whether no room may be had now. Then the receiver is called when it may: read nothing until then."""
        if self._memory is None or self._have < len(self._buffer) or self.complete:
            return False
        return self._memory.refuses(self, self._next_capacity() - len(self._buffer))

    def room(self) -> memoryview:
        """Where the next bytes of the frame go; empty when it is complete."""
        buffer, have = self._buffer, self._have
        if have == len(buffer) and have < self.size_bytes:
            self._buffer = self._pool.take(self._next_capacity())
            self._buffer[:have] = buffer
            self._pool.give_back(buffer)
            if self._memory is not None:
                self._memory.grew(self, len(self._buffer) - len(buffer))
        return self._buffer[have : self.size_bytes]

    def filled(self, count: int) -> bool:
        """``count`` bytes of the room were filled; whether the frame is complete."""
        self._have += count
        return self._have == self.size_bytes

    def fill_from(self, data: memoryview) -> int:
        """Copy what belongs to the frame; how many bytes that was."""
        taken = 0
        while taken < len(data) and self._have < self.size_bytes:
            room = self.room()
            count = min(len(room), len(data) - taken)
            room[:count] = data[taken : taken + count]
            self._have += count
            taken += count
        return taken

    @property
    def received_bytes(self) -> int:
        """Bytes that have arrived."""
        return self._have

    @property
    def missing(self) -> int:
        """Bytes that have not arrived."""
        return self.size_bytes - self._have

    @property
    def complete(self) -> bool:
        """Whether all bytes have arrived."""
        return self._have == self.size_bytes

    def take(self) -> memoryview:
        """The complete frame, unchanged until the end of this turn."""
        self._pool.give_back_after_turn(self._buffer)
        if self._memory is not None:
            self._memory.finished(self, len(self._buffer))
        return self._buffer[: self.size_bytes]

    def drop(self) -> None:
        """The frame will not be completed."""
        if self._memory is not None:
            self._memory.dropped(self, len(self._buffer))
        self._pool.give_back(self._buffer)
