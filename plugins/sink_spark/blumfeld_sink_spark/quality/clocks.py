"""Finds clocks that differ. Only new messages are judged: a repeated message is old although no clock is wrong.

A late trade or quote is not judged if its id isn't greater than the one before: it is a duplicate, and the chain of ids
names it. It is ``stale`` if it is the first of its stream, or a trade behind a hole in the ids, and the next message is
judged instead. The reason: venues begin a subscription with the last trade or quote, however old.

The verdict on a message in time depends on itself alone, on any other also on the message before it.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from blumfeld_sink_spark.quality.runs import Change, Course, Ints, Runs, Watch, change, extend, ints
from blumfeld_sink_spark.tables import AGG_TRADES, BBO, TRADES

HEAD = 64
"""Late messages at the front of a range that the driver judges, because it knows the messages before them."""
WELL, SKEWED, STALE = 0, 1, 2
EARLY = -1
"""The value of a message that was received before its event, in a course that isn't judged yet. There, ``SKEWED`` means
late."""
NO_ID = -1

_IDS = {TRADES: "trade_id", AGG_TRADES: "trade_id", BBO: "update_id"}
"""Tables whose last row a venue sends at a subscription, and the column of its id."""


def course(name: str, table: pa.Table, skew_ms: int) -> Course:
    """The distance of each message's receipt from its event, not judged yet. ``expected`` is the time of the event,
    ``got`` that of receipt.
    """
    event, received = ints(table, "ts_event"), ints(table, "ts_recv")
    away = received - event
    value = np.sign(away) * (np.abs(away) > skew_ms * 1_000_000)
    ids = ints(table, _IDS[name]) if name in _IDS else np.full(len(table), NO_ID, dtype=np.int64)
    return Course(value, event, received, event, ints(table, "k_offset"), ids)


def taken_in(name: str, runs: Runs | None, run_course: Course, room: int) -> Runs:
    """Returns ``runs`` with the messages of a course behind them. Late ones at the front wait in the head."""
    runs = runs or Runs()
    if runs.first is None and name in _IDS:
        have = len(runs.head.get("value", ()))
        late = int(np.argmin(np.append(run_course.value, WELL) == SKEWED))
        head = run_course.cut(0, min(late, HEAD - have))
        if len(head):
            runs.head = _joined(runs.head, head)
        run_course = run_course.cut(len(head))
        if not len(run_course):
            return runs
        # Where the head is full: behind so many late messages, clocks are wrong.
        before = Watch(SKEWED if late else WELL, 0, 0, NO_ID)
    else:
        before = runs.last or Watch(WELL, 0, 0, NO_ID)
    return extend(runs, _judged(name, before, run_course), room)


def told(name: str, before: Watch | None, runs: Runs) -> tuple[list[Change], Watch | None]:
    """Judges the head of a range by the condition ``before`` it.

    :return: the changes, and the condition behind the head
    """
    if not runs.head:
        return [], before
    head = Course(**{key: np.array(values, dtype=np.int64) for key, values in runs.head.items()})
    judged = _judged(name, before, head)
    at_start = before or Watch(WELL, 0, 0, NO_ID)
    values = [at_start.value, *judged.value.tolist()]
    changes = [change(judged, at, at_start) for at in range(len(judged)) if values[at + 1] != values[at]]
    if changes and before is None and changes[0].offset == int(judged.offset[0]):
        changes[0].ts_before = changes[0].offset_before = None
    return changes, judged.end()


def _joined(head: dict[str, list[int]], more: Course) -> dict[str, list[int]]:
    return {name: [*head.get(name, ()), *column.tolist()] for name, column in more.columns().items()}


def _judged(name: str, before: Watch | None, run_course: Course) -> Course:
    """Returns the course with the verdict on each message. A skipped message gets the greatest id before it."""
    away = run_course.value != WELL
    if name not in _IDS or not away.any():
        return run_course.replaced(away.astype(np.int64), run_course.ids)
    value, ids = away.astype(np.int64), run_course.ids.copy()
    edges = np.diff(np.concatenate([[0], value, [0]]))
    starts, ends = np.nonzero(edges == 1)[0].tolist(), np.nonzero(edges == -1)[0].tolist()
    for start, end in zip(starts, ends, strict=True):
        state = before
        if start:
            state = Watch(WELL, 0, 0, int(ids[start - 1]))
        _judge_run(name, state, run_course, start, end, value, ids)
    return run_course.replaced(value, ids)


def _judge_run(
    name: str, state: Watch | None, run_course: Course, start: int, end: int, value: Ints, ids: Ints
) -> None:
    """Judges a run of messages that are away from their events. From the first skewed one on, all of the run are."""
    now, high = (state.value, state.id) if state is not None else (WELL, NO_ID)
    for at in range(start, end):
        if now == SKEWED:
            value[at:end] = SKEWED
            return
        message_id = int(run_course.ids[at])
        late = run_course.value[at] == SKEWED
        if late and state is None and at == start:
            now, high = STALE, message_id
        elif late and message_id != NO_ID and high != NO_ID and message_id <= high:
            ids[at] = high
        elif (
            late
            and now == WELL
            and name in (TRADES, AGG_TRADES)
            and NO_ID not in (message_id, high)
            and message_id > high + 1
        ):
            now, high = STALE, message_id
        else:
            now, high = SKEWED, message_id
        value[at] = now
