"""Writes tables as Parquet: an encoding for each column, row groups by count, and no byte that isn't data.

The docstrings of ``tables`` have the sizes of each encoding on a real feed. Common to all: format 2.6, data pages 1.0
(2.0 packs no better and fewer readers know it), page index and statistics (readers prune by time), decimals of up to 18
digits as integers (16 bytes otherwise), no Arrow schema. Byte stream split won nowhere.
"""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from blumfeld_sink_spark.errors import SettingsError
from blumfeld_sink_spark.tables import QUARANTINE, RAW, Table

WIDE = (RAW, QUARANTINE)
"""Tables that hold whole messages."""
WIDE_ROW_GROUP_ROWS = 65_536
WIDE_ROW_GROUP_BYTES = 128 << 20
"""The limit on the messages' bytes in a row group: a row group is in memory at once."""

PAGE_ROWS = 131_072
"""Arrow's 20,000 cost 1.5 % on book levels; eight pages in a row group are left for readers that prune by page."""
PAGE_BYTES = 4 << 20
"""So much that rows, not bytes, end a page: plain prices repeat from further than Arrow's 1 MiB."""
DICTIONARY_BYTES = 4 << 20
"""262,144 prices. Arrow's 1 MiB is full after 65,536, behind which a price or size takes half as much again."""
MANY_ROWS = 8
"""Average rows of a message from which on the columns that they share stay plain. zstd packs equal values better
than differences that are all zero but one (0.05 against 0.08 B a level, where messages have 68 levels)."""
HARDER_LEVELS = 4
"""The levels that ``Table.hard`` columns get on top of zstd's level. A book's prices take 0.05 B of 4 a level less, for
36 ms of 200 a million levels. Times would take 0.02 B less for 16 ms.
"""

_CODECS = ("zstd", "snappy", "gzip", "lz4", "brotli", "none")
_CONSTANT = ("venue", "symbol")


def compression_of(given: str) -> tuple[str, int | None]:
    """``zstd:3`` as (codec, level).

    :raises SettingsError: a codec that isn't known or isn't in this build of Arrow, or a level that isn't a number
    """
    codec, _, level = given.partition(":")
    if codec not in _CODECS or not (codec == "none" or pa.Codec.is_available(codec)):
        raise SettingsError(
            f"archive.compression: {given}; allowed: {', '.join(_CODECS)}, with :LEVEL where it has one"
        )
    try:
        return codec, int(level) if level else None
    except ValueError as error:
        raise SettingsError(f"archive.compression: {given}; the level isn't a number") from error


def group_end(table: Table, rows: pa.Table, group_rows: int) -> int:
    """Returns the number of rows in the next row group; 0 while it isn't full.

    It is full at a count of rows, or of bytes where rows hold whole messages. Both depend on the rows alone, so files
    don't depend on how rows arrived.
    """
    if table.name not in WIDE:
        return group_rows if rows.num_rows >= group_rows else 0
    rows_max = min(group_rows, WIDE_ROW_GROUP_ROWS)
    rows = rows.slice(0, rows_max)
    sizes = pc.fill_null(pc.binary_length(rows["value"]), 0).to_numpy()
    full = int(np.searchsorted(np.cumsum(sizes, dtype=np.int64), WIDE_ROW_GROUP_BYTES)) + 1
    return full if full <= rows.num_rows else rows_max if rows.num_rows >= rows_max else 0


def wide_bytes(table: Table, rows: pa.Table) -> int:
    """Returns the bytes of the messages in ``rows``; 0 for tables that hold none."""
    if table.name not in WIDE:
        return 0
    return int(pc.sum(pc.binary_length(rows["value"])).as_py() or 0)


def file_schema(table: Table) -> pa.Schema:
    """The columns in the file: the table's, without metadata (``date`` is in the path only)."""
    return table.schema.remove_metadata()


def write_options(table: Table, compression: str = "zstd:3", *, many_rows: bool = True) -> dict[str, Any]:
    """Keyword arguments of ``pyarrow.parquet.ParquetWriter`` for a table.

    The same rows with the same options give the same bytes for one version of Arrow, whose name and version are in
    the file (``created_by``).

    :param many_rows: messages have ``MANY_ROWS`` rows or more
    """
    delta = table.delta if many_rows else (*table.delta, *table.by_message)
    plain = (*table.plain, *table.by_message) if many_rows else table.plain
    codec, level = compression_of(compression)
    options = {
        "version": "2.6",
        "compression": codec,
        "compression_level": _levels(table, codec, level),
        "use_dictionary": _dictionary_columns(table, {*delta, *plain}),
        "column_encoding": dict.fromkeys(delta, "DELTA_BINARY_PACKED"),
        "data_page_size": PAGE_BYTES,
        "dictionary_pagesize_limit": DICTIONARY_BYTES,
        "write_statistics": _judged_columns(table),
        "write_page_index": True,
        "store_schema": False,
        "store_decimal_as_integer": True,
    }
    if "max_rows_per_page" in inspect.signature(pq.ParquetWriter.__init__).parameters:
        options["max_rows_per_page"] = PAGE_ROWS  # older ones have no such bound, nor the option
    return options


class TableWriter:
    """Writes one file of a table: each ``write_table`` is a row group."""

    def __init__(self, sink: Any, table: Table, compression: str) -> None:
        self._sink = sink
        self._table = table
        self._compression = compression
        self._writer: pq.ParquetWriter | None = None

    def write_table(self, rows: pa.Table) -> None:
        """Writes all these rows, which have the table's schema, as one row group. The first one decides the encodings.

        :raises OSError: the file can't be written
        """
        rows = rows.combine_chunks()
        if self._writer is None:
            self._writer = self._open(many_rows=_rows_of_a_message(rows) >= MANY_ROWS)
        self._writer.write_table(_as_written(rows, self._writer.schema), row_group_size=max(1, rows.num_rows))

    def close(self) -> None:
        """The footer. The file stays open."""
        if self._writer is None:
            self._writer = self._open(many_rows=True)
        self._writer.close()

    def _open(self, *, many_rows: bool) -> pq.ParquetWriter:
        schema = file_schema(self._table)
        for place, field in enumerate(schema):
            if field.name in _CONSTANT:
                schema = schema.set(place, field.with_type(pa.dictionary(pa.int32(), pa.string())))
        options = write_options(self._table, self._compression, many_rows=many_rows)
        return pq.ParquetWriter(self._sink, schema, **options)


def open_writer(sink: Any, table: Table, compression: str) -> TableWriter:
    """A writer of a file of this table into a binary file object, which it doesn't close.

    :raises SettingsError: as ``compression_of``
    """
    compression_of(compression)
    return TableWriter(sink, table, compression)


class OneThreadFile(pq.ParquetFile):
    """A Parquet file that Arrow's threads never hold."""

    def read(self, columns: Any = None, use_threads: bool = False, **options: Any) -> Any:
        return super().read(columns, use_threads, **options)

    def read_row_group(self, i: int, columns: Any = None, use_threads: bool = False, **options: Any) -> Any:
        return super().read_row_group(i, columns, use_threads, **options)

    def iter_batches(self, *given: Any, use_threads: bool = False, **options: Any) -> Any:
        return super().iter_batches(*given, use_threads=use_threads, **options)


def opened(source: Any) -> pq.ParquetFile:
    """Returns the file of these bytes, or of an input file of a store.

    One of Arrow's threads may be the last to drop what it read from, while the process ends. For an object of Python it
    needs the interpreter's lock then, and aborts the process. So bytes are copied into Arrow's own memory, and a file
    that is written in Python is read by the calling thread alone.

    :raises pyarrow.ArrowException: it is no Parquet
    """
    if isinstance(source, pa.PythonFile):
        return OneThreadFile(source, pre_buffer=False)
    if isinstance(source, pa.NativeFile):
        return pq.ParquetFile(source)
    memory = pa.allocate_buffer(len(source))
    pa.FixedSizeBufferWriter(memory).write(source)
    return pq.ParquetFile(pa.BufferReader(memory))


def _levels(table: Table, codec: str, level: int | None) -> Any:
    """One level, or one for each column."""
    if codec != "zstd" or not table.hard:
        return level
    base = 1 if level is None else level
    return {
        name: min(base + HARDER_LEVELS, 22) if name in table.hard else base for name in table.schema.names
    }


def _judged_columns(table: Table) -> list[str]:
    """Returns the columns that get least and greatest values: all but decimals.

    Readers prune by times, ids and symbols. Comparing decimals of 16 bytes would cost a sixth of the time that a
    file of book levels takes.
    """
    names = []
    for field in table.schema:
        if pa.types.is_list(field.type):
            names += _leaves(field)
        elif not pa.types.is_decimal(field.type):
            names.append(field.name)
    return names


def _leaves(field: pa.Field) -> list[str]:
    """Paths of the columns that a list of structs is in the file."""
    return [f"{field.name}.list.element.{part.name}" for part in field.type.value_type]


def _dictionary_columns(table: Table, without: set[str]) -> list[str]:
    """Paths of the leaf columns that try a dictionary."""
    names = []
    for field in table.schema:
        if field.name in without:
            continue
        if pa.types.is_list(field.type):
            names += _leaves(field)
        else:
            names.append(field.name)
    return names


def _rows_of_a_message(rows: pa.Table) -> float:
    """Returns the average; 1 for a table without lineage."""
    if "k_offset" not in rows.schema.names or not rows.num_rows:
        return 1.0
    offsets = rows["k_offset"].to_numpy()
    return float(rows.num_rows / (1 + np.count_nonzero(offsets[1:] != offsets[:-1])))


def _as_written(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Returns the rows with texts that hardly change as dictionaries. Hashing them is saved; the file is the same."""
    for place, field in enumerate(schema):
        if field.name in _CONSTANT:
            rows = rows.set_column(place, field, _dictionary(rows[field.name]))
    return rows


def _dictionary(texts: pa.ChunkedArray) -> Any:
    if len(texts) and pc.all(pc.equal(texts, texts[0])).as_py():
        zeros = pa.array(np.zeros(len(texts), dtype=np.int32))
        return pa.DictionaryArray.from_arrays(zeros, pa.array([texts[0].as_py()], pa.string()))
    return texts.dictionary_encode()
