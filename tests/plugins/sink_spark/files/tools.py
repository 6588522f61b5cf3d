"""Rows and a store for the tests of files."""

from __future__ import annotations

import random
from decimal import Decimal
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from blumfeld_sink_spark.settings import ArchiveSettings
from tests.plugins.sink_spark.results import table_of

MIDNIGHT = 1_723_161_600_000_000_000
"""2024-08-09 UTC, in ns."""


class FolderStore:
    """The operations of a store that a task uses."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def create(self, path: str) -> BinaryIO:
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        return place.open("xb")

    def delete(self, path: str) -> None:
        (self.root / path).unlink(missing_ok=True)


def settings(**changes: Any) -> ArchiveSettings:
    return ArchiveSettings(topics=("t",), **changes)


def trades(
    count: int, *, symbols: tuple[str, ...] = ("BTCUSDT",), start: int = MIDNIGHT, seed: int = 1
) -> pa.Table:
    """Returns trades a second apart, of random symbols."""
    chance = random.Random(seed)
    stamps = [start + row * 1_000_000_000 for row in range(count)]
    rows = [
        {
            "ts_event": stamp,
            "ts_recv": stamp + chance.randrange(10**8),
            "ts_event_is_recv": False,
            "symbol": chance.choice(symbols),
            "trade_id": None if row % 7 == 6 else row,
            "side": chance.choice((1, -1)),
            "price": Decimal(chance.randrange(10**6)) / 100,
            "size": Decimal(chance.randrange(10**6)) / 1000,
        }
        for row, stamp in enumerate(stamps)
    ]
    return table_of("trades", rows)


def raw(count: int, value_bytes: int = 20, seed: int = 1) -> pa.Table:
    """Returns raw rows; some have keys, headers or no value."""
    chance = random.Random(seed)
    headers = [{"key": "a", "value": b"1"}, {"key": "b", "value": None}]
    rows = [
        {
            "ts_recv": MIDNIGHT + row * 1000,
            "timestamp_type": 0,
            "key": None if row % 5 == 4 else b"k%d" % (row % 3),
            "value": None if row % 11 == 10 else chance.randbytes(value_bytes),
            "headers": None if row % 2 else headers,
        }
        for row in range(count)
    ]
    return table_of("raw", rows)


def book_deltas(count: int, levels: int) -> pa.Table:
    """Returns the rows of messages with this many levels. No column orders the levels of a message."""
    rows = [
        {
            **dict.fromkeys(("ts_event", "ts_sent"), MIDNIGHT + row // levels),
            **dict.fromkeys(("first_id", "last_id", "k_offset"), row // levels),
            "ts_recv": MIDNIGHT,
            "ts_event_is_recv": False,
            "price": Decimal(row * 7919 % 1000),
            "size": Decimal(row),
        }
        for row in range(count)
    ]
    return table_of("book_deltas", rows)
