"""Feeds for the demo: a seeded synthetic market, or a real capture (``local_ns JSON`` a line, plain or gzip)."""

from __future__ import annotations

import gzip
import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

SYMBOLS = ("BTCUSDT", "ETHUSDT", "SOLUSDT", "XRPUSDT")
START_MS = 1_735_689_600_000
"""2025-01-01T00:00:00Z: event time of the first synthetic message."""

_STREAM = re.compile(rb'"(?:stream|channel)":"([^"]+)"')
_EVENT_MS = re.compile(rb'"E":(\d{13})')


class FeedError(ValueError):
    """A feed file that can't be read; the message says which line and why."""


class FeedMessage(NamedTuple):
    """One message of a feed."""

    key: bytes
    """The stream: messages of one stream stay in order."""
    value: bytes
    """JSON, unchanged."""
    event_ms: int
    """When it happened at the exchange, ms since the epoch."""


def synthetic_feed(count: int, seed: int) -> Iterator[FeedMessage]:
    """Trades and L2 book changes of four symbols as a random walk; the same seed gives the same bytes."""
    chance = random.Random(seed)
    mid = dict(zip(SYMBOLS, (6_180_030, 340_010, 18_050, 5_230), strict=True))
    event_ms, update_id, trade_id = START_MS, 1, 1
    for _ in range(count):
        event_ms += chance.choice((0, 0, 0, 1, 1, 2, 5))
        symbol = SYMBOLS[min(3, int(chance.expovariate(1.1)))]
        mid[symbol] = max(100, mid[symbol] + chance.choice((-10, -1, 0, 0, 1, 10)))
        if chance.random() < 0.4:
            kind, data = "trade", _trade(chance, symbol, mid[symbol], trade_id, event_ms)
            trade_id += 1
        else:
            changes = 1 + int(chance.expovariate(0.25))
            kind, data = "depth", _depth(chance, symbol, mid[symbol], update_id, changes, event_ms)
            update_id += changes
        stream = f"{symbol.lower()}@{kind}"
        yield FeedMessage(stream.encode(), _compact({"stream": stream, "data": data}), event_ms)


def _trade(chance: random.Random, symbol: str, mid: int, trade_id: int, event_ms: int) -> dict[str, object]:
    return {
        "e": "trade",
        "E": event_ms,
        "s": symbol,
        "t": trade_id,
        "p": f"{(mid + chance.choice((-1, 1))) / 100:.2f}",
        "q": f"{chance.expovariate(2.0) + 0.001:.3f}",
        "m": chance.random() < 0.5,
    }


def _depth(
    chance: random.Random, symbol: str, mid: int, update_id: int, changes: int, event_ms: int
) -> dict[str, object]:
    sides: dict[str, list[list[str]]] = {"b": [], "a": []}
    for _ in range(changes):
        side = chance.choice("ba")
        away = 1 + int(chance.expovariate(0.05))
        price = mid - away if side == "b" else mid + away
        size = 0.0 if chance.random() < 0.3 else chance.expovariate(0.5)
        sides[side].append([f"{price / 100:.2f}", f"{size:.3f}"])
    head = {"e": "depthUpdate", "E": event_ms, "s": symbol, "U": update_id, "u": update_id + changes - 1}
    return {**head, **sides}


def _compact(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def captured_feed(path: Path) -> Iterator[FeedMessage]:
    """The messages of a capture, in file order.

    :raises FeedError: a line isn't ``<nanoseconds> <JSON>``, or the file can't be read
    """
    try:
        with _open(path) as lines:
            for number, line in enumerate(lines, 1):
                yield _parse(line.rstrip(b"\r\n"), path, number)
    except (OSError, EOFError) as error:
        raise FeedError(f"{path}: {getattr(error, 'strerror', None) or error}") from error


def _open(path: Path) -> gzip.GzipFile | BinaryIO:
    with path.open("rb") as probe:
        zipped = probe.read(2) == b"\x1f\x8b"
    return gzip.open(path, "rb") if zipped else path.open("rb")


def _parse(line: bytes, path: Path, number: int) -> FeedMessage:
    local_ns, _, value = line.partition(b" ")
    if not local_ns.isdigit() or not value.startswith((b"{", b"[")):
        raise FeedError(f"{path}, line {number}: expected '<nanoseconds> <JSON>', found {line[:60]!r}")
    stream = _STREAM.search(value[:200])
    event = _EVENT_MS.search(value[:400])
    event_ms = int(event.group(1)) if event else int(local_ns) // 1_000_000
    return FeedMessage(stream.group(1) if stream else b"snapshot", value, event_ms)
