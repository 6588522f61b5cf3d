"""Tidy a log's directory up after a stop or a crash, and list its segments."""

from __future__ import annotations

import msgspec

from blumfeld.log.segments.file_names import SegmentFile, Suffix, parse_segment_name, segment_name
from blumfeld.spi.runtime import Files
from blumfeld_storage_local.compaction.swap_plan import SWAP_PLAN, finish_swaps
from blumfeld_storage_local.logs.aux_files import UNFINISHED
from blumfeld_storage_local.segments.start_mark import marked_start, remove_start_marks

_INDEXES = (Suffix.OFFSET_INDEX, Suffix.TIME_INDEX)


class FoundSegments(msgspec.Struct):
    """The segments of a log's directory."""

    bases: list[int]
    unindexed: list[int]
    """Base offsets of segments that lack an index file."""


def tidy(files: Files, directory: str) -> FoundSegments:
    """Remove leftovers, finish the cleaner's renames, and list the segments. Blocks.

    :raises OSError: the directory can't be read or changed
    """
    names = files.list_dir(directory)
    for name in names:
        if name.endswith(UNFINISHED):
            files.unlink(f"{directory}/{name}")
    marked = [(name, file) for name in names if (file := parse_segment_name(name)) is not None and file.mark]
    if marked or SWAP_PLAN in names:
        finish_swaps(files, directory, marked, planned=SWAP_PLAN in names)
        names = files.list_dir(directory)
    segments = [file for name in names if (file := parse_segment_name(name)) is not None]
    if (start := marked_start(names)) >= 0:
        segments = _without_front(files, directory, segments, start)
    bases = sorted(file.base_offset for file in segments if file.suffix is Suffix.LOG)
    indexed: dict[int, int] = {}
    for file in segments:
        if file.suffix in _INDEXES:
            indexed[file.base_offset] = indexed.get(file.base_offset, 0) + 1
            if file.base_offset not in bases:
                files.unlink(f"{directory}/{segment_name(file.base_offset, file.suffix)}")
    return FoundSegments(bases, [base for base in bases if indexed.get(base, 0) < len(_INDEXES)])


def _without_front(
    files: Files, directory: str, segments: list[SegmentFile], start: int
) -> list[SegmentFile]:
    """Remove segments that were to go before a power cut, and then the mark."""
    below = [file for file in segments if file.base_offset < start and file.suffix is Suffix.LOG]
    for file in below:
        files.unlink(f"{directory}/{segment_name(file.base_offset)}")
    files.sync_dir(directory)
    remove_start_marks(files, directory)
    return [file for file in segments if file not in below]
