"""Which data a round of compaction drops because their transaction was aborted, and which markers may go."""

from __future__ import annotations

from collections.abc import Iterable

from blumfeld.spi.compaction import AbortedTransaction
from blumfeld.wire.batches.control_records import ControlType


class CleanedTransactions:
    """Follows the transactions of a log through a walk over its batches in offset order.

    :param aborted: those with their marker at or above ``from_offset`` are looked at
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
        """By producer id, and whether a batch of it was met."""
        self._committed: set[int] = set()
        self.still_aborted: list[AbortedTransaction] = []
        """Those with a batch that this walk met, and their marker: what the new segment's index must say.
        Whoever finishes a segment takes them out.
        """

    def drops_data(self, producer_id: int, base_offset: int, last_offset: int) -> bool:
        """A transactional batch with records, or that had some; whether its transaction was aborted."""
        self._begin(last_offset)
        found = self._ongoing.get(producer_id)
        if found is not None and found[0].last_offset < base_offset:
            # Its marker is gone from the log, its entry is not: what follows is another transaction.
            found = None
            del self._ongoing[producer_id]
        if found is None:
            self._committed.add(producer_id)
            return False
        self._ongoing[producer_id] = found[0], True
        return True

    def frees_marker(self, producer_id: int, offset: int, kind: ControlType | None, empty: bool) -> bool:
        """A control batch; whether no batch of its transaction is left, so that it may go in its time.

        :param kind: None for one that isn't known
        :param empty: it has no record any more
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
        """``still_aborted``, which is empty then."""
        taken, self.still_aborted = self.still_aborted, []
        return taken

    def _begin(self, last_offset: int) -> None:
        while self._next < len(self._waiting) and self._waiting[self._next].first_offset <= last_offset:
            entry = self._waiting[self._next]
            known = self._ongoing.get(entry.producer_id)
            if known is None or known[0].last_offset < entry.first_offset:
                self._ongoing[entry.producer_id] = entry, False
            self._next += 1
