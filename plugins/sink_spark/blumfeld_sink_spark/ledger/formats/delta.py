"""Delta tables over the archive's own files: ``ROOT/<table>`` is a Delta table, and its log lies beside the data.

The partition columns are those of the folders:

* ``date``, of Delta's type ``date``. It isn't in the files.
* ``symbol``, for tables that have one. It is in the files too; delta-rs and Polars use the partition's value instead.
  Delta shows an empty symbol as null.

The checkpoints of a long Delta log are Parquet files below ``<table>/_delta_log``, so a glob for data must begin
``<table>/date=*``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.transaction import AddAction, RemoveAction

from blumfeld_sink_spark.files.file_names import values_of
from blumfeld_sink_spark.records import CommitRecord, FileEntry
from blumfeld_sink_spark.settings import ArchiveSettings
from blumfeld_sink_spark.stores.contract import ArchiveStore
from blumfeld_sink_spark.tables import Table, tables

DATE = pa.field("date", pa.date32(), nullable=False)


class Delta:
    """A :class:`~blumfeld_sink_spark.ledger.formats.outbox.TableFormat` of Delta tables.

    Each commit carries an app transaction (query, batch), so Delta refuses a second commit of the same batch.
    """

    name = "delta"

    def __init__(self, store: ArchiveStore, settings: ArchiveSettings) -> None:
        self._root = store.root.removeprefix("file://")
        self._tables = tables(*settings.price_type)

    def commit(
        self, table: str, record: CommitRecord, added: Sequence[FileEntry], removed: Sequence[str]
    ) -> bool:
        delta_table = self._open(self._tables[table])
        done = delta_table.transaction_version(record.query)
        if done is not None and done >= record.batch:
            return False
        # A table that was made after a compaction never held the files that the compaction replaced.
        there = _paths(delta_table) if removed else set()
        # A compaction only rearranges rows. With ``data_change`` false, readers of the table's changes don't get them
        # again.
        rearranged = bool(removed)
        actions = [
            *(_add(self._tables[table], entry, record, data_change=not rearranged) for entry in added),
            *(_remove(path, record) for path in removed if _inside(path) in there),
        ]
        delta_table.create_write_transaction(
            actions,
            mode="append",
            schema=delta_table.schema(),
            partition_by=_partitions(self._tables[table]),
            commit_properties=CommitProperties(
                app_transactions=[Transaction(record.query, record.batch, record.committed_ms)]
            ),
        )
        return True

    def _open(self, table: Table) -> DeltaTable:
        uri = f"{self._root}/{table.name}"
        if DeltaTable.is_deltatable(uri):
            return _with_new_columns(DeltaTable(uri), table)
        columns = [each.with_nullable(True) if each.name == "symbol" else each for each in table.schema]
        schema = Schema.from_arrow(pa.schema([*columns, DATE]))
        return DeltaTable.create(uri, schema, mode="ignore", partition_by=_partitions(table))


def _with_new_columns(delta_table: DeltaTable, table: Table) -> DeltaTable:
    """Returns the table with the columns that the archive has gained since the table was made. Older files show null
    there.
    """
    known = {field.name for field in delta_table.schema().fields}
    fresh = [field for field in table.schema if field.name not in known]
    if fresh:
        delta_table.alter.add_columns(Schema.from_arrow(pa.schema(fresh)).fields)
    return delta_table


def _partitions(table: Table) -> list[str]:
    return ["date", "symbol"] if table.by_symbol else ["date"]


def _add(table: Table, entry: FileEntry, record: CommitRecord, *, data_change: bool) -> Any:
    time = table.time_column
    stats = {
        "numRecords": entry.rows,
        "minValues": {time: entry.ts_min},
        "maxValues": {time: entry.ts_max},
        "nullCount": {time: 0},
    }
    return AddAction(
        path=_inside(entry.path),
        size=entry.bytes,
        partition_values=_values(entry.path),
        modification_time=record.committed_ms,
        data_change=data_change,
        stats=json.dumps(stats),
    )


def _remove(path: str, record: CommitRecord) -> Any:
    return RemoveAction(
        _inside(path),
        data_change=False,
        deletion_timestamp=record.committed_ms,
        partition_values=_values(path),
    )


def _values(path: str) -> dict[str, str | None]:
    return {name: value or None for name, value in values_of(path).items()}


def _inside(path: str) -> str:
    """Returns a path relative to the table's folder, as Delta's log has it."""
    return path.partition("/")[2]


def _paths(delta_table: DeltaTable) -> set[str]:
    """Returns the paths of the table's files. Delta's log has them URL-encoded."""
    return {unquote(path) for path in pa.table(delta_table.get_add_actions())["path"].to_pylist()}
