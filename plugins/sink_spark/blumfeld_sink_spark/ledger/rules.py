"""The rules of the ledger. Pure: functions take records and return descriptions of what is wrong.

1. No offset is committed twice, neither by one query nor by two.
2. In one query, each range of a partition begins where the range before it ended, unless a record names the offsets
   between them in ``lost``.
3. Batches of a query are numbered from 0 without a hole.
4. A record either counts the offsets of each of its ranges, and the counts add up, or it counts none. Records of older
   versions count none.

A second query may begin at any offset that no other query has committed. A hole between two queries breaks no rule
when a record is appended, because a backfill may still fill it; ``verify`` reports it.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

import attrs

from blumfeld_sink_spark import range_counts
from blumfeld_sink_spark.records import CommitRecord, OffsetRange

Partition = tuple[str, int]
"""Topic and number."""


@attrs.frozen(order=True)
class Span:
    """Offsets that one query has committed; ``end`` is exclusive."""

    start: int
    end: int
    query: str


class Spans:
    """The committed offsets of one partition: spans that don't overlap, sorted."""

    def __init__(self, spans: Iterable[Span] = ()) -> None:
        self._spans = sorted(spans)

    def __iter__(self) -> Iterator[Span]:
        return iter(self._spans)

    def overlapping(self, start: int, end: int) -> Span | None:
        """Returns the first span that shares an offset with this range, or None."""
        at = bisect_left(self._spans, start, key=lambda span: span.end)
        while at < len(self._spans) and self._spans[at].start < end:
            if self._spans[at].end > start:
                return self._spans[at]
            at += 1
        return None

    def add(self, start: int, end: int, query: str) -> None:
        """Adds a range that overlaps no span. A span of the same query that ends where the range starts grows."""
        at = bisect_left(self._spans, start, key=lambda span: span.end)
        if at < len(self._spans) and self._spans[at].end == start and self._spans[at].query == query:
            self._spans[at] = Span(self._spans[at].start, end, query)
        else:
            insort(self._spans, Span(start, end, query))


@attrs.define
class Chain:
    """The position of one query: its last batch, and the next offset of each partition."""

    query: str
    batch: int = -1
    """Number of the last batch; -1 before the first."""
    ends: dict[Partition, int] = attrs.field(factory=dict)
    """Offset at which the next range of each partition must begin."""


def follows(chain: Chain, record: CommitRecord) -> str | None:
    """Returns what is wrong with this record as the next one of its query (rules 2, 3 and 4), or None."""
    return _misplaced(chain, record) or next(uncounted(record), None)


def _misplaced(chain: Chain, record: CommitRecord) -> str | None:
    if record.batch != chain.batch + 1:
        return (
            f"batch {record.batch} of query {record.query} can't follow batch {chain.batch}: the ledger and the "
            "checkpoint aren't of the same state. Use the checkpoint that belongs to this archive"
        )
    return _own(record) or next(_breaks(chain, record), None)


def overlap(covered: dict[Partition, Spans], ranges: Iterable[OffsetRange]) -> str | None:
    """Returns which of these ranges overlaps committed offsets, and where (rule 1), or None."""
    for wanted in ranges:
        spans = covered.get((wanted.topic, wanted.partition))
        there = spans.overlapping(wanted.start, wanted.end) if spans is not None else None
        if there is not None:
            return (
                f"{named(wanted)} overlaps {there.start}..{there.end}, which query {there.query} has committed. "
                "A new checkpoint must start behind that (or the topic was made anew: archive it under another root)"
            )
    return None


def advance(chain: Chain, covered: dict[Partition, Spans], record: CommitRecord) -> None:
    """Adds a record that ``follows`` and ``overlap`` have accepted."""
    chain.batch = record.batch
    for taken in record.ranges:
        covered.setdefault((taken.topic, taken.partition), Spans()).add(taken.start, taken.end, record.query)
    for taken in (*record.ranges, *record.lost):
        where = (taken.topic, taken.partition)
        chain.ends[where] = max(chain.ends.get(where, 0), taken.end)


def problems(records: Sequence[CommitRecord]) -> list[str]:
    """Returns all that breaks the rules among the records of an archive, and the holes between its queries.

    :param records: all records; those of one query in order
    """
    chains: dict[str, Chain] = {}
    covered: dict[Partition, Spans] = {}
    lost: dict[Partition, list[OffsetRange]] = {}
    all_problems = []
    for record in records:
        chain = chains.setdefault(record.query, Chain(record.query))
        wrong = (_misplaced(chain, record), overlap(covered, record.ranges), *uncounted(record))
        all_problems += [each for each in wrong if each]
        advance(chain, covered, record)
        for gone in record.lost:
            lost.setdefault((gone.topic, gone.partition), []).append(gone)
    return all_problems + [
        f"{topic}-{partition}: {start}..{end} lies between what is covered and is in no record"
        for (topic, partition), spans in sorted(covered.items())
        for start, end in holes(spans, lost.get((topic, partition), ()))
    ]


def holes(spans: Spans, lost: Iterable[OffsetRange] = ()) -> list[tuple[int, int]]:
    """Returns (start, end) of each stretch between the first and the last known offset that is neither committed nor
    lost.
    """
    known = sorted([(span.start, span.end) for span in spans] + [(gone.start, gone.end) for gone in lost])
    pairs = []
    end = known[0][0] if known else 0
    for start, stop in known:
        if start > end:
            pairs.append((end, start))
        end = max(end, stop)
    return pairs


def named(wanted: OffsetRange) -> str:
    """Returns a range as messages show it."""
    return f"{wanted.topic}-{wanted.partition} {wanted.start}..{wanted.end}"


def _own(record: CommitRecord) -> str | None:
    """Returns what is wrong with a record by itself: a range that is empty or negative, or two that overlap."""
    for taken in (*record.ranges, *record.lost):
        if not 0 <= taken.start < taken.end:
            return f"batch {record.batch} of query {record.query}: {named(taken)} isn't a range"
    ordered = sorted(record.ranges)
    for before, after in pairwise(ordered):
        if (before.topic, before.partition) == (after.topic, after.partition) and after.start < before.end:
            return f"batch {record.batch} of query {record.query}: {named(before)} overlaps {named(after)}"
    return None


def uncounted(record: CommitRecord) -> Iterator[str]:
    """Yields a line for each sum that doesn't close in a record's counts (rule 4)."""
    yield from (f"batch {record.batch} of query {record.query}: {each}" for each in _unclosed(record))


def _unclosed(record: CommitRecord) -> Iterator[str]:
    if not record.counts:
        return
    of = [
        OffsetRange(range_count.topic, range_count.partition, range_count.start, range_count.end)
        for range_count in record.counts
    ]
    if of != list(record.ranges):
        yield f"it counts {', '.join(map(named, of))}, and its ranges are {', '.join(map(named, record.ranges))}"
    for count in record.counts:
        yield from range_counts.wrong(count)
    messages = sum(count.messages for count in record.counts)
    if messages != record.messages:
        yield f"its ranges have {messages:,} messages, and it says {record.messages:,}"


def _breaks(chain: Chain, record: CommitRecord) -> Iterator[str]:
    """Yields a line for each range that takes offsets again or leaves some out (rule 2).

    Lost offsets may lie within a range or before it.
    """
    for taken in record.ranges:
        end = chain.ends.get((taken.topic, taken.partition), 0)
        if taken.start < end:
            yield (
                f"batch {record.batch} of query {record.query}: {named(taken)} begins before {end}, where the query "
                "already was. Was the topic made anew? Then archive it under another root"
            )
    ends = dict(chain.ends)
    for taken in sorted((*record.ranges, *record.lost)):
        where = (taken.topic, taken.partition)
        end = ends.get(where, taken.start)
        if taken.start > end:
            yield (
                f"batch {record.batch} of query {record.query} leaves {named(OffsetRange(*where, end, taken.start))} "
                "out, and doesn't name it as lost. Use the checkpoint that belongs to this archive"
            )
        ends[where] = max(end, taken.end)
