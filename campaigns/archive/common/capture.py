"""Capture files as exchanges' clients write them: each line is ``<ns of receipt> <JSON as received>``. They may be
gzipped.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterable
from pathlib import Path

from blumfeld.feeds.binance import Message


def read_capture(path: Path) -> list[Message]:
    """Returns all messages of a capture.

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
    """Writes messages as a capture file, gzipped if its name ends in ``.gz``. Returns the path."""
    lines = b"".join(b"%d %s\n" % (message.received_ns, message.value) for message in messages)
    path.write_bytes(gzip.compress(lines, 1) if path.suffix == ".gz" else lines)
    return path


def decoder_of(messages: Iterable[Message]) -> str:
    """Returns the name of the archive's decoder for a feed of Binance. Diffs of its futures name the previous diff
    (``pu``), those of its spot market don't.

    :raises ValueError: the feed has no diff
    """
    for message in messages:
        if b'"depthUpdate"' in message.value:
            return "binance-usdm" if b'"pu"' in message.value else "binance-spot"
    raise ValueError("no diff of a book in the capture: say which decoder with --decoder")
