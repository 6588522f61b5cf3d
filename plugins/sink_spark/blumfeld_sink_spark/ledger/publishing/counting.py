"""The counts of a batch, held against its plan and its files before anything is published."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from blumfeld_sink_spark import accounting
from blumfeld_sink_spark.errors import LedgerConflictError
from blumfeld_sink_spark.ledger.rules import named
from blumfeld_sink_spark.records import FileEntry, OffsetRange, RangeCount, StagedFile, TaskResult
from blumfeld_sink_spark.tables import GAPS

TELLING = frozenset({"direct", "python"})
"""Readers whose tasks say what became of each offset of their range. Spark's own connector gives messages only."""


def counts_of(
    planned: Sequence[OffsetRange], lost: Sequence[OffsetRange], results: Sequence[TaskResult], reader: str
) -> tuple[RangeCount, ...]:
    """A count for each planned range, in their order, all sums of which close.

    What a reader that isn't ``TELLING`` didn't show is ``hidden`` in it.

    :raises LedgerConflictError: a range that no task or two tasks have read, or sums that don't close, with the offsets
    """
    found = []
    for taken in planned:
        of_it = [one for one in results if (one.topic, one.partition) == (taken.topic, taken.partition)]
        if len(of_it) > 1:
            raise LedgerConflictError(
                f"two tasks read {named(taken)}. Nothing was published; a partition must be one task: leave "
                "minPartitions and its like away"
            )
        if reader in TELLING:
            found.append(_told(taken, of_it))
        else:
            count = of_it[0].count if of_it else None
            found.append(accounting.over(count, taken, lost) if count else accounting.unread(taken, lost))
    problems = [problem for count in found for problem in accounting.wrong(count)]
    problems += unwritten(found, [file for result in results for file in result.files])
    if problems:
        raise LedgerConflictError(
            f"{'; '.join(problems)}. Nothing was published; run it again, and report it if it stays so"
        )
    return tuple(found)


def _told(taken: OffsetRange, results: Sequence[TaskResult]) -> RangeCount:
    """
    :raises LedgerConflictError: no task says anything of this range, or it says it of another
    """
    count = results[0].count if results else None
    if count is None or (count.start, count.end) != (taken.start, taken.end):
        said = f"{count.start}..{count.end}" if count else "nothing"
        raise LedgerConflictError(
            f"planned was {named(taken)}, and its task counted {said}. Nothing was published; run it again"
        )
    return count


def unwritten(counts: Iterable[RangeCount], files: Iterable[FileEntry | StagedFile]) -> list[str]:
    """Tables of which the files have another number of rows than the decoders made."""
    made = accounting.counted_rows(counts)
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
