"""Rows and a store for the tests of files."""

from __future__ import annotations

import random
from decimal import Decimal
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from blumfeld_sink_spark.settings import ArchiveSettings
from blumfeld_sink_spark.tables import tables

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
    """Returns settings that suffice for writing files."""
    return ArchiveSettings(topics=("t",), **changes)


def trades(
    count: int, *, symbols: tuple[str, ...] = ("BTCUSDT",), start: int = MIDNIGHT, seed: int = 1
) -> pa.Table:
    """Returns trades a second apart, of random symbols."""
    chance = random.Random(seed)
    stamps = [start + row * 1_000_000_000 for row in range(count)]
    return pa.table(
        {
            "ts_event": stamps,
            "ts_recv": [stamp + chance.randrange(10**8) for stamp in stamps],
            "ts_sent": pa.nulls(count, pa.int64()),
            "ts_event_is_recv": [False] * count,
            "venue": ["binance"] * count,
            "symbol": [chance.choice(symbols) for _ in range(count)],
            "trade_id": pa.array([None if row % 7 == 6 else row for row in range(count)], pa.int64()),
            "side": pa.array([chance.choice((1, -1)) for _ in range(count)], pa.int8()),
            "price": pa.array(
                [Decimal(chance.randrange(10**6)) / 100 for _ in range(count)], pa.decimal128(38, 18)
            ),
            "size": pa.array(
                [Decimal(chance.randrange(10**6)) / 1000 for _ in range(count)], pa.decimal128(38, 18)
            ),
            "flags": pa.nulls(count, pa.int32()),
            "k_partition": pa.array([0] * count, pa.int32()),
            "k_offset": list(range(count)),
        },
        schema=tables()["trades"].schema,
    )


def raw(count: int, value_bytes: int = 20, seed: int = 1) -> pa.Table:
    """Returns raw rows; some have keys, headers or no value."""
    chance = random.Random(seed)
    return pa.table(
        {
            "ts_recv": [MIDNIGHT + row * 1000 for row in range(count)],
            "timestamp_type": pa.array([0] * count, pa.int8()),
            "key": [None if row % 5 == 4 else b"k%d" % (row % 3) for row in range(count)],
            "value": [None if row % 11 == 10 else chance.randbytes(value_bytes) for row in range(count)],
            "headers": [
                None if row % 2 else [{"key": "a", "value": b"1"}, {"key": "b", "value": None}]
                for row in range(count)
            ],
            "k_partition": pa.array([0] * count, pa.int32()),
            "k_offset": list(range(count)),
        },
        schema=tables()["raw"].schema,
    )


def book_deltas(count: int, levels: int) -> pa.Table:
    """Returns the rows of messages with this many levels. No column orders the levels of a message."""
    numbers = range(count)
    return pa.table(
        {
            "ts_event": [MIDNIGHT + row // levels for row in numbers],
            "ts_recv": [MIDNIGHT] * count,
            "ts_sent": [MIDNIGHT + row // levels for row in numbers],
            "ts_event_is_recv": [False] * count,
            "venue": ["binance"] * count,
            "symbol": ["BTCUSDT"] * count,
            "first_id": [row // levels for row in numbers],
            "last_id": [row // levels for row in numbers],
            "prev_id": pa.nulls(count, pa.int64()),
            "side": pa.array([1] * count, pa.int8()),
            "price": pa.array([Decimal(row * 7919 % 1000) for row in numbers], pa.decimal128(38, 18)),
            "size": pa.array([Decimal(row) for row in numbers], pa.decimal128(38, 18)),
            "is_snapshot": [False] * count,
            "flags": pa.nulls(count, pa.int32()),
            "depth": pa.nulls(count, pa.int32()),
            "k_partition": pa.array([0] * count, pa.int32()),
            "k_offset": [row // levels for row in numbers],
        },
        schema=tables()["book_deltas"].schema,
    )
