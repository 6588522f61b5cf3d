"""One file in the making: rows of one table, date and symbol."""

from __future__ import annotations

from collections.abc import Callable
from typing import BinaryIO

import pyarrow as pa
import pyarrow.compute as pc

from blumfeld_sink_spark.files.hashed_file import HashedFile
from blumfeld_sink_spark.files.parquet import (
    WIDE,
    WIDE_ROW_GROUP_BYTES,
    WIDE_ROW_GROUP_ROWS,
    TableWriter,
    file_schema,
    group_end,
    open_writer,
    wide_bytes,
)
from blumfeld_sink_spark.files.spill import Spilled, SpillFile
from blumfeld_sink_spark.tables import Table


class Output:
    """Collects rows until a row group is full, then writes it; opens its file with the first row group.

    The bytes of the file depend on the rows and their order alone, not on the sizes of the calls, nor on the moments
    of spilling.
    """

    def __init__(
        self,
        table: Table,
        create: Callable[[], BinaryIO],
        *,
        group_rows: int,
        compression: str,
        spill: SpillFile,
    ) -> None:
        self.table = table
        self.rows = 0
        self.buffered_bytes = 0
        self.ts_min = self.ts_max = 0
        self.file: HashedFile | None = None
        self._create = create
        self._group_rows = group_rows
        self._full_rows = min(group_rows, WIDE_ROW_GROUP_ROWS) if table.name in WIDE else group_rows
        self._compression = compression
        self._spill = spill
        self._waiting: list[pa.Table | Spilled] = []
        self._waiting_rows = 0
        self._waiting_wide_bytes = 0
        self._writer: TableWriter | None = None

    def add(self, rows: pa.Table) -> None:
        """Takes rows behind those that it has.

        :raises OSError: the file couldn't be written
        """
        bounds = pc.min_max(rows[self.table.time_column])
        least, most = bounds["min"].as_py(), bounds["max"].as_py()
        self.ts_min, self.ts_max = (
            (min(self.ts_min, least), max(self.ts_max, most)) if self.rows else (least, most)
        )
        self.rows += rows.num_rows
        self._waiting.append(rows)
        self._waiting_rows += rows.num_rows
        self._waiting_wide_bytes += wide_bytes(self.table, rows)
        self.buffered_bytes += rows.nbytes
        if self._waiting_rows >= self._full_rows or self._waiting_wide_bytes >= WIDE_ROW_GROUP_BYTES:
            self._write_groups(whole=False)

    def spill(self) -> None:
        """Moves the rows that wait in memory to the disk."""
        kept: list[pa.Table | Spilled] = [piece for piece in self._waiting if isinstance(piece, Spilled)]
        loose = [piece for piece in self._waiting if not isinstance(piece, Spilled)]
        if loose:  # the youngest rows: those spilled before stay in front of them
            kept.append(self._spill.write(pa.concat_tables(loose).combine_chunks()))
        self._waiting, self.buffered_bytes = kept, 0

    def finish(self) -> HashedFile:
        """Writes the waiting rows, then closes and syncs the file."""
        self._write_groups(whole=True)
        writer, file = self._open()
        writer.close()
        file.close()
        return file

    def abandon(self) -> None:
        """Closes the open file. Its content is worth nothing."""
        self._waiting = []
        if self.file is not None:
            self.file.drop()
        if self._writer is not None:
            self._writer.close()  # else it would try when it is collected

    def _open(self) -> tuple[TableWriter, HashedFile]:
        if self.file is None:
            self.file = HashedFile(self._create())
        if self._writer is None:
            self._writer = open_writer(self.file, self.table, self._compression)
        return self._writer, self.file

    def _write_groups(self, *, whole: bool) -> None:
        """Writes full row groups, and with ``whole`` the rest as a last, smaller one."""
        pieces = [self._spill.read(piece) if isinstance(piece, Spilled) else piece for piece in self._waiting]
        rows = pa.concat_tables(pieces) if pieces else file_schema(self.table).empty_table()
        while rows.num_rows:
            size = group_end(self.table, rows, self._group_rows) or (rows.num_rows if whole else 0)
            if not size:
                break
            writer, _ = self._open()
            writer.write_table(rows.slice(0, size))
            rows = rows.slice(size)
        self._waiting = [rows] if rows.num_rows else []
        self._waiting_rows, self.buffered_bytes = rows.num_rows, rows.nbytes
        self._waiting_wide_bytes = wide_bytes(self.table, rows)
