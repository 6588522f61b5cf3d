"""Best bid and ask after each message.

Prices and sizes are integers of a scale that the rows have in common, so that a level costs a dictionary's write; the
best price is the top of a heap from which levels that went away are taken when they come up. No step looks at the whole
book, so a deep one is no slower at its worst.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from decimal import Decimal
from heapq import heapify, heappop, heappush, nsmallest
from itertools import islice
from typing import Any

import attrs
import numpy as np
import pyarrow as pa

from blumfeld_sink_spark.book.change import Change


@attrs.frozen
class Best:
    """The top of a book after a message; None where a side is empty."""

    offset: int
    last_id: int | None
    ts_event: int
    bid: Decimal | None
    bid_size: Decimal | None
    ask: Decimal | None
    ask_size: Decimal | None


@attrs.define
class Side:
    """One side; prices are negative on the bids', so that the least is the best."""

    sizes: dict[int, int] = attrs.field(factory=dict)
    heap: list[int] = attrs.field(factory=list)

    def best(self) -> int | None:
        """The best price."""
        heap, sizes = self.heap, self.sizes
        while heap and heap[0] not in sizes:
            heappop(heap)
        if len(heap) > 4 * len(sizes) + 1024:  # levels that come and go far from the top
            self.heap = heap = list(sizes)
            heapify(heap)
        return heap[0] if heap else None

    def nearest(self, depth: int) -> list[tuple[int, int]]:
        """Price (negative of a bid) and size of the best levels, best first. Looks at the whole side."""
        return [(price, self.sizes[price]) for price in nsmallest(depth, self.sizes)]


class Tops:
    """Follows a book message by message. ``bids`` and ``asks`` are integers of the scale of the rows' prices."""

    def __init__(self) -> None:
        self.bids, self.asks = Side(), Side()
        self._scale: int | None = None

    def take(self, changes: Iterable[Change]) -> Iterator[Best]:
        """Applies changes from ``Sync.feed``, and yields the best bid and ask after each message."""
        for change in changes:
            if change.replaces:
                self.bids, self.asks = Side(), Side()
            yield from self._rows(change.rows)

    def nearest(self, depth: int) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """Returns price and size of the best asks, and of the best bids. Looks at the whole book."""
        bids = [(-price, size) for price, size in self.bids.nearest(depth)]
        return self.asks.nearest(depth), bids

    def _rows(self, rows: pa.Table) -> Iterator[Best]:
        if not rows.num_rows:
            return
        scale = rows.schema.field("price").type.scale
        self._scale = scale if self._scale is None else self._scale
        if scale != self._scale:
            raise ValueError(f"prices of scale {scale} after prices of scale {self._scale}")
        offsets = rows.column("k_offset").to_numpy()
        ends = np.nonzero(np.concatenate([offsets[1:] != offsets[:-1], [True]]))[0]
        ids = rows.column("last_id").take(ends).to_pylist()
        times = rows.column("ts_event").take(ends).to_pylist()
        prices, sizes = integers(rows.column("price")), integers(rows.column("size"))
        levels = zip(rows.column("side").to_pylist(), prices, sizes, strict=True)
        counts = np.diff(ends, prepend=-1).tolist()
        for count, offset, last_id, ts in zip(counts, offsets[ends].tolist(), ids, times, strict=True):
            self._put(islice(levels, count))
            yield self._top(offset, last_id, ts)

    def _put(self, levels: Iterable[tuple[int, int, int]]) -> None:
        """Levels of one message: size 0 takes one away."""
        bids, asks = self.bids.sizes, self.asks.sizes
        bid_heap, ask_heap = self.bids.heap, self.asks.heap
        for side, price, size in levels:
            if side > 0:
                price = -price
                sizes, heap = bids, bid_heap
            else:
                sizes, heap = asks, ask_heap
            if size:
                if price not in sizes:
                    heappush(heap, price)
                sizes[price] = size
            elif price in sizes:
                del sizes[price]

    def _top(self, offset: int, last_id: int | None, ts: int) -> Best:
        bid, ask = self.bids.best(), self.asks.best()
        return Best(
            offset,
            last_id,
            ts,
            None if bid is None else self._number(-bid),
            None if bid is None else self._number(self.bids.sizes[bid]),
            None if ask is None else self._number(ask),
            None if ask is None else self._number(self.asks.sizes[ask]),
        )

    def _number(self, scaled: int) -> Decimal:
        return Decimal((scaled < 0, tuple(map(int, str(abs(scaled)))), -(self._scale or 0)))


def integers(column: Any) -> list[int]:
    """Decimals times ten to their scale. Values that are there often are made once."""
    column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    encoded = column.dictionary_encode()
    values = encoded.dictionary
    words = np.frombuffer(values.buffers()[1], dtype=np.int64).reshape(-1, 2)
    words = words[values.offset : values.offset + len(values)]
    low, high = words.view(np.uint64)[:, 0].tolist(), words[:, 1].tolist()
    known = [(upper << 64) | lower for upper, lower in zip(high, low, strict=True)]
    return [known[code] for code in encoded.indices.to_pylist()]
