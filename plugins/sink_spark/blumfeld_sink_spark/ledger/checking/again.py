"""Reads a topic again, if it still exists, and compares it with the counts of the commits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from blumfeld_sink_spark import range_counts
from blumfeld_sink_spark.ledger.rules import Partition, named
from blumfeld_sink_spark.range_counter import Skips, content_crc
from blumfeld_sink_spark.range_counts import NO_ROW
from blumfeld_sink_spark.records import CommitRecord, OffsetRange, RangeCount, Span

Numbers = npt.NDArray[np.int64]
Read = Callable[[OffsetRange, CommitRecord, Skips], Iterator[pa.RecordBatch]]
"""Reads a range of a record and notes the offsets without a message. It uses another client than the archive did, so
that one bug doesn't lose the same messages twice.
"""

CONTENT = ("keys", "values", "offsets, timestamps or sizes")
"""The columns that ``RangeCount.content_crc`` covers."""


@attrs.frozen
class Topic:
    """The messages that a topic has in one range now."""

    offsets: Numbers
    content_crc: tuple[int, int, int]
    bytes: int
    skipped: list[Span]


@attrs.define
class Compared:
    """The result of a comparison."""

    problems: list[str] = attrs.field(factory=list)
    remarks: list[str] = attrs.field(factory=list)
    same: int = 0
    """Number of ranges that the topic has unchanged, message by message."""
    ranges: int = 0
    explained: set[OffsetRange] = attrs.field(factory=set)
    """Ranges whose hidden offsets hold no message, as the topic shows now."""


def compare(
    ranges: Sequence[tuple[CommitRecord, OffsetRange]],
    earliest: Mapping[Partition, int],
    latest: Mapping[Partition, int],
    read: Read,
) -> Compared:
    """Compares each range that the topic still has in full; each other range gives a remark."""
    comparison = Compared()
    old: dict[tuple[str, int], list[tuple[CommitRecord, Topic]]] = {}
    for record, taken in ranges:
        comparison.ranges += 1
        where = (taken.topic, taken.partition)
        first, end = earliest.get(where, 0), latest.get(where, -1)
        if end < taken.end or first > taken.start:
            comparison.remarks.append(f"{named(taken)}: can't be compared: {_why(first, end)}")
            continue
        there = _read(taken, record, read)
        count = next((range_count for range_count in record.counts if _range(range_count) == taken), None)
        if count is None:
            old.setdefault((record.query, record.batch), []).append((record, there))
            continue
        problems, remarks = of_range(count, there)
        comparison.problems += problems
        comparison.remarks += remarks
        comparison.same += not problems and not remarks
        if not problems:
            comparison.explained.add(taken)
    for batch in old.values():
        _compare_old(batch, comparison)
    return comparison


def _why(first: int, end: int) -> str:
    return "the topic isn't there" if end < 0 else f"the topic has {first}..{end} now"


def _range(count: RangeCount) -> OffsetRange:
    return OffsetRange(count.topic, count.partition, count.start, count.end)


def _read(taken: OffsetRange, record: CommitRecord, read: Read) -> Topic:
    skips, crc, size = Skips(), (0, 0, 0), 0
    parts = [np.zeros(0, np.int64)]
    for batch in read(taken, record, skips):
        parts.append(batch.column("offset").to_numpy())
        crc = content_crc(batch, crc)
        size += sum(_bytes(batch.column(name)) for name in ("key", "value"))
    return Topic(np.concatenate(parts), crc, size, skips.within(taken))


def _bytes(column: pa.Array) -> int:
    import pyarrow.compute as pc

    return pc.sum(pc.binary_length(column)).as_py() or 0


def of_range(count: RangeCount, there: Topic) -> tuple[list[str], list[str]]:
    """Returns (problems, remarks) of one range. A message that the topic has lost since is a remark: the archive is not
    at fault.
    """
    name = named(_range(count))
    skipped = [span for span in count.spans if span.reason != NO_ROW]
    if sum(span.end - span.start for span in skipped) < sum(count.skipped.values()):
        return _by_number(name, count, there)
    problems, remarks = [], []
    for reason, stretches in _unexpected(skipped, there.offsets).items():
        problems.append(
            f"{name}: the topic has messages at offsets {_text(stretches)}, and the archive has them as {reason}"
        )
    gone = _gone(count, skipped, there.offsets)
    if gone:
        lost = sum(end - start for start, end in gone)
        remarks.append(
            f"{name}: the topic has no message any more at {lost:,} offsets that are archived ({_text(gone)}); the "
            "content of the others wasn't compared"
        )
    elif not problems:
        problems += _content(name, count, there)
    if not problems and (hidden := count.skipped.get(range_counts.HIDDEN)):
        remarks.append(f"{name}: its {hidden:,} hidden offsets hold no message: {_reasons(there.skipped)}")
    return problems, remarks


def _by_number(name: str, count: RangeCount, there: Topic) -> tuple[list[str], list[str]]:
    """Compares only the number of messages, because the record names only some of the skipped offsets."""
    if len(there.offsets) > count.messages:
        return [
            f"{name}: the topic has {len(there.offsets):,} messages, and {count.messages:,} were archived"
        ], []
    if len(there.offsets) < count.messages:
        return [], [
            f"{name}: the topic has {len(there.offsets):,} messages now, {count.messages:,} were archived"
        ]
    return _content(name, count, there), []


def _content(name: str, count: RangeCount, there: Topic) -> list[str]:
    other = [
        what
        for what, archived_crc, now in zip(CONTENT, count.content_crc, there.content_crc, strict=True)
        if archived_crc != now
    ]
    if not other:
        return []
    return [
        f"{name}: {', '.join(other)} of its messages are others in the topic than when it was archived (CRC-32)"
    ]


def _unexpected(skipped: Sequence[Span], offsets: Numbers) -> dict[str, list[tuple[int, int]]]:
    """Returns the stretches in which the topic has messages at skipped offsets, by the archive's reason."""
    stretches: dict[str, list[tuple[int, int]]] = {}
    for span in skipped:
        first, end = offsets.searchsorted([span.start, span.end]).tolist()
        if first < end:
            stretches.setdefault(span.reason, []).append((int(offsets[first]), int(offsets[end - 1]) + 1))
    return stretches


def _gone(count: RangeCount, skipped: Sequence[Span], offsets: Numbers) -> list[tuple[int, int]]:
    """Returns the stretches of archived offsets at which the topic has no message."""
    wanted = np.ones(count.end - count.start, np.bool_)
    for span in skipped:
        wanted[span.start - count.start : span.end - count.start] = False
    wanted[offsets - count.start] = False
    places = np.flatnonzero(np.diff(np.concatenate([[0], wanted.astype(np.int8), [0]]))) + count.start
    return list(zip(places[::2].tolist(), places[1::2].tolist(), strict=True))


def _reasons(spans: Sequence[Span]) -> str:
    counts: dict[str, int] = {}
    for span in spans:
        counts[span.reason] = counts.get(span.reason, 0) + span.end - span.start
    return ", ".join(f"{number:,} {reason}" for reason, number in sorted(counts.items()))


def _compare_old(batch: Sequence[tuple[CommitRecord, Topic]], comparison: Compared) -> None:
    """Compares a batch that an older version wrote. Its record has only the number and bytes of its messages, over all
    ranges together.
    """
    record = batch[0][0]
    name = f"batch {record.batch} of query {record.query}, which isn't counted"
    if len(batch) < len(record.ranges):
        comparison.remarks.append(f"{name}: the topic doesn't have all of it any more")
        return
    messages, size = sum(len(there.offsets) for _, there in batch), sum(there.bytes for _, there in batch)
    if (messages, size) == (record.messages, record.bytes_in):
        comparison.remarks.append(
            f"{name}: the topic has as many messages and bytes ({messages:,}, {size:,})"
        )
        return
    line = (
        f"{name}: {record.messages:,} messages of {record.bytes_in:,} bytes were archived, and the topic has "
        f"{messages:,} of {size:,}"
    )
    (comparison.problems if messages > record.messages else comparison.remarks).append(line)


def _text(stretches: Sequence[tuple[int, int]], most: int = 5) -> str:
    said = ", ".join(f"{start}..{end}" for start, end in stretches[:most])
    more = len(stretches) - most
    return said + (f" and {more} more stretches" if more > 0 else "")
