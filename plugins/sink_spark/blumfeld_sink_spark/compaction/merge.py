"""Files of one table, date, symbol and topic merged into sorted ones, in memory of a few row groups."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO

import attrs
import pyarrow as pa
import pyarrow.compute as pc

from blumfeld_sink_spark.compaction.fingerprint import Fingerprint
from blumfeld_sink_spark.errors import ArchiveError
from blumfeld_sink_spark.files.output import Output
from blumfeld_sink_spark.files.parquet import file_schema, opened
from blumfeld_sink_spark.files.spill import SpillFile
from blumfeld_sink_spark.records import FileEntry
from blumfeld_sink_spark.tables import Table, tables

SORT_ROWS = 262_144
"""Rows are sorted when so many wait: small files cost a sort together, not each."""

_PLACE = "__place"


class UnlikeError(ArchiveError):
    """The files of a group have different columns or types, so the group stays as it is."""


@attrs.frozen
class Piece:
    """A row group of an input."""

    ts_min: int
    file: int
    group: int
    first_row: int


@attrs.frozen
class Merged:
    """One new file."""

    path: str
    rows: int
    bytes: int
    sha256: str
    ts_min: int
    ts_max: int


def table_of(entry: FileEntry, schema: pa.Schema) -> Table:
    """The table of a file, with the decimals that the file has. The file may lack columns that came to the table later
    and may be null.

    :raises UnlikeError: its columns aren't the table's as it is now
    """
    number = next((kind for kind in schema.types if pa.types.is_decimal128(kind)), pa.decimal128(38, 18))
    table = tables(number.precision, number.scale)[entry.table]
    known = [field for field in file_schema(table) if field.name in schema.names or not field.nullable]
    if not schema.equals(pa.schema(known)):
        raise UnlikeError(f"{entry.path}: has other columns than {entry.table} has now")
    return table


class Inputs:
    """The files to merge. Each is read twice: first to compare its hash with its record, then for its rows."""

    def __init__(self, read: Callable[[str], bytes], entries: Sequence[FileEntry]) -> None:
        self._read = read
        self.entries = entries
        self.fingerprint = Fingerprint()
        self.table, self.pieces = self._look()

    def _look(self) -> tuple[Table, list[Piece]]:
        table: Table | None = None
        pieces: list[Piece] = []
        for number, entry in enumerate(self.entries):
            file = self._open(entry, check=True)
            entry_table = table_of(entry, file.schema_arrow)
            if table is not None and entry_table is not table:
                raise UnlikeError(f"{entry.path}: prices have another type than in {self.entries[0].path}")
            table = entry_table
            pieces += _pieces(file.metadata, number, table)
        assert table is not None, "nothing to merge"
        return table, sorted(pieces, key=lambda piece: (piece.ts_min, piece.file, piece.group))

    def rows(self, piece: Piece) -> pa.Table:
        """Returns the rows of a piece, with their places in the file."""
        rows = with_all_columns(self._open(self.entries[piece.file]).read_row_group(piece.group), self.table)
        self.fingerprint.add(rows)
        places = range(piece.first_row, piece.first_row + rows.num_rows)
        return rows.append_column(_PLACE, pa.array(places, pa.int64()))

    def _open(self, entry: FileEntry, *, check: bool = False) -> Any:
        data = self._read(entry.path)
        if check and hashlib.sha256(data).hexdigest() != entry.sha256:
            raise ArchiveError(
                f"{entry.path}: isn't what its commit record says. Nothing was changed; run verify --deep, and bring "
                "the file back from a copy"
            )
        return opened(data)


def with_all_columns(rows: pa.Table, table: Table) -> pa.Table:
    """The rows with the table's columns as they are now; one that their file hasn't is null."""
    for place, field in enumerate(file_schema(table)):
        if field.name not in rows.schema.names:
            rows = rows.add_column(place, field, pa.nulls(rows.num_rows, field.type))
    return rows


def _pieces(metadata: Any, number: int, table: Table) -> Iterator[Piece]:
    column = metadata.schema.to_arrow_schema().get_field_index(table.time_column)
    first_row = 0
    for group in range(metadata.num_row_groups):
        row_group = metadata.row_group(group)
        yield Piece(row_group.column(column).statistics.min, number, group, first_row)
        first_row += row_group.num_rows


def merge(
    inputs: Inputs,
    create: Callable[[str], BinaryIO],
    path_of: Callable[[int], str],
    *,
    rows_per_file: int,
    group_rows: int,
    compression: str,
) -> list[Merged]:
    """Writes all rows in the order of (time, partition, offset, place in the message), cut into files of so many rows,
    the n-th under ``path_of(n)``. The same inputs give the same bytes.

    Ids say nothing of the order: they may be hashes, begin anew, or be shared by several trades.

    :raises OSError: a file couldn't be written; those begun are closed
    """
    spill = SpillFile()
    done: list[Merged] = []
    output: Output | None = None

    def opened(path: str) -> Output:
        return Output(
            inputs.table, lambda: create(path), group_rows=group_rows, compression=compression, spill=spill
        )

    try:
        for rows in _in_order(inputs):
            while rows.num_rows:
                output = output or opened(path_of(len(done)))
                taken = rows.slice(0, rows_per_file - output.rows)
                output.add(taken)
                rows = rows.slice(taken.num_rows)
                if output.rows >= rows_per_file:
                    done.append(_finished(output, path_of(len(done))))
                    output = None
        if output is not None:
            done.append(_finished(output, path_of(len(done))))
    except BaseException:
        if output is not None:
            output.abandon()
        raise
    return done


def _finished(output: Output, path: str) -> Merged:
    file = output.finish()
    return Merged(path, output.rows, file.bytes, file.sha256, output.ts_min, output.ts_max)


def _in_order(inputs: Inputs) -> Iterator[pa.Table]:
    """Yields rows in order. Rows older than every row still to be read are done; only the others stay in memory."""
    waiting: list[pa.Table] = []
    for number, piece in enumerate(inputs.pieces):
        waiting.append(inputs.rows(piece))
        more = inputs.pieces[number + 1 :]
        if more and sum(rows.num_rows for rows in waiting) >= SORT_ROWS:
            ready, rest = _older(pa.concat_tables(waiting), inputs.table.time_column, more[0].ts_min)
            waiting = [rest] if rest.num_rows else []
            yield _sorted(ready, inputs.table)
    if waiting:
        yield _sorted(pa.concat_tables(waiting), inputs.table)


def _older(rows: pa.Table, column: str, ts: int) -> tuple[pa.Table, pa.Table]:
    older = pc.less(rows[column], ts)
    return rows.filter(older), rows.filter(pc.invert(older))


def _sorted(rows: pa.Table, table: Table) -> pa.Table:
    names = [table.time_column, "k_partition", "k_offset", _PLACE]
    order = pc.sort_indices(rows, sort_keys=[(name, "ascending") for name in names])
    return rows.take(order).drop_columns([_PLACE])


def fingerprint_of(open_input: Callable[[str], Any], paths: Sequence[str]) -> Fingerprint:
    """Returns the fingerprint of these files as they lie in the store now."""
    fingerprint = Fingerprint()
    for path in paths:
        source = open_input(path)
        try:
            file = opened(source)
            for group in range(file.metadata.num_row_groups):
                fingerprint.add(file.read_row_group(group))
        finally:
            source.close()
    return fingerprint
