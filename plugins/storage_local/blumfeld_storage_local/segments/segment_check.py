"""A check of one segment's headers: what a worker is to do, and what the loop makes of it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from blumfeld_storage_local.segments.checking import CHECK_BYTES, Checked, check_headers
from blumfeld_storage_local.segments.scan import damaged
from blumfeld_storage_local.segments.segment import Segment


def check_of(segment: Segment, position: int, size: int) -> Callable[[], Checked]:
    """What looks at the headers of these bytes, and of some more, as they are now. It blocks and changes nothing: for a
    worker, while a region of the file is held. :func:`take_check` is for the loop.
    """
    end = segment.size_bytes
    enough = min(position + max(size, CHECK_BYTES), end)
    return partial(check_headers, segment.file(), position, enough, end, segment.next_offset)


def take_check(segment: Segment, position: int, checked: Checked) -> None:
    """They were looked at.

    :raises OSError: EIO: no batch starts at ``position``
    """
    segment.checked.add(position, checked.end)
    if checked.problem is not None:
        segment.checked.damaged_at = checked.end
        if checked.end == position:
            raise damaged(segment.file(), position, checked.problem)
