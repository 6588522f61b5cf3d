"""Conditions that hold for a while: clocks that differ too much, books that cross. Named where they begin and where
they end, not at every message.
"""

from __future__ import annotations

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

SKEW, LOCKED, CROSSED = "skew", "locked", "crossed"
KINDS = {"skew": ("", SKEW), "cross": ("", LOCKED, CROSSED)}
"""Check → the kind of each of its values; 0 is well."""

Ints = NDArray[np.int64]


class Change(msgspec.Struct, array_like=True):
    """The condition differs from the message before."""

    was: int
    now: int
    expected: int | None
    got: int | None
    ts_before: int | None
    offset_before: int | None
    ts: int
    offset: int


class Watch(msgspec.Struct):
    """How a condition stood at the last message."""

    value: int
    ts: int
    offset: int


class Runs(msgspec.Struct):
    """What a condition did in a range, whatever was before it."""

    first: Change
    """Of the first message; ``was`` says nothing yet."""
    last: Watch
    changes: list[Change] = []
    more: int = 0


class Course(msgspec.Struct):
    """A condition at each message of one stream."""

    value: Ints
    expected: Ints
    got: Ints
    ts: Ints
    offset: Ints

    def columns(self) -> dict[str, Ints]:
        """By name."""
        return {name: getattr(self, name) for name in self.__struct_fields__}


def extend(runs: Runs | None, course: Course, room: int) -> Runs:
    """``runs`` with the messages of ``course`` after them; not more than ``room`` changes are named, the others are
    counted.
    """
    start = 0
    if runs is None:
        first = _change(course, 0, Watch(0, 0, 0))
        first.ts_before = first.offset_before = None
        runs = Runs(first, Watch(first.now, first.ts, first.offset))
        start = 1
    before = np.concatenate([[runs.last.value], course.value[:-1]])
    changed = np.nonzero(course.value != before)[0]
    changed = changed[changed >= start]
    roomy = changed[: max(0, room - len(runs.changes))]
    runs.changes += [_change(course, at, runs.last) for at in roomy.tolist()]
    runs.more += len(changed) - len(roomy)
    runs.last = Watch(int(course.value[-1]), int(course.ts[-1]), int(course.offset[-1]))
    return runs


def _change(course: Course, at: int, last: Watch) -> Change:
    return Change(
        was=int(course.value[at - 1]) if at else last.value,
        now=int(course.value[at]),
        expected=int(course.expected[at]) if course.expected[at] >= 0 else None,
        got=int(course.got[at]) if course.got[at] >= 0 else None,
        ts_before=int(course.ts[at - 1]) if at else last.ts,
        offset_before=int(course.offset[at - 1]) if at else last.offset,
        ts=int(course.ts[at]),
        offset=int(course.offset[at]),
    )


def kind_of(check: str, change: Change) -> str:
    """As ``gaps`` names it: what begins, or what ended."""
    kinds = KINDS[check]
    return kinds[change.now] or f"{kinds[change.was]}_end"


def skew(table: pa.Table, skew_ms: int) -> Course:
    """Whether the receipt of each message is more than this away from its event. ``expected`` is the time of the
    event, ``got`` that of receipt.
    """
    event, received = ints(table, "ts_event"), ints(table, "ts_recv")
    value = (np.abs(received - event) > skew_ms * 1_000_000).astype(np.int64)
    return Course(value, event, received, event, ints(table, "k_offset"))


def cross(table: pa.Table) -> Course:
    """Whether bid and ask of each message are locked (equal) or crossed. ``got`` is the update's id."""
    bid, ask = table.column("bid"), table.column("ask")
    locked = pc.fill_null(pc.greater_equal(bid, ask), False).to_numpy().astype(np.int64)
    crossed = pc.fill_null(pc.greater(bid, ask), False).to_numpy().astype(np.int64)
    nothing = np.full(len(table), -1, dtype=np.int64)
    return Course(
        locked + crossed, nothing, ints(table, "update_id"), ints(table, "ts_event"), ints(table, "k_offset")
    )


def ints(table: pa.Table, column: str) -> Ints:
    """A column of integers, null as -1."""
    made: Ints = pc.fill_null(table.column(column), -1).to_numpy().astype(np.int64, copy=False)
    return made
