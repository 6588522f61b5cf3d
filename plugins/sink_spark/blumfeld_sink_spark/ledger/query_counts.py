"""The counts over all commit records of a query. The checkpoint has them, so ``status`` need not read the records."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from blumfeld_sink_spark.records import CommitRecord


class TableCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Files and rows of one table."""

    files: int = 0
    rows: int = 0
    bytes: int = 0
    ts_min: int = 0
    """Least value of the table's time column, ns; 0 where none is known."""
    ts_max: int = 0


class QueryCounts(msgspec.Struct, frozen=True, kw_only=True):
    """The counts over the records of one query. A file that a later record removed still counts here, for the query
    that wrote it.
    """

    batches: int = 0
    messages: int = 0
    bytes_in: int = 0
    quarantined: int = 0
    gaps: int = 0
    removed: int = 0
    """Number of files that the query's records removed."""
    first_ms: int = 0
    """Wall-clock time of the first commit."""
    last_ms: int = 0
    seconds: float = 0.0
    """Duration of all batches."""
    tables: dict[str, TableCounts] = {}
    skipped: dict[str, int] = {}
    """Offsets that gave no message, by reason."""
    passed_over: dict[str, dict[str, int]] = {}
    """Messages without a row, by decoder and kind."""
    uncounted: int = 0
    """Batches whose records count no offsets: older versions wrote them."""

    def plus(self, record: CommitRecord) -> QueryCounts:
        """Returns the counts with one more record."""
        return QueryCounts(
            batches=self.batches + 1,
            messages=self.messages + record.messages,
            bytes_in=self.bytes_in + record.bytes_in,
            quarantined=self.quarantined + record.quarantined,
            gaps=self.gaps + record.gaps,
            removed=self.removed + len(record.removed),
            first_ms=self.first_ms or record.committed_ms,
            last_ms=max(self.last_ms, record.committed_ms),
            seconds=self.seconds + record.seconds,
            tables=_with_files(self.tables, record),
            skipped=added(self.skipped, *(count.skipped for count in record.counts)),
            passed_over=_with_counts(self.passed_over, record),
            uncounted=self.uncounted + bool(record.ranges and not record.counts),
        )


def added(*counts: Mapping[str, int]) -> dict[str, int]:
    """Returns the sum for each name, sorted by name."""
    totals: dict[str, int] = {}
    for each in counts:
        for name, number in each.items():
            totals[name] = totals.get(name, 0) + number
    return dict(sorted(totals.items()))


def _with_counts(known: Mapping[str, dict[str, int]], record: CommitRecord) -> dict[str, dict[str, int]]:
    by_name = dict(known)
    for count in record.counts:
        for decoder, fate in count.decoders.items():
            if fate.passed_over:
                by_name[decoder] = added(by_name.get(decoder, {}), fate.passed_over)
    return dict(sorted(by_name.items()))


def _with_files(tables: dict[str, TableCounts], record: CommitRecord) -> dict[str, TableCounts]:
    by_table = dict(tables)
    for file in record.files:
        before = by_table.get(file.table, TableCounts())
        by_table[file.table] = TableCounts(
            files=before.files + 1,
            rows=before.rows + file.rows,
            bytes=before.bytes + file.bytes,
            ts_min=min(before.ts_min or file.ts_min, file.ts_min or before.ts_min),
            ts_max=max(before.ts_max, file.ts_max),
        )
    return dict(sorted(by_table.items()))
