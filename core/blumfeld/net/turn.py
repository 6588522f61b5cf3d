"""The state of a turn that the connections of one transport share: memory for received bytes, and a list of those that
send at its end.

A frame must stay unchanged until the end of the turn in which a handler got it. So :class:`ReceivePool` has one chunk
for all connections of a turn, and a buffer of its own for each large frame, and nothing in them is overwritten before
:meth:`ReceivePool.end_turn`. In return idle connections hold no memory at all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from blumfeld.net.memory import UNCOUNTED_BYTES, Memory, Receiver
from blumfeld.spi.runtime import Phase, Runtime

CHUNK_BYTES = 1 << 20
CARRY_BYTES_MAX = 16_384
"""A larger frame that comes in pieces gets a buffer of its own. The beginning of a smaller one is copied in front of
the bytes that are received next: that is cheaper than a system call for the exact remainder."""
FIRST_BYTES_MAX = 1 << 20
"""Memory that a large frame gets before its bytes arrive. From there it doubles as bytes arrive, so a peer can't claim
memory by announcing large frames."""
POOLED_BYTES_MAX = 4 << 20
"""Buffers above this size are not kept for reuse."""
SPARE_BYTES_MAX = 16 << 20
"""Bytes of all spare buffers together, and of all spare chunks."""


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
        """The bound on the memory of all connections. Large frames are counted against it."""

    def next_chunk(self) -> None:
        """Continue in a fresh chunk. The present one holds frames of this turn until its end."""
        self._used_chunks.append(self.chunk)
        spare = self._spare_chunks
        self.chunk = spare.pop() if spare else memoryview(bytearray(len(self.chunk)))
        self.position = 0

    def end_turn(self) -> None:
        """Reuse all memory of the turn: no handler may read its frames any more."""
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
        """Returns a buffer of at least that size. Its content is arbitrary."""
        if size_bytes > POOLED_BYTES_MAX:
            return memoryview(bytearray(size_bytes))
        capacity = max(1 << (size_bytes - 1).bit_length(), CARRY_BYTES_MAX)
        spare = self._spare.get(capacity)
        if spare:
            self._spare_bytes -= capacity
            return spare.pop()
        return memoryview(bytearray(capacity))

    def give_back(self, buffer: memoryview) -> None:
        """Reuse a buffer at once. Nothing may read it any more."""
        capacity = len(buffer)
        if capacity <= POOLED_BYTES_MAX and self._spare_bytes + capacity <= SPARE_BYTES_MAX:
            self._spare.setdefault(capacity, []).append(buffer)
            self._spare_bytes += capacity

    def give_back_after_turn(self, buffer: memoryview) -> None:
        """Reuse a buffer after this turn, because a frame of the turn lies in it."""
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
                capacity = self._have  # enough for the bytes that have arrived; the rest waits for memory
        self._buffer = pool.take(capacity)
        self._buffer[: self._have] = first
        if self._memory is not None and receiver is not None:
            self._memory.begin(self, receiver, len(self._buffer))

    def _next_capacity(self) -> int:
        return min(self.size_bytes, max(2 * self._have, FIRST_BYTES_MAX))

    def starved(self) -> bool:
        """Whether the frame must wait for memory. If so, read nothing until the receiver's ``fed_memory`` is called."""
        if self._memory is None or self._have < len(self._buffer) or self.complete:
            return False
        return self._memory.refuses(self, self._next_capacity() - len(self._buffer))

    def room(self) -> memoryview:
        """Returns the memory for the frame's next bytes; empty when the frame is complete."""
        buffer, have = self._buffer, self._have
        if have == len(buffer) and have < self.size_bytes:
            self._buffer = self._pool.take(self._next_capacity())
            self._buffer[:have] = buffer
            self._pool.give_back(buffer)
            if self._memory is not None:
                self._memory.grew(self, len(self._buffer) - len(buffer))
        return self._buffer[have : self.size_bytes]

    def filled(self, count: int) -> bool:
        """Take note that ``count`` bytes of the room were filled. Returns whether the frame is complete."""
        self._have += count
        return self._have == self.size_bytes

    def fill_from(self, data: memoryview) -> int:
        """Copy the bytes of ``data`` that belong to the frame. Returns their number."""
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
        """Number of bytes that have arrived."""
        return self._have

    @property
    def missing(self) -> int:
        """Number of bytes that have not arrived yet."""
        return self.size_bytes - self._have

    @property
    def complete(self) -> bool:
        """Whether all bytes have arrived."""
        return self._have == self.size_bytes

    def take(self) -> memoryview:
        """Returns the complete frame. It stays unchanged until the end of this turn."""
        self._pool.give_back_after_turn(self._buffer)
        if self._memory is not None:
            self._memory.finished(self, len(self._buffer))
        return self._buffer[: self.size_bytes]

    def drop(self) -> None:
        """Free the memory of a frame that will not be completed."""
        if self._memory is not None:
            self._memory.dropped(self, len(self._buffer))
        self._pool.give_back(self._buffer)


_ANSWER = Phase.ANSWER
"""Looked up once, because each look-up of an enumeration's member costs a call on Python 3.11."""

Report = Callable[[dict[str, Any]], None]
"""Takes the same dictionary as a loop's ``call_exception_handler``: ``message`` and ``exception``."""


class Flushable(Protocol):
    """A connection that sends at the end of the turn."""

    def flush(self) -> None:
        """Send the answers that are ready."""
        ...


class Turn:
    """State that the connections of one transport share: the turn's time, its memory, and the connections that send.

    :meth:`begin` is called once a turn, by the first connection that receives or has an answer. All connections send
    together at the end, so many answers of one connection share one system call, and no ack precedes its write.
    """

    __slots__ = (
        "_report",
        "begun",
        "dirty",
        "greetings",
        "memory",
        "now_ms",
        "on_refused",
        "pool",
        "runtime",
    )

    def __init__(self, runtime: Runtime, report: Report, pool: ReceivePool) -> None:
        self.runtime = runtime
        self._report = report
        self.pool = pool
        self.memory = pool.memory = Memory(runtime)
        """The bound on the memory of all connections together."""
        self.on_refused: Callable[[str, Any], None] | None = None
        """Told of an accepted connection whose frame was refused, with the reason."""
        self.begun = False
        self.now_ms = runtime.monotonic_ms()
        """Start of this turn. One clock reading serves all connections, and is precise enough for idle time-outs."""
        self.greetings = 0
        """Reads in this turn of connections whose byte layer has given no plain bytes yet."""
        self.dirty: list[Flushable] = []
        """Connections that send at the end of this turn. A connection that adds itself must call :meth:`begin`, unless
        the turn has ``begun``."""

    def begin(self) -> None:
        """Begin the turn: read the clock, and have :meth:`_end` called at its end."""
        self.begun = True
        self.now_ms = self.runtime.monotonic_ms()
        self.runtime.at_end_of_turn(_ANSWER, self._end)

    def flush_at_end(self, connection: Flushable) -> None:
        """Let the connection send at the end of this turn. The caller must call this only once a turn."""
        self.dirty.append(connection)
        if not self.begun:
            self.begin()

    def defect(self, error: Exception, what: str) -> None:
        """Report an exception from a callback that must not raise, in the way in which the loop reports its own."""
        self._report({"message": f"{what} raised", "exception": error})

    def _end(self) -> None:
        dirty, self.dirty = self.dirty, []
        self.begun = False
        self.greetings = 0
        # Batches were written in an earlier phase of this turn, so the frames in the pool may be overwritten now.
        self.pool.end_turn()
        for connection in dirty:
            connection.flush()
