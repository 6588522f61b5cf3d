"""Merges the rows of many files into one order, a window at a time. Exports and pictures read through it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from blumfeld_sink_spark.files.parquet import opened
from blumfeld_sink_spark.reading.committed_files import Committed
from blumfeld_sink_spark.records import FileEntry
from blumfeld_sink_spark.tables import tables

LINEAGE = ("k_partition", "k_offset")
BATCH_ROWS = 65_536
"""Rows in memory of each open file."""


def ordered(
    archive: Committed,
    entries: Sequence[FileEntry],
    columns: Sequence[str],
    key: str,
    batch_rows: int = BATCH_ROWS,
) -> Iterator[pa.Table]:
    """Yields all rows of the files by ``key``, an int64 column. Rows of one key are in the log's order: by partition
    and offset, then by the files' paths and their places in the file. So the rows of a message stay together, whatever
    order their file was written in.

    A file is open from its first key to its last, so memory is bounded by the files that overlap. A file that isn't in
    the order of ``key`` is read whole.
    """
    wanted = list(dict.fromkeys([*columns, key, *LINEAGE]))
    waiting = sorted(
        (_Lane.of(archive, entry, wanted, key, batch_rows) for entry in entries),
        key=lambda lane: (lane.low, lane.entry.path),
    )
    open_lanes: list[_Lane] = []
    with ExitStack() as stack:
        stack.callback(_close, open_lanes)
        while waiting or open_lanes:
            if not open_lanes:
                open_lanes.append(waiting.pop(0).open())
            limit = _limit(open_lanes)
            while waiting and (limit is None or waiting[0].low <= limit):
                open_lanes.append(waiting.pop(0).open())
                limit = _limit(open_lanes)
            parts = [lane.take(limit) for lane in sorted(open_lanes, key=lambda lane: lane.entry.path)]
            rows = _merged([part for part in parts if part.num_rows], key)
            for lane in [lane for lane in open_lanes if lane.is_empty]:
                lane.close()
                open_lanes.remove(lane)
            if rows is not None:
                yield rows.select(list(columns))


def _close(lanes: Sequence[_Lane]) -> None:
    for lane in lanes:
        lane.close()


def _limit(lanes: Sequence[_Lane]) -> int | None:
    """Returns the key below which all rows of these lanes are in memory; None if all rows are."""
    ends = [lane.last for lane in lanes if not lane.is_read]
    return min(ends) if ends else None


def _merged(parts: Sequence[pa.Table], key: str) -> pa.Table | None:
    if not parts:
        return None
    rows = pa.concat_tables(parts)
    return sorted_by(rows, [key, *(name for name in LINEAGE if name != key)])


def sorted_by(rows: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Returns the rows by these integers, rows with equal ones in their order. Rows that are in order already cost
    little.
    """
    if _is_sorted_by(rows, keys):
        return rows
    # Arrow's sort_indices is stable.
    return rows.take(pc.sort_indices(rows, [(name, "ascending") for name in keys]))


@attrs.define
class _Lane:
    """One file of the merge, and its rows in memory."""

    archive: Committed
    entry: FileEntry
    columns: list[str]
    key: str
    low: int
    batch_rows: int
    is_read: bool = False
    _rows: pa.Table | None = None
    _source: Any = None
    _batches: Iterator[pa.Table] | None = None

    @classmethod
    def of(cls, archive: Committed, entry: FileEntry, columns: list[str], key: str, batch_rows: int) -> _Lane:
        """Returns a closed lane. Only the file's footer is read, for its least key."""
        with archive.open_file(entry) as source:
            low = _least(opened(source), key)
        return cls(archive, entry, columns, key, low, batch_rows)

    def open(self) -> _Lane:
        """Opens the file and reads its first rows."""
        self._source = self.archive.open_file(self.entry)
        file = opened(self._source)
        if _is_sorted(file.read(columns=[self.key])[self.key]):
            self._batches = (
                self._whole(pa.Table.from_batches([batch]))
                for batch in file.iter_batches(self.batch_rows, columns=self.columns)
            )
        else:
            rows = self._whole(file.read(columns=self.columns))
            self._batches = iter([rows.take(pc.sort_indices(rows[self.key]))])
        self._more()
        return self

    def _whole(self, rows: pa.Table) -> pa.Table:
        """Adds nulls for columns that the table got after the file was written."""
        schema = tables()[self.entry.table].schema
        for name in self.columns:
            if name not in rows.schema.names:
                rows = rows.append_column(
                    schema.field(name), pa.nulls(rows.num_rows, schema.field(name).type)
                )
        return rows.select(self.columns)

    @property
    def last(self) -> int:
        """The key of the last row in memory."""
        assert self._rows is not None
        return int(self._rows[self.key][-1].as_py())

    @property
    def is_empty(self) -> bool:
        """Whether all rows were read and taken."""
        return self.is_read and not (self._rows is not None and self._rows.num_rows)

    def take(self, limit: int | None) -> pa.Table:
        """Removes and returns the rows below ``limit``; all rows if it is None.

        Then reads on where needed: rows with the key ``limit`` may go on in the next batch.
        """
        assert self._rows is not None
        if limit is None:
            taken, self._rows = self._rows, self._rows.slice(0, 0)
            return taken
        count = pc.sum(pc.less(self._rows[self.key], limit)).as_py() or 0
        taken, self._rows = self._rows.slice(0, count), self._rows.slice(count)
        if not self.is_read and (not self._rows.num_rows or self.last == limit):
            self._more()
        return taken

    def _more(self) -> None:
        assert self._batches is not None
        batch = next(self._batches, None)
        if batch is None:
            self.is_read = True
            if self._rows is None:
                self._rows = pa.table({self.key: pa.array([], pa.int64())})
        else:
            self._rows = batch if self._rows is None else pa.concat_tables([self._rows, batch])

    def close(self) -> None:
        """Closes the file."""
        if self._source is not None:
            self._source.close()
            self._source = None


def _least(file: Any, key: str) -> int:
    """Returns the least key, from the footer's statistics, or from the column where there are none."""
    metadata = file.metadata
    at = metadata.schema.to_arrow_schema().get_field_index(key)
    statistics = [metadata.row_group(group).column(at).statistics for group in range(metadata.num_row_groups)]
    if statistics and all(stats is not None and stats.has_min_max for stats in statistics):
        return int(min(stats.min for stats in statistics))
    least = pc.min(file.read(columns=[key])[key]).as_py()
    return 0 if least is None else int(least)


def _is_sorted_by(rows: pa.Table, keys: Sequence[str]) -> bool:
    """Returns whether each row is at or after the one before it. The keys are integers without nulls."""
    if rows.num_rows < 2:
        return True
    equal = np.ones(rows.num_rows - 1, dtype=bool)
    for name in keys:
        step = np.diff(rows[name].to_numpy())
        if (step[equal] < 0).any():
            return False
        equal &= step == 0
    return True


def _is_sorted(column: pa.ChunkedArray) -> bool:
    values = column.combine_chunks()
    return len(values) < 2 or bool(pc.all(pc.less_equal(values[:-1], values[1:])).as_py())
