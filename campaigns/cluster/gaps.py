"""The longest time without an acknowledgement, from the instants of all acknowledgements. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

import msgspec


class Gap(msgspec.Struct, frozen=True):
    """The longest time without an acknowledgement of one partition around one fault."""

    began_s: float
    """From the fault to the acknowledgement before the gap; negative if that came before the fault."""
    longest_s: float
    recovered: bool
    """Whether an acknowledgement ended it."""

    @property
    def recovered_s(self) -> float:
        """From the fault to the acknowledgement that ended the gap; to the end of the window if none has."""
        return self.began_s + self.longest_s


def gap_of(acks: Sequence[float], begin: float, end: float) -> Gap:
    """Return the longest gap that touches the window from ``begin`` to ``end``.

    A gap may begin before the window: the last acknowledgement before a fault is where the silence starts. It may end
    behind the window: so a short gap that is open at the window's end isn't taken for a partition that never came back.
    Where nothing has ended it, the window's end does. If two gaps are equally long the first one counts.

    :param acks: instants in s, ascending
    :param begin: instant of the fault
    """
    first = bisect_left(acks, begin)
    last = bisect_left(acks, end)
    edge = acks[first - 1] if first else begin
    longest = Gap(edge - begin, 0.0, recovered=True)
    for at in acks[first : last + 1]:
        if at - edge > longest.longest_s:
            longest = Gap(edge - begin, at - edge, recovered=True)
        edge = at
    if end - edge > longest.longest_s:
        return Gap(edge - begin, end - edge, recovered=False)
    return longest
