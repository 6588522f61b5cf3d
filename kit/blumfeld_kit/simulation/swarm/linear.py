"""Whether a history of a register could have happened at one register, one operation after the other. Pure.

Each value is written once, so a read names the write that it saw. Then the check takes n log n (Gibbons and Korach,
"Testing Shared Memories"): the operations on one value span a *zone* of time; two zones that the history forces to be
whole, or one that lies inside such a zone, can't be put in an order.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from math import inf

import msgspec


class Operation(msgspec.Struct, kw_only=True):
    """One operation of a client."""

    client: str
    is_write: bool
    value: str | None
    """The value that was written, or that was read. ``None``: the register had no value yet."""
    start_s: float
    end_s: float = inf
    """Infinity: the client never had an answer. Such a write may have happened; such a read says nothing."""

    def __str__(self) -> str:
        how = "wrote" if self.is_write else "read"
        return f"{self.client} {how} {self.value!r} from {self.start_s:.3f} to {self.end_s:.3f}"


class _Zone(msgspec.Struct):
    value: str | None
    first_end_s: float
    """Earliest end of an operation on the value: it stood at some time before or then."""
    last_start_s: float
    """Latest start: it stood at some time then or after."""
    operations: list[Operation]

    @property
    def is_forward(self) -> bool:
        """Whether the value stood for all the time between."""
        return self.first_end_s < self.last_start_s


def violation_of(history: Iterable[Operation]) -> str | None:
    """Return why no order of the operations explains them, or ``None`` if one does."""
    zones: dict[str | None, _Zone] = {None: _Zone(None, -inf, -inf, [])}
    operations = [one for one in history if one.is_write or one.end_s < inf]
    for one in operations:
        if one.is_write:
            if one.value in zones:
                return f"the history is useless: {one.value!r} was written twice"
            zones[one.value] = _Zone(one.value, one.end_s, one.start_s, [one])
    for one in operations:
        if one.is_write:
            continue
        zone = zones.get(one.value)
        if zone is None:
            return f"{one}: nobody wrote that"
        if zone.value is not None and one.end_s < zone.operations[0].start_s:
            return f"{one}, before the write began: {zone.operations[0]}"
        zone.first_end_s = min(zone.first_end_s, one.end_s)
        zone.last_start_s = max(zone.last_start_s, one.start_s)
        zone.operations.append(one)
    return _conflict(list(zones.values()))


def _conflict(zones: list[_Zone]) -> str | None:
    forward = sorted((zone for zone in zones if zone.is_forward), key=lambda zone: zone.first_end_s)
    for earlier, later in pairwise(forward):
        if later.first_end_s < earlier.last_start_s:
            return f"both values stood from {later.first_end_s:.3f} on:\n{_told(earlier)}\n{_told(later)}"
    for zone in zones:
        if zone.is_forward:
            continue
        for whole in forward:
            if whole.first_end_s < zone.last_start_s and zone.first_end_s < whole.last_start_s:
                return f"another value stood all the while:\n{_told(zone)}\n{_told(whole)}"
    return None


def _told(zone: _Zone) -> str:
    shown = sorted(zone.operations, key=lambda one: one.start_s)
    if len(shown) > 6:
        shown = [*shown[:3], *shown[-3:]]
    return "\n".join(f"  {one}" for one in shown) or f"  the first value, {zone.value!r}"
