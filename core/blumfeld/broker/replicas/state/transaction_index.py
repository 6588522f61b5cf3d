"""The ``<base>.txnindex`` files of one log, in the format of Kafka's ``TransactionIndex``.

Each file lists the aborted transactions whose abort marker lies in its segment.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

from blumfeld.log.producers.aborted_transactions import AbortedTransactions, decode_aborted, encode_aborted
from blumfeld.log.segments.file_names import Suffix, parse_segment_name, segment_name
from blumfeld.spi.compaction import AbortedTransaction
from blumfeld.spi.hooks import EventLog
from blumfeld.spi.storage import PartitionLog

SOUND = 1 << 63
"""Greater than every offset. As a limit it means that nothing needs to be found again."""


class TransactionIndex:
    """Aborted transactions of a log, in memory for readers and in a file for each segment that has any.

    A file is written when its segment is sealed, now and then while the segment is active (:meth:`save`), and at a
    clean stop. It is not written with each abort, because that would cost a sync. Entries that a crash loses are found
    again in the batches that recovery walks over. Every method that touches a file may raise ``OSError``.
    """

    __slots__ = ("_bases", "_log", "_unsaved_from", "entries")

    def __init__(self, log: PartitionLog, entries: AbortedTransactions) -> None:
        self._log = log
        self.entries = entries
        self._bases: set[int] = set()
        """Base offsets of the files that exist."""
        self._unsaved_from = SOUND

    def use(self, log: PartitionLog) -> None:
        """Go on beside another log with the same files."""
        self._log = log

    def read(self, names: Iterable[str], below: int, events: EventLog) -> int:
        """Read the files. Returns the offset from which on they are unreadable, or ``SOUND``.

        Entries from that offset on, and entries with a marker at or above ``below``, are left out.
        """
        self._bases = _bases(names)
        return self._read(sorted(self._bases), below, events)

    def _read(self, bases: Sequence[int], below: int, events: EventLog) -> int:
        sound_below = SOUND
        transactions: list[AbortedTransaction] = []
        for base in bases:
            try:
                transactions += _entries(
                    self._log, base, after=transactions[-1].last_offset if transactions else -1
                )
            except ValueError as error:
                sound_below = base
                events.warning("transaction index unreadable, made anew", base_offset=base, error=str(error))
                break
        below = min(below, sound_below)
        self.entries.replace(entry for entry in transactions if entry.last_offset < below)
        if sound_below != SOUND or len(self.entries) != len(transactions):
            self._unsaved_from = min(self._unsaved_from, below)
        return sound_below

    def forget_from(self, offset: int) -> None:
        """Forget the entries with a marker at or above ``offset``; the next :meth:`save` rewrites their files."""
        self.entries.truncate_to(offset)
        self._unsaved_from = min(self._unsaved_from, offset)

    def append(self, entry: AbortedTransaction) -> None:
        """Add an entry in memory. The next :meth:`save` writes it."""
        self.entries.append(entry)
        self._unsaved_from = min(self._unsaved_from, entry.last_offset)

    @property
    def unsaved(self) -> bool:
        """Whether :meth:`save` has something to do."""
        return self._unsaved_from != SOUND and (len(self.entries) > 0 or len(self._bases) > 0)

    def save(self, bases: Sequence[int]) -> None:
        """Write the entries in memory to the files.

        :param bases: base offsets of all segments, the active one last
        """
        first = max(bisect_right(bases, self._unsaved_from) - 1, 0)
        for at in range(first, len(bases)):
            end = bases[at + 1] if at + 1 < len(bases) else SOUND
            self._put(bases[at], self.entries.between(bases[at], end))
        for base in sorted(base for base in self._bases if base >= bases[first] and base not in bases):
            self._put(base, ())
        self._unsaved_from = SOUND

    def _put(self, base: int, entries: Sequence[AbortedTransaction]) -> None:
        name = segment_name(base, Suffix.TRANSACTION_INDEX)
        if entries:
            data = encode_aborted(entries)
            if base not in self._bases or self._log.aux.read(name) != data:
                self._log.aux.write(name, data)
                self._bases.add(base)
        elif base in self._bases:
            self._log.aux.delete(name)
            self._bases.discard(base)

    def segments_dropped(self, first_offset: int) -> None:
        """Forget the entries below ``first_offset``, the new base of the oldest segment. Their files are gone."""
        self.entries.drop_below(first_offset)
        self._bases = {base for base in self._bases if base >= first_offset}

    def replaced(self, active_base: int, events: EventLog) -> None:
        """Read the files of sealed segments again, after the cleaner has replaced them together with their segments.

        From ``active_base`` on, and from the first unreadable file on, the entries in memory stay.
        """
        known = self.entries.entries
        self._bases = _bases(self._log.aux.names())
        below = min(
            self._read(sorted(b for b in self._bases if b < active_base), active_base, events), active_base
        )
        for entry in known:
            if entry.last_offset >= below:
                self.entries.append(entry)


def _bases(names: Iterable[str]) -> set[int]:
    files = (parse_segment_name(name) for name in names)
    return {
        file.base_offset
        for file in files
        if file is not None and file.suffix is Suffix.TRANSACTION_INDEX and not file.mark
    }


def _entries(log: PartitionLog, base: int, after: int) -> list[AbortedTransaction]:
    """Returns the entries of one file. :raises ValueError: it is no transaction index, or another segment's"""
    entries = decode_aborted(log.aux.read(segment_name(base, Suffix.TRANSACTION_INDEX)) or b"")
    last = max(after, base - 1)
    for entry in entries:
        if entry.last_offset <= last:
            raise ValueError(f"the marker at {entry.last_offset} is not above {last}")
        last = entry.last_offset
    return entries
