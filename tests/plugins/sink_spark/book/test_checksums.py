"""Kraken and OKX send a checksum of their book with each change of it: a rebuilt book has the same."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from zlib import crc32

import pyarrow.compute as pc

from blumfeld_sink_spark.book.best import Tops
from blumfeld_sink_spark.book.sync import Sync
from blumfeld_sink_spark.reading.producing.captures import messages
from tests.plugins.sink_spark.captured import all_of, decoded
from tests.shared_facts import shared_path

SCALE = 18


def checked(path: Path, decoder: str, checksum: Callable[[str, Tops], int]) -> tuple[int, int, int]:
    """Returns the numbers of right checksums, wrong checksums, and books."""
    rows = all_of("book_deltas", list(decoded([path], decoder)))
    right = wrong = 0
    symbols = pc.unique(rows.column("symbol")).to_pylist()
    for symbol in symbols:
        mine = rows.filter(pc.equal(rows.column("symbol"), symbol))
        sums = dict(zip(mine.column("k_offset").to_pylist(), mine.column("flags").to_pylist(), strict=True))
        tops = Tops()
        for best in tops.take(Sync().feed(mine)):
            if sums[best.offset] is None:
                continue
            ok = checksum(symbol, tops) == sums[best.offset] & 0xFFFFFFFF
            right, wrong = right + ok, wrong + (not ok)
    return right, wrong, len(symbols)


def test_krakens_checksums_are_right() -> None:
    """Kraken sums the digits of the ten best levels of each side, with as many decimals as the pair's prices have."""
    path = shared_path("market-data/cryptofeed/KRAKEN.ws.50.0")
    decimals: dict[str, int] = {}
    for message in messages(path):
        found = re.search(rb'"[ab]s?":\[\["\d+\.(\d+)".*"([^"]+)"\]$', message.value)
        if found:
            decimals[found[2].decode()] = len(found[1])

    def checksum(symbol: str, tops: Tops) -> int:
        cut = 10 ** (SCALE - decimals[symbol])
        text = "".join(
            f"{abs(price) // cut}{size // 10 ** (SCALE - 8)}"
            for side in (tops.asks, tops.bids)
            for price, size in side.nearest(10)
        )
        return crc32(text.encode())

    right, wrong, books = checked(path, "kraken", checksum)
    assert (right, wrong, books) == (4269, 0, 10)


def test_okxs_checksums_are_right() -> None:
    """OKX sums the 25 best levels of each side as it sent them, bids and asks in turn."""
    path = shared_path("market-data/cryptofeed/OKX.ws.1.0")

    def text(number: int) -> str:
        return f"{(Decimal(abs(number)) / 10**SCALE).normalize():f}"

    def checksum(symbol: str, tops: Tops) -> int:
        bids, asks = tops.bids.nearest(25), tops.asks.nearest(25)
        words = []
        for at in range(25):
            for side in (bids, asks):
                words += [text(number) for number in side[at]] if at < len(side) else []
        return crc32(":".join(words).encode())

    right, wrong, books = checked(path, "okx", checksum)
    assert (right, wrong, books) == (290, 0, 3)
