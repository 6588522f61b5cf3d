"""Delivery of commits to Delta and Iceberg tables. The ledger's record is the commit; the tables follow it.

A table of each format stores the last batch of each query, in the same transaction as the files. A commit that is
delivered again therefore changes nothing. The mark ``_outbox/<format>/<query>.json`` holds the last batch that all
tables have, so that catching up doesn't read the whole ledger. It may be deleted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import msgspec

from blumfeld_sink_spark.errors import ArchiveError
from blumfeld_sink_spark.ledger.ledger import Ledger
from blumfeld_sink_spark.records import CommitRecord, FileEntry
from blumfeld_sink_spark.settings import ArchiveSettings
from blumfeld_sink_spark.stores.contract import ArchiveStore

OUTBOX = "_outbox"
MARK_EVERY = 100
"""Batches between two marks while a format catches up."""


class TableFormat(Protocol):
    """A table format that receives the archive's commits."""

    name: str

    def commit(
        self, table: str, record: CommitRecord, added: Sequence[FileEntry], removed: Sequence[str]
    ) -> bool:
        """Commits this record's files to one table in one transaction. Returns False if the table already has them.

        :param removed: paths of files to remove; a path that the table doesn't hold is skipped
        """
        ...


class Mark(msgspec.Struct, frozen=True):
    """The last batch of a query that all tables of a format have."""

    batch: int


def formats(store: ArchiveStore, settings: ArchiveSettings) -> list[TableFormat]:
    """Returns the table formats that the settings ask for.

    :raises ModuleNotFoundError: a format's package isn't installed
    """
    table_formats: list[TableFormat] = []
    if settings.delta:
        from blumfeld_sink_spark.ledger.formats.delta import Delta

        table_formats.append(Delta(store, settings))
    if settings.iceberg:
        from blumfeld_sink_spark.ledger.formats.iceberg import Iceberg

        table_formats.append(Iceberg(store, settings))
    return table_formats


def deliver(store: ArchiveStore, ledger: Ledger, settings: ArchiveSettings) -> int:
    """Delivers all commits that a table format hasn't received yet. Returns the number of transactions.

    A writer calls this after each commit and at the start of a run. A crash at any point is repaired by the next call.

    :raises ArchiveError: a format refused a commit. The archive itself is complete; the next call tries again
    """
    wanted = formats(store, settings)
    if not wanted:
        return 0
    ledger.load()
    return sum(_Delivery(store, ledger, table_format).run() for table_format in wanted)


class _Delivery:
    """Delivery to one table format."""

    def __init__(self, store: ArchiveStore, ledger: Ledger, to: TableFormat) -> None:
        self._store, self._ledger, self._to = store, ledger, to
        self._removed: set[str] | None = None

    def run(self) -> int:
        """Delivers the commits of all queries. Queries that remove files come last, so that the tables hold the files
        they remove.
        """
        queries = sorted(
            self._ledger.queries(), key=lambda name: (self._ledger.counts(name).removed > 0, name)
        )
        return sum(self._query(query) for query in queries)

    def _query(self, query: str) -> int:
        done = self._mark(query)
        last = self._ledger.last(query)
        count = 0
        for batch in range(done + 1, last.batch + 1 if last is not None else 0):
            record = self._record(query, batch)
            count += sum(self._commit(table, record) for table in sorted(_tables(record)))
            if batch % MARK_EVERY == 0 or record is last:
                self._store.put(self._path(query), msgspec.json.encode(Mark(batch)))
        return count

    def _commit(self, table: str, record: CommitRecord) -> bool:
        added = [entry for entry in record.files if entry.table == table and not self._is_gone(entry.path)]
        removed = [path for path in record.removed if path.partition("/")[0] == table]
        if not added and not removed:
            return False
        try:
            return self._to.commit(table, record, added, removed)
        except ArchiveError:
            raise
        except Exception as error:
            raise ArchiveError(
                f"{self._store.root}: {self._to.name}: batch {record.batch} of query {record.query} isn't in table "
                f"{table} yet ({_first_line(error)}). The archive itself has it; the next run tries again"
            ) from error

    def _is_gone(self, path: str) -> bool:
        """Returns whether a record has removed the file since. The file may be deleted, so no table may name it."""
        if not any(self._ledger.counts(query).removed for query in self._ledger.queries()):
            return False
        if self._removed is None:
            self._removed = set(_removed(self._ledger))
        return path in self._removed

    def _record(self, query: str, batch: int) -> CommitRecord:
        last = self._ledger.last(query)
        if last is not None and last.batch == batch:
            return last
        record = self._ledger.find(query, batch)
        if record is None:
            raise ArchiveError(
                f"{self._store.root}: batch {batch} of query {query} has no record. Run verify"
            )
        return record

    def _mark(self, query: str) -> int:
        try:
            return msgspec.json.decode(self._store.read(self._path(query)), type=Mark).batch
        except (FileNotFoundError, msgspec.DecodeError):
            return -1

    def _path(self, query: str) -> str:
        return f"{OUTBOX}/{self._to.name}/{query}.json"


def _removed(ledger: Ledger) -> Iterator[str]:
    for query in ledger.queries():
        if ledger.counts(query).removed:
            for record in ledger.records(query):
                yield from record.removed


def _tables(record: CommitRecord) -> set[str]:
    return {entry.table for entry in record.files} | {path.partition("/")[0] for path in record.removed}


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
