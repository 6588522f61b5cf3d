"""Map the index files of a sealed segment, or rebuild them from its batches. Everything here blocks."""

from __future__ import annotations

from collections.abc import Callable

from blumfeld.log.segments.file_names import Suffix
from blumfeld.log.segments.index import (
    TIME_ENTRY_BYTES,
    CorruptIndex,
    OffsetIndex,
    TimeIndex,
    TimestampPosition,
)
from blumfeld.log.segments.recovery import RecoveredSegment, recover_segment
from blumfeld.spi.runtime import File, Files
from blumfeld_storage_local.segments.scan import damaged

INTERVAL_BYTES = 4096
"""``index.interval.bytes`` of a rebuilt index: Kafka's default, as the segment's own value is not known here."""

COPIED_BYTES_MAX = 16 << 10
"""Size up to which a copy costs less than a map: that takes a descriptor, a page of its own and two page faults."""

PathOf = Callable[[Suffix], str]


def map_indexes(
    files: Files, path_of: PathOf, base_offset: int, size_bytes: int
) -> tuple[OffsetIndex, TimeIndex]:
    """Map both index files, and check them. That brings them into the page cache.

    So a look-up waits for no device, unless the kernel has dropped a page of a map that was not used for long.

    :param size_bytes: size of the log file
    :raises FileNotFoundError: an index file is missing
    :raises CorruptIndex: an index can't be right: its columns don't rise, it points behind the log, or has no times
    """
    offsets = OffsetIndex(base_offset, _mapped(files, path_of(Suffix.OFFSET_INDEX)))
    offsets.check(size_bytes)
    times = TimeIndex(base_offset, _mapped(files, path_of(Suffix.TIME_INDEX)))
    times.check()
    if size_bytes and not len(times):
        raise CorruptIndex("the time index is empty")  # maybe no record has a time: only a walk can tell
    return offsets, times


def _mapped(files: Files, path: str) -> memoryview:
    file = files.open(path, write=False)
    try:
        size = file.size()
        if size <= COPIED_BYTES_MAX:
            return memoryview(file.pread(size, 0))
        if not file.is_cached(0, size):
            file.read_ahead(0, size)
        return file.mmap_read()
    finally:
        file.close()


def rebuild_indexes(file: File, size_bytes: int, base_offset: int) -> RecoveredSegment:
    """Rebuild the indexes of a segment that should be sound.

    :raises OSError: EIO: it is not sound
    """
    steps = recover_segment(
        lambda at, size: file.pread(size, at), size_bytes, base_offset, interval_bytes=INTERVAL_BYTES
    )
    try:
        while True:
            next(steps)
    except StopIteration as stop:
        recovered: RecoveredSegment = stop.value
    if recovered.end.problem is not None:
        raise damaged(file, recovered.end.position, recovered.end.problem)
    return recovered


def highest_timestamp(files: Files, path_of: PathOf, base_offset: int, next_offset: int) -> TimestampPosition:
    """Return the last entry of a complete time index. Map nothing.

    :raises FileNotFoundError: the file is missing
    :raises CorruptIndex: the index can't be right, or is empty
    """
    file = files.open(path_of(Suffix.TIME_INDEX), write=False)
    try:
        size = file.size()
        if size == 0 or size % TIME_ENTRY_BYTES:
            raise CorruptIndex(f"{size} bytes are not a whole number of time index entries")
        last = TimeIndex(base_offset, file.pread(TIME_ENTRY_BYTES, size - TIME_ENTRY_BYTES)).last
    finally:
        file.close()
    if last.timestamp_ms < 0 or not base_offset <= last.offset < next_offset:
        raise CorruptIndex(f"time index: the last entry is {last}, of offsets up to {next_offset}")
    return last
