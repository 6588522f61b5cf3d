"""Iceberg tables over the archive's own files, in a SQL catalog of pyiceberg (``sqlite:///…``) with metadata under
``ROOT/_iceberg``.

* The namespace ``archive`` has one table for each of the archive's tables.
* Tables are partitioned by ``symbol``. Iceberg takes its value from the statistics in the files.
* There is no column ``date``: only the paths have it, and Iceberg reads no paths. The bounds of ``ts_event`` in each
  file let a query skip files instead.
* ``int8`` becomes Iceberg's ``int``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, TableAlreadyExistsError
from pyiceberg.io.pyarrow import parquet_files_to_data_files

from blumfeld_sink_spark.files.parquet import file_schema
from blumfeld_sink_spark.records import CommitRecord, FileEntry
from blumfeld_sink_spark.settings import ArchiveSettings
from blumfeld_sink_spark.stores.contract import ArchiveStore
from blumfeld_sink_spark.tables import Table, tables

NAMESPACE = "archive"
TRIES = 10
"""Attempts at a commit that other writers to the same table get in the way of."""


class Iceberg:
    """A :class:`~blumfeld_sink_spark.ledger.formats.outbox.TableFormat` of Iceberg tables.

    The table's property ``blumfeld.batch.<query>`` changes in the same transaction as the files, so a batch is never
    added twice.
    """

    name = "iceberg"

    def __init__(self, store: ArchiveStore, settings: ArchiveSettings) -> None:
        root = store.root.removeprefix("file://")
        self._root = root if "://" in root else str(Path(root).resolve())
        self._uri = settings.iceberg
        self._tables = tables(*settings.price_type)

    def commit(
        self, table: str, record: CommitRecord, added: Sequence[FileEntry], removed: Sequence[str]
    ) -> bool:
        catalog = self._catalog()
        try:
            for last in range(TRIES - 1, -1, -1):
                try:
                    return self._commit(self._open(catalog, self._tables[table]), record, added, removed)
                except CommitFailedException:
                    if not last:
                        raise
        finally:
            _close(catalog)
        raise AssertionError("unreachable")

    def _commit(
        self, table: Any, record: CommitRecord, added: Sequence[FileEntry], removed: Sequence[str]
    ) -> bool:
        name = f"blumfeld.batch.{record.query}"
        if int(table.properties.get(name, -1)) >= record.batch:
            return False
        properties = {"blumfeld.query": record.query, "blumfeld.batch": str(record.batch)}
        paths = [f"{self._root}/{entry.path}" for entry in added]
        gone = {f"{self._root}/{path}" for path in removed}
        with table.transaction() as transaction:
            # In the same transaction as the files: a crash leaves both or neither, so a retry never adds a file twice.
            transaction.set_properties({name: str(record.batch)})
            if not gone:
                transaction.add_files(paths, snapshot_properties=properties, check_duplicate_files=False)
                return True
            files = [task.file for task in table.scan().plan_files() if task.file.file_path in gone]
            with transaction.update_snapshot(snapshot_properties=properties).overwrite() as snapshot:
                _each(snapshot.delete_data_file, files)
                made = parquet_files_to_data_files(
                    io=table.io, table_metadata=transaction.table_metadata, file_paths=iter(paths)
                )
                _each(snapshot.append_data_file, made)
        return True

    def _catalog(self) -> Catalog:
        catalog = load_catalog("blumfeld", type="sql", uri=self._uri, warehouse=f"{self._root}/_iceberg")
        catalog.create_namespace_if_not_exists(NAMESPACE)
        return catalog

    def _open(self, catalog: Catalog, table: Table) -> Any:
        name = f"{NAMESPACE}.{table.name}"
        try:
            return _with_new_columns(catalog.load_table(name), table)
        except NoSuchTableError:
            pass
        try:
            with catalog.create_table_transaction(name, schema=file_schema(table)) as transaction:
                if table.by_symbol:
                    with transaction.update_spec() as spec:
                        spec.add_identity("symbol")
        except TableAlreadyExistsError:
            pass
        return catalog.load_table(name)


def _with_new_columns(iceberg_table: Any, table: Table) -> Any:
    """Returns the table with the columns that the archive has gained since the table was made. Older files show null
    there.
    """
    known = {field.name for field in iceberg_table.schema().fields}
    if not known.issuperset(table.schema.names):
        with iceberg_table.update_schema() as update:
            update.union_by_name(file_schema(table))
    return iceberg_table


def _each(do: Callable[[Any], object], values: Iterable[Any]) -> None:
    for value in values:
        do(value)


def _close(catalog: Any) -> None:
    """Closes the catalog's database connections."""
    engine = getattr(catalog, "engine", None)
    if engine is not None:
        engine.dispose()
