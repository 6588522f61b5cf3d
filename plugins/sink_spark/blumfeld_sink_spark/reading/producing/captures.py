"""Capture files of exchange feeds: the message in each line, its stream and its symbol.

Two forms are known:

* ``<ns since the epoch> <JSON>``: a message with the time of its receipt.
* ``[<URL> -> ]<seconds>: <JSON>``: a message; a REST answer has its URL. In this form ``<URL> <- …`` is a request and
  ``<URL> <-> …`` the start of a connection; both are skipped.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple, cast

from blumfeld_sink_spark.errors import ArchiveError

_NANOSECONDS = re.compile(rb"(\d{18,19}) ")
_SECONDS = re.compile(rb"(?:(\S+) -> )?(\d{9,10})(?:\.(\d{1,9}))?: ?")
_SENT = re.compile(rb"\S+ <-")
_STREAM = re.compile(rb'"stream" ?: ?"([^"]*)"')
_KIND = re.compile(rb'"(?:e|channel|type|event)" ?: ?"([^"]*)"')
_SYMBOL = re.compile(rb'"(?:s|product_id|instId|coin|pair|symbol)" ?: ?"([^"]*)"')
_AT_THE_END = re.compile(
    rb'"([a-z]+)[^"]*","([A-Z0-9.]+/[A-Z0-9.]+)"\]$|"channel":"([a-z_]+)_([a-z0-9]+)"[^{}\[\]]*\}$'
)
"""Stream and symbol at the end of a message, where Kraken and Bitstamp put them."""
_SYMBOL_IN_URL = re.compile(rb"[?&](?:symbol|pair)=([^&\s]+)|/([^/?\s]+)$")
_HEAD_BYTES, _TAIL_BYTES = 400, 100
"""Bytes that are searched for names. They stand at the front or at the end, so a book of a thousand levels between
isn't searched."""
SNAPSHOT = "rest-snapshot"


class CapturedMessage(NamedTuple):
    """One captured message."""

    received_ns: int
    value: bytes
    """The JSON, byte for byte."""
    url: bytes
    """URL of a REST answer; empty for other messages."""


def messages(path: Path) -> Iterator[CapturedMessage]:
    """Yields the messages of a capture file (``.gz`` or plain) in its order. One line is in memory at a time.

    :raises ArchiveError: there is no such file, it is cut off, or a line has neither form; the text names the line
    """
    number = 0
    try:
        with _open(path) as file:
            for number, line in enumerate(file, 1):  # noqa: B007 - the error names it
                message = parse(line)
                if message is not None:
                    yield message
    except FileNotFoundError as error:
        raise ArchiveError(f"{path}: no such file") from error
    except (OSError, EOFError, ValueError) as error:
        raise ArchiveError(f"{path}, after line {number}: {error}") from error


def _open(path: Path) -> IO[bytes]:
    if path.suffix == ".gz":
        return cast("IO[bytes]", gzip.open(path, "rb"))
    return path.open("rb")


def parse(line: bytes) -> CapturedMessage | None:
    """Returns the message of a line; None where the line isn't one.

    :raises ValueError: the line has neither form
    """
    line = line.rstrip(b"\r\n")
    if not line or _SENT.match(line):
        return None
    stamped = _NANOSECONDS.match(line)
    if stamped:
        return CapturedMessage(int(stamped[1]), line[stamped.end() :], b"")
    stamped = _SECONDS.match(line)
    if stamped is None:
        raise ValueError("a line begins with neither nanoseconds nor seconds since the epoch")
    fraction = (stamped[3] or b"").ljust(9, b"0")
    return CapturedMessage(int(stamped[2] + fraction), line[stamped.end() :], stamped[1] or b"")


def stream_of(value: bytes) -> str:
    """Returns the exchange's own name of the message's stream or kind; ``SNAPSHOT`` or ``other`` where it has none."""
    head = value[:_HEAD_BYTES]
    at_the_end = _AT_THE_END.search(value[-_TAIL_BYTES:])
    if at_the_end:
        return (at_the_end[1] or at_the_end[3]).decode("utf-8", "replace")
    match = _STREAM.search(head) or _KIND.search(head)
    if match:
        return match[1].decode("utf-8", "replace")
    return SNAPSHOT if b'"bids"' in head else "other"


def symbol_of(message: CapturedMessage) -> bytes | None:
    """Returns the symbol that the message or its URL names; None where neither does."""
    if message.url:
        in_url = _SYMBOL_IN_URL.search(message.url)
        if in_url:
            return (in_url[1] or in_url[2]).upper()
    at_the_end = _AT_THE_END.search(message.value[-_TAIL_BYTES:])
    if at_the_end:
        return at_the_end[2] or at_the_end[4].upper()
    match = _SYMBOL.search(message.value, 0, _HEAD_BYTES)
    if match:
        return match[1]
    stream = _STREAM.search(message.value, 0, _HEAD_BYTES)
    if stream and b"@" in stream[1]:
        return stream[1].split(b"@")[0].upper()
    return None
