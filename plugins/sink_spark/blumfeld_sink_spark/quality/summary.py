"""A task's summary of the range that it read. The task knows nothing of the messages before.

Its size is bounded: a stream is its first ``HEAD`` messages, at most ``ROOM`` findings after them, and the end of its
chain.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from blumfeld.spi.decoders import Continuity
from blumfeld_sink_spark.quality import clocks, runs
from blumfeld_sink_spark.quality.chain import BLOCK, Block, Chain, Ints, Walk, advance
from blumfeld_sink_spark.quality.runs import Course, Runs
from blumfeld_sink_spark.quality.streams import Columns, messages, split
from blumfeld_sink_spark.tables import AGG_TRADES, BBO, BOOK_DELTAS, TRADES

HEAD = 64
"""Messages that the driver judges once more, because it knows the state before them."""
ROOM = 100
"""Findings of one stream and range that are named; the rest is counted in one row of the kind ``more``."""

ROWS = 65_536
"""Rows that are judged at once. With so many, a thousand symbols cost twice as much as one."""

SEQUENCES = "sequences"
NUMBERED = ("venue", "symbol", "stream", "first_id", "last_id", "prev_id", "ts_event", "ts_recv", "offset")
MESSAGES = "messages"
OFFSETS = "offsets"
"""The stream of findings about the messages of a partition, whatever is in them."""
JUDGED = ("venue", "symbol", "ts_event", "ts_recv", "k_offset")
ALSO = {TRADES: ("trade_id",), AGG_TRADES: ("trade_id",), BBO: ("update_id", "bid", "ask")}
TIMED = (TRADES, AGG_TRADES, BOOK_DELTAS, BBO)


class StreamSummary(msgspec.Struct):
    """One stream in one range."""

    rule: str
    head: dict[str, list[int]]
    middle: Chain | None = None
    """After the head; none where there is nothing after it."""
    tail: Chain | None = None
    walk: Walk = msgspec.field(default_factory=Walk)
    """The findings in the messages after the head."""


class Summary(msgspec.Struct):
    """One range. Streams are keyed by the JSON of ``[venue, symbol, stream]``, checks by that of
    ``[venue, symbol, table, check]``.
    """

    streams: dict[str, StreamSummary] = {}
    checks: dict[str, Runs] = {}
    ts: int | None = None
    """The time of the latest event seen."""
    unread: int = 0
    """Messages that no decoder could read."""


class Summariser:
    """Summarises the decoded batches of one partition, given in the order of the offsets.

    :param continuity: the rule of each stream, from the decoders; other streams are not followed
    :param skew_ms: greatest distance of a clock that is still well; 0 turns the check off
    :param at_once: rows that are collected before they are judged; it changes the pace alone
    """

    def __init__(
        self,
        topic: str,
        partition: int,
        continuity: Mapping[str, Continuity],
        skew_ms: int,
        at_once: int = ROWS,
    ) -> None:
        self.topic, self.partition = topic, partition
        self._continuity = continuity
        self._skew_ms = skew_ms
        self._at_once = at_once
        self._streams: dict[str, _Stream] = {}
        self._checks: dict[str, Runs] = {}
        self._ts: int | None = None
        self._waiting: dict[str, list[pa.Table]] = {}
        self._rows = 0
        self._unread = 0
        """Messages that no decoder could read, up to the last judgement."""

    def add(
        self, sequences: pa.Table, tables: Mapping[str, pa.Table], messages_read: pa.Table | None = None
    ) -> None:
        """Adds rows that ``apply.decode_rows`` gave. The cut of the rows into calls makes no difference.

        :param messages_read: ``Applied.messages``
        """
        if messages_read is not None:
            self._wait(MESSAGES, messages_read)
        self._wait(SEQUENCES, sequences.select(NUMBERED))
        for name in TIMED:
            if name in tables and tables[name].num_rows:
                self._wait(name, messages(tables[name], [*JUDGED, *ALSO.get(name, ())]))
        if self._rows >= self._at_once:
            self._judge()

    def _wait(self, name: str, rows: pa.Table) -> None:
        self._waiting.setdefault(name, []).append(rows)
        self._rows += rows.num_rows

    def _judge(self) -> None:
        """Judges the waiting rows."""
        waiting = {name: pa.concat_tables(parts) for name, parts in self._waiting.items()}
        self._waiting, self._rows = {}, 0
        unread = self._judge_messages(waiting.pop(MESSAGES, None))
        for name, rows in waiting.items():
            if not rows.num_rows:
                continue
            self._saw(int(runs.ints(rows, "ts_event").max()))
            if name == SEQUENCES:
                self._follow(rows, unread)
                continue
            if self._skew_ms:
                self._check(name, "skew", rows, clocks.course(name, rows, self._skew_ms))
            if name == BBO:
                self._check(name, "cross", rows, runs.cross(rows))
        self._unread += len(unread)

    def _judge_messages(self, messages_read: pa.Table | None) -> Ints:
        """Judges the messages of the partition. Returns the offsets of those that no decoder could read."""
        if messages_read is None or not messages_read.num_rows:
            return np.zeros(0, dtype=np.int64)
        key, course = key_of("", "", OFFSETS, runs.BAD_RECV), runs.flagged(messages_read, runs.BAD_RECV)
        self._checks[key] = runs.extend(self._checks.get(key), course, ROOM)
        unread = messages_read.filter(messages_read.column("unread"))
        offsets: Ints = unread.column("offset").to_numpy()
        return offsets

    def _follow(self, rows: pa.Table, unread: Ints) -> None:
        numbers = _numbers(rows)
        numbers["unread"] = self._unread + np.searchsorted(unread, numbers["offset"])
        for (venue, symbol, stream), columns in split(rows, ("venue", "symbol", "stream"), numbers):
            rule = self._continuity.get(stream, Continuity.NONE)
            block = _block(rule, columns)
            if rule is not Continuity.NONE and len(block):
                self._streams.setdefault(key_of(venue, symbol, stream), _Stream(rule)).add(block)

    def _check(self, name: str, check: str, rows: pa.Table, course: Course) -> None:
        for (venue, symbol), columns in split(rows, ("venue", "symbol"), course.columns()):
            key = key_of(venue, symbol, name, check)
            course_of, known = Course(**columns), self._checks.get(key)
            self._checks[key] = (
                clocks.taken_in(name, known, course_of, ROOM)
                if check == "skew"
                else runs.extend(known, course_of, ROOM)
            )

    def _saw(self, ts: int) -> None:
        self._ts = ts if self._ts is None else max(self._ts, ts)

    def result(self) -> dict[str, Any]:
        """``TaskResult.sequences``: builtins only, a few kB for each stream whatever it read."""
        self._judge()
        summary = Summary(
            {key: self._streams[key].summary() for key in sorted(self._streams)},
            {key: self._checks[key] for key in sorted(self._checks)},
            self._ts,
            self._unread,
        )
        made: dict[str, Any] = msgspec.to_builtins(summary)
        return made


def key_of(*words: str) -> str:
    """The key of a stream or a check."""
    return msgspec.json.encode(words).decode()


class _Stream:
    def __init__(self, rule: Continuity) -> None:
        self._rule = rule
        self._head: Block | None = None
        self._middle: Chain | None = None
        self._tail: Chain | None = None
        self._walk = Walk()

    def add(self, block: Block) -> None:
        have = 0 if self._head is None else len(self._head)
        part, rest = block.cut(0, HEAD - have), block.cut(HEAD - have)
        if len(part):
            self._head = part if self._head is None else self._head.joined(part)
        if not len(rest) or self._head is None:
            return
        if self._middle is None:
            self._middle = advance(self._rule, None, self._head, Walk(), HEAD)
            if self._middle is not None:
                self._middle.forget_gaps()  # the driver names the ends of gaps that began in the head
            self._tail = msgspec.convert(msgspec.to_builtins(self._middle), Chain)
            self._tail.fresh = False
        self._tail = advance(self._rule, self._tail, rest, self._walk, ROOM)

    def summary(self) -> StreamSummary:
        head = {name: [] for name in BLOCK} if self._head is None else self._head.lists()
        return StreamSummary(self._rule.value, head, self._middle, self._tail, self._walk)


def _numbers(rows: pa.Table) -> dict[str, np.ndarray[Any, Any]]:
    """Returns the parts of a block, and the ids that it has."""
    numbers: dict[str, np.ndarray[Any, Any]] = {
        name: runs.ints(rows, column)
        for name, column in zip(BLOCK, ("first_id", "last_id", "prev_id", "ts_event", "offset"), strict=False)
    }
    numbers["time"] = np.minimum(numbers["ts"], runs.ints(rows, "ts_recv"))
    without = rows.column("first_id").is_null().to_numpy()
    numbers["first"] = np.where(without, numbers["last"], numbers["first"])
    numbers["has_last"] = rows.column("last_id").is_valid().to_numpy()
    numbers["has_prev"] = rows.column("prev_id").is_valid().to_numpy()
    return numbers


def _block(rule: Continuity, columns: Columns) -> Block:
    """Returns the messages that a chain can judge. A snapshot by REST, for example, names no id before it."""
    known = columns["has_last"]
    if rule is Continuity.CHAINED:
        known = known & columns["has_prev"]
    if known.all():
        return Block(*(columns[name] for name in BLOCK))
    return Block(*(columns[name][known] for name in BLOCK))
