"""Open a log's directory: tidy up what a stop left half done, and list what is there."""

from __future__ import annotations

import msgspec

from blumfeld.log.file_names import Mark, SegmentFile, Suffix, parse_segment_name, segment_name
from blumfeld.spi.runtime import Files
from blumfeld_storage_local.scan import scan
from blumfeld_storage_local.segment import SUFFIXES

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
