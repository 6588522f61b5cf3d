"""The demo's feeds: a synthetic market, or a real capture (one ``local_ns JSON`` per line, plain or gzip)."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from blumfeld.feeds.binance import made_market

_STREAM = re.compile(rb'"(?:stream|channel)":"([^"]+)"')
_SNAPSHOT = b"snapshot"
"""Key of messages without a stream name at the start of a feed, before any stream was named."""


class FeedError(ValueError):
    """A feed file cannot be read. The message gives the line and the reason."""


class FeedMessage(NamedTuple):
    """One message of a feed."""

    key: bytes
    """The symbol, as the archive's decoders expect it. Messages of one symbol stay in order. A depth snapshot
    names no symbol and gets the key of its changes.
    """
    value: bytes
    """JSON, unchanged."""
    received_ns: int
    """The time at which the client received it, ns since the epoch."""


def synthetic_feed(count: int, seed: int) -> Iterator[FeedMessage]:
    """Four synthetic symbols; the same seed gives the same bytes."""
    for symbol, message in made_market(count, seed):
        yield FeedMessage(symbol.encode(), message.value, message.received_ns)


def captured_feed(path: Path) -> Iterator[FeedMessage]:
    """The messages of a capture, in file order.

    :raises FeedError: a line isn't ``<nanoseconds> <JSON>``, or the file can't be read
    """
    try:
        with _open(path) as lines:
            key = _SNAPSHOT
            for number, line in enumerate(lines, 1):
                message = _parse(line.rstrip(b"\r\n"), path, number, key)
                key = message.key
                yield message
    except (OSError, EOFError) as error:
        raise FeedError(f"{path}: {getattr(error, 'strerror', None) or error}") from error


def _open(path: Path) -> gzip.GzipFile | BinaryIO:
    with path.open("rb") as probe:
        zipped = probe.read(2) == b"\x1f\x8b"
    return gzip.open(path, "rb") if zipped else path.open("rb")


def _parse(line: bytes, path: Path, number: int, key_before: bytes) -> FeedMessage:
    local_ns, _, value = line.partition(b" ")
    if not local_ns.isdigit() or not value.startswith((b"{", b"[")):
        raise FeedError(f"{path}, line {number}: expected '<nanoseconds> <JSON>', found {line[:60]!r}")
    stream = _STREAM.search(value[:200])
    key = stream.group(1).partition(b"@")[0].upper() if stream else key_before
    return FeedMessage(key, value, int(local_ns))
