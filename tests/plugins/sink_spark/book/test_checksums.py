"""Kraken and OKX send a checksum of their book with each change of it: a rebuilt book has the same."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any
from zlib import crc32

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from blumfeld_sink_spark.book.best import Tops
from blumfeld_sink_spark.book.ladder import Ladder
from blumfeld_sink_spark.book.sync import Sync
from blumfeld_sink_spark.reading.producing.captures import CapturedMessage, messages
from blumfeld_sink_spark.reading.producing.load import Record
from tests.everyday import first
from tests.plugins.sink_spark.archive_tools import rows_of
from tests.plugins.sink_spark.decoding import all_of, decoded, decoded_rows
from tests.shared_facts import shared_path

SCALE = 18


Checksum = Callable[[str, Tops], int]


def checked(rows: pa.Table, checksum: Checksum) -> tuple[int, int, int]:
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


def of_capture(path: Path, decoder: str) -> pa.Table:
    return all_of("book_deltas", decoded([path], decoder))


def krakens(path: Path) -> Checksum:
    """Kraken sums the digits of the ten best levels of each side, with as many decimals as the pair's prices have."""
    decimals: dict[str, int] = {}
    for message in messages(path):
        match = re.search(rb'"[ab]s?":\[\["\d+\.(\d+)".*"([^"]+)"\]$', message.value)
        if match:
            decimals[match[2].decode()] = len(match[1])

    def checksum(symbol: str, tops: Tops) -> int:
        cut = 10 ** (SCALE - decimals[symbol])
        text = "".join(
            f"{abs(price) // cut}{size // 10 ** (SCALE - 8)}"
            for side in (tops.asks, tops.bids)
            for price, size in side.nearest(10)
        )
        return crc32(text.encode())

    return checksum


def test_krakens_checksums_are_right() -> None:
    path = shared_path("market-data/cryptofeed/KRAKEN.ws.50.0")
    assert checked(of_capture(path, "kraken"), krakens(path)) == (4269, 0, 10)


@pytest.mark.parametrize(("depth", "right"), first(1, [(25, 4112), (10, 3342), (100, 4256)]))
def test_krakens_checksums_are_right_at_any_depth(depth: int, right: int) -> None:
    """The real feed of 1,000 levels, as Kraken sends it to a client of fewer: it never says that a level was pushed
    out, and sends it again when it comes back. The checksums are the exchange's own, of the ten best levels; the others
    are held against the whole book.
    """
    path = shared_path("market-data/cryptofeed/KRAKEN.ws.50.0")
    whole: Books = {}
    sent = [
        Record(value, None, message.received_ns // 1_000_000, 0, None, "")
        for message, value in less_deep(path, depth, whole)
    ]
    (applied,) = decoded_rows(rows_of(sent, "feed"), "kraken")
    rows = applied.tables["book_deltas"]
    assert checked(rows, krakens(path)) == (right, 0, 10)
    for symbol, book in whole.items():
        ladder = Ladder()
        ladder.take(Sync().feed(rows.filter(pc.equal(rows.column("symbol"), symbol))))
        for side, letter in ((1, "b"), (-1, "a")):
            wanted = list(best(book[letter], letter, depth))
            assert ladder.side(side).column("price").to_pylist() == wanted, symbol


Books = dict[str, dict[str, dict[Decimal, list[str]]]]


def less_deep(path: Path, depth: int, whole: Books) -> Iterator[tuple[CapturedMessage, bytes]]:
    """Yields the messages of a client of this depth, made of those of a client of all levels.

    :param whole: gets all levels of each book, at the end of the feed
    """
    for message in messages(path):
        if b'"book-' not in message.value or not message.value.startswith(b"["):
            continue
        number, *parts, _, symbol = json.loads(message.value)
        changed: dict[str, Any] = {key: levels for part in parts for key, levels in part.items()}
        book = whole.setdefault(symbol, {"a": {}, "b": {}})
        before = {side: best(book[side], side, depth) for side in "ab"}
        for key, levels in changed.items():
            for level in levels if key != "c" else ():
                if Decimal(level[1]):
                    book[key[0]][Decimal(level[0])] = level[:3]
                else:
                    book[key[0]].pop(Decimal(level[0]))
        after = {side: best(book[side], side, depth) for side in "ab"}
        if "as" in changed:
            sent: list[dict[str, Any]] = [{f"{side}s": list(after[side].values()) for side in "ab"}]
        else:
            sent = [
                {side: side_levels}
                for side in "ab"
                if (side_levels := differences(before[side], after[side], book[side]))
            ]
            if not sent:
                continue
            sent[-1]["c"] = changed["c"]
        yield message, json.dumps([number, *sent, f"book-{depth}", symbol], separators=(",", ":")).encode()


def best(levels: dict[Decimal, list[str]], side: str, depth: int) -> dict[Decimal, list[str]]:
    return {price: levels[price] for price in sorted(levels, reverse=side == "b")[:depth]}


def differences(
    before: dict[Decimal, list[str]], after: dict[Decimal, list[str]], book: dict[Decimal, list[str]]
) -> list[list[str]]:
    gone = [[level[0], "0.00000000", level[2]] for price, level in before.items() if price not in book]
    return [*gone, *(level for price, level in after.items() if before.get(price) != level)]


def test_okxs_checksums_are_right() -> None:
    """OKX sums the 25 best levels of each side as it sent them, bids and asks in turn."""

    def text(number: int) -> str:
        return f"{(Decimal(abs(number)) / 10**SCALE).normalize():f}"

    def checksum(symbol: str, tops: Tops) -> int:
        bids, asks = tops.bids.nearest(25), tops.asks.nearest(25)
        words = []
        for at in range(25):
            for side in (bids, asks):
                words += [text(number) for number in side[at]] if at < len(side) else []
        return crc32(":".join(words).encode())

    rows = of_capture(shared_path("market-data/cryptofeed/OKX.ws.1.0"), "okx")
    assert checked(rows, checksum) == (290, 0, 3)
