"""How tables become Parquet: encodings for each column, row groups by count, nothing in the file that isn't data."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from blumfeld_sink_spark.errors import SettingsError
from blumfeld_sink_spark.tables import QUARANTINE, RAW, Table

WIDE_ROW_GROUP_ROWS = 65_536
"""Of tables that hold whole messages, of some kB each: about 100 MB at once."""


def compression_of(given: str) -> tuple[str, int | None]:
    """``zstd:3`` as (codec, level).

    :raises SettingsError: a codec or level that this build of Arrow hasn't
    """
    codec, _, level = given.partition(":")
    if codec != "none" and not (pa.Codec.is_available(codec) if codec in _CODECS else False):
        raise SettingsError(
            f"archive.compression: {given}; allowed: {', '.join(_CODECS)}, with :LEVEL where it has one"
        )
    try:
        return codec, int(level) if level else None
    except ValueError as error:
        raise SettingsError(f"archive.compression: {given}; the level isn't a number") from error


_CODECS = ("zstd", "snappy", "gzip", "lz4", "brotli", "none")


def row_group_rows(table: Table, asked: int) -> int:
    """How many rows a row group of this table has: a count, so that files don't depend on how rows arrived."""
    return min(asked, WIDE_ROW_GROUP_ROWS) if table.name in (RAW, QUARANTINE) else asked


def file_schema(table: Table) -> pa.Schema:
    """The columns in the file: the table's, without metadata (``date`` is in the path only)."""
    return table.schema.remove_metadata()


def write_options(table: Table, compression: str = "zstd:3") -> dict[str, Any]:
    """Keyword arguments of ``pyarrow.parquet.ParquetWriter`` for a table.

    The same rows with the same options give the same bytes for one version of Arrow, whose name and version are in
    the file (``created_by``). The Arrow schema isn't, nor any other metadata.
    """
    codec, level = compression_of(compression)
    return {
        "version": "2.6",
        "compression": codec,
        "compression_level": level,
        "use_dictionary": _dictionary_columns(table),
        "column_encoding": dict.fromkeys(table.delta, "DELTA_BINARY_PACKED"),
        "write_statistics": True,
        "write_page_index": True,
        "store_schema": False,
        "store_decimal_as_integer": True,
    }


def _dictionary_columns(table: Table) -> list[str]:
    """Paths of the leaf columns that try a dictionary."""
    without = {*table.delta, *table.plain}
    found = []
    for field in table.schema:
        if field.name in without:
            continue
        if pa.types.is_list(field.type):
            found += [f"{field.name}.list.element.{part.name}" for part in field.type.value_type]
        else:
            found.append(field.name)
    return found


def open_writer(sink: Any, table: Table, compression: str) -> pq.ParquetWriter:
    """A writer of a file of this table into a binary file object."""
    return pq.ParquetWriter(sink, file_schema(table), **write_options(table, compression))
