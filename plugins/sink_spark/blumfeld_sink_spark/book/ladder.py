"""The levels of a book, kept in columns: many changes are one step, in exact decimals throughout."""

from __future__ import annotations

from collections.abc import Iterable

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from blumfeld_sink_spark.book.change import Change

LEVELS = ("side", "price", "size")


@attrs.define
class Ladder:
    """All levels with something at them. A step costs as much as its rows and the book's, whatever happened in it."""

    levels: pa.Table | None = None
    """Columns side (1 bid, -1 ask), price, size; no size is 0, no price is twice on a side; in no order."""
    _waiting: list[pa.Table] = attrs.field(factory=list)
    _rows: int = 0

    def take(self, changes: Iterable[Change]) -> None:
        """Applies changes from ``Sync.feed``."""
        for change in changes:
            if change.replaces:
                self.levels, self._waiting, self._rows = None, [], 0
            rows = pa.table(
                [change.rows.column(name) for name in LEVELS], names=LEVELS
            )  # whatever may be null
            self._waiting.append(rows)
            self._rows += rows.num_rows
            if self._rows > 1 << 20:
                self.settle()

    def settle(self) -> None:
        """Merges the waiting changes into ``levels``. The last size of a price wins; a size of 0 removes the price."""
        if not self._waiting:
            return
        parts = self._waiting if self.levels is None else [self.levels, *self._waiting]
        rows = pa.concat_tables(parts).combine_chunks()
        self._waiting, self._rows = [], 0
        if not rows.num_rows:
            self.levels = rows
            return
        prices = rows.column("price").combine_chunks().dictionary_encode()
        bids = rows.column("side").to_numpy() > 0
        codes = prices.indices.to_numpy() * 2 + bids
        last = np.full(2 * len(prices.dictionary), -1, dtype=np.int64)
        last[codes] = np.arange(len(codes))  # where an index is there several times the last one stays
        kept = rows.take(np.sort(last[last >= 0]))
        self.levels = kept.filter(pc.not_equal(kept.column("size"), 0))

    def side(self, side: int, depth: int = 0) -> pa.Table:
        """Levels of a side, best first; all of them where ``depth`` is 0."""
        self.settle()
        if self.levels is None:
            raise ValueError("no snapshot yet")
        levels = self.levels.filter(pc.equal(self.levels.column("side"), side))
        levels = levels.sort_by([("price", "descending" if side > 0 else "ascending")])
        return levels.slice(0, depth) if depth else levels
