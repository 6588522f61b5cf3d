"""Joins ranges: makes the state at the end of a batch, and the rows of ``gaps`` that the batch adds.

The same messages give the same rows and the same state wherever they were cut into ranges. Two limits apply: a stream
has at most ``ROOM`` findings in a range, and at most ``HEAD`` of its first messages are older than the range before.
Beyond them the other findings are counted (kind ``more``), and the chain continues from the end of the range.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from blumfeld.spi.decoders import Continuity
from blumfeld_sink_spark.quality import books, clocks, runs
from blumfeld_sink_spark.quality.books import Book
from blumfeld_sink_spark.quality.chain import (
    DUPLICATE,
    GAP,
    GAP_END,
    MORE,
    OUT_OF_ORDER,
    RESET,
    UNREAD,
    Block,
    Chain,
    Finding,
    Walk,
    advance,
    ends,
)
from blumfeld_sink_spark.quality.runs import Change, Runs, Watch
from blumfeld_sink_spark.quality.summary import HEAD, ROOM, StreamSummary, Summary, key_of
from blumfeld_sink_spark.records import OffsetRange, TaskResult
from blumfeld_sink_spark.tables import BOOK_DELTAS, GAPS, tables

DATA_LOSS = "data_loss"
_GROUPS = ("chains", "checks", "ts", "unread", "books")
"""The fields of ``State`` that have a key for each partition: the first two words of a key are topic and partition."""

Row = dict[str, Any]


class State(msgspec.Struct):
    """The values that a query carries from batch to batch. Keys are the JSON of
    ``[topic, partition, venue, symbol, …]``.
    """

    version: int = 1
    chains: dict[str, Chain] = {}
    checks: dict[str, Watch] = {}
    ts: dict[str, int] = {}
    """The latest event seen, by ``[topic, partition]``."""
    unread: dict[str, int] = {}
    """Messages that no decoder could read or that the topic no longer had, by ``[topic, partition]``."""
    books: dict[str, Book] = {}
    """Books by ``[topic, partition, venue, symbol]``."""


BooksOf = Callable[[TaskResult], Iterable[tuple[str, str, Iterable[pa.Table]]]]
"""Returns venue, symbol and rows of each book of a range that is to be held against its checksums, sorted."""


def no_books(result: TaskResult) -> Iterable[tuple[str, str, Iterable[pa.Table]]]:
    """Returns nothing."""
    return ()


def stitch(
    state: dict[str, Any],
    results: Sequence[TaskResult],
    lost: Sequence[OffsetRange] = (),
    books_of: BooksOf = no_books,
) -> tuple[dict[str, Any], pa.Table]:
    """Returns the state after these ranges, and their findings as rows of ``gaps``.

    The rows are sorted by topic, partition and offset. The results of a partition are taken in the order of their
    offsets.

    :param state: the state of the commit before, ``{}`` at the start; it isn't changed
    :param lost: ranges that the topic no longer had
    :param books_of: reads the rows of books
    """
    carried = msgspec.convert(state, State)
    rows: list[Row] = []
    uncounted = sorted(lost, key=lambda gone: gone.start)
    for result in sorted(results, key=lambda entry: (entry.topic, entry.partition, entry.first_offset)):
        where = key_of(result.topic, str(result.partition))
        before = [gone for gone in uncounted if _is_before(gone, result)]
        uncounted = [gone for gone in uncounted if gone not in before]
        _miss(carried, before)
        summary = msgspec.convert(result.sequences, Summary)
        for key, stream in summary.streams.items():
            rows += _streamed(carried, result, key, stream, carried.unread.get(where, 0))
        for key, course in summary.checks.items():
            rows += _checked(carried, result, key, course)
        for venue, symbol, parts in books_of(result):
            rows += _followed(carried, result, venue, symbol, parts)
        if summary.ts is not None:
            carried.ts[where] = max(summary.ts, carried.ts.get(where, summary.ts))
        if summary.unread:
            carried.unread[where] = carried.unread.get(where, 0) + summary.unread
    _miss(carried, uncounted)
    rows += [_lost(carried, gone) for gone in lost]
    rows.sort(key=lambda row: tuple(row[name] for name in _ORDER))
    for group in _GROUPS:
        setattr(carried, group, dict(sorted(getattr(carried, group).items())))
    made: dict[str, Any] = msgspec.to_builtins(carried)
    return made, pa.Table.from_pylist(rows, schema=tables()[GAPS].schema)


def carried_over(parts: Sequence[tuple[dict[str, Any], str, int]]) -> dict[str, Any]:
    """Returns the first state of a query that goes on where others ended.

    :param parts: state of another query, and the topic and partition to take from it
    """
    begun = State()
    for state, topic, partition in parts:
        place = [topic, str(partition)]
        known = msgspec.convert(state, State)
        for group in _GROUPS:
            there = getattr(known, group)
            taken = {key: there[key] for key in there if msgspec.json.decode(key)[:2] == place}
            getattr(begun, group).update(taken)
    made: dict[str, Any] = msgspec.to_builtins(begun)
    return made


_ORDER = ("topic", "k_partition", "k_offset", "venue", "symbol", "stream", "kind")


def _key(result: TaskResult, words: list[str]) -> str:
    return key_of(result.topic, str(result.partition), *words)


def _is_before(gone: OffsetRange, result: TaskResult) -> bool:
    place = (gone.topic, gone.partition)
    return place == (result.topic, result.partition) and gone.start < result.first_offset


def _miss(carried: State, lost: Sequence[OffsetRange]) -> None:
    """Counts messages that the topic no longer had."""
    for gone in lost:
        where = key_of(gone.topic, str(gone.partition))
        carried.unread[where] = carried.unread.get(where, 0) + gone.end - gone.start


def _streamed(carried: State, result: TaskResult, key: str, stream: StreamSummary, unread: int) -> list[Row]:
    """
    :param unread: messages of the partition that nobody read, in the ranges before
    """
    venue, symbol, name = words = msgspec.json.decode(key, type=list[str])
    whole = _key(result, words)
    walk = Walk()
    rule, head = Continuity(stream.rule), Block.of(stream.head)
    head.unread += unread
    chain = advance(rule, carried.chains.get(whole), head, walk, HEAD + ROOM)
    if stream.middle is not None and stream.tail is not None and chain is not None:
        stream.tail.unread += unread
        chain = _joined(rule, chain, stream.middle, stream.tail, stream.walk, walk)
    if chain is not None:
        chain.fresh = False
        carried.chains[whole] = chain
    return _told(result, venue, symbol, name, walk)


def _followed(
    carried: State, result: TaskResult, venue: str, symbol: str, parts: Iterable[pa.Table]
) -> list[Row]:
    key = _key(result, [venue, symbol])
    book, walk = books.follow(carried.books.pop(key, None), parts, ROOM)
    if book is not None:
        carried.books[key] = book
    return _told(result, venue, symbol, BOOK_DELTAS, walk)


def _told(result: TaskResult, venue: str, symbol: str, name: str, walk: Walk) -> list[Row]:
    rows = [_row(result, venue, symbol, name, finding) for finding in walk.findings]
    if walk.more and walk.more_from:
        offset_before, ts_before, offset, ts = walk.more_from
        rest = Finding(
            kind=MORE,
            missing=walk.more,
            ts_before=ts_before,
            offset_before=offset_before,
            ts=ts,
            offset=offset,
        )
        rows.append(_row(result, venue, symbol, name, rest))
    return rows


def _joined(
    rule: Continuity, chain: Chain, middle: Chain, tail: Chain, middle_walk: Walk, walk: Walk
) -> Chain:
    """Returns the chain at the end of a range.

    ``chain`` is the state after the head, with the ranges before it. The task knew its range alone: it had ``middle``
    after the head and ``tail`` at the end. Its findings in the tail go into ``walk``; those that earlier ranges
    change are judged again.
    """
    ahead = chain.high
    for finding in middle_walk.findings:
        walk.findings += _again(rule, chain, middle.high, ahead, finding)
    if middle_walk.more and middle_walk.more_from:
        walk.count(middle_walk.more, middle_walk.more_from)
    tail.newest = max(tail.newest, chain.newest)
    if tail.fresh:
        return tail
    if ahead > middle.high:
        # More than the head is old; how much more, the task could not count.
        walk.findings.append(
            Finding(
                kind=MORE,
                expected=ahead,
                got=middle.high,
                ts_before=None,
                offset_before=None,
                ts=chain.ts,
                offset=chain.offset,
            )
        )
    known = [hole for hole in chain.holes if hole[1] <= middle.high]
    new = [hole for hole in tail.holes if hole[0] > middle.high]
    joined = Chain(
        tail.high,
        chain.floor,
        tail.last,
        tail.ts,
        tail.offset,
        run=tail.run,
        newest=tail.newest,
        unread=tail.unread,
    )
    joined.floor = max(chain.floor, tail.floor if tail.floor > middle.high else chain.floor)
    for hole in known + new:
        joined.open_hole(hole)
    return joined


def _again(rule: Continuity, chain: Chain, middle: int, ahead: int, finding: Finding) -> list[Finding]:
    """Judges a finding of the tail again with the ranges before, and adds the ends of gaps that began in them."""
    if finding.kind == RESET and finding.missing:
        return [finding, *ends(rule, chain.void(finding.low)[1], finding)]
    if finding.sure or rule is Continuity.MONOTONE:
        return [finding]
    if finding.kind in (DUPLICATE, OUT_OF_ORDER) and finding.high <= middle:
        return chain.classify(finding.low, finding.high).told(rule, finding)
    if finding.kind in (GAP, UNREAD) and ahead > middle and finding.high <= ahead:
        return []
    if finding.kind == GAP_END and finding.high < ahead > middle:
        return []  # the ids came in the ranges before, so it never was a gap
    return [finding]


def _checked(carried: State, result: TaskResult, key: str, course: Runs) -> list[Row]:
    venue, symbol, table, check = words = msgspec.json.decode(key, type=list[str])
    whole = _key(result, words)
    changes, before = _changes(table, carried.checks.get(whole), course)
    if before is not None:
        carried.checks[whole] = before
    rows = [
        _row(
            result,
            venue,
            symbol,
            table,
            Finding(
                kind=runs.kind_of(check, change),
                expected=change.expected,
                got=change.got,
                ts_before=change.ts_before,
                offset_before=change.offset_before,
                ts=change.ts,
                offset=change.offset,
            ),
        )
        for change in changes
        if runs.kind_of(check, change)
    ]
    if course.more and before is not None:
        last = before
        rest = Finding(
            kind=MORE, missing=course.more, ts_before=None, offset_before=None, ts=last.ts, offset=last.offset
        )
        rows.append(_row(result, venue, symbol, table, rest))
    return rows


def _changes(table: str, before: Watch | None, course: Runs) -> tuple[list[Change], Watch | None]:
    """Returns the changes in a range, given the ranges before it, and the conditions at its end."""
    changes, before = clocks.told(table, before, course)
    first = course.first
    if first is None:
        return changes, before
    if first.now != (before.value if before else 0):
        if before:
            first.was, first.ts_before, first.offset_before = before.value, before.ts, before.offset
        changes.append(first)
    return changes + course.changes, course.last


def _row(result: TaskResult, venue: str, symbol: str, stream: str, finding: Finding) -> Row:
    return {
        "ts_event": finding.ts,
        "venue": venue,
        "symbol": symbol,
        "stream": stream,
        "kind": finding.kind,
        "expected": finding.expected,
        "got": finding.got,
        "missing": finding.missing,
        "ts_before": finding.ts_before,
        "topic": result.topic,
        "offset_before": finding.offset_before,
        "k_partition": result.partition,
        "k_offset": finding.offset,
    }


def _lost(carried: State, gone: OffsetRange) -> Row:
    """Returns the row of a finding without a symbol.

    Its time is that of an event near it: the messages that were lost have none.
    """
    ts = carried.ts.get(key_of(gone.topic, str(gone.partition)))
    return {
        "ts_event": ts if ts is not None else max(carried.ts.values(), default=0),
        "venue": "",
        "symbol": "",
        "stream": "offsets",
        "kind": DATA_LOSS,
        "expected": gone.start,
        "got": gone.end,
        "missing": gone.end - gone.start,
        "ts_before": None,
        "topic": gone.topic,
        "offset_before": gone.start - 1 if gone.start else None,
        "k_partition": gone.partition,
        "k_offset": gone.start,
    }
