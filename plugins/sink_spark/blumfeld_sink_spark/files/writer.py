"""Writes the rows of one partition in a task: one staged file for each table, date and symbol."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import BinaryIO, Protocol

import pyarrow as pa

from blumfeld_sink_spark.errors import ArchiveError
from blumfeld_sink_spark.files import file_names
from blumfeld_sink_spark.files.output import Output
from blumfeld_sink_spark.files.parquet import file_schema
from blumfeld_sink_spark.files.parts import split
from blumfeld_sink_spark.files.spill import SpillFile
from blumfeld_sink_spark.records import StagedFile
from blumfeld_sink_spark.settings import ArchiveSettings
from blumfeld_sink_spark.tables import Table, tables

SPLIT_ROWS = 65_536
"""Rows of a table are kept together until there are so many: with hundreds of symbols in each batch of some
thousand messages, splitting costs per part, not per row."""
SPLIT_BYTES = 64 << 20

MEMORY_BYTES = 512 << 20
"""The limit on a task's memory; more goes to a temporary file. A row group on its way into a file comes on top."""


class Store(Protocol):
    """The methods of the archive's store that a writer calls."""

    def create(self, path: str) -> BinaryIO:
        """A new file, synced when it is closed."""
        ...

    def delete(self, path: str) -> None:
        """Away with a file, if it is there."""
        ...


class TaskWriter:
    """Writes the tables of one partition's rows, batch after batch, into files under ``_staging``.

    The bytes and hash of a file depend on its rows and their order alone: not on how they were cut into batches, on
    the memory bound, the clock or chance. Files hold no name of the topic: their published names do.
    """

    def __init__(
        self,
        store: Store,
        settings: ArchiveSettings,
        topic: str,
        partition: int,
        *,
        memory_bytes: int = MEMORY_BYTES,
    ) -> None:
        self._store = store
        self._settings = settings
        self._topic = topic
        self._partition = partition
        self._memory_bytes = memory_bytes
        self._tables = tables(*settings.price_type)
        self._unsplit: dict[str, list[pa.Table]] = {}
        self._unsplit_rows: dict[str, int] = {}
        self._unsplit_bytes: dict[str, int] = {}
        self._outputs: dict[tuple[str, str, str | None], Output] = {}
        self._staged: dict[tuple[str, str, str | None], str] = {}
        self._spill = SpillFile()

    def write(self, tables: Mapping[str, pa.Table]) -> None:
        """Takes rows: by name of the table, with the columns of its schema. Tables without rows write nothing.

        :raises ArchiveError: a table that isn't the archive's, or rows that don't have its schema
        :raises OSError: the store or the temporary folder is full
        """
        for name, rows in tables.items():
            if not rows.num_rows:
                continue
            self._unsplit.setdefault(name, []).append(_checked(self._table(name), rows))
            self._unsplit_rows[name] = self._unsplit_rows.get(name, 0) + rows.num_rows
            self._unsplit_bytes[name] = self._unsplit_bytes.get(name, 0) + rows.nbytes
            if self._unsplit_rows[name] >= SPLIT_ROWS or self._unsplit_bytes[name] >= SPLIT_BYTES:
                self._sort_out(name)

    def close(self) -> tuple[StagedFile, ...]:
        """Finishes all files, and returns them sorted by table, date and symbol. They are synced then, and no reader
        sees them.

        :raises OSError: as ``write``; then call ``abort``
        """
        for name in sorted(self._unsplit):
            self._sort_out(name)
        keys = sorted(self._outputs, key=lambda key: (key[0], key[1], key[2] or ""))
        entries = tuple(self._finish(key) for key in keys)
        self._spill.close()
        return entries

    def abort(self) -> None:
        """Removes the staged files."""
        self._spill.close()
        self._unsplit.clear()
        for output in self._outputs.values():
            output.abandon()
        self._outputs.clear()
        for path in self._staged.values():
            self._store.delete(path)
        self._staged.clear()

    def _table(self, name: str) -> Table:
        try:
            return self._tables[name]
        except KeyError:
            raise ArchiveError(
                f"no table {name}; the archive has {', '.join(sorted(self._tables))}"
            ) from None

    def _sort_out(self, name: str) -> None:
        """Moves the rows of a table to the outputs that they belong in."""
        pieces = self._unsplit.pop(name)
        self._unsplit_rows[name] = self._unsplit_bytes[name] = 0
        for part in split(self._table(name), pa.concat_tables(pieces)):
            self._output(name, part.date, part.symbol).add(part.rows)
        if sum(output.buffered_bytes for output in self._outputs.values()) > self._memory_bytes:
            for output in self._outputs.values():
                output.spill()

    def _output(self, name: str, date: str, symbol: str | None) -> Output:
        key = (name, date, symbol)
        if key not in self._outputs:
            self._outputs[key] = Output(
                self._table(name),
                lambda: self._create(key),
                group_rows=self._settings.row_group_rows,
                compression=self._settings.compression,
                spill=self._spill,
            )
        return self._outputs[key]

    def _create(self, key: tuple[str, str, str | None]) -> BinaryIO:
        self._staged[key] = file_names.staged_path(uuid.uuid4().hex)
        return self._store.create(self._staged[key])

    def _finish(self, key: tuple[str, str, str | None]) -> StagedFile:
        output, (name, date, symbol) = self._outputs[key], key
        file = output.finish()
        return StagedFile(
            table=name,
            date=date,
            symbol=symbol or "",
            topic=self._topic,
            partition=self._partition,
            staged=self._staged[key],
            rows=output.rows,
            bytes=file.bytes,
            sha256=file.sha256,
            ts_min=output.ts_min,
            ts_max=output.ts_max,
        )


def _checked(table: Table, rows: pa.Table) -> pa.Table:
    """The rows, with exactly the columns of the table's file.

    :raises ArchiveError: another schema, or a null where none may be
    """
    schema = file_schema(table)
    if not rows.schema.equals(schema):
        if rows.schema.names != schema.names or rows.schema.types != schema.types:
            raise ArchiveError(
                f"rows for {table.name} have {rows.schema.to_string()}; wanted {schema.to_string()}"
            )
        rows = pa.Table.from_arrays(rows.columns, schema=schema)
    for field in schema:
        if not field.nullable and rows[field.name].null_count:
            raise ArchiveError(f"rows for {table.name} have nulls in {field.name}, which may have none")
    return rows
