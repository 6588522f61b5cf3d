"""Rows that wait on disk for their turn."""

from __future__ import annotations

import tempfile
from typing import BinaryIO

import attrs
import pyarrow as pa


@attrs.frozen
class Spilled:
    """The place of rows in the file."""

    place: int
    bytes: int
    rows: int


class SpillFile:
    """A nameless temporary file in ``TMPDIR`` for the rows of one task. It is made on first use.

    The file only grows until ``close`` frees it; a task's rows bound it. A dead process leaves nothing behind, because
    the file has no name.
    """

    def __init__(self) -> None:
        self._file: BinaryIO | None = None
        self.bytes = 0

    def write(self, rows: pa.Table) -> Spilled:
        """Keeps rows.

        :raises OSError: the disk is full
        """
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="blumfeld-spill-")  # noqa: SIM115 (closed by close)
        buffer = pa.BufferOutputStream()
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        with pa.ipc.new_stream(buffer, rows.schema, options=options) as stream:
            stream.write_table(rows)
        data = buffer.getvalue()
        place = self.bytes
        self._file.seek(place)
        self._file.write(data)
        self.bytes += len(data)
        return Spilled(place=place, bytes=len(data), rows=rows.num_rows)

    def read(self, where: Spilled) -> pa.Table:
        """The rows of one ``write``."""
        assert self._file is not None, "nothing was spilled"
        self._file.seek(where.place)
        return pa.ipc.open_stream(self._file.read(where.bytes)).read_all()

    def close(self) -> None:
        """Frees the disk; may be called again."""
        if self._file is not None:
            self._file.close()
            self._file = None
