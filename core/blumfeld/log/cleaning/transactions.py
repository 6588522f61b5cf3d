"""Aborted transactions during a cleaner pass: which data is dropped, and which markers may go."""

from __future__ import annotations

from collections.abc import Iterable

from blumfeld.spi.compaction import AbortedTransaction
from blumfeld.wire.batches.control_records import ControlType


class CleanedTransactions:
    """Follows the transactions of a log through a walk over its batches in offset order.

    :param aborted: transactions; only those with a marker at or above ``from_offset`` count
    :param from_offset: where the walk begins
    """

    __slots__ = ("_committed", "_next", "_ongoing", "_waiting", "still_aborted")

    def __init__(self, aborted: Iterable[AbortedTransaction], from_offset: int) -> None:
        self._waiting = sorted(
            (entry for entry in aborted if entry.last_offset >= from_offset),
            key=lambda entry: entry.first_offset,
        )
        self._next = 0
        self._ongoing: dict[int, tuple[AbortedTransaction, bool]] = {}
        """Producer id → (transaction, whether a batch of it was seen)."""
        self._committed: set[int] = set()
        self.still_aborted: list[AbortedTransaction] = []
        """Transactions of which this walk saw a batch and the marker: entries of the new segment's index.
        :meth:`take_still_aborted` empties the list when a segment is finished.
        """

    def drops_data(self, producer_id: int, base_offset: int, last_offset: int) -> bool:
        """Whether a transactional batch belongs to an aborted transaction. Call it for batches that have, or
        had, records.
        """
        self._begin(last_offset)
        ongoing = self._ongoing.get(producer_id)
        if ongoing is not None and ongoing[0].last_offset < base_offset:
            # An earlier pass removed the marker but left the index entry. What follows is another
            # transaction.
            ongoing = None
            del self._ongoing[producer_id]
        if ongoing is None:
            self._committed.add(producer_id)
            return False
        self._ongoing[producer_id] = ongoing[0], True
        return True

    def frees_marker(self, producer_id: int, offset: int, kind: ControlType | None, empty: bool) -> bool:
        """Whether no batch of a control batch's transaction is left, so that the marker may go after its
        delete horizon.

        :param kind: ``None`` for an unknown control type
        :param empty: the batch has no record any more
        """
        self._begin(offset)
        if empty:
            return True
        if kind is ControlType.ABORT:
            entry, met = self._ongoing.pop(producer_id, (None, False))
            if entry is not None and met:
                self.still_aborted.append(entry)
            return not met
        if kind is ControlType.COMMIT:
            met = producer_id in self._committed
            self._committed.discard(producer_id)
            return not met
        return False

    def take_still_aborted(self) -> list[AbortedTransaction]:
        """Returns ``still_aborted`` and empties it."""
        taken, self.still_aborted = self.still_aborted, []
        return taken

    def _begin(self, last_offset: int) -> None:
        while self._next < len(self._waiting) and self._waiting[self._next].first_offset <= last_offset:
            entry = self._waiting[self._next]
            known = self._ongoing.get(entry.producer_id)
            if known is None or known[0].last_offset < entry.first_offset:
                self._ongoing[entry.producer_id] = entry, False
            self._next += 1
