"""A bound on the memory of all connections of a transport together: unfinished frames and unsent answers.

Up to :data:`UNCOUNTED_BYTES` of a frame, and of a connection's unsent answers, are never counted, so an ordinary
request pays nothing for the bound. Larger ones are counted by the memory that they hold. File regions hold no memory.

**Received frames.** A frame's buffer grows as its bytes arrive. When ``request_bytes_max`` is reached it may not grow,
and its connection isn't read until memory is free. Two exceptions keep this fair:

* The last quarter of the bound is reserved for frames of ordinary size (:data:`ORDINARY_BYTES_MAX`), so that they don't
  wait for frames of 100 MB.
* The oldest unfinished frame may always grow, and takes nothing from that quarter. So one frame can always complete,
  and each frame is the oldest at some time. The bound is exceeded by one frame at most, as with Kafka's
  ``queued.max.request.bytes``.

While frames wait for memory, a connection whose frame makes next to no progress is closed. Otherwise clients that
announce much and send nothing would hold the memory for good.

**Unsent answers.** Beyond ``answer_bytes_max`` no connection with counted answers is read. While that lasts, a
connection is closed when its peer has taken nothing for ``stall_ms``; beyond twice the bound after a tenth of that. The
connection with the latest progress always stays, because one answer may be larger than the bound.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from blumfeld.spi.runtime import Runtime, Timer

UNCOUNTED_BYTES = 65_536
"""Bytes of a frame, and of unsent answers, that a connection may hold without being counted."""
ORDINARY_BYTES_MAX = (1 << 20) + 65_536
"""Largest frame of ordinary size: a producer's request with the default ``max.request.size``, 1 MiB, fits."""
RESERVE = 4
"""The bound divided by this is reserved for frames of ordinary size."""
PROGRESS_BYTES_MIN = 65_536
"""Bytes that a frame must gain between two looks, while others wait for memory."""
OLDEST_LOOKS_MAX = 6
"""Looks after which the oldest frame, or one of ordinary size, must be complete, while others wait for memory. By
default that is 30 s, Kafka's ``request.timeout.ms``, after which a client gives up by itself."""
HURRY = 10
"""Beyond twice the bound of answers, a peer's time is divided by this."""
DEFAULT_BYTES_MAX = 256 << 20
STALL_MS = 5_000


class CountedFrame(Protocol):
    """An unfinished frame in memory of its own."""

    size_bytes: int
    """Size of the complete frame."""

    @property
    def received_bytes(self) -> int:
        """Number of bytes that have arrived."""
        ...

    @property
    def complete(self) -> bool:
        """Whether all bytes have arrived."""
        ...


class Receiver(Protocol):
    """The connection that a counted frame arrives on."""

    def fed_memory(self) -> None:
        """Read on: the frame may grow."""
        ...

    def muted(self) -> bool:
        """Whether the frame stands still because we don't read, for a reason beside memory."""
        ...

    def die(self, reason: str) -> None:
        """Close now."""
        ...


class SlowReader(Protocol):
    """A connection that holds counted answers."""

    def drained(self) -> None:
        """Check again whether requests may be read."""
        ...

    def die(self, reason: str) -> None:
        """Close now."""
        ...


class _Unfinished:
    """State of one unfinished frame."""

    __slots__ = ("held_bytes", "looks", "receiver", "seen_bytes", "wants_bytes")

    def __init__(self, receiver: Receiver, held_bytes: int) -> None:
        self.receiver = receiver
        self.held_bytes = held_bytes
        """Size of its buffer."""
        self.wants_bytes = 0
        """Memory that it waits for; 0 if it doesn't wait."""
        self.seen_bytes = -1
        """Bytes that had arrived at the last look; -1 before the first."""
        self.looks = 0
        """Number of looks at which it could go on: it was the oldest, or of ordinary size."""


class Memory:
    """The memory that the connections of one transport hold. Every method is called on the loop's thread."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.request_bytes_max = DEFAULT_BYTES_MAX
        self.answer_bytes_max = DEFAULT_BYTES_MAX
        self.stall_ms: float = STALL_MS
        self.request_bytes = 0
        """Memory of counted frames, including those that completed in this turn."""
        self.answer_bytes = 0
        """Memory of counted answers."""
        self.closed = 0
        """Number of connections that were closed so that others got memory."""
        self.on_closed: Callable[[str, Receiver | SlowReader], None] = lambda reason, connection: None
        """Called with the reason and the connection, before such a connection is closed."""
        self._frames: dict[CountedFrame, _Unfinished] = {}
        """Unfinished counted frames, the oldest first."""
        self._waiting = 0
        self._ended_bytes = 0
        """Memory of frames that completed in this turn. It is free after the turn, when their handlers are done."""
        self._slow: dict[SlowReader, float] = {}
        """Connections with counted answers → time of the last progress, the oldest first."""
        self._hurried = False
        self._timer: Timer | None = None
        self._feeding = False

    # Frames.

    def begin(self, frame: CountedFrame, receiver: Receiver, held_bytes: int) -> None:
        """Count a new frame, whose buffer has ``held_bytes``."""
        self._frames[frame] = _Unfinished(receiver, held_bytes)
        self.request_bytes += held_bytes

    def has_room(self, more_bytes: int, size_bytes: int) -> bool:
        """Whether ``more_bytes`` are free for a frame of ``size_bytes``."""
        return more_bytes <= self._free_bytes(size_bytes)

    def _free_bytes(self, size_bytes: int) -> int:
        free_bytes = self.request_bytes_max - self.request_bytes
        if size_bytes > ORDINARY_BYTES_MAX:
            return free_bytes - self.request_bytes_max // RESERVE
        oldest = self._oldest()
        return free_bytes if oldest is None else free_bytes + self._frames[oldest].held_bytes

    def refuses(self, frame: CountedFrame, more_bytes: int) -> bool:
        """Whether the frame must wait for ``more_bytes``. If so, its receiver's ``fed_memory`` is called when it may
        grow."""
        unfinished = self._frames[frame]
        refused = not self.has_room(more_bytes, frame.size_bytes) and self._oldest() is not frame
        wants_bytes = more_bytes if refused else 0
        self._waiting += (wants_bytes != 0) - (unfinished.wants_bytes != 0)
        unfinished.wants_bytes = wants_bytes
        if refused:
            self._watch()
        return refused

    def grew(self, frame: CountedFrame, more_bytes: int) -> None:
        """Count the larger buffer of a frame."""
        self._frames[frame].held_bytes += more_bytes
        self.request_bytes += more_bytes

    def finished(self, frame: CountedFrame, held_bytes: int) -> None:
        """Take note that the frame is complete and given to its handler. Its memory is free after the turn."""
        self._forget(frame)
        self._ended_bytes += held_bytes

    def dropped(self, frame: CountedFrame, held_bytes: int) -> None:
        """Free the memory of a frame that will not be completed."""
        self._forget(frame)
        self.request_bytes -= held_bytes

    def turn_ended(self) -> None:
        """Free the memory of the frames that completed in this turn."""
        self.request_bytes -= self._ended_bytes
        self._ended_bytes = 0
        self._feed_soon()

    @property
    def waiting(self) -> int:
        """Number of frames that wait for memory."""
        return self._waiting

    def _forget(self, frame: CountedFrame) -> None:
        unfinished = self._frames.pop(frame)
        self._waiting -= unfinished.wants_bytes != 0
        self._feed_soon()

    def _oldest(self) -> CountedFrame | None:
        return next((frame for frame in self._frames if not frame.complete), None)

    def _feed_soon(self) -> None:
        if self._waiting and not self._feeding:
            self._feeding = True
            self._runtime.call_later(0, self._feed)

    def _feed(self) -> None:
        """Let waiting frames go on, the oldest first, as far as the free memory goes."""
        self._feeding = False
        given_bytes = 0
        oldest = self._oldest()
        for_ordinary, for_large = self._free_bytes(0), self._free_bytes(ORDINARY_BYTES_MAX + 1)
        for frame, unfinished in list(self._frames.items()):
            if not self._waiting or (frame is not oldest and given_bytes >= for_ordinary):
                break
            wants_bytes = unfinished.wants_bytes
            free_bytes = for_ordinary if frame.size_bytes <= ORDINARY_BYTES_MAX else for_large
            if wants_bytes and (frame is oldest or given_bytes + wants_bytes <= free_bytes):
                given_bytes += 0 if frame is oldest else wants_bytes
                unfinished.wants_bytes = 0
                self._waiting -= 1
                unfinished.receiver.fed_memory()

    # Answers.

    def unsent(self, reader: SlowReader, before_bytes: int, now_bytes: int) -> None:
        """Count a change of a connection's counted answers. A decrease is progress of its peer."""
        self.answer_bytes += now_bytes - before_bytes
        slow = self._slow
        since_ms = slow.pop(reader, None) if now_bytes < before_bytes or not now_bytes else slow.get(reader)
        if now_bytes:
            if since_ms is None or now_bytes < before_bytes:
                slow[reader] = self._runtime.monotonic_ms()
            if self.answers_full:
                self._watch()
                if self.answer_bytes > 2 * self.answer_bytes_max and not self._hurried:
                    self._hurried = True
                    self._runtime.call_later(self.stall_ms / HURRY, self._close_stalest)
        elif before_bytes and self.answer_bytes <= self.answer_bytes_max < self.answer_bytes + before_bytes:
            self._runtime.call_later(0, self._drain)

    @property
    def answers_full(self) -> bool:
        """Whether the bound of answers is exceeded. Then connections with counted answers are not read."""
        return self.answer_bytes > self.answer_bytes_max

    def _drain(self) -> None:
        for reader in list(self._slow):
            reader.drained()

    def _close_stalest(self) -> None:
        """Close connections without progress for a tenth of ``stall_ms``, until the rest holds at most twice the
        bound."""
        self._hurried = False
        limit = 2 * self.answer_bytes_max
        self._close_slow(self.stall_ms / HURRY, limit)
        if self.answer_bytes > limit and len(self._slow) > 1:
            self._hurried = True
            self._runtime.call_later(self.stall_ms / HURRY, self._close_stalest)

    def _close_slow(self, still_ms: float, limit_bytes: int) -> None:
        before_ms = self._runtime.monotonic_ms() - still_ms
        for reader, since_ms in list(self._slow.items())[:-1]:
            if self.answer_bytes <= limit_bytes or since_ms > before_ms:
                break
            self._close(reader, "its peer took no answers while they held the memory that all may hold")

    # Frames and connections without progress.

    def _watch(self) -> None:
        if self._timer is None:
            self._timer = self._runtime.call_later(self.stall_ms, self._look)

    def _look(self) -> None:
        """Close connections without progress since the last look, if others wait for their memory."""
        self._timer = None
        if self._waiting:
            self._look_at_frames()
            self._feed_soon()
        if self.answers_full:
            self._close_slow(self.stall_ms, self.answer_bytes_max)
        if self._waiting or self.answers_full:
            self._watch()
        else:
            for unfinished in self._frames.values():
                unfinished.seen_bytes, unfinished.looks = -1, 0

    def _look_at_frames(self) -> None:
        oldest = self._oldest()
        for frame, unfinished in list(self._frames.items()):
            if frame not in self._frames or frame.complete or unfinished.wants_bytes:
                unfinished.seen_bytes = -1
                continue
            if unfinished.receiver.muted():
                continue
            seen_bytes, unfinished.seen_bytes = unfinished.seen_bytes, frame.received_bytes
            unfinished.looks += frame is oldest or frame.size_bytes <= ORDINARY_BYTES_MAX
            if seen_bytes >= 0 and frame.received_bytes - seen_bytes < PROGRESS_BYTES_MIN:
                self._close(
                    unfinished.receiver, "its unfinished frame stood still while others waited for memory"
                )
            elif unfinished.looks > OLDEST_LOOKS_MAX:
                self._close(
                    unfinished.receiver, "its unfinished frame took too long while others waited for memory"
                )

    def _close(self, connection: Receiver | SlowReader, reason: str) -> None:
        self.closed += 1
        self.on_closed(reason, connection)
        connection.die(reason)

    def stop(self) -> None:
        """Stop the timer. Call it when no connection is left."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
