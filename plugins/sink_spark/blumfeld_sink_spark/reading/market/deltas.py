"""Reads the rows of one book from many files of ``book_deltas``, in the order of the offsets.

Files may overlap in offsets: those on both sides of a midnight do, compacted ones may. So row groups are merged by
their offset statistics, and memory holds only the row groups that overlap.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from blumfeld_sink_spark.errors import ArchiveError
from blumfeld_sink_spark.files.parquet import opened
from blumfeld_sink_spark.reading.committed_files import Committed
from blumfeld_sink_spark.records import FileEntry
from blumfeld_sink_spark.tables import BOOK_DELTAS, tables

COLUMNS = (
    *("ts_event", "venue", "first_id", "last_id", "prev_id", "side", "price", "size", "is_snapshot"),
    *("flags", "depth", "k_partition", "k_offset"),
)
ROWS = 65_536
"""Rows in one piece; more where one message has more."""


@attrs.frozen
class Group:
    """A row group and its statistics."""

    entry: FileEntry
    number: int
    first_offset: int
    last_offset: int
    ts_min: int
    ts_max: int
    snapshots: bool

    def order(self) -> tuple[int, int, str, int]:
        """Returns the sort key: offsets, then path and number."""
        return self.first_offset, self.last_offset, self.entry.path, self.number


@attrs.frozen
class BookOf:
    """The key of a book: one symbol in one topic."""

    symbol: str
    topic: str
    venue: str = ""
    """Empty where the topic has one venue."""


def find(archive: Committed, symbol: str, topic: str = "", venue: str = "") -> BookOf:
    """Returns the book of a symbol.

    :raises ArchiveError: there is none, or several topics have one and none of them is named
    """
    topics = sorted({entry.topic for entry in archive.files(BOOK_DELTAS) if entry.symbol == symbol})
    if not topics or (topic and topic not in topics):
        known = ", ".join(archive.symbols(BOOK_DELTAS)) or "none"
        where = f" of the topic {topic}" if topic else ""
        raise ArchiveError(f"no book of {symbol}{where} is archived; there are: {known}")
    if len(topics) > 1 and not topic:
        raise ArchiveError(
            f"several topics have a book of {symbol}: {', '.join(topics)}; name one with --topic"
        )
    return BookOf(symbol, topic or topics[0], venue)


def books(archive: Committed, symbols: Sequence[str] = (), topic: str = "", venue: str = "") -> list[BookOf]:
    """Returns the books of these symbols, or all books, by symbol and topic.

    :raises ArchiveError: one of the symbols has no book there, or there is no book at all
    """
    if symbols:
        return [find(archive, symbol, topic, venue) for symbol in symbols]
    book_keys = {
        (entry.symbol, entry.topic)
        for entry in archive.files(BOOK_DELTAS)
        if not topic or entry.topic == topic
    }
    if not book_keys:
        where = f" of the topic {topic}" if topic else ""
        raise ArchiveError(f"no book{where} is archived")
    return [BookOf(symbol, of, venue) for symbol, of in sorted(book_keys)]


def entries(archive: Committed, book: BookOf) -> list[FileEntry]:
    """Returns a book's files, by date and name."""
    return [
        entry
        for entry in archive.files(BOOK_DELTAS)
        if entry.symbol == book.symbol and entry.topic == book.topic
    ]


def groups(archive: Committed, files: Iterable[FileEntry]) -> list[Group]:
    """Returns the row groups of these files by their first offsets. Only the files' footers are read."""
    row_groups = []
    for entry in files:
        with archive.open_file(entry) as file:
            metadata = opened(file).metadata
        place = {metadata.schema.column(at).name: at for at in range(metadata.num_columns)}
        for number in range(metadata.num_row_groups):
            group = metadata.row_group(number)
            offset, ts, snapshot = (
                group.column(place[name]).statistics for name in ("k_offset", "ts_event", "is_snapshot")
            )
            row_groups.append(
                Group(entry, number, offset.min, offset.max, ts.min, ts.max, bool(snapshot.max))
            )
    return sorted(row_groups, key=Group.order)


def read(archive: Committed, book: BookOf, chosen: list[Group], first_offset: int = 0) -> Iterator[pa.Table]:
    """Yields the rows of these row groups from an offset on, in whole messages and in the order of the offsets.

    :raises ArchiveError: the rows are of several venues or partitions, so they aren't one book
    """
    seen: set[tuple[str, int]] = set()
    waiting: list[pa.Table] = []
    for at, group in enumerate(chosen):
        waiting.append(_group(archive, book, group))
        upto = chosen[at + 1].first_offset if at + 1 < len(chosen) else None
        rows = pa.concat_tables(waiting)
        offsets = rows.column("k_offset").to_numpy()
        if (np.diff(offsets) < 0).any():
            rows = rows.take(np.argsort(offsets, kind="stable"))
            offsets = rows.column("k_offset").to_numpy()
        start = int(np.searchsorted(offsets, first_offset))
        end = len(offsets) if upto is None else int(np.searchsorted(offsets, upto))
        waiting = [rows.slice(end)]
        part = rows.slice(start, max(0, end - start)).combine_chunks()
        _check(book, part, seen)
        yield from _pieces(part)


def _group(archive: Committed, book: BookOf, group: Group) -> pa.Table:
    with archive.open_file(group.entry) as file:
        rows = opened(file).read_row_group(group.number, columns=list(COLUMNS))
    for name in COLUMNS:
        if name not in rows.column_names:  # a file of an older archive
            kind = tables()[BOOK_DELTAS].schema.field(name).type
            rows = rows.append_column(name, pa.nulls(rows.num_rows, kind))
    rows = rows.select(list(COLUMNS))
    return rows.filter(pc.equal(rows.column("venue"), book.venue)) if book.venue else rows


def _check(book: BookOf, rows: pa.Table, seen: set[tuple[str, int]]) -> None:
    if not rows.num_rows:
        return
    for venue in pc.unique(rows.column("venue")).to_pylist():
        seen |= {(venue, partition) for partition in pc.unique(rows.column("k_partition")).to_pylist()}
    venues, partitions = ({pair[at] for pair in seen} for at in (0, 1))
    if len(venues) > 1:
        names = ", ".join(str(venue) for venue in sorted(venues, key=str))
        raise ArchiveError(
            f"{book.topic} has {book.symbol} of several venues: {names}; name one with --venue"
        )
    if len(partitions) > 1:
        raise ArchiveError(
            f"{book.topic} has {book.symbol} in several partitions ({sorted(partitions, key=str)}), which have no "
            "order among each other; key the messages by symbol"
        )


def _pieces(rows: pa.Table) -> Iterator[pa.Table]:
    offsets = rows.column("k_offset").to_numpy()
    start = 0
    while start < len(offsets):
        end = start + ROWS
        if end < len(offsets):
            end = int(np.searchsorted(offsets, offsets[end - 1], side="right"))
        yield rows.slice(start, end - start)
        start = end
