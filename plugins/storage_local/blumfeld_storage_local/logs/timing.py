"""A log's look-ups by time: what they need is taken down on the loop, a worker does them (:mod:`time_lookup`)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from blumfeld.spi.completion import Completion
from blumfeld.spi.storage import TimestampOffset
from blumfeld.wire.errors import BrokerError
from blumfeld_storage_local.logs.log_state import LogState
from blumfeld_storage_local.logs.time_lookup import TimedSegment, first_at_or_after, first_highest
from blumfeld_storage_local.segments.segment import Segment

Found = TimestampOffset | None
TRIES_MAX = 5
"""How often a look-up begins anew because the log was cut or compacted under it."""


class TimingHalf(LogState):
    """What of ``PartitionLog`` finds records by their time."""

    def offset_for_time(self, timestamp_ms: int) -> TimestampOffset | Completion[Found] | None:
        """The first record with a timestamp ≥ ``timestamp_ms``; at once only where there is none."""
        self._check()
        if self._all_below(timestamp_ms):
            return None
        files = self._home.files

        def work(timed: list[TimedSegment]) -> Awaitable[Found]:
            return self._runtime.offload(first_at_or_after, files, timed, timestamp_ms, self.log_start_offset)

        return self._by_worker(work)

    def max_timestamp(self) -> TimestampOffset | Completion[Found] | None:
        """The first record with the highest timestamp; at once only where no record has one."""
        self._check()
        if self._all_below(0):
            return None
        files = self._home.files

        def work(timed: list[TimedSegment]) -> Awaitable[Found]:
            return self._runtime.offload(first_highest, files, timed, self.log_start_offset)

        return self._by_worker(work)

    def _all_below(self, timestamp_ms: int) -> bool:
        """Whether it is known without a look into a file that no record is that young."""
        for segment in self._segments:
            known = self._known_highest(segment)
            if (known is None or known >= timestamp_ms) and segment.size != 0:
                return False
        return True

    def _known_highest(self, segment: Segment) -> int | None:
        if self._is_awake and segment is self._segments.active:
            return self._writer.highest.timestamp_ms
        return None if segment.known_highest is None else segment.known_highest.timestamp_ms

    def _by_worker(self, work: Callable[[list[TimedSegment]], Awaitable[Found]]) -> Completion[Found]:
        done: Completion[Found] = Completion()
        self._runtime.spawn(self._look_up(work, done), f"look up a time in {self.directory}")
        return done

    async def _look_up(
        self,
        work: Callable[[list[TimedSegment]], Awaitable[Found]],
        done: Completion[Found],
    ) -> None:
        try:
            for tries_left in range(TRIES_MAX - 1, -1, -1):
                self._check()
                segments, cuts = list(self._segments), self._cuts
                timed = [self._timed(segment) for segment in segments]
                try:
                    found = await work(timed)
                except (OSError, BrokerError) as error:
                    gone = isinstance(error, FileNotFoundError) or any(s.is_gone for s in segments)
                    if tries_left and (gone or self._cuts != cuts):
                        continue  # what it read was cut, renamed or replaced under it
                    raise
                if tries_left and any(segment.is_gone for segment in segments):
                    continue  # other bytes may stand behind the same names now
                for segment, known in zip(segments, timed, strict=True):
                    segment.learn_highest(known.highest)
                done.complete(found)
                return
        except (OSError, BrokerError) as error:
            done.fail(error)

    def _timed(self, segment: Segment) -> TimedSegment:
        timed = TimedSegment(
            path_of=segment.path,
            base_offset=segment.base_offset,
            next_offset=segment.next_offset,
            size_bytes=segment.size_bytes,
            highest=segment.known_highest,
        )
        if self._is_awake and segment is self._segments.active:
            timed.highest = self._writer.highest
            timed.indexes = segment.offsets.copy(), segment.times.copy()
        return timed
