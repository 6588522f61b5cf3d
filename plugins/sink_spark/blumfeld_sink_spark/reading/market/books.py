"""Rebuilds a book at a time, from the nearest snapshot before it."""

from __future__ import annotations

from collections.abc import Iterator

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from blumfeld_sink_spark.book.best import integers
from blumfeld_sink_spark.book.change import Change
from blumfeld_sink_spark.book.checksums import CHECKED, LEVELS, Checksum
from blumfeld_sink_spark.book.ladder import Ladder
from blumfeld_sink_spark.book.sync import RECENT, Sync
from blumfeld_sink_spark.errors import ArchiveError
from blumfeld_sink_spark.files.parquet import opened
from blumfeld_sink_spark.reading.committed_files import Committed
from blumfeld_sink_spark.reading.market import deltas
from blumfeld_sink_spark.reading.market.deltas import BookOf, Group
from blumfeld_sink_spark.reading.times import iso_of
from blumfeld_sink_spark.records import FileEntry
from blumfeld_sink_spark.tables import BOOK_SNAPSHOTS

FULL = "full"
"""Mark in the name of a snapshot file that holds all levels, so that a book can be rebuilt from it."""


@attrs.frozen
class Standing:
    """A book at a time."""

    ladder: Ladder
    sync: Sync
    venue: str
    ts_event: int
    """Event time of the last message in the book."""
    last_id: int | None
    offset: int | None
    """Offset of that message; None where the book is a stored snapshot alone."""
    snapshot: str
    """The snapshot that the book was started from, for people."""
    checksum: bool | None = None
    """Whether the venue's checksum after the last message fits the book; None where it sends none that we compute."""


@attrs.define
class Start:
    """The starting point of a rebuild: a snapshot in the feed, or one stored by ``book --write-snapshots``."""

    groups: list[Group]
    offset: int
    """First offset to read."""
    ts: int
    stored: pa.Table | None = None


def nearest(archive: Committed, book: BookOf, at_ns: int) -> Start:
    """Returns the last snapshot at or before a time, with the row groups from it on.

    Dates are searched backwards, so a book late in a long archive doesn't read all of it.

    :raises ArchiveError: there is no snapshot at or before that time
    """
    files = [entry for entry in deltas.entries(archive, book) if entry.ts_min <= at_ns]
    taken: list[Group] = []
    for date in sorted({entry.date for entry in files}, reverse=True):
        stored_groups = deltas.groups(archive, (entry for entry in files if entry.date == date))
        taken = sorted(
            [*stored_groups, *taken],
            key=lambda group: (group.first_offset, group.last_offset, group.entry.path, group.number),
        )
        place = _last_snapshot(archive, book, stored_groups, at_ns)
        stored = _stored(archive, book, date, at_ns)
        if stored is not None and (place is None or stored.column("ts")[0].as_py() >= place[0]):
            return _from_stored(stored, taken)
        if place is not None:
            first = max(0, place[1] - RECENT)
            taken = _with_day_before(archive, files, date, taken, first)
            return Start([group for group in taken if group.last_offset >= first], first, place[0])
    raise ArchiveError(
        f"{book.topic} has no snapshot of {book.symbol} at or before {iso_of(at_ns)}: archive one (a REST answer as it "
        "came, or the venue's own) with the changes"
    )


def _with_day_before(
    archive: Committed, files: list[FileEntry], date: str, taken: list[Group], first: int
) -> list[Group]:
    """Adds the day before where ``first`` lies in it: a snapshot right after midnight needs the changes before it."""
    before = max((entry.date for entry in files if entry.date < date), default="")
    if not before or taken[0].first_offset <= first:
        return taken
    stored_groups = deltas.groups(archive, (entry for entry in files if entry.date == before))
    return sorted([*stored_groups, *taken], key=Group.order)


def _last_snapshot(
    archive: Committed, book: BookOf, groups: list[Group], at_ns: int
) -> tuple[int, int] | None:
    """Returns (time, offset) of the last snapshot in these row groups; None where there is none."""
    best: tuple[int, int] | None = None
    for group in groups:
        if not group.snapshots or group.ts_min > at_ns or (best and group.last_offset < best[1]):
            continue
        with archive.open_file(group.entry) as file:
            columns = ["is_snapshot", "ts_event", "k_offset", "venue"]
            rows = opened(file).read_row_group(group.number, columns=columns)
        wanted = pc.and_(rows.column("is_snapshot"), pc.less_equal(rows.column("ts_event"), at_ns))
        if book.venue:
            wanted = pc.and_(wanted, pc.equal(rows.column("venue"), book.venue))
        rows = rows.filter(wanted)
        if rows.num_rows:
            at = int(np.argmax(rows.column("k_offset").to_numpy()))
            place = (rows.column("ts_event")[at].as_py(), rows.column("k_offset")[at].as_py())
            best = place if best is None or place[1] > best[1] else best
    return best


def _stored(archive: Committed, book: BookOf, date: str, at_ns: int) -> pa.Table | None:
    """Returns the last full snapshot of a date that is stored in ``book_snapshots``."""
    stored: pa.Table | None = None
    for entry in archive.files(BOOK_SNAPSHOTS):
        name = entry.path.rpartition("/")[2].removesuffix(".parquet").split("+")
        if (entry.date, entry.symbol) != (date, book.symbol) or name[0] != book.topic or name[-1] != FULL:
            continue
        with archive.open_file(entry) as file:
            rows = opened(file).read().filter(pc.field("ts") <= at_ns)
        rows = rows.filter(pc.equal(rows.column("venue"), book.venue)) if book.venue else rows
        if rows.num_rows:
            latest = rows.filter(pc.equal(rows.column("ts"), pc.max(rows.column("ts"))))
            if stored is None or latest.column("ts")[0].as_py() > stored.column("ts")[0].as_py():
                stored = latest
    return stored


def _from_stored(stored: pa.Table, taken: list[Group]) -> Start:
    ts = stored.column("ts")[0].as_py()
    return Start([group for group in taken if group.ts_max > ts], 0, ts, stored)


def changes(archive: Committed, book: BookOf, start: Start, sync: Sync) -> Iterator[Change]:
    """Yields the book's changes from ``start`` on, the snapshot first. They go through ``sync``, which checks them."""
    if start.stored is not None:
        yield sync.begin(_as_deltas(start.stored), start.stored.column("last_id")[0].as_py())
    for rows in deltas.read(archive, book, start.groups, start.offset):
        if start.stored is not None:
            rows = rows.filter(pc.greater(rows.column("ts_event"), start.ts))
        yield from sync.feed(rows)


def _as_deltas(stored: pa.Table) -> pa.Table:
    columns = {name: stored.column(name) for name in ("venue", "last_id", "side", "price", "size")}
    return pa.table({"ts_event": stored.column("ts"), **columns})


def at(archive: Committed, book: BookOf, at_ns: int) -> Standing:
    """Returns the book at a time.

    Messages apply in the order of their offsets, up to the first change with a later ``ts_event``.

    :raises ArchiveError: there is no snapshot before that time, or it is empty
    """
    start = nearest(archive, book, at_ns)
    start.groups = [group for group in start.groups if group.ts_min <= at_ns]
    sync, ladder = Sync(), Ladder()
    last: pa.Table | None = None
    for rows in _upto(archive, book, start, sync, at_ns):
        ladder.take([rows])
        last = rows.rows.slice(rows.rows.num_rows - 1) if rows.rows.num_rows else last
    if last is None:
        raise ArchiveError(f"{book.topic}: the snapshot of {book.symbol} before {iso_of(at_ns)} is empty")
    row = last.to_pylist()[0]
    origin = f"the snapshot at offset {sync.snapshot_offset}"
    if sync.snapshot_offset is None:
        origin = f"the snapshot stored for {iso_of(start.ts)}"
    fits = _fits(ladder, row["venue"], row.get("flags"))
    return Standing(
        ladder, sync, row["venue"], row["ts_event"], row["last_id"], row.get("k_offset"), origin, fits
    )


def _fits(ladder: Ladder, venue: str, given: int | None) -> bool | None:
    if venue not in CHECKED or given is None:
        return None
    best = [ladder.side(side, LEVELS) for side in (-1, 1)]
    levels = [
        list(zip(integers(side.column("price")), integers(side.column("size")), strict=True)) for side in best
    ]
    scale = best[0].schema.field("price").type.scale
    return Checksum(scale).of(levels[0], levels[1], given & 0xFFFFFFFF) == given & 0xFFFFFFFF


def _upto(archive: Committed, book: BookOf, start: Start, sync: Sync, at_ns: int) -> Iterator[Change]:
    """Yields the changes up to the time. Later rows don't reach ``sync``, so it doesn't count their breaks."""
    if start.stored is not None:
        yield from changes(archive, book, Start([], 0, start.ts, start.stored), sync)
    for rows in deltas.read(archive, book, start.groups, start.offset):
        late = pc.greater(rows.column("ts_event"), at_ns)
        early = pc.invert(pc.and_(late, rows.column("is_snapshot")))  # a snapshot's clock may be another one
        rows, late = rows.filter(early), late.filter(early)
        if start.stored is not None:
            kept = pc.greater(rows.column("ts_event"), start.ts)
            rows, late = rows.filter(kept), late.filter(kept)
        first = pc.index(late, True).as_py()
        yield from sync.feed(rows if first < 0 else rows.slice(0, first))
        if first >= 0:
            return
