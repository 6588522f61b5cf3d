"""Aborted transactions of a log: the ranges that a ``read_committed`` consumer leaves out (KIP-98).

Pure. A segment's ``.txnindex`` holds the entries whose abort marker lies in that segment.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterable

from blumfeld.spi.compaction import AbortedTransaction

_VERSION = 0
_ENTRY = struct.Struct(">hqqqq")
ENTRY_BYTES = _ENTRY.size
"""34: version, producer id, first offset, last offset, last stable offset."""


class AbortedTransactions:
    """Aborted transactions of a log or of one segment, in the order of their markers."""

    __slots__ = ("_entries", "_last_offsets")

    def __init__(self, entries: Iterable[AbortedTransaction] = ()) -> None:
        self._entries: list[AbortedTransaction] = []
        self._last_offsets: list[int] = []
        self.replace(entries)

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def entries(self) -> list[AbortedTransaction]:
        """A copy of all entries, in order."""
        return list(self._entries)

    @property
    def latest_offset(self) -> int:
        """Offset of the last marker, or -1."""
        return self._last_offsets[-1] if self._last_offsets else -1

    def append(self, entry: AbortedTransaction) -> None:
        """Add an entry.

        :raises ValueError: its marker is not after the last entry's
        """
        if self._last_offsets and entry.last_offset <= self._last_offsets[-1]:
            raise ValueError(
                f"marker at {entry.last_offset} is not after the one at {self._last_offsets[-1]}"
            )
        self._entries.append(entry)
        self._last_offsets.append(entry.last_offset)

    def replace(self, entries: Iterable[AbortedTransaction]) -> None:
        """Replace all entries.

        :raises ValueError: they are not in the order of their markers
        """
        self._entries.clear()
        self._last_offsets.clear()
        for entry in entries:
            self.append(entry)

    def overlapping(self, from_offset: int, to_offset: int) -> list[AbortedTransaction]:
        """Returns the transactions with a record or marker in [``from_offset``, ``to_offset``), in the order
        of markers.

        The search starts at the first marker from ``from_offset`` on. It stops at the first entry whose
        last stable offset shows that no later transaction begins below ``to_offset``.
        """
        if not self._entries:
            return []
        transactions = []
        for entry in self._entries[bisect_left(self._last_offsets, from_offset) :]:
            if entry.first_offset < to_offset:
                transactions.append(entry)
            if entry.last_stable_offset >= to_offset:
                break
        return transactions

    def between(self, from_offset: int, to_offset: int) -> list[AbortedTransaction]:
        """Returns the transactions whose marker is in [``from_offset``, ``to_offset``), such as those of one
        segment.
        """
        start = bisect_left(self._last_offsets, from_offset)
        return self._entries[start : bisect_left(self._last_offsets, to_offset)]

    def truncate_to(self, offset: int) -> int:
        """Forget markers at or above ``offset``, the new log end. Returns their number."""
        keep = bisect_left(self._last_offsets, offset)
        gone = len(self._entries) - keep
        del self._entries[keep:], self._last_offsets[keep:]
        return gone

    def drop_below(self, offset: int) -> int:
        """Forget markers below ``offset``, the new log start. Returns their number."""
        gone = bisect_left(self._last_offsets, offset)
        del self._entries[:gone], self._last_offsets[:gone]
        return gone

    def encode(self) -> bytes:
        """Returns the bytes of a ``.txnindex``."""
        return encode_aborted(self._entries)

    @classmethod
    def decode(cls, data: bytes) -> AbortedTransactions:
        """Decode a ``.txnindex``.

        :raises ValueError: the bytes are malformed; replay the log to rebuild the index
        """
        return cls(decode_aborted(data))


def encode_aborted(entries: Iterable[AbortedTransaction]) -> bytes:
    """Returns the entries as bytes, 34 each, in the given order."""
    return b"".join(
        _ENTRY.pack(_VERSION, e.producer_id, e.first_offset, e.last_offset, e.last_stable_offset)
        for e in entries
    )


def decode_aborted(data: bytes) -> list[AbortedTransaction]:
    """Decode entries.

    :raises ValueError: a cut entry, another version, or impossible offsets
    """
    if len(data) % ENTRY_BYTES:
        raise ValueError(f"{len(data)} bytes are not a whole number of {ENTRY_BYTES}-byte entries")
    entries: list[AbortedTransaction] = []
    for version, *fields in _ENTRY.iter_unpack(data):
        entry = AbortedTransaction(*fields)
        if version != _VERSION:
            raise ValueError(f"entry {len(entries)}: unknown version {version}: only 0 is allowed")
        if not 0 <= entry.first_offset <= entry.last_offset:
            raise ValueError(
                f"entry {len(entries)}: impossible offsets, from {entry.first_offset} to {entry.last_offset}"
            )
        entries.append(entry)
    return entries
