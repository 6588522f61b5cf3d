"""Find records by their time, on the loop: take down what the log consists of, and let a worker search in it.

The search itself is :mod:`blumfeld_storage_local.logs.timestamp_search`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from blumfeld.spi.completion import Completion
from blumfeld.spi.storage import TimestampOffset
from blumfeld.wire.errors import BrokerError
from blumfeld_storage_local.directory import LogDirectory
from blumfeld_storage_local.logs.active_writer import ActiveWriter
from blumfeld_storage_local.logs.timestamp_search import TimedSegment, first_at_or_after, first_highest
from blumfeld_storage_local.segment_list import SegmentList
from blumfeld_storage_local.segments.segment import Segment

Found = TimestampOffset | None
TRIES_MAX = 5
"""How often a search begins anew because the log was cut or compacted under it."""


class SearchedLog(Protocol):
    """What the queries ask of their log."""

    home: LogDirectory
    directory: str
    log_start_offset: int
    truncations: int
    """How often the log was truncated: a search that a truncation came in between of is repeated."""

    def check(self) -> None:
        """Raise ``OSError`` if the log is closed or its directory offline."""
        ...


class TimestampQueries:
    """Answers ListOffsets by time for one log."""

    __slots__ = ("_active", "_log", "_segments")

    def __init__(self, log: SearchedLog, segments: SegmentList, active: ActiveWriter) -> None:
        self._log = log
        self._segments = segments
        self._active = active

    def offset_for_time(self, timestamp_ms: int) -> TimestampOffset | Completion[Found] | None:
        """Find the first record with a timestamp ≥ ``timestamp_ms``; at once only where there is none."""
        log = self._log
        log.check()
        if self._all_below(timestamp_ms):
            return None
        runtime, files = log.home.runtime, log.home.files

        def work(timed: list[TimedSegment]) -> Awaitable[Found]:
            return runtime.offload(
                first_at_or_after, files, timed, timestamp_ms, log.log_start_offset, log.check
            )

        return self._by_worker(work)

    def max_timestamp(self) -> TimestampOffset | Completion[Found] | None:
        """Find the first record with the highest timestamp; at once only where no record has one."""
        log = self._log
        log.check()
        if self._all_below(0):
            return None
        runtime, files = log.home.runtime, log.home.files

        def work(timed: list[TimedSegment]) -> Awaitable[Found]:
            return runtime.offload(first_highest, files, timed, log.log_start_offset, log.check)

        return self._by_worker(work)

    def _all_below(self, timestamp_ms: int) -> bool:
        """Return whether every record is known to be older, without a look into a file."""
        for segment in self._segments:
            known = self._active.known_highest(segment)
            if (known is None or known.timestamp_ms >= timestamp_ms) and segment.size != 0:
                return False
        return True

    def _by_worker(self, work: Callable[[list[TimedSegment]], Awaitable[Found]]) -> Completion[Found]:
        done: Completion[Found] = Completion()
        log = self._log
        log.home.runtime.spawn(self._look_up(work, done), f"look up a time in {log.directory}")
        return done

    async def _look_up(
        self,
        work: Callable[[list[TimedSegment]], Awaitable[Found]],
        done: Completion[Found],
    ) -> None:
        log = self._log
        try:
            for tries_left in range(TRIES_MAX - 1, -1, -1):
                async with log.home.time_searches:
                    log.check()
                    segments, truncations = list(self._segments), log.truncations
                    timed = [self._timed(segment) for segment in segments]
                    try:
                        found = await work(timed)
                    except (OSError, BrokerError) as error:
                        gone = isinstance(error, FileNotFoundError) or any(s.is_gone for s in segments)
                        if tries_left and (gone or log.truncations != truncations):
                            continue  # what the worker read was cut, renamed or replaced under it
                        raise
                if tries_left and any(segment.is_gone for segment in segments):
                    continue  # other bytes may stand behind the same names now
                for segment, known in zip(segments, timed, strict=True):
                    segment.learn_highest(known.highest)
                done.complete(found)
                return
        except (
            Exception
        ) as error:  # a defect, too, is the look-up's: the request that waits for it is answered
            done.fail(error)

    def _timed(self, segment: Segment) -> TimedSegment:
        timed = TimedSegment(
            path_of=segment.path,
            base_offset=segment.base_offset,
            next_offset=segment.next_offset,
            size_bytes=segment.size_bytes,
            highest=self._active.known_highest(segment),
        )
        if self._active.writer is not None and segment is self._segments.active:
            # The newest entries are in memory only, and they grow while the worker searches: it gets copies.
            timed.indexes = segment.offsets.copy(), segment.times.copy()
        return timed
