"""Open a log's directory: tidy up what a stop left half done, recover what a crash may have torn."""

from __future__ import annotations

import errno
from collections.abc import Generator

import msgspec

from blumfeld.log.file_names import Mark, SegmentFile, Suffix, parse_segment_name, segment_name
from blumfeld.log.recovery import LegacyFormat, RecoveredSegment, recover_segment
from blumfeld.spi.config import TopicConfig
from blumfeld.spi.runtime import Files
from blumfeld.spi.storage import LogListener
from blumfeld.wire.record_batch import RecordBatch
from blumfeld_storage_local.directory import LogDirectory
from blumfeld_storage_local.scan import damaged, scan
from blumfeld_storage_local.segment import SUFFIXES, Segment

_INDEXES = (Suffix.OFFSET_INDEX, Suffix.TIME_INDEX)


class Found(msgspec.Struct):
    """The segments of a directory, after it was tidied up."""

    bases: list[int]
    unindexed: list[int]
    """Segments that lack an index file."""


def tidy(files: Files, directory: str) -> Found:
    """Remove leftovers, finish the cleaner's renames, and list the segments. Blocks.

    :raises OSError: the directory can't be read or changed
    """
    names = files.list_dir(directory)
    for name in names:
        if name.endswith(".tmp"):
            files.unlink(f"{directory}/{name}")
    marked = [(name, file) for name in names if (file := parse_segment_name(name)) is not None and file.mark]
    if marked:
        _finish_marked(files, directory, marked)
        names = files.list_dir(directory)
    segments = [file for name in names if (file := parse_segment_name(name)) is not None]
    bases = sorted(file.base_offset for file in segments if file.suffix is Suffix.LOG)
    indexed: dict[int, int] = {}
    for file in segments:
        if file.suffix in _INDEXES:
            indexed[file.base_offset] = indexed.get(file.base_offset, 0) + 1
            if file.base_offset not in bases:
                files.unlink(f"{directory}/{segment_name(file.base_offset, file.suffix)}")
    return Found(bases, [base for base in bases if indexed.get(base, 0) < len(_INDEXES)])


def _finish_marked(files: Files, directory: str, marked: list[tuple[str, SegmentFile]]) -> None:
    """``.deleted`` and ``.cleaned`` go; a ``.swap`` takes its place, unless the cleaner had not written all of it."""
    cleaned = [file.base_offset for _, file in marked if file.mark is Mark.CLEANED]
    for name, file in marked:
        path = f"{directory}/{name}"
        if file.mark is not Mark.SWAP or (cleaned and file.base_offset >= min(cleaned)):
            files.unlink(path)
            continue
        if file.suffix is Suffix.LOG:
            _remove_replaced(files, directory, path, file.base_offset)
        files.rename(path, path.removesuffix(Mark.SWAP.value))


def _remove_replaced(files: Files, directory: str, swap_path: str, base_offset: int) -> None:
    """Remove the segments whose records the swap file holds."""
    file = files.open(swap_path, write=False)
    try:
        last_offset = base_offset
        for batch in scan(file, 0, file.size()):
            last_offset = batch.last_offset
    finally:
        file.close()
    for name in files.list_dir(directory):
        other = parse_segment_name(name)
        if other is None or other.mark or other.suffix not in SUFFIXES:
            continue
        if base_offset < other.base_offset <= last_offset:
            files.unlink(f"{directory}/{name}")


class Recovery:
    """Recovers segments of one log off the loop, one slice of a segment after the other.

    :param listener: told of every whole batch, on the loop
    """

    def __init__(
        self, home: LogDirectory, segments: list[Segment], config: TopicConfig, listener: LogListener
    ) -> None:
        self._home = home
        self._segments = segments
        self._config = config
        self._listener = listener

    async def rebuild(self, at: int) -> None:
        """Make the indexes of a segment that was flushed anew.

        :raises OSError: its bytes are damaged: nothing is cut, for it was promised to last
        """
        segment = self._segments[at]
        found = await self._walk(segment)
        if found.end.problem is not None:
            raise damaged(segment.file(), found.end.position, found.end.problem)
        segment.set_indexes(found.offsets, found.times)
        await self._home.runtime.offload(segment.save_indexes)
        await self._home.runtime.offload(segment.sync_indexes)

    async def recover(self, start: int) -> None:
        """Recover segments from number ``start`` on: the log ends before the first batch that isn't whole.

        :raises OSError: they can't be read or cut, or hold an old Kafka's format
        """
        for at in range(start, len(self._segments)):
            segment = self._segments[at]
            found = await self._walk(segment)
            segment.set_indexes(found.offsets, found.times)
            problem = found.end.problem
            hole = at + 1 < len(self._segments) and found.end.next_offset < self._segments[at + 1].base_offset
            if problem is None and hole and not self._config.compacts:
                problem = f"offsets up to {self._segments[at + 1].base_offset} are missing"
            if problem is not None:
                self._home.events.warning(
                    "log cut after a crash",
                    file=segment.path(),
                    end_offset=found.end.next_offset,
                    bytes=segment.size_bytes - found.end.position,
                    reason=problem,
                )
            await self._home.runtime.offload(self._settle, at, found, problem is not None)
            if problem is not None:
                segment.next_offset = found.end.next_offset
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
            consumers=(batches.append,),
        )
        while True:
            try:
                found = await self._home.runtime.offload(_step, steps)
            except LegacyFormat as error:
                raise OSError(errno.EPROTONOSUPPORT, str(error), segment.path()) from error
            for batch in batches:
                self._listener.recovered(batch)
            batches.clear()
            if found is not None:
                return found

    def _settle(self, at: int, found: RecoveredSegment, cut: bool) -> None:
        """Bring the files to what was found: later segments go, newest first, then the damaged end."""
        segment = self._segments[at]
        if cut:
            dropped = len(self._segments) > at + 1
            while len(self._segments) > at + 1:
                later = self._segments.pop()
                later.close()
                for suffix in SUFFIXES:
                    path = later.path(suffix)
                    if self._home.files.exists(path):
                        self._home.files.unlink(path)
            if dropped:  # or they could come back behind what is written next, if it ends where they begin
                self._home.files.sync_dir(segment.path().rpartition("/")[0])
            if segment.size_bytes != found.end.position:
                segment.file().truncate(found.end.position)
                segment.size = found.end.position
        segment.save_indexes()


def _step(steps: Generator[int, None, RecoveredSegment]) -> RecoveredSegment | None:
    try:
        next(steps)
    except StopIteration as stop:
        result: RecoveredSegment = stop.value
        return result
    return None
