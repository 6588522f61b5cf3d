"""The expected contents of a feed's tables, computed from its JSON alone. The archive's decoders have no part in it.

A tally is the number of rows and the exact sum of each column; ``ts_event_ms`` is the sum of the events' times in ms.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

from blumfeld.feeds.binance import Message

Tally = dict[str, Decimal]
"""The number of ``rows`` and the sum of each column."""
Tallies = dict[str, Tally]
"""Tallies by table."""

SUMMED: Mapping[str, tuple[str, ...]] = {
    "trades": ("trade_id", "side", "price", "size", "k_offset"),
    "bbo": ("update_id", "bid", "bid_size", "ask", "ask_size", "k_offset"),
    "book_deltas": ("last_id", "side", "price", "size", "k_offset"),
}
"""The columns that are summed. Rows of snapshots in ``book_deltas`` don't count."""
WORDS = {"trades": "trades", "bbo": "bbo", "book_deltas": "levels"}


def expected_of(messages: Iterable[Message], first_offset: int = 0) -> Tallies:
    """Returns the tallies of a Binance feed in one partition, with dense offsets from ``first_offset``."""
    return expected_at(enumerate(messages, first_offset))


def expected_at(placed: Iterable[tuple[int, Message]]) -> Tallies:
    """Returns the tallies of a Binance feed, given as (offset, message)."""
    tallies: Tallies = {table: _empty(table) for table in SUMMED}
    timeless = set()
    for offset, message in placed:
        data = message.parsed()
        data = data.get("data", data)
        table, rows = rows_of(data)
        time = data.get("T", data.get("E"))
        if table and time is None:
            timeless.add(table)
        for row in rows:
            tally = tallies[table]
            tally["rows"] += 1
            tally["k_offset"] += offset
            tally["ts_event_ms"] += time or 0
            for column, value in row.items():
                tally[column] += value
    for table in timeless:
        del tallies[table]["ts_event_ms"]
    return tallies


def rows_of(data: Mapping[str, Any]) -> tuple[str, list[Tally]]:
    """Returns (table, rows without times and offsets) of one message. A REST snapshot has no rows that count."""
    if "lastUpdateId" in data:
        return "", []
    kind = data.get("e", "bookTicker")
    if kind == "trade":
        row = {
            "trade_id": data["t"],
            "side": -1 if data["m"] else 1,
            "price": data["p"],
            "size": data["q"],
        }
        return "trades", [_exact(row)]
    if kind == "bookTicker":
        best = {
            "update_id": data["u"],
            "bid": data["b"],
            "bid_size": data["B"],
            "ask": data["a"],
            "ask_size": data["A"],
        }
        return "bbo", [_exact(best)]
    if kind != "depthUpdate":
        raise ValueError(f"a message of a kind that is not known here: {kind}")
    return "book_deltas", [
        _exact({"last_id": data["u"], "side": side, "price": price, "size": size})
        for side, levels in ((1, data["b"]), (-1, data["a"]))
        for price, size in levels
    ]


def added(many: Iterable[Tallies]) -> Tallies:
    """Returns the sum of several partitions' tallies."""
    sums: Tallies = {table: _empty(table) for table in SUMMED}
    for tallies in many:
        for table, tally in tallies.items():
            for column, value in tally.items():
                sums[table][column] += value
    return sums


def differences(expected: Tallies, tallies: Tallies, who: str) -> list[str]:
    """Returns a line for each difference. Columns that aren't expected aren't compared."""
    wrong = []
    for table, tally in expected.items():
        for column, value in tally.items():
            got = tallies.get(table, {}).get(column)
            if got != value:
                wrong.append(f"{who}: {table}.{column} is {_short(got)}, expected {_short(value)}")
    return wrong


def _exact(row: Mapping[str, Any]) -> Tally:
    return {column: Decimal(value) for column, value in row.items()}


def _empty(table: str) -> Tally:
    return {column: Decimal(0) for column in ("rows", "ts_event_ms", *SUMMED[table])}


def _short(value: Decimal | None) -> str:
    return "missing" if value is None else f"{value.normalize():f}"
