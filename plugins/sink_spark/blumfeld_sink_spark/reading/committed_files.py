"""The committed files of an archive. A file that no commit record names doesn't exist for a reader."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs

from blumfeld_sink_spark.errors import ArchiveError
from blumfeld_sink_spark.files.file_names import values_of
from blumfeld_sink_spark.ledger.ledger import Ledger, nothing_at
from blumfeld_sink_spark.records import CommitRecord, FileEntry, OffsetRange
from blumfeld_sink_spark.stores.contract import ArchiveStore
from blumfeld_sink_spark.stores.roots import open_store
from blumfeld_sink_spark.tables import DERIVED, tables


@attrs.define
class Committed:
    """The committed files of an archive at one time. Later commits aren't seen."""

    store: ArchiveStore
    records: Sequence[CommitRecord]
    """The commit records of all queries, by query and batch."""
    _entries: list[FileEntry] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        removed = {path for record in self.records for path in record.removed}
        named = {entry.path: entry for record in self.records for entry in record.files}
        self._entries = [named[path] for path in sorted(named.keys() - removed)]

    @classmethod
    def open(cls, root: str) -> Committed:
        """Reads the ledger of the archive under a root.

        :raises ArchiveError: there is no archive
        """
        store = open_store(root)
        ledger = Ledger(store)
        ledger.load()
        records = [record for query in sorted(ledger.queries()) for record in ledger.records(query)]
        if not records:
            raise nothing_at(store.root)
        return cls(store, records)

    def files(self, table: str) -> list[FileEntry]:
        """Returns the files of a table, by path.

        Derived tables (bars, book snapshots) have no commit records: every Parquet file in their folder counts.
        """
        if table not in DERIVED:
            return [entry for entry in self._entries if entry.table == table]
        return [_derived(path, table) for path in self.store.list(table) if path.endswith(".parquet")]

    def select(
        self, table: str, *, symbol: str = "", start_ns: int | None = None, end_ns: int | None = None
    ) -> list[FileEntry]:
        """Returns the files of a table that may hold rows of this symbol and time, by the table's time column.

        :param end_ns: exclusive
        """
        return [
            entry
            for entry in self.files(table)
            if (not symbol or entry.symbol == symbol)
            and (end_ns is None or entry.ts_min < end_ns)
            and (start_ns is None or entry.ts_max >= start_ns)
        ]

    def symbols(self, table: str) -> list[str]:
        """Returns the symbols that a table has rows of, sorted."""
        return sorted({entry.symbol for entry in self.files(table)})

    def expect(self, symbols: Iterable[str]) -> None:
        """Checks that every one of these symbols is archived.

        :raises ArchiveError: one isn't; the text lists those that are
        """
        known = {entry.symbol for entry in self._entries if entry.symbol}
        for symbol in symbols:
            if symbol not in known:
                symbols_text = ", ".join(sorted(known)[:20]) or "none"
                raise ArchiveError(f"nothing of the symbol {symbol!r} is archived; symbols: {symbols_text}")

    def ranges(self) -> Iterator[OffsetRange]:
        """Yields the planned ranges of all batches, not joined."""
        for record in self.records:
            yield from record.ranges

    def open_file(self, entry: FileEntry) -> Any:
        """Opens a file for ``pyarrow.parquet``. The caller closes it.

        :raises ArchiveError: the file is gone: a compaction replaced it after the ledger was read
        """
        try:
            return self.store.open_input(entry.path)
        except FileNotFoundError as error:
            raise ArchiveError(
                f"{entry.path}: is gone. If the archive is being compacted, run this again; if not, "
                "`blumfeld archive verify` says what is missing"
            ) from error

    @property
    def is_local(self) -> bool:
        """Whether the archive lies in a folder of this machine."""
        return "://" not in self.store.root.removeprefix("file://")

    def local_root(self) -> Path:
        """Returns the archive's folder.

        :raises ArchiveError: the archive isn't on this machine
        """
        if not self.is_local:
            raise ArchiveError(f"{self.store.root}: this works on a local archive only; copy it, or mount it")
        return Path(self.store.root.removeprefix("file://")).resolve()

    def dataset(self, table: str) -> Any:
        """Returns the files of a table as an Arrow dataset, for engines that scan one. The table must have files.

        The date, which is only in paths, becomes a column. Columns that a file lacks are null.
        """
        import pyarrow as pa
        from pyarrow import dataset

        base, filesystem = self._base()
        factory = dataset.FileSystemDatasetFactory(
            filesystem,
            [f"{base}/{entry.path}" for entry in self.files(table)],
            dataset.ParquetFileFormat(),
            dataset.FileSystemFactoryOptions(
                partition_base_dir=f"{base}/{table}",
                partitioning=dataset.partitioning(pa.schema([("date", pa.date32())]), flavor="hive"),
            ),
        )
        return factory.finish(self.schema(table).append(pa.field("date", pa.date32())))

    def schema(self, table: str) -> Any:
        """Returns the present columns of a table that has files, with the decimals of its first file.

        Older files may lack some of the columns.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        with self.open_file(self.files(table)[0]) as source:
            kinds = pq.read_schema(source).types
        number = next((kind for kind in kinds if pa.types.is_decimal(kind)), None)
        return (tables() if number is None else tables(number.precision, number.scale))[table].schema

    def _base(self) -> tuple[str, Any]:
        from pyarrow import fs

        if self.is_local:
            return str(self.local_root()), fs.LocalFileSystem()
        from obstore.fsspec import FsspecStore

        scheme, _, path = self.store.root.partition("://")
        return path.rstrip("/"), fs.PyFileSystem(fs.FSSpecHandler(FsspecStore(scheme)))


def _derived(path: str, table: str) -> FileEntry:
    values = values_of(path)
    return FileEntry(
        path=path,
        table=table,
        date=values.get("date", ""),
        symbol=values.get("symbol", ""),
        rows=-1,
        bytes=-1,
        sha256="",
        ts_min=-(2**63),
        ts_max=2**63 - 1,
    )
