"""A book from an archive's files by a plain loop, compared with the exchange's own best bid and ask at the same update
id. Pure, except that it reads the files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from itertools import groupby
from pathlib import Path
from typing import Any

import attrs

Best = tuple[Decimal, Decimal, Decimal, Decimal]
"""Bid, size of the bid, ask, size of the ask."""
Level = tuple[int, Decimal, Decimal]
"""Side, price, size."""
KNOWN = {
    ("btcusdt_20240808.gz", "binance-usdm"): 629,
    ("btcusdt_20240808.gz,btcusdt_20240809.gz", "binance-spot"): 1072,
}
"""Number of comparable best bids and asks, for captures in which it is known."""


@attrs.frozen
class Update:
    """All levels of one message."""

    last_id: int
    snapshot: bool
    levels: tuple[Level, ...]


class Book:
    """A book of one symbol: a snapshot and the diffs after it. Diffs that come earlier wait for the snapshot."""

    def __init__(self) -> None:
        self.synchronised = False
        self._sides: dict[int, dict[Decimal, Decimal]] = {1: {}, -1: {}}
        self._waiting: list[Update] = []

    def take(self, update: Update) -> list[int]:
        """Applies an update. Returns the update ids that the book has reached; :meth:`best` belongs to the last."""
        if update.snapshot:
            for side in self._sides.values():
                side.clear()
            self._apply(update)
            self.synchronised = True
            later = [diff for diff in self._waiting if diff.last_id > update.last_id]
            for diff in later:
                self._apply(diff)
            return [diff.last_id for diff in later[-1:]]
        if not self.synchronised:
            self._waiting.append(update)
            return []
        self._apply(update)
        return [update.last_id]

    def best(self) -> Best:
        """Returns the best bid and ask. Neither side may be empty."""
        bid, ask = max(self._sides[1]), min(self._sides[-1])
        return bid, self._sides[1][bid], ask, self._sides[-1][ask]

    def _apply(self, update: Update) -> None:
        for side, price, size in update.levels:
            if size:
                self._sides[side][price] = size
            else:
                self._sides[side].pop(price, None)


def compare(updates: Iterable[Update], quotes: Mapping[int, Best]) -> tuple[int, list[str]]:
    """Returns (number of update ids with a quote, a line for each that differs)."""
    book = Book()
    compared, wrong = 0, []
    for update in updates:
        for update_id in book.take(update):
            if update_id in quotes:
                compared += 1
                if (found := book.best()) != quotes[update_id]:
                    wrong.append(f"at {update_id}: {_told(found)}, the exchange {_told(quotes[update_id])}")
    return compared, wrong


def by_the_archives_book(root: Path, quotes: Mapping[int, Best]) -> tuple[int, list[str]]:
    """Compares as :func:`compare` does, with the book that ``blumfeld archive book`` shows."""
    import pyarrow.dataset as ds

    from blumfeld_sink_spark.book.best import Tops
    from blumfeld_sink_spark.book.sync import Sync

    rows = ds.dataset(root / "book_deltas", partitioning="hive").to_table()
    order = [("k_offset", "ascending")]
    compared, wrong = 0, []
    for top in Tops().take(Sync().feed(rows.sort_by(order))):
        quote = quotes.get(top.last_id or -1)
        if quote is not None:
            compared += 1
            found = (top.bid, top.bid_size, top.ask, top.ask_size)
            if found != quote:
                wrong.append(f"at {top.last_id}: {found}, the exchange {_told(quote)}")
    return compared, wrong


def updates_in(root: Path, table: str = "book_deltas") -> list[Update]:
    """Returns the updates of an archive with one symbol, in the order of the offsets."""
    rows = _columns(root, table, ["k_offset", "last_id", "is_snapshot", "side", "price", "size"])
    rows.sort(key=lambda row: row[0])
    return [
        Update(int(last_id), bool(snapshot), tuple((row[3], row[4], row[5]) for row in levels))
        for (_, last_id, snapshot), levels in groupby(rows, key=lambda row: row[:3])
    ]


def quotes_in(root: Path) -> dict[int, Best]:
    """Returns the best bid and ask by update id."""
    rows = _columns(root, "bbo", ["update_id", "bid", "bid_size", "ask", "ask_size"])
    return {row[0]: row[1:] for row in rows}


def _columns(root: Path, table: str, names: list[str]) -> list[Any]:
    import pyarrow.dataset as ds

    found = ds.dataset(root / table, partitioning="hive").to_table(names)
    return list(zip(*(found[name].to_pylist() for name in names), strict=True))


def _told(best: Best) -> str:
    return " ".join(f"{value.normalize():f}" for value in best)
