"""A bound on the memory of all connections of a transport together: unfinished frames, and answers that nobody takes.

A frame of up to :data:`UNCOUNTED_BYTES`, and as much of a connection's unsent answers, is never counted: an ordinary
request pays nothing for the bound. What is larger is counted by the memory that it holds.

**Received.** A frame's buffer grows as its bytes arrive. Beyond ``request_bytes_max`` it may not grow, and its
connection is read no more until memory is free. The last quarter is for frames of ordinary size
(:data:`ORDINARY_BYTES_MAX`), so that they don't wait for those of 100 MB. The oldest unfinished frame is exempt, and
takes nothing from that quarter: so one can always complete, each frame is the oldest at some time, and the bound is
exceeded by one frame at most, as Kafka's ``queued.max.request.bytes`` is. While frames wait, a frame whose peer sends
next to nothing loses its connection: otherwise clients that announce much and send nothing would hold the memory that
the others wait for.

**Unsent.** Beyond ``answer_bytes_max`` no connection that holds counted answers is read. While that lasts, connections
whose peers take nothing for ``stall_ms`` are closed; beyond twice the bound after a tenth of that. The connection that
made progress last stays: one answer may be larger than the bound.

File regions are no memory, and are not counted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from blumfeld.spi.runtime import Runtime, Timer

UNCOUNTED_BYTES = 65_536
"""What every connection may hold of a frame, and of answers, without being counted."""
ORDINARY_BYTES_MAX = (1 << 20) + 65_536
"""A request of a producer whose ``max.request.size`` is Kafka's, 1 MiB, is no larger."""
RESERVE = 4
"""One part in so many of the bound is for ordinary frames."""
PROGRESS_BYTES_MIN = 65_536
"""What a frame must gain in each look, while others wait for memory."""
OLDEST_LOOKS_MAX = 6
"""Looks at which the oldest frame, or one of ordinary size, may still be unfinished, while others wait for memory: at
its default 30 s, Kafka's ``request.timeout.ms``, after which a client gives up by itself."""
HURRY = 10
"""Beyond twice the bound of answers, a peer has so much less time."""
DEFAULT_BYTES_MAX = 256 << 20
STALL_MS = 5_000


class CountedFrame(Protocol):
    """An unfinished frame in memory of its own."""

    size_bytes: int
    """What it will hold when it is complete."""

    @property
    def received_bytes(self) -> int:
        """Bytes that have arrived."""
        ...

    @property
    def complete(self) -> bool:
        """Whether all have."""
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
        """Look again whether requests may be read."""
        ...

    def die(self, reason: str) -> None:
        """Close now."""
        ...


class _Unfinished:
    """What is known of one frame."""

    __slots__ = ("held_bytes", "looks", "receiver", "seen_bytes", "wants_bytes")

    def __init__(self, receiver: Receiver, held_bytes: int) -> None:
        self.receiver = receiver
        self.held_bytes = held_bytes
        """Its buffer."""
        self.wants_bytes = 0
        """What it waits for; 0 while it doesn't."""
        self.seen_bytes = -1
        """Received at the last look."""
        self.looks = 0
        """Looks at which it was the oldest, or of ordinary size, and could go on."""


class Memory:
    """What the connections of one transport hold. All on the loop's thread."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.request_bytes_max = DEFAULT_BYTES_MAX
        self.answer_bytes_max = DEFAULT_BYTES_MAX
        self.stall_ms: float = STALL_MS
        self.request_bytes = 0
        """Held by counted frames, complete ones of this turn included."""
        self.answer_bytes = 0
        """Held by counted answers."""
        self.closed = 0
        """Connections that were closed so that others got memory."""
        self.on_closed: Callable[[str, Receiver | SlowReader], None] = lambda reason, connection: None
        """Called with each of them before it is closed."""
        self._frames: dict[CountedFrame, _Unfinished] = {}
        """The oldest first."""
        self._waiting = 0
        self._ended_bytes = 0
        """Held by frames that completed in this turn."""
        self._slow: dict[SlowReader, float] = {}
        """Connections with counted answers, and when each last made progress; the stalest first."""
        self._hurried = False
        self._timer: Timer | None = None
        self._feeding = False

    # Frames.

    def begin(self, frame: CountedFrame, receiver: Receiver, held_bytes: int) -> None:
        """A counted frame has begun, in a buffer of so many bytes."""
        self._frames[frame] = _Unfinished(receiver, held_bytes)
        self.request_bytes += held_bytes

    def has_room(self, more_bytes: int, size_bytes: int) -> bool:
        """Whether so much is free for any frame of ``size_bytes``."""
        return more_bytes <= self._free_bytes(size_bytes)

    def _free_bytes(self, size_bytes: int) -> int:
        free_bytes = self.request_bytes_max - self.request_bytes
        if size_bytes > ORDINARY_BYTES_MAX:
            return free_bytes - self.request_bytes_max // RESERVE
        oldest = self._oldest()
        return free_bytes if oldest is None else free_bytes + self._frames[oldest].held_bytes

    def refuses(self, frame: CountedFrame, more_bytes: int) -> bool:
        """Whether the frame must wait for so much. Then its receiver's ``fed_memory`` is called once it needn't."""
        unfinished = self._frames[frame]
        refused = not self.has_room(more_bytes, frame.size_bytes) and self._oldest() is not frame
        wants_bytes = more_bytes if refused else 0
        self._waiting += (wants_bytes != 0) - (unfinished.wants_bytes != 0)
        unfinished.wants_bytes = wants_bytes
        if refused:
            self._watch()
        return refused

    def grew(self, frame: CountedFrame, more_bytes: int) -> None:
        """A counted frame got a larger buffer."""
        self._frames[frame].held_bytes += more_bytes
        self.request_bytes += more_bytes

    def finished(self, frame: CountedFrame, held_bytes: int) -> None:
        """The frame is complete, and is given out: its memory is free after the turn."""
        self._forget(frame)
        self._ended_bytes += held_bytes

    def dropped(self, frame: CountedFrame, held_bytes: int) -> None:
        """The frame will not be completed: its memory is free."""
        self._forget(frame)
        self.request_bytes -= held_bytes

    def turn_ended(self) -> None:
        """The memory of the frames that were given out in this turn is free."""
        self.request_bytes -= self._ended_bytes
        self._ended_bytes = 0
        self._feed_soon()

    @property
    def waiting(self) -> int:
        """Frames that wait for memory."""
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
        """Let those that wait go on, the oldest first, as far as the memory goes."""
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
        """What a connection holds of counted answers has changed; 0 is none."""
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
        """Whether connections that hold counted answers are not read."""
        return self.answer_bytes > self.answer_bytes_max

    def _drain(self) -> None:
        for reader in list(self._slow):
            reader.drained()

    def _close_stalest(self) -> None:
        """Close those that stood still for a tenth of the time, until all hold no more than twice the bound."""
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

    # Those that stand still.

    def _watch(self) -> None:
        if self._timer is None:
            self._timer = self._runtime.call_later(self.stall_ms, self._look)

    def _look(self) -> None:
        """Close what stood still since the last look, if others wait for its memory."""
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
        """No connection is left."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
