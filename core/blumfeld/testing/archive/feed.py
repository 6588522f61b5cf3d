"""Feeds: captures as exchanges' clients write them, and a small one that is made here. Pure but for reading a file.

A line of a capture is ``<ns of receipt> <JSON as received>``, gzipped or not.
"""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Iterable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import attrs

MIDNIGHT_MS = 1_723_161_600_000
"""2024-08-09T00:00:00Z: feeds that are made here cross it, so that they have two dates."""
TICK = Decimal("0.10")
LOT = Decimal("0.001")
SNAPSHOT_AT = 40
"""The REST snapshot comes before the diff of this number: clients subscribe first, then ask for it."""


@attrs.frozen
class Message:
    """What a client received."""

    received_ns: int
    value: bytes
    """JSON."""

    def parsed(self) -> dict[str, Any]:
        """The JSON, numbers as they are written."""
        found: dict[str, Any] = json.loads(self.value, parse_float=Decimal)
        return found


def read_capture(path: Path) -> list[Message]:
    """All messages of a capture.

    :raises ValueError: a line is not ``<ns> <JSON>``
    """
    raw = path.read_bytes()
    if raw[:2] == b"\x1f\x8b":
        raw = gzip.decompress(raw)
    messages = []
    for number, line in enumerate(raw.splitlines(), 1):
        stamp, _, value = line.partition(b" ")
        if not stamp.isdigit() or not value:
            raise ValueError(f"{path}:{number}: not '<ns> <JSON>': {line[:60]!r}")
        messages.append(Message(int(stamp), value))
    return messages


def write_capture(path: Path, messages: Iterable[Message]) -> Path:
    """A capture file of these; gzipped where the name ends so."""
    lines = b"".join(b"%d %s\n" % (message.received_ns, message.value) for message in messages)
    path.write_bytes(gzip.compress(lines, 1) if path.suffix == ".gz" else lines)
    return path


def decoder_of(messages: Iterable[Message]) -> str:
    """The archive's decoder for a feed of Binance's: its futures say which diff came before, its spot doesn't.

    :raises ValueError: it has no diff
    """
    for message in messages:
        if b'"depthUpdate"' in message.value:
            return "binance-usdm" if b'"pu"' in message.value else "binance-spot"
    raise ValueError("no diff of a book in the capture: say which decoder with --decoder")


class MadeFeed:
    """A market that nobody trades on, in Binance's USD-M words: chained diffs, a best bid and ask after some of them
    that has their update id, trades with consecutive ids. The same seed gives the same feed.
    """

    def __init__(self, seed: int = 0, symbol: str = "BTCUSDT", start_ms: int = MIDNIGHT_MS - 20_000) -> None:
        self.symbol = symbol
        self._random = random.Random(f"{seed} {symbol}")
        self._now_ms = start_ms
        self._update_id = self._random.randrange(10**9, 10**12)
        self._trade_id = self._random.randrange(10**6, 10**9)
        self._middle = self._random.randrange(200_000, 700_000)
        self._books: tuple[dict[int, int], dict[int, int]] = ({}, {})
        for depth in range(1, 30):
            self._books[0][self._middle - depth] = self._random.randrange(1, 9_000)
            self._books[1][self._middle + depth] = self._random.randrange(1, 9_000)
        self._diffs = 0

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
            yield diff
            if kind < 0.8:
                yield self._best()

    def _stream(self, stream: str, data: dict[str, Any]) -> Message:
        whole = {"stream": f"{self.symbol.lower()}@{stream}", "data": data}
        return self._message(whole)

    def _message(self, whole: dict[str, Any]) -> Message:
        received = self._now_ms * 1_000_000 + 1_500_000 + self._random.randrange(100_000)
        return Message(received, json.dumps(whole, separators=(",", ":")).encode())

    def _times(self) -> dict[str, Any]:
        return {"E": self._now_ms + 1, "T": self._now_ms, "s": self.symbol}

    def _trade(self) -> Message:
        self._trade_id += 1
        sold = self._random.random() < 0.5
        price = max(self._books[0]) if sold else min(self._books[1])
        said = {"t": self._trade_id, "p": _price(price), "q": _size(self._random.randrange(1, 500))}
        return self._stream("trade", {"e": "trade", **self._times(), **said, "X": "MARKET", "m": sold})

    def _diff(self) -> Message:
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
        levels = {"b": _levels(changed[0]), "a": _levels(changed[1])}
        return self._stream("depth@0ms", {"e": "depthUpdate", **self._times(), **ids, **levels})

    def _snapshot(self) -> Message:
        """The book after the diff that comes next, which changes nothing when it is laid over it."""
        bids, asks = (_levels(book) for book in self._books)
        return self._message(
            {
                "lastUpdateId": self._update_id,
                "E": self._now_ms + 1,
                "T": self._now_ms,
                "bids": bids,
                "asks": asks,
            }
        )

    def _best(self) -> Message:
        bid, ask = max(self._books[0]), min(self._books[1])
        said = {
            "b": _price(bid),
            "B": _size(self._books[0][bid]),
            "a": _price(ask),
            "A": _size(self._books[1][ask]),
        }
        whole = {"e": "bookTicker", "u": self._update_id, "s": self.symbol, **said}
        return self._stream("bookTicker", {**whole, "T": self._now_ms, "E": self._now_ms + 1})


def _price(ticks: int) -> str:
    return str(ticks * TICK)


def _size(lots: int) -> str:
    return str(lots * LOT)


def _levels(changed: dict[int, int]) -> list[list[str]]:
    return [[_price(price), _size(size)] for price, size in sorted(changed.items())]
