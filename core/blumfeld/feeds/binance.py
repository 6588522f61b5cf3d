"""A made market in the words of Binance's USD-M futures: the combined streams ``depth``, ``bookTicker`` and ``trade``,
and the depth snapshot of the REST API.

Messages have what the real ones have: trade ids that are consecutive, diffs that name the one before (``pu``), quotes
with the update id of the diff before them, ``T`` of the matching engine and a later ``E`` of the sender.
"""

from __future__ import annotations

import heapq
import json
import random
from collections.abc import Iterator
from decimal import Decimal
from itertools import islice
from typing import Any

import attrs

MIDNIGHT_MS = 1_723_161_600_000
"""2024-08-09T00:00:00Z: a feed begins 20 s before it, so that it has two dates."""
SNAPSHOT_AT = 40
"""The REST snapshot comes before the diff of this number: clients subscribe first, then ask for it."""


@attrs.frozen
class Message:
    """A message as a client received it."""

    received_ns: int
    """Time of receipt, ns since the epoch."""
    value: bytes
    """The message, as JSON."""

    def parsed(self) -> dict[str, Any]:
        """The JSON, numbers as they are written."""
        fields: dict[str, Any] = json.loads(self.value, parse_float=Decimal)
        return fields


@attrs.frozen
class Market:
    """Steps of prices and sizes of a symbol, and where its price begins."""

    tick: Decimal
    lot: Decimal
    middle_ticks: tuple[int, int]
    """The price at the beginning lies between these."""


MARKETS = {
    "BTCUSDT": Market(Decimal("0.10"), Decimal("0.001"), (200_000, 700_000)),
    "ETHUSDT": Market(Decimal("0.01"), Decimal("0.001"), (200_000, 400_000)),
    "SOLUSDT": Market(Decimal("0.0010"), Decimal("1"), (100_000, 200_000)),
    "XRPUSDT": Market(Decimal("0.0001"), Decimal("0.1"), (5_000, 30_000)),
}
SYMBOLS = tuple(MARKETS)


def made_market(count: int, seed: int, symbols: tuple[str, ...] = SYMBOLS) -> Iterator[tuple[str, Message]]:
    """(symbol, message) of all symbols in the order of their receipt; the same seed gives the same bytes."""

    def one(symbol: str) -> Iterator[tuple[int, str, Message]]:
        return ((message.received_ns, symbol, message) for message in MadeFeed(seed, symbol).endless())

    merged = heapq.merge(*map(one, symbols), key=lambda receipt: receipt[:2])
    return ((symbol, message) for _, symbol, message in islice(merged, count))


class MadeFeed:
    """One symbol's market that nobody trades on: chained diffs, a best bid and ask after some of them, trades. The same
    seed gives the same feed.
    """

    def __init__(self, seed: int = 0, symbol: str = "BTCUSDT", start_ms: int = MIDNIGHT_MS - 20_000) -> None:
        self.symbol = symbol
        self._random = random.Random(f"{seed} {symbol}")
        self._now_ms = start_ms
        self._update_id = self._random.randrange(10**9, 10**12)
        self._trade_id = self._random.randrange(10**6, 10**9)
        self._market = MARKETS.get(symbol, MARKETS["BTCUSDT"])
        self._middle = self._random.randrange(*self._market.middle_ticks)
        self._books: tuple[dict[int, int], dict[int, int]] = ({}, {})
        for depth in range(1, 30):
            self._books[0][self._middle - depth] = self._random.randrange(1, 9_000)
            self._books[1][self._middle + depth] = self._random.randrange(1, 9_000)
        self._diffs = 0
        self._received_ns = 0

    def messages(self, count: int) -> list[Message]:
        """The first (or next) ``count``."""
        endless = self.endless()
        return [next(endless) for _ in range(count)]

    def endless(self) -> Iterator[Message]:
        """All that there are."""
        while True:
            kind = self._random.random()
            self._now_ms += self._random.randrange(1, 20)
            if kind < 0.4:
                yield self._trade()
                continue
            diff = self._diff()
            if self._diffs == SNAPSHOT_AT:
                yield self._snapshot()
            yield self._stream("depth@0ms", diff)
            if kind < 0.8:
                yield self._best()

    def _stream(self, stream: str, data: dict[str, Any]) -> Message:
        whole = {"stream": f"{self.symbol.lower()}@{stream}", "data": data}
        return self._message(whole)

    def _message(self, whole: dict[str, Any]) -> Message:
        received = self._now_ms * 1_000_000 + 3_500_000 + self._random.randrange(100_000)
        self._received_ns = max(self._received_ns + 1, received)
        return Message(self._received_ns, json.dumps(whole, separators=(",", ":")).encode())

    def _times(self) -> dict[str, Any]:
        """The sender's time is the engine's or up to 3 ms later."""
        return {"E": self._now_ms + self._random.randrange(4), "T": self._now_ms}

    def _trade(self) -> Message:
        self._trade_id += 1
        sold = self._random.random() < 0.5
        price = max(self._books[0]) if sold else min(self._books[1])
        what = {"e": "trade", **self._times(), "s": self.symbol, "t": self._trade_id}
        size = self._size(self._random.randrange(1, 500))
        return self._stream("trade", {**what, "p": self._price(price), "q": size, "X": "MARKET", "m": sold})

    def _diff(self) -> dict[str, Any]:
        """A few levels that come, change and go; the sides never touch."""
        before = self._update_id
        self._update_id += self._random.randrange(1, 40)
        self._diffs += 1
        changed: tuple[dict[int, int], dict[int, int]] = ({}, {})
        for _ in range(self._random.randrange(1, 7)):
            side = self._random.randrange(2)
            price = self._middle + (1 if side else -1) * self._random.randrange(1, 40)
            size = self._random.choice([0, self._random.randrange(1, 9_000)])
            if size == 0 and (price not in self._books[side] or len(self._books[side]) < 5):
                size = self._random.randrange(1, 9_000)
            changed[side][price] = size
            self._books[side][price] = size
            if not size:
                del self._books[side][price]
        ids = {"U": before + 1, "u": self._update_id, "pu": before}
        levels = {"b": self._levels(changed[0]), "a": self._levels(changed[1])}
        return {"e": "depthUpdate", **self._times(), "s": self.symbol, **ids, **levels}

    def _snapshot(self) -> Message:
        """The book after the diff that comes next, which changes nothing when it is laid over it."""
        bids, asks = (self._levels(book) for book in self._books)
        ids = {"lastUpdateId": self._update_id, **self._times()}
        return self._message({**ids, "bids": bids, "asks": asks})

    def _best(self) -> Message:
        bid, ask = max(self._books[0]), min(self._books[1])
        said = {
            "b": self._price(bid),
            "B": self._size(self._books[0][bid]),
            "a": self._price(ask),
            "A": self._size(self._books[1][ask]),
        }
        times = self._times()
        whole = {"e": "bookTicker", "u": self._update_id, "s": self.symbol, **said}
        return self._stream("bookTicker", {**whole, "T": times["T"], "E": times["E"]})

    def _price(self, ticks: int) -> str:
        return str(ticks * self._market.tick)

    def _size(self, lots: int) -> str:
        return str(lots * self._market.lot)

    def _levels(self, changed: dict[int, int]) -> list[list[str]]:
        return [[self._price(price), self._size(size)] for price, size in sorted(changed.items())]
