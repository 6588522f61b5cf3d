"""The rows to export: selected by symbol, venue and time, in the order of receipt."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import attrs
import pyarrow as pa
import pyarrow.compute as pc

from blumfeld_sink_spark.errors import ArchiveError, SettingsError
from blumfeld_sink_spark.files.parquet import opened
from blumfeld_sink_spark.reading.committed_files import Committed
from blumfeld_sink_spark.reading.ordered_rows import ordered
from blumfeld_sink_spark.records import FileEntry
from blumfeld_sink_spark.tables import AGG_TRADES, TRADES, tables

TIME = "ts_recv"
"""The order of an export: that in which a consumer saw the messages."""


@attrs.frozen
class Exported:
    """A written file."""

    path: Path
    rows: int


@attrs.frozen
class Selection:
    """A selection of an archive's rows."""

    archive: Committed
    symbols: Sequence[str] = ()
    """Empty selects all symbols."""
    venue: str = ""
    start_ns: int | None = None
    end_ns: int | None = None
    """Exclusive. Both bounds are event times."""

    def symbols_of(self, names: Sequence[str]) -> list[str]:
        """Returns the symbols to export of these tables, sorted.

        :raises ArchiveError: the tables have no symbol, or not one that is selected
        """
        looked = [*names, AGG_TRADES] if TRADES in names else names
        known = sorted({symbol for name in looked for symbol in self.archive.symbols(name)})
        absent = sorted(set(self.symbols) - set(known))
        if absent or not known:
            has = ", ".join(known[:20]) or "none"
            raise ArchiveError(
                f"{', '.join(names)}: nothing of {', '.join(absent) or 'any symbol'}; symbols: {has}"
            )
        return sorted(self.symbols) or known

    def entries(self, table: str, symbol: str) -> list[FileEntry]:
        """Returns the files that may hold selected rows. Aggregates stand in for a symbol without single trades."""
        if table == TRADES and not self.archive.select(TRADES, symbol=symbol):
            table = AGG_TRADES
        return self.archive.select(table, symbol=symbol, start_ns=self.start_ns, end_ns=self.end_ns)

    def venues(self, names: Sequence[str], symbol: str) -> list[str]:
        """Returns the venues of a symbol, sorted; only the selected venue if one is selected."""
        venues: set[str] = set()
        for name in names:
            for entry in self.entries(name, symbol):
                with self.archive.open_file(entry) as source:
                    venues.update(pc.unique(opened(source).read(columns=["venue"])["venue"]).to_pylist())
        return sorted(venues & {self.venue} if self.venue else venues)

    def one_venue(self, names: Sequence[str], symbol: str) -> str:
        """Returns the venue of a symbol, for forms that can't hold several in one file.

        :raises SettingsError: there are several and none is named
        :raises ArchiveError: there are no rows
        """
        venues = self.venues(names, symbol)
        if not venues:
            raise ArchiveError(f"{symbol}: no rows of {self.venue or 'any venue'} in that time")
        if len(venues) > 1:
            raise SettingsError(
                f"venue: none is named, and {symbol} has several; allowed: {', '.join(venues)}"
            )
        return venues[0]

    def rows(
        self, table: str, symbol: str, columns: Sequence[str], venue: str = "", key: str = TIME
    ) -> Iterator[pa.Table]:
        """Yields the selected rows by ``key``, then in the files' order. No chunk is empty."""
        time_column = tables()[table].time_column
        needed = list(dict.fromkeys([*columns, time_column, "venue"]))
        for rows in ordered(self.archive, self.entries(table, symbol), needed, key):
            kept = self._kept(rows, time_column, venue or self.venue)
            if kept.num_rows:
                yield kept.select(list(columns)).combine_chunks()

    def _kept(self, rows: pa.Table, time_column: str, venue: str) -> pa.Table:
        if venue:
            rows = rows.filter(pc.equal(rows["venue"], venue))
        if self.start_ns is not None:
            rows = rows.filter(pc.greater_equal(rows[time_column], self.start_ns))
        if self.end_ns is not None:
            rows = rows.filter(pc.less(rows[time_column], self.end_ns))
        return rows


def empty_folder(out: Path) -> Path:
    """Creates the folder for an export and returns it.

    :raises ArchiveError: it isn't empty. Two exports in one folder would look like one
    """
    out.mkdir(parents=True, exist_ok=True)
    if any(out.iterdir()):
        raise ArchiveError(f"{out} isn't empty; choose another folder with --out, or clear it")
    return out


def remove(path: Path) -> None:
    """Removes a temporary file if it is there."""
    with suppress(FileNotFoundError):
        path.unlink()
