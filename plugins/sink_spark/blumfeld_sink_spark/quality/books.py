"""Books held against the checksums that their venue sends with each change.

A venue that numbers no message of its books (Kraken) leaves no other trace of one that is missing. The driver rebuilds
such a book batch by batch, so that the verdict doesn't depend on where batches were cut. It carries the book from one
to the next if it has ``CARRIED`` levels a side at most. A deeper one is checked from its snapshot to the end of that
batch.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterable, Iterator
from decimal import Decimal

import msgspec
import numpy as np
import pyarrow as pa

from blumfeld_sink_spark.book.best import Tops
from blumfeld_sink_spark.book.change import Change
from blumfeld_sink_spark.book.checksums import LEVELS, Checksum
from blumfeld_sink_spark.book.sync import Sync
from blumfeld_sink_spark.quality.chain import Finding, Walk

CARRIED = 100
"""Most levels of each side in a state. It bounds a book's share of a commit record, to about 2 kB."""
CHECKSUM = "checksum"

COLUMNS = (
    *("ts_event", "venue", "first_id", "last_id", "prev_id", "side", "price", "size", "is_snapshot"),
    *("flags", "depth", "k_offset"),
)


class Book(msgspec.Struct):
    """A book at the end of a batch. Builtins only."""

    levels: str
    """Side, price and size of each level: text, packed."""
    depth: int
    places: tuple[int, int] | None
    tries: int
    wrong: bool
    """Whether the last checksum differed."""
    ts: int
    offset: int
    """Time and offset of the last message."""


def follow(book: Book | None, parts: Iterable[pa.Table], room: int) -> tuple[Book | None, Walk]:
    """Returns the book after these rows of one venue and symbol, and the places where it begins and ends to be wrong.

    :param parts: whole messages in the order of the offsets, with ``COLUMNS``
    :return: no book where none has begun, or it is too deep to carry
    """
    walk, follower = Walk(), None
    for rows in parts:
        if follower is None:
            follower = _Follower(rows.schema.field("price").type, book)
        for finding in follower.take(rows):
            walk.add(finding, room)
    return (book if follower is None else follower.book()), walk


class _Follower:
    def __init__(self, number: pa.DataType, book: Book | None) -> None:
        self._number = number
        self._sync, self._tops = Sync(), Tops()
        self._checksum = Checksum(number.scale)
        self._wrong = False
        self._ts = self._offset = 0
        if book is not None:
            self._checksum = Checksum(number.scale, book.places, book.tries)
            self._wrong, self._ts, self._offset = book.wrong, book.ts, book.offset
            change = self._sync.begin(_unpacked(book, number), None)
            list(self._tops.take([change]))

    def take(self, rows: pa.Table) -> Iterator[Finding]:
        """Applies rows. Yields a finding where the verdict changes."""
        for change in self._sync.feed(rows):
            if change.replaces:
                self._checksum.tries = 0
            yield from self._judged(change)

    def _judged(self, change: Change) -> Iterator[Finding]:
        sums = dict(
            zip(*(change.rows.column(name).to_pylist() for name in ("k_offset", "flags")), strict=True)
        )
        for best in self._tops.take([change]):
            given = sums[best.offset]
            if given is not None:
                given &= 0xFFFFFFFF
                checksum = self._checksum.of(*self._tops.nearest(LEVELS), given)
                if (checksum != given) != self._wrong:
                    self._wrong = checksum != given
                    yield self._finding(given, checksum, best.ts_event, best.offset)
            self._ts, self._offset = best.ts_event, best.offset

    def _finding(self, given: int, checksum: int, ts: int, offset: int) -> Finding:
        return Finding(
            kind=CHECKSUM if self._wrong else f"{CHECKSUM}_end",
            expected=given,
            got=checksum,
            ts_before=self._ts,
            offset_before=self._offset,
            ts=ts,
            offset=offset,
        )

    def book(self) -> Book | None:
        """Returns the state to carry."""
        depth = self._sync.depth
        if not self._sync.synced or depth is None or depth > CARRIED:
            return None
        return Book(
            _packed(self._tops),
            depth,
            self._checksum.places,
            self._checksum.tries,
            self._wrong,
            self._ts,
            self._offset,
        )


def _packed(tops: Tops) -> str:
    """Returns the levels as text. The same book gives the same text."""
    levels = [
        f"{price} {size}" for side in (tops.bids, tops.asks) for price, size in sorted(side.sizes.items())
    ]
    text = f"{len(tops.bids.sizes)} {' '.join(levels)}"
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode()


def _unpacked(book: Book, number: pa.DataType) -> pa.Table:
    """Returns the levels as rows of a snapshot."""
    bids, *words = map(int, zlib.decompress(base64.b64decode(book.levels)).split())
    count = len(words) // 2
    prices, sizes = words[::2], words[1::2]
    return pa.table(
        {
            "side": pa.array(np.where(np.arange(count) < bids, 1, -1).astype(np.int8)),
            "price": pa.array([_decimal(abs(price), number.scale) for price in prices], number),
            "size": pa.array([_decimal(size, number.scale) for size in sizes], number),
            "depth": pa.repeat(pa.scalar(book.depth, pa.int32()), count),
            "ts_event": pa.repeat(pa.scalar(book.ts, pa.int64()), count),
            "last_id": pa.nulls(count, pa.int64()),
            "k_offset": pa.repeat(pa.scalar(book.offset, pa.int64()), count),
        }
    )


def _decimal(scaled: int, scale: int) -> Decimal:
    return Decimal((0, Decimal(scaled).as_tuple().digits, -scale))
