"""Periodic snapshots of a book: the table ``book_snapshots``.

* A snapshot at T is the book after all messages up to T. Times are multiples of the interval.
* A snapshot that equals the one before is left out, so a silence takes no room.
* The first of a date is that of its midnight, so each date can be read alone.
* A snapshot is written only when a later message of the feed has passed its time. A file therefore depends on the
  committed rows alone, and made again it is the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from uuid import uuid4

import attrs
import numpy as np
import pyarrow as pa

from blumfeld_sink_spark.book.change import Change
from blumfeld_sink_spark.book.ladder import Ladder
from blumfeld_sink_spark.book.sync import Sync
from blumfeld_sink_spark.errors import ArchiveError
from blumfeld_sink_spark.files.file_names import folder_of, staged_path
from blumfeld_sink_spark.files.parquet import TableWriter, open_writer
from blumfeld_sink_spark.reading.committed_files import Committed
from blumfeld_sink_spark.reading.market import books, deltas
from blumfeld_sink_spark.reading.market.books import FULL, Start
from blumfeld_sink_spark.reading.market.deltas import BookOf
from blumfeld_sink_spark.reading.market.intervals import DAY_NS, name_of
from blumfeld_sink_spark.reading.times import iso_of
from blumfeld_sink_spark.records import FileEntry
from blumfeld_sink_spark.stores.contract import ArchiveStore
from blumfeld_sink_spark.tables import BOOK_SNAPSHOTS, Table, tables

GROUP_ROWS = 262_144


@attrs.define
class Written:
    """One written file."""

    date: str
    path: str
    snapshots: int = 0
    rows: int = 0
    left_out: int = 0
    """Snapshots that were left out because changes before them are missing."""


@attrs.frozen
class Taken:
    """The book at a time."""

    ts: int
    rows: pa.Table
    broken: bool


@attrs.define
class Periodic:
    """Turns a book's changes into periodic snapshots. Pure."""

    every_ns: int
    depth: int
    symbol: str
    ladder: Ladder = attrs.field(factory=Ladder)
    venue: str = ""
    last_id: int | None = None
    broken: bool = False
    _next: int | None = None
    """Time of the next snapshot, at or after every change taken so far."""

    def take(self, change: Change) -> Iterator[Taken]:
        """Applies a change. Yields each snapshot that its messages pass, before it applies them."""
        rows = change.rows
        if not rows.num_rows:
            self.ladder.take([change])
            return
        if not self.venue:
            self.venue = rows.column("venue")[0].as_py()
        times = np.maximum.accumulate(rows.column("ts_event").to_numpy())
        due = -(-times // self.every_ns) * self.every_ns
        starts = [0, *(np.nonzero(np.diff(due))[0] + 1).tolist(), len(due)]
        replaces = change.replaces
        for start, end in pairwise(starts):
            yield from self._pass(int(due[start]))
            part = rows.slice(start, end - start)
            self.last_id = part.column("last_id")[-1].as_py()
            self.ladder.take([Change(part, replaces, self.last_id)])
            self.broken, replaces = change.broken, False

    def _pass(self, due: int) -> Iterator[Taken]:
        """Yields the snapshots before ``due``, the time of the snapshot that the next message belongs to."""
        if self._next is None or due <= self._next:
            self._next = self._next if self._next is not None else due
            return
        yield self._taken(self._next)
        midnight = (due - 1) // DAY_NS * DAY_NS
        if midnight > self._next:
            yield self._taken(midnight)
        self._next = due

    def _taken(self, ts: int) -> Taken:
        sides = [self._side(side, ts) for side in (1, -1)]
        return Taken(ts, pa.concat_tables(sides), self.broken)

    def _side(self, side: int, ts: int) -> pa.Table:
        levels = self.ladder.side(side, self.depth)
        count = levels.num_rows
        price = levels.schema.field("price").type
        schema = tables(price.precision, price.scale)[BOOK_SNAPSHOTS].schema
        columns = {
            "ts": pa.repeat(ts, count),
            "venue": pa.repeat(self.venue, count),
            "symbol": pa.repeat(self.symbol, count),
            "last_id": pa.repeat(pa.scalar(self.last_id, pa.int64()), count),
            "level": pa.array(np.arange(count, dtype=np.int32)),
            **{name: levels.column(name) for name in ("side", "price", "size")},
        }
        return pa.table([columns[field.name] for field in schema], schema=schema)


def write(
    archive: Committed,
    book: BookOf,
    every_ns: int,
    depth: int,
    *,
    start: str = "",
    end: str = "",
    broken: bool = False,
) -> Iterator[Written]:
    """Writes the snapshots of each date and yields each file once it is published.

    :param depth: levels of each side; 0 is all
    :param start: first date, ``YYYY-MM-DD``; empty is no bound
    :param end: last date, inclusive
    :param broken: write also books in which changes are missing, to files of their own that no rebuild starts from
    :raises ArchiveError: the rows aren't one book
    """
    levels = f"depth{depth}" if depth else FULL
    name = f"{book.topic}+{name_of(every_ns)}+{levels}{'+broken' if broken else ''}.parquet"
    out: _DateFile | None = None
    try:
        for taken in _snapshots(archive, book, every_ns, depth, start):
            date = iso_of(taken.ts)[:10]
            if date < start:
                continue
            if end and date > end:
                break
            if out is not None and out.written.date != date:
                yield out.publish()
                out = None
            if out is None:
                out = _DateFile(
                    archive.store, Written(date, f"{folder_of(BOOK_SNAPSHOTS, date, book.symbol)}/{name}")
                )
            out.add(taken, broken)
        if out is not None:
            yield out.publish()
            out = None
    finally:
        if out is not None:
            out.abandon()


def _snapshots(archive: Committed, book: BookOf, every_ns: int, depth: int, start: str) -> Iterator[Taken]:
    sync = Sync()
    periodic = Periodic(every_ns, depth, book.symbol)
    for change in books.changes(archive, book, _beginning(archive, book, start), sync):
        yield from periodic.take(change)


def _beginning(archive: Committed, book: BookOf, start: str) -> Start:
    """Returns the snapshot before a date as begin; where there is none, the first row."""
    files = deltas.entries(archive, book)
    if start:
        before = int(np.datetime64(start, "ns").astype(np.int64))
        try:
            origin = books.nearest(archive, book, before)
        except ArchiveError:
            pass
        else:
            origin.groups = _behind(archive, origin, files)
            return origin
    return Start(deltas.groups(archive, files), 0, 0)


def _behind(archive: Committed, start: Start, files: list[FileEntry]) -> list[deltas.Group]:
    groups = deltas.groups(archive, (group for group in files if group.ts_max >= start.ts))
    if start.stored is not None:
        return [group for group in groups if group.ts_max > start.ts]
    return [group for group in groups if group.last_offset >= start.offset]


class _DateFile:
    """A file of one date, staged until it is whole. Readers see it only after ``publish``."""

    def __init__(self, store: ArchiveStore, written: Written) -> None:
        self.written = written
        self._store = store
        self._staged = staged_path(uuid4().hex)
        self._file = store.create(self._staged)
        self._writer: TableWriter | None = None
        self._waiting: list[pa.Table] = []
        self._rows = 0

    def add(self, taken: Taken, broken: bool) -> None:
        """Adds a snapshot, or counts it as left out."""
        if taken.broken and not broken:
            self.written.left_out += 1
            return
        self.written.snapshots += 1
        self.written.rows += taken.rows.num_rows
        self._waiting.append(taken.rows)
        self._rows += taken.rows.num_rows
        if self._rows >= GROUP_ROWS:
            self._flush()

    def _flush(self) -> None:
        if not self._waiting:
            return
        rows = pa.concat_tables(self._waiting).combine_chunks()
        if self._writer is None:
            self._writer = open_writer(self._file, _table_of(rows), "zstd:3")
        self._writer.write_table(rows)
        self._waiting, self._rows = [], 0

    def publish(self) -> Written:
        """Puts the file in place of an older one, in one step."""
        self._flush()
        if self._writer is None:
            self._writer = open_writer(self._file, tables()[BOOK_SNAPSHOTS], "zstd:3")
        self._writer.close()
        self._writer = None
        self._file.close()
        self._store.publish(self._staged, self.written.path)
        return self.written

    def abandon(self) -> None:
        """Removes the staged file."""
        if self._writer is not None:
            self._writer.close()
        self._file.close()
        self._store.delete(self._staged)


def _table_of(rows: pa.Table) -> Table:
    price = rows.schema.field("price").type
    return tables(price.precision, price.scale)[BOOK_SNAPSHOTS]
