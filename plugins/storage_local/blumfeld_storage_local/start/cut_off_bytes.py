"""Set aside the bytes that recovery cuts off, where they hold sound batches.

A log is a prefix of what was written, so recovery ends it before the first batch that is not whole, as in Kafka. Behind
a torn write there is nothing sound. Behind a bad sector, or a segment that somebody removed, there may be: to delete
that would lose more than the damage did. So the bytes stay beside the log under another name, for ``blumfeld log``.
"""

from __future__ import annotations

from blumfeld.log.segments.inspection import WholeBatch, inspect_segment
from blumfeld.spi.runtime import File, Files
from blumfeld_storage_local.segments.segment import Segment

CUT = ".cut"
_COPY_BYTES = 1 << 20


def set_aside_end(files: Files, segment: Segment, position: int) -> str | None:
    """Copy a segment's bytes from ``position`` on to ``<base>.log.cut-<position>``, if they hold a sound batch.

    Return the path, or ``None``. The copy is durable when this returns. Blocks; raises ``OSError``.
    """
    file = segment.file()
    if not _holds_a_batch(file, segment.base_offset, position):
        return None
    path = f"{segment.path()}{CUT}-{position}"
    copy = files.open(path, create=True)
    try:
        copy.truncate(0)
        at = 0
        while data := file.pread(_COPY_BYTES, position + at):
            at += copy.pwritev([data], at)
        copy.fdatasync()
    finally:
        copy.close()
    files.sync_dir(segment.directory)
    return path


def set_aside_whole(files: Files, segment: Segment) -> str | None:
    """Rename a closed segment's log file to ``<base>.log.cut`` if it holds a sound batch. Otherwise remove it.

    Durable once the directory is synced. Raises ``OSError``.
    """
    path = segment.path()
    file = files.open(path, write=False)
    try:
        sound = _holds_a_batch(file, segment.base_offset, 0)
    finally:
        file.close()
    if not sound:
        files.unlink(path)
        return None
    files.rename(path, path + CUT)
    return path + CUT


def _holds_a_batch(file: File, base_offset: int, position: int) -> bool:
    if file.size() <= position:
        return False
    data = file.mmap_read()[position:]
    return any(isinstance(part, WholeBatch) for part in inspect_segment(data, base_offset))
