"""Check one segment's headers: make the job for a worker, and take its result on the loop."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from blumfeld_storage_local.segments.checked_bytes import CHECK_BYTES, Checked, check_headers
from blumfeld_storage_local.segments.scan import damaged
from blumfeld_storage_local.segments.segment import Segment


def check_of(segment: Segment, position: int, size: int) -> Callable[[], Checked]:
    """Return a job that checks the headers of these bytes, and of some more behind them.

    The job blocks and changes nothing of the segment: run it in a worker, and hold a region of the file meanwhile. On
    the loop, :func:`take_check` takes its result.
    """
    end = segment.size_bytes
    enough = min(position + max(size, CHECK_BYTES), end)
    return partial(check_headers, segment.file(), position, enough, end, segment.next_offset)


def take_check(segment: Segment, position: int, checked: Checked) -> None:
    """Take the result of a check.

    :raises OSError: EIO: no batch starts at ``position``
    """
    segment.checked.add(position, checked.end)
    if checked.problem is not None:
        segment.checked.damaged_at = checked.end
        if checked.end == position:
            raise damaged(segment.file(), position, checked.problem)
