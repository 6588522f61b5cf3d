"""What a task says of the range that it read, knowing nothing of what came before it.

Bounded: a stream is its first ``HEAD`` messages, at most ``ROOM`` findings after them, and where its chain ended.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from blumfeld.spi.decoders import Continuity
from blumfeld_sink_spark.quality import runs
from blumfeld_sink_spark.quality.chain import BLOCK, Block, Chain, Walk, advance
from blumfeld_sink_spark.quality.runs import Runs
from blumfeld_sink_spark.quality.streams import messages, split
from blumfeld_sink_spark.tables import BBO, BOOK_DELTAS, TRADES

HEAD = 64
"""Messages that are judged once more where the state before them is known."""
ROOM = 100
"""Findings of one stream and range that are named; the rest is counted in one row of the kind ``more``."""

JUDGED = ("venue", "symbol", "ts_event", "ts_recv", "k_offset")
QUOTED = ("update_id", "bid", "ask")
TIMED = (TRADES, BOOK_DELTAS, BBO)


class StreamSummary(msgspec.Struct):
    """One stream in one range."""

    rule: str
    head: dict[str, list[int]]
    middle: Chain | None = None
    """After the head; none where there is nothing after it."""
    tail: Chain | None = None
    walk: Walk = msgspec.field(default_factory=Walk)
    """Of the messages after the head."""


class Summary(msgspec.Struct):
    """One range. Streams are keyed by the JSON of ``[venue, symbol, stream]``, checks by that of
    ``[venue, symbol, table, check]``.
    """

    streams: dict[str, StreamSummary] = {}
    checks: dict[str, Runs] = {}
    ts: int | None = None
    """Of the latest event seen."""


class Summariser:
    """Takes in what was decoded, batch after batch of one partition, in the order of the offsets.

    :param continuity: of each stream, from the decoders; streams that aren't named are not followed
    :param skew_ms: 0 is off
    """

    def __init__(
        self, topic: str, partition: int, continuity: Mapping[str, Continuity], skew_ms: int
    ) -> None:
        self.topic, self.partition = topic, partition
        self._continuity = continuity
        self._skew_ms = skew_ms
        self._streams: dict[str, _Stream] = {}
        self._checks: dict[str, Runs] = {}
        self._ts: int | None = None

    def add(self, sequences: pa.Table, tables: Mapping[str, pa.Table]) -> None:
        """What ``apply.decode_rows`` gave. How the rows are cut into calls makes no difference."""
        for (venue, symbol, stream), rows in split(sequences, ("venue", "symbol", "stream")):
            rule = self._continuity.get(stream, Continuity.NONE)
            if rule is Continuity.NONE:
                continue
            block = _block(rule, rows)
            if len(block):
                self._saw(int(block.ts.max()))
                self._streams.setdefault(key_of(venue, symbol, stream), _Stream(rule)).add(block)
        for name in TIMED:
            if name in tables and tables[name].num_rows:
                wanted = [*JUDGED, *(QUOTED if name == BBO else ())]
                self._check(name, messages(tables[name], wanted))

    def _check(self, name: str, table: pa.Table) -> None:
        self._saw(int(runs.ints(table, "ts_event").max()))
        for (venue, symbol), rows in split(table, ("venue", "symbol")):
            if self._skew_ms:
                self._extend(key_of(venue, symbol, name, "skew"), runs.skew(rows, self._skew_ms))
            if name == BBO:
                self._extend(key_of(venue, symbol, name, "cross"), runs.cross(rows))

    def _saw(self, ts: int) -> None:
        self._ts = ts if self._ts is None else max(self._ts, ts)

    def _extend(self, key: str, course: runs.Course) -> None:
        self._checks[key] = runs.extend(self._checks.get(key), course, ROOM)

    def result(self) -> dict[str, Any]:
        """``TaskResult.sequences``: builtins only, a few kB for each stream whatever it read."""
        summary = Summary(
            {key: self._streams[key].summary() for key in sorted(self._streams)},
            {key: self._checks[key] for key in sorted(self._checks)},
            self._ts,
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
            self._middle = advance(self._rule, None, self._head, Walk(), 0)
            self._tail = msgspec.convert(msgspec.to_builtins(self._middle), Chain)
            self._tail.fresh = False
        self._tail = advance(self._rule, self._tail, rest, self._walk, ROOM)

    def summary(self) -> StreamSummary:
        head = {name: [] for name in BLOCK} if self._head is None else self._head.lists()
        return StreamSummary(self._rule.value, head, self._middle, self._tail, self._walk)


def _block(rule: Continuity, rows: pa.Table) -> Block:
    """Messages with ids. What a chain can't judge (a snapshot by REST has no id before it) is left out."""
    wanted = ("first_id", "last_id", "prev_id", "ts_event", "offset")
    block = Block(*(runs.ints(rows, name) for name in wanted))
    known = ~_nulls(rows, "last_id")
    if rule is Continuity.CHAINED:
        known &= ~_nulls(rows, "prev_id")
    absent = _nulls(rows, "first_id")
    block.first = np.where(absent, block.last, block.first)
    if known.all():
        return block
    return Block(*(getattr(block, name)[known] for name in BLOCK))


def _nulls(rows: pa.Table, name: str) -> np.ndarray[Any, np.dtype[np.bool_]]:
    made: np.ndarray[Any, np.dtype[np.bool_]] = rows.column(name).is_null().to_numpy()
    return made
