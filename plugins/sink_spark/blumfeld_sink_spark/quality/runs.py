"""Conditions that hold for a while: clocks that differ too much, books that cross. Named where they begin and where
they end, not at every message.
"""

from __future__ import annotations

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

SKEW, STALE, LOCKED, CROSSED = "skew", "stale", "locked", "crossed"
BAD_RECV = "bad_recv"
"""The header with the time of receipt holds none."""
KINDS = {
    "skew": ("", SKEW, STALE),
    "cross": ("", LOCKED, CROSSED),
    BAD_RECV: ("", BAD_RECV),
}
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
    """A condition at the last message."""

    value: int
    ts: int
    offset: int
    id: int = -1
    """The id of the last message whose clock was judged; -1 if it has none."""


class Runs(msgspec.Struct):
    """The course of a condition in a range, independent of the messages before it."""

    first: Change | None = None
    """The change at the first message behind the head; its ``was`` has no meaning yet."""
    last: Watch | None = None
    head: dict[str, list[int]] = {}
    """Messages whose verdict depends on messages before the range: columns of a ``Course``."""
    changes: list[Change] = []
    more: int = 0


class Course(msgspec.Struct):
    """A condition at each message of one stream."""

    value: Ints
    expected: Ints
    got: Ints
    ts: Ints
    offset: Ints
    ids: Ints

    def __len__(self) -> int:
        return len(self.value)

    def cut(self, start: int, end: int | None = None) -> Course:
        """Messages from ``start`` up to ``end``."""
        return Course(**{name: column[start:end] for name, column in self.columns().items()})

    def replaced(self, value: Ints, ids: Ints) -> Course:
        """Returns this course with other values and ids."""
        return Course(value, self.expected, self.got, self.ts, self.offset, ids)

    def end(self) -> Watch:
        """Returns the condition at the last message."""
        return Watch(int(self.value[-1]), int(self.ts[-1]), int(self.offset[-1]), int(self.ids[-1]))

    def columns(self) -> dict[str, Ints]:
        """Returns the columns by name."""
        return {name: getattr(self, name) for name in self.__struct_fields__}


def extend(runs: Runs | None, course: Course, room: int) -> Runs:
    """``runs`` with the messages of ``course`` after them; not more than ``room`` changes are named, the others are
    counted.
    """
    start = 0
    runs = runs or Runs()
    if runs.first is None or runs.last is None:
        runs.first = change(course, 0, Watch(0, 0, 0))
        runs.first.ts_before = runs.first.offset_before = None
        runs.last = Watch(runs.first.now, runs.first.ts, runs.first.offset)
        start = 1
    before = np.concatenate([[runs.last.value], course.value[:-1]])
    changed = np.nonzero(course.value != before)[0]
    changed = changed[changed >= start]
    roomy = changed[: max(0, room - len(runs.changes))]
    runs.changes += [change(course, at, runs.last) for at in roomy.tolist()]
    runs.more += len(changed) - len(roomy)
    runs.last = course.end()
    return runs


def change(course: Course, at: int, last: Watch) -> Change:
    """Returns that message beside the one before it, which is ``last`` for the first."""
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
    """Returns the kind in ``gaps`` of a condition that begins or ends; empty for the end of ``stale``."""
    kinds = KINDS[check]
    if kinds[change.was] == STALE and not change.now:
        return ""
    return kinds[change.now] or f"{kinds[change.was]}_end"


def cross(table: pa.Table) -> Course:
    """Returns for each message whether bid and ask are locked (equal) or crossed. ``got`` is the update's id."""
    bid, ask = table.column("bid"), table.column("ask")
    locked = pc.fill_null(pc.greater_equal(bid, ask), False).to_numpy().astype(np.int64)
    crossed = pc.fill_null(pc.greater(bid, ask), False).to_numpy().astype(np.int64)
    nothing = np.full(len(table), -1, dtype=np.int64)
    ids, ts = ints(table, "update_id"), ints(table, "ts_event")
    return Course(locked + crossed, nothing, ids, ts, ints(table, "k_offset"), nothing)


def flagged(messages: pa.Table, flag: str) -> Course:
    """Returns for each message whether it has this flag."""
    nothing = np.full(len(messages), -1, dtype=np.int64)
    value = messages.column(flag).to_numpy().astype(np.int64)
    return Course(value, nothing, nothing, ints(messages, "ts_recv"), ints(messages, "offset"), nothing)


def ints(table: pa.Table, column: str) -> Ints:
    """A column of integers, null as -1."""
    made: Ints = pc.fill_null(table.column(column), -1).to_numpy().astype(np.int64, copy=False)
    return made
