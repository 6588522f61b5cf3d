"""The counts of a batch, checked against its plan and its files before anything is published."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from blumfeld_sink_spark import range_counts
from blumfeld_sink_spark.errors import LedgerConflictError
from blumfeld_sink_spark.ledger.rules import named
from blumfeld_sink_spark.records import FileEntry, OffsetRange, RangeCount, StagedFile, TaskResult
from blumfeld_sink_spark.tables import GAPS

TELLING = frozenset({"direct", "python"})
"""Readers whose tasks count each offset of their range. Spark's own connector delivers only messages."""


def counts_of(
    planned: Sequence[OffsetRange], lost: Sequence[OffsetRange], results: Sequence[TaskResult], reader: str
) -> tuple[RangeCount, ...]:
    """Returns one count for each planned range, in their order. Every count adds up.

    A reader that isn't ``TELLING`` passes offsets in silence. They count as ``hidden``.

    :raises LedgerConflictError: no task or two tasks read a range, or a count doesn't add up; the message names the
        offsets
    """
    counts = []
    for taken in planned:
        of_it = [
            result for result in results if (result.topic, result.partition) == (taken.topic, taken.partition)
        ]
        if len(of_it) > 1:
            raise LedgerConflictError(
                f"two tasks read {named(taken)}. Nothing was published; a partition must be one task: leave "
                "minPartitions and its like away"
            )
        if reader in TELLING:
            counts.append(_told(taken, of_it))
        else:
            count = of_it[0].count if of_it else None
            counts.append(
                range_counts.over(count, taken, lost) if count else range_counts.unread(taken, lost)
            )
    problems = [problem for count in counts for problem in range_counts.wrong(count)]
    problems += unwritten(counts, [file for result in results for file in result.files])
    if problems:
        raise LedgerConflictError(
            f"{'; '.join(problems)}. Nothing was published; run it again, and report it if it stays so"
        )
    return tuple(counts)


def _told(taken: OffsetRange, results: Sequence[TaskResult]) -> RangeCount:
    """Returns the count of the task that read this range.

    :raises LedgerConflictError: no task counted this range, or its task counted another one
    """
    count = results[0].count if results else None
    if count is None or (count.start, count.end) != (taken.start, taken.end):
        said = f"{count.start}..{count.end}" if count else "nothing"
        raise LedgerConflictError(
            f"planned was {named(taken)}, and its task counted {said}. Nothing was published; run it again"
        )
    return count


def unwritten(counts: Iterable[RangeCount], files: Iterable[FileEntry | StagedFile]) -> list[str]:
    """Returns a line for each table whose files have more or fewer rows than the decoders made."""
    made = range_counts.counted_rows(counts)
    written: Counter[tuple[str, int, str]] = Counter()
    for file in files:
        if file.table != GAPS:
            written[file.topic, file.partition, file.table] += file.rows
    return [
        f"{topic}-{partition}: {made[topic, partition, table]:,} rows of {table} were decoded, and "
        f"{written[topic, partition, table]:,} are in its files"
        for topic, partition, table in sorted({*made, *written})
        if made[topic, partition, table] != written[topic, partition, table]
    ]
