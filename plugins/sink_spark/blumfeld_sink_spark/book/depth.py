"""Books of which a client gets the best levels alone, and has to cut them itself. Pure.

Kraken sends the best 10, 25, 100, 500 or 1000 levels of each side, as a client asks. No message takes away a level that
is pushed out of them. A level that comes back is sent again. So a book that isn't cut after each message has levels
that aren't there any more.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from decimal import Decimal
from itertools import islice

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from blumfeld_sink_spark.book.best import integers
from blumfeld_sink_spark.book.change import Change

DEPTHS = {"kraken": (10, 25, 100, 500, 1000)}
"""The depths that a venue has. Where no row says which one was asked for, it is the least that the snapshot fits."""


@attrs.define
class Depth:
    """Adds to the changes of a book the removal of each level that they push out of its depth.

    It follows the prices of such a book, and does nothing for any other.
    """

    levels: int | None = None
    """Levels of each side; None where the venue sends the whole book."""
    _bids: list[int] = attrs.field(factory=list)
    """Prices from the best to the worst; negative on the bids' side."""
    _asks: list[int] = attrs.field(factory=list)

    def take(self, change: Change) -> Change:
        """Returns the change with the removals, each behind the rows of its message."""
        rows = change.rows
        said = _said(rows)
        if change.replaces:
            self.levels = said or _fitting(rows)
            self._bids.clear()
            self._asks.clear()
        self.levels = said or self.levels
        if not rows.num_rows or self.levels is None:
            return change
        cut = self._cut(rows, change.replaces)
        return attrs.evolve(change, rows=cut)

    def _cut(self, rows: pa.Table, is_one: bool) -> pa.Table:
        """Follows the prices of each message. ``is_one``: the rows are one message."""
        ends = _ends(rows, is_one)
        levels = zip(
            rows.column("side").to_pylist(),
            integers(rows.column("price")),
            integers(rows.column("size")),
            strict=True,
        )
        places, sides, prices = [], [], []
        for start, end in zip([0, *ends[:-1]], ends, strict=True):
            for side, price, size in islice(levels, end - start):
                self._put(side, price, size)
            for side, held in ((1, self._bids), (-1, self._asks)):
                while len(held) > (self.levels or 0):
                    places.append(end)
                    sides.append(side)
                    prices.append(-side * held.pop())
        return _with_removals(rows, places, sides, prices) if places else rows

    def _put(self, side: int, price: int, size: int) -> None:
        held, key = (self._bids, -price) if side > 0 else (self._asks, price)
        at = bisect_left(held, key)
        is_there = at < len(held) and held[at] == key
        if size and not is_there:
            insort(held, key)
        elif is_there and not size:
            del held[at]


def _said(rows: pa.Table) -> int | None:
    """Returns the depth that the rows name."""
    if "depth" not in rows.column_names or not rows.num_rows:
        return None
    depth: int | None = rows.column("depth")[0].as_py()
    return depth


def _fitting(rows: pa.Table) -> int | None:
    """Returns the least depth of the venue that a snapshot fits."""
    if "venue" not in rows.column_names or not rows.num_rows:
        return None
    bids = pc.sum(pc.equal(rows.column("side"), 1)).as_py()
    most = max(bids, rows.num_rows - bids)
    return next((depth for depth in DEPTHS.get(rows.column("venue")[0].as_py(), ()) if depth >= most), None)


def _ends(rows: pa.Table, is_one: bool) -> list[int]:
    if is_one:
        return [rows.num_rows]
    offsets = rows.column("k_offset").to_numpy()
    ends: list[int] = (np.nonzero(np.concatenate([offsets[1:] != offsets[:-1], [True]]))[0] + 1).tolist()
    return ends


def _with_removals(rows: pa.Table, places: list[int], sides: list[int], prices: list[int]) -> pa.Table:
    """Puts rows of size 0 at these places. All else in them is of the row before."""
    order = np.insert(np.arange(rows.num_rows), places, np.array(places) - 1)
    added = np.insert(np.zeros(rows.num_rows, dtype=bool), places, True)
    number = rows.schema.field("price").type
    exact = [Decimal((price < 0, Decimal(abs(price)).as_tuple().digits, -number.scale)) for price in prices]
    new = {
        "side": pa.array(sides, rows.schema.field("side").type),
        "price": pa.array(exact, number),
        "size": pa.array([Decimal(0)] * len(sides), rows.schema.field("size").type),
    }
    made = rows.take(order)
    for name, values in new.items():
        column = pc.replace_with_mask(made.column(name).combine_chunks(), pa.array(added), values)
        made = made.set_column(made.schema.get_field_index(name), made.schema.field(name), column)
    return made
