"""Recover a log's segments: find where sound batches end, cut the rest off, and rebuild the indexes.

Segments below the recovery point were flushed and are not walked, unless they lack an index.
"""

from __future__ import annotations

import errno
from collections.abc import Generator

from blumfeld.config.values import TopicConfig
from blumfeld.log.segments.file_names import Suffix
from blumfeld.log.segments.recovery import LegacyFormat, RecoveredSegment, recover_segment
from blumfeld.spi.storage import LogListener
from blumfeld.wire.batches.record_batch import RecordBatch
from blumfeld_storage_local.directory import LogDirectory
from blumfeld_storage_local.segments.scan import damaged
from blumfeld_storage_local.segments.segment import SUFFIXES, Segment
from blumfeld_storage_local.start.cut_off_bytes import set_aside_end, set_aside_whole

INDEX_SUFFIXES = tuple(suffix for suffix in SUFFIXES if suffix is not Suffix.LOG)
STEPS_AT_ONCE = 64
"""Chunks that a worker walks in one job: about 64 MiB, some 20 ms of work."""


class Recovery:
    """Recovers segments of one log in a worker, one slice of a segment after the other.

    :param listener: called on the loop with each whole batch that ``log.segments.recovery.BatchListener`` asks for
    """

    def __init__(
        self, home: LogDirectory, segments: list[Segment], config: TopicConfig, listener: LogListener
    ) -> None:
        self._home = home
        self._segments = segments
        self._config = config
        self._listener = listener

    async def rebuild(self, at: int) -> None:
        """Rebuild the indexes of a segment that was flushed.

        :raises OSError: its bytes are damaged. Nothing is cut off, because flushed records are promised to last
        """
        segment = self._segments[at]
        recovered = await self._walk(segment)
        if recovered.end.problem is not None:
            raise damaged(segment.file(), recovered.end.position, recovered.end.problem)
        segment.checked.from_here_on = 0
        segment.set_indexes(recovered.offsets, recovered.times)
        await self._home.runtime.offload(segment.save_rebuilt_indexes)
        if not segment.index_unsaved:
            await self._home.runtime.offload(segment.sync_indexes)

    async def recover(self, start: int) -> None:
        """Recover segments from number ``start`` on. The log ends before the first batch that is not whole.

        :raises OSError: a segment can't be read or cut, or holds a format from before Kafka 0.11
        """
        for at in range(start, len(self._segments)):
            segment = self._segments[at]
            recovered = await self._walk(segment)
            segment.set_indexes(recovered.offsets, recovered.times)
            segment.checked.from_here_on = 0  # whatever is not whole is cut off below
            problem = recovered.end.problem
            hole = (
                at + 1 < len(self._segments)
                and recovered.end.next_offset < self._segments[at + 1].base_offset
            )
            if problem is None and hole and not self._config.compacts:
                problem = f"offsets up to {self._segments[at + 1].base_offset} are missing"
            if problem is not None:
                self._home.events.warning(
                    "log cut after a crash",
                    file=segment.path(),
                    end_offset=recovered.end.next_offset,
                    bytes=segment.size_bytes - recovered.end.position,
                    reason=problem,
                )
            kept = await self._home.runtime.offload(self._settle, at, recovered, problem is not None)
            if kept:
                self._home.events.warning("sound batches behind the cut are set aside", files=kept)
            if problem is not None:
                segment.next_offset = recovered.end.next_offset
                return
            if at + 1 < len(self._segments):
                segment.forget_indexes()

    async def _walk(self, segment: Segment) -> RecoveredSegment:
        file = segment.file()
        batches: list[RecordBatch] = []
        steps = recover_segment(
            lambda position, size: file.pread(size, position),
            segment.size_bytes,
            segment.base_offset,
            interval_bytes=self._config.index_interval_bytes,
            listener=batches.append,
        )
        while True:
            try:
                recovered = await self._home.runtime.offload(_walk_on, steps)
            except LegacyFormat as error:
                raise OSError(errno.EPROTONOSUPPORT, str(error), segment.path()) from error
            for batch in batches:
                self._listener.recovered(batch)
            batches.clear()
            if recovered is not None:
                return recovered

    def _settle(self, at: int, recovered_segment: RecoveredSegment, cut: bool) -> list[str]:
        """Cut the log after the last whole batch, and save the indexes.

        Later segments go first, the newest before the others, then the damaged end: a crash in between leaves no hole.

        :return: paths of files that hold sound batches from behind the cut
        """
        segment = self._segments[at]
        kept: list[str | None] = []
        if cut:
            dropped = len(self._segments) > at + 1
            while len(self._segments) > at + 1:
                later = self._segments.pop()
                later.close()
                kept.append(set_aside_whole(self._home.files, later))
                for suffix in INDEX_SUFFIXES:
                    path = later.path(suffix)
                    if self._home.files.exists(path):
                        self._home.files.unlink(path)
            if dropped:  # or a power cut could bring them back behind new records that end where they begin
                self._home.files.sync_dir(segment.path().rpartition("/")[0])
            if segment.size_bytes != recovered_segment.end.position:
                kept.append(set_aside_end(self._home.files, segment, recovered_segment.end.position))
                segment.file().truncate(recovered_segment.end.position)
                segment.size = recovered_segment.end.position
        segment.save_rebuilt_indexes()
        return [path for path in kept if path is not None]


def _walk_on(steps: Generator[int, None, RecoveredSegment]) -> RecoveredSegment | None:
    try:
        for _ in range(STEPS_AT_ONCE):
            next(steps)
    except StopIteration as stop:
        result: RecoveredSegment = stop.value
        return result
    return None
