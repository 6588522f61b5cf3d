"""The rules that a range's count must fit, and the reasons of offsets without a row. Pure.

Three sums must be right. The width of the range is its messages plus its skipped offsets. For each decoder, the
messages are those it read, those it quarantined and those it passed over. The rows that the decoders made are the
files' rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from blumfeld_sink_spark.errors import ArchiveError
from blumfeld_sink_spark.records import OffsetRange, RangeCount, Span

CONTROL = "control"
"""Control records, which mark the ends of transactions (KIP-98)."""
ABORTED = "aborted"
"""Records of aborted transactions, which ``read_committed`` leaves out."""
ABSENT = "absent"
"""Offsets without a record in the log: compaction took them."""
LOST = "lost"
"""Offsets that the topic no longer had, where ``fail_on_data_loss`` is off."""
HIDDEN = "hidden"
"""Offsets that the reader passed in silence. Spark's connector and librdkafka show neither control records nor aborted
ones, and don't tell them from compacted ones."""
MISSING = "missing"
"""Offsets that no decoder saw and the fetch has no reason for. A batch with one is not published."""
NO_ROW = "no_row"
"""Messages without a row in any table."""

EXPLAINED = frozenset({CONTROL, ABORTED, ABSENT, LOST})
"""Reasons that the fetch read from the log itself."""

UNNAMED, NULL_VALUE, OTHER = "unnamed", "null value", "other"
"""Kinds of passed-over messages: the decoder gave no kind; the message has no value; there are more kinds than
``KINDS_MAX``."""
KINDS_MAX = 64
SPANS_MAX = 1_000
"""Spans of one kind that a commit record names for one range. It bounds the record's size, to about 25 kB a kind."""


def joined(spans: Iterable[Span]) -> list[Span]:
    """Returns the spans sorted and without empty ones; adjacent spans of one reason become one."""
    stretches: list[Span] = []
    for span in sorted(spans):
        if span.start >= span.end:
            continue
        if stretches and stretches[-1].end == span.start and stretches[-1].reason == span.reason:
            stretches[-1] = Span(stretches[-1].start, span.end, span.reason)
        else:
            stretches.append(span)
    return stretches


def explained(gaps: Sequence[Span], skips: Sequence[Span], wanted: OffsetRange, messages: int) -> list[Span]:
    """Returns the offsets between the messages with the fetch's reasons. Offsets without a reason are ``missing``.

    :param gaps: the offsets without a message, as the decoders saw them
    :raises ArchiveError: messages and skipped offsets don't add up: the fetch skipped an offset that was decoded
    """
    parts = list(skips)
    for gap in gaps:
        parts += [Span(start, end, MISSING) for start, end in without(gap.start, gap.end, skips)]
    width = sum(span.end - span.start for span in parts)
    if messages + width != wanted.end - wanted.start:
        raise ArchiveError(
            f"{wanted.topic}-{wanted.partition} {wanted.start}..{wanted.end}: {messages} messages were decoded and "
            f"{width} offsets skipped, but it has {wanted.end - wanted.start} offsets. Nothing was published; this is "
            "a bug of the reader"
        )
    return joined(parts)


def without(start: int, end: int, spans: Sequence[Span]) -> Iterator[tuple[int, int]]:
    """Yields the parts of ``start..end`` that lie in none of these spans, which are sorted."""
    for span in spans:
        if span.end <= start:
            continue
        if span.start >= end:
            break
        if span.start > start:
            yield start, span.start
        start = span.end
    if start < end:
        yield start, end


def over(count: RangeCount, planned: OffsetRange, lost: Sequence[OffsetRange] = ()) -> RangeCount:
    """Widens the count of a reader that doesn't know the planned range to all of it.

    Offsets that the reader didn't show are ``hidden``, or ``lost`` where that is known.
    """
    front, back = Span(planned.start, count.start, HIDDEN), Span(count.end, planned.end, HIDDEN)
    if not count.messages:
        front, back = Span(planned.start, planned.end, HIDDEN), Span(0, 0, HIDDEN)
    skipped = [span for span in count.spans if span.reason != NO_ROW]
    rowless = [span for span in count.spans if span.reason == NO_ROW]
    gone = joined(
        Span(max(span.start, planned.start), min(span.end, planned.end), LOST)
        for span in lost
        if (span.topic, span.partition) == (planned.topic, planned.partition)
    )
    gaps = []
    for gap in joined([front, *skipped, back]):
        gaps += [Span(max(span.start, gap.start), min(span.end, gap.end), LOST) for span in gone]
        gaps += [Span(start, end, gap.reason) for start, end in without(gap.start, gap.end, gone)]
    unnamed = sum(count.skipped.values()) - _width(skipped)
    fields = named(joined(gaps), rowless, count.messages - count.with_rows, unnamed)
    return msgspec.structs.replace(count, start=planned.start, end=planned.end, **fields)


def unread(planned: OffsetRange, lost: Sequence[OffsetRange] = ()) -> RangeCount:
    """Returns the count of a range without a task's result: all its offsets are ``hidden`` or ``lost``."""
    nothing = RangeCount(
        topic=planned.topic, partition=planned.partition, start=0, end=0, messages=0, with_rows=0
    )
    return over(nothing, planned, lost)


def named(
    gaps: Sequence[Span], rowless: Sequence[Span], rowless_count: int, more_hidden: int = 0
) -> dict[str, Any]:
    """Returns the fields ``skipped``, ``spans`` and ``unnamed`` of a count, with ``SPANS_MAX`` spans a kind at most."""
    skipped: Counter[str] = Counter()
    for span in gaps:
        skipped[span.reason] += span.end - span.start
    if more_hidden:
        skipped[HIDDEN] += more_hidden
    missing = [span for span in gaps if span.reason == MISSING]
    others = [span for span in gaps if span.reason != MISSING]
    kept = [*missing[:SPANS_MAX], *others[:SPANS_MAX], *rowless[:SPANS_MAX]]
    all_ = sum(skipped.values()) + rowless_count
    return {
        "skipped": dict(sorted(skipped.items())),
        "spans": tuple(sorted(kept)),
        "unnamed": all_ - _width(kept),
    }


def _width(spans: Iterable[Span]) -> int:
    return sum(span.end - span.start for span in spans)


def wrong(count: RangeCount) -> Iterator[str]:
    """Yields a sentence with offsets for each of the three sums that is wrong in a range's count."""
    name = f"{count.topic}-{count.partition} {count.start}..{count.end}"
    width, skipped = count.end - count.start, sum(count.skipped.values())
    if MISSING in count.skipped:
        yield (
            f"{name}: {count.skipped[MISSING]:,} of its {width:,} offsets gave no message and the fetch has no reason "
            f"for it: {offsets(count.spans, MISSING)}"
        )
    if count.messages + skipped != width:
        yield (
            f"{name}: {width:,} offsets, but {count.messages:,} messages and {skipped:,} skipped: "
            f"{abs(width - count.messages - skipped):,} {'not' if count.messages + skipped < width else 'twice'} "
            f"accounted for"
        )
    for decoder, fate in count.decoders.items():
        passed = sum(fate.passed_over.values())
        if fate.read + fate.quarantined + passed != count.messages:
            yield (
                f"{name}: {count.messages:,} messages, but {decoder} read {fate.read:,}, quarantined "
                f"{fate.quarantined:,} and passed {passed:,} over"
            )
    rowless = count.messages - count.with_rows
    named = sum(span.end - span.start for span in count.spans)
    if rowless < 0 or named + count.unnamed != skipped + rowless:
        yield (
            f"{name}: {skipped + rowless:,} offsets have no row, but {named:,} are named and {count.unnamed:,} counted"
        )


def offsets(spans: Iterable[Span], reason: str, most: int = 5) -> str:
    """Returns the offsets of one reason for people: ``3..5, 9..10 and 7 more stretches``, ends exclusive."""
    stretches = [span for span in spans if span.reason == reason]
    said = ", ".join(f"{span.start}..{span.end}" for span in stretches[:most])
    return said + (f" and {len(stretches) - most} more stretches" if len(stretches) > most else "")


def counted_rows(counts: Iterable[RangeCount]) -> Counter[tuple[str, int, str]]:
    """Returns the number of rows by (topic, partition, table)."""
    rows_by_table: Counter[tuple[str, int, str]] = Counter()
    for count in counts:
        for table, rows in count.rows.items():
            rows_by_table[count.topic, count.partition, table] += rows
    return rows_by_table
