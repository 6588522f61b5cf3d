"""The mark that a log begins at a later segment now.

Segments that go from the front are renamed one after the other. A power cut may keep any of the renames, so that a
later segment is gone and an earlier one is there: a hole, at which a recovery would end the log. So where that can be,
a file ``<base offset>.start`` is made durable before the renames. A start removes all segments below it.
"""

from __future__ import annotations

from collections.abc import Iterable

from blumfeld.log.segments.file_names import OFFSET_DIGITS
from blumfeld.spi.runtime import Files

SUFFIX = ".start"


def mark_start(files: Files, directory: str, base_offset: int) -> None:
    """Let the log begin at this segment also after a power cut. All names that are there are durable then.

    :raises OSError: the file can't be made
    """
    before = _marks(files.list_dir(directory))
    files.open(f"{directory}/{base_offset:0{OFFSET_DIGITS}d}{SUFFIX}", create=True).close()
    files.sync_dir(directory)
    for name in before:  # a lower one that comes back does no harm
        files.unlink(f"{directory}/{name}")


def marked_start(names: Iterable[str]) -> int:
    """Return the base offset at which a log begins, as far as a mark says it; else -1."""
    return max((int(name.removesuffix(SUFFIX)) for name in _marks(names)), default=-1)


def remove_start_marks(files: Files, directory: str) -> bool:
    """Remove the marks: the log may begin earlier now. Returns whether there was one; the caller syncs the directory.

    :raises OSError: one can't be removed
    """
    names = _marks(files.list_dir(directory))
    for name in names:
        files.unlink(f"{directory}/{name}")
    return bool(names)


def _marks(names: Iterable[str]) -> list[str]:
    return [
        name
        for name in names
        if name.endswith(SUFFIX)
        and len(name) == OFFSET_DIGITS + len(SUFFIX)
        and name[:OFFSET_DIGITS].isdigit()
    ]
