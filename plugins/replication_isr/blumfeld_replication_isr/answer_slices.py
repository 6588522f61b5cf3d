"""The answers to this node's fetches, taken in slices: one may name a thousand partitions.

The loop's thread serves everybody, so one turn takes the parts of answers for :data:`SLICE_MS` and no longer. The rest
follows in later turns, one slice a turn for all fetchers together. A small answer is taken at once.

The records of an answer are views of the received frame, and go to the logs without a copy in the turn of the answer.
What is left for a later turn is copied once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from blumfeld.spi.runtime import Runtime
from blumfeld.wire.messages.fetch import PartitionData

SLICE_MS = 1.5
"""Time for the parts of one turn. At the turn's end their logs are written, which takes as long again or twice."""
SLICE_PARTS_MAX = 128
"""Parts of one turn at most: in a simulation the clock stands still."""
CHECKED_PARTS = 8
"""Parts between two looks at the clock."""
SMALL_PARTS = 16
"""An answer with so few parts doesn't wait for the others."""

Part = tuple[bytes, PartitionData]
"""A topic's id, and one partition of an answer."""


class AnswerInWork:
    """One answer: the parts that are left, and the calls to the fetcher that asked."""

    __slots__ = ("dropped", "next", "parts", "take", "taken")

    def __init__(
        self, parts: Sequence[Part], take: Callable[[bytes, PartitionData], None], taken: Callable[[], None]
    ) -> None:
        self.parts = parts
        self.next = 0
        self.take = take
        self.taken = taken
        self.dropped = False

    def keep(self) -> None:
        """Copy the records of the parts that are left: the frame is overwritten after this turn."""
        for at in range(self.next, len(self.parts)):
            data = self.parts[at][1]
            if type(data.records) is memoryview:
                data.records = memoryview(bytes(data.records))

    def drop(self) -> None:
        """Take no more parts. ``taken`` is not called."""
        self.dropped = True


class AnswerSlices:
    """The answers of all fetchers of a node that are being taken."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._left: deque[AnswerInWork] = deque()
        self._busy = False
        """This turn has had its slice; the next one comes with the next turn."""

    def take(
        self,
        parts: Sequence[Part],
        take: Callable[[bytes, PartitionData], None],
        taken: Callable[[], None],
    ) -> AnswerInWork | None:
        """Call ``take`` for each part in order, and ``taken`` once at the end, now or in a later turn.

        Much may happen between two parts, so ``take`` must look whether its partition is still as the answer means it.

        :return: the answer, if parts of it are left for later turns
        """
        work = AnswerInWork(parts, take, taken)
        if len(parts) <= SMALL_PARTS:
            for topic_id, data in parts:
                take(topic_id, data)
            taken()
            return None
        if not self._busy:
            self._next_turn()
            if self._slice_of(work, SLICE_PARTS_MAX, self._runtime.monotonic_ms() + SLICE_MS):
                taken()
                return None
        work.keep()
        self._left.append(work)
        return work

    def _next_turn(self) -> None:
        self._busy = True
        self._runtime.call_later(0, self._slice)

    def _slice(self) -> None:
        self._busy = False
        if not self._left:
            return
        self._next_turn()  # an answer that comes in this turn has to wait
        end_ms = self._runtime.monotonic_ms() + SLICE_MS
        parts_max = SLICE_PARTS_MAX
        while self._left and parts_max > 0 and self._runtime.monotonic_ms() <= end_ms:
            work = self._left[0]
            before = work.next
            if not self._slice_of(work, parts_max, end_ms):
                break
            self._left.popleft()
            parts_max -= work.next - before
            if not work.dropped:
                work.taken()

    def _slice_of(self, work: AnswerInWork, parts_max: int, end_ms: float) -> bool:
        """Take some parts. Returns whether none is left."""
        parts, now = work.parts, self._runtime.monotonic_ms
        end = min(len(parts), work.next + parts_max)
        while work.next < end and not work.dropped:
            topic_id, data = parts[work.next]
            work.next += 1
            work.take(topic_id, data)
            if not work.next % CHECKED_PARTS and now() >= end_ms:
                break
        return work.dropped or work.next == len(parts)
