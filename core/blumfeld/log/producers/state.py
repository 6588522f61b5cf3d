"""What a partition knows of its producers: idempotence, open transactions, and where the stable part ends.

Pure (KIP-98, KIP-360, KIP-890). It has two layers, as the log has placed and written ends: a
batch that was placed is seen by every later :meth:`ProducerState.check` of the same turn, so that a retry waits
for the original; :meth:`ProducerState.written` makes it stay, :meth:`ProducerState.undo_placed` forgets it.

For each batch with a producer id, in this order: ``check`` → ``PartitionLog.place`` → ``place``; and after the
turn's write ``written`` or ``undo_placed``. A batch without one needs nothing but ``written``: callers say
``if batch.producer_id >= 0``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import msgspec

from blumfeld.log.producers.end_marker import EndMarker, end_marker_of
from blumfeld.log.producers.rules import (
    TRANSACTIONS_V2,
    after_data,
    after_marker,
    check_data,
    check_first,
    check_marker,
)
from blumfeld.log.producers.snapshot import NO_OFFSET, ProducerEntry, decode_snapshot, encode_snapshot
from blumfeld.spi.compaction import AbortedTransaction
from blumfeld.wire.batches.record_batch import NO_TIMESTAMP, RecordBatch


class Duplicate(msgspec.Struct, frozen=True):
    """The batch is here already: its retry is a success with the original's offsets."""

    base_offset: int
    last_offset: int
    timestamp_ms: int
    """The original's highest: its append time where the topic has LogAppendTime."""
    placed: bool
    """The original isn't written yet: answer as it will be answered."""


class _Placed(msgspec.Struct, frozen=True, gc=False):
    """What undoes one placed batch."""

    base_offset: int
    before: ProducerEntry | None
    producer_id: int
    changed_before: int
    completed_first_offset: int


class ProducerState:
    """Producers of one partition.

    :param end_offset: the written end of the log, up to which nothing is to be replayed
    """

    __slots__ = (
        "_aborted",
        "_changed_at",
        "_entries",
        "_idle",
        "_ongoing",
        "_placed",
        "_unreplicated",
        "end_offset",
    )

    def __init__(self, end_offset: int = 0) -> None:
        self.end_offset = end_offset
        """What is below it is written and taken in."""
        self._entries: dict[int, ProducerEntry] = {}
        self._idle: dict[int, tuple[ProducerEntry, int]] = {}
        """By producer id: as it was when a check first found it like this, and when that was."""
        self._ongoing: dict[int, int] = {}
        """First offset of each open transaction → producer id; ascending."""
        self._unreplicated: dict[int, int] = {}
        """First offset → marker's offset of what ended above the high watermark."""
        self._placed: deque[_Placed] = deque()
        self._aborted: deque[AbortedTransaction] = deque()
        self._changed_at = NO_OFFSET

    def __len__(self) -> int:
        """The number of producers known."""
        return len(self._entries)

    def producers(self) -> list[ProducerEntry]:
        """All of them by id, for DescribeProducers."""
        return [self._entries[producer_id] for producer_id in sorted(self._entries)]

    def producer(self, producer_id: int) -> ProducerEntry | None:
        """One of them."""
        return self._entries.get(producer_id)

    def has_open_transaction(self, producer_id: int, epoch: int) -> bool:
        """Whether the producer has a transaction open here in that epoch: no need to verify it again."""
        entry = self._entries.get(producer_id)
        return entry is not None and entry.txn_first_offset >= 0 and entry.epoch == epoch

    @property
    def first_unstable_offset(self) -> int | None:
        """First record of the oldest transaction that is open, or ended above the high watermark; else None.

        The last stable offset is the lower of it and the high watermark.
        """
        if not self._ongoing and not self._unreplicated:
            return None
        if not self._unreplicated:
            return next(iter(self._ongoing))
        oldest = min(self._unreplicated)
        return min(oldest, next(iter(self._ongoing))) if self._ongoing else oldest

    def check(
        self, batch: RecordBatch, *, from_client: bool = True, transaction_version: int = 0
    ) -> Duplicate | None:
        """May this data batch of a producer be appended now? ``None`` says yes; nothing is changed.

        :param from_client: False for a coordinator's own transactional records, which have no sequence
        :param transaction_version: the transaction's, if the batch is part of one
        :raises BrokerError: INVALID_PRODUCER_EPOCH (fenced), OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_TXN_STATE (not
            transactional, while the producer's transaction is open here)
        """
        entry = self._entries.get(batch.producer_id)
        if entry is None:
            check_first(batch, from_client and transaction_version >= TRANSACTIONS_V2)
            return None
        known = check_data(entry, batch, from_client)
        if known is None:
            return None
        placed = known.last_offset >= self.end_offset
        return Duplicate(known.base_offset, known.last_offset, known.timestamp_ms, placed)

    def check_marker(
        self, producer_id: int, producer_epoch: int, coordinator_epoch: int, transaction_version: int = 0
    ) -> None:
        """May the coordinator end this producer's transaction here?

        :raises BrokerError: INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED
        """
        entry = self._entries.get(producer_id)
        if entry is not None:
            check_marker(entry, producer_epoch, coordinator_epoch, transaction_version)

    def place(self, batch: RecordBatch) -> None:
        """The batch was placed, with the offsets that it has now. Not checked again: a follower's log is law."""
        before = self._entries.get(batch.producer_id)
        changed_before = self._changed_at
        completed = self._apply(batch, before)
        self._placed.append(_Placed(batch.base_offset, before, batch.producer_id, changed_before, completed))

    def replay(self, batch: RecordBatch) -> Sequence[AbortedTransaction]:
        """A written batch, from recovery or after a truncation; one below :attr:`end_offset` is skipped.

        Gives what it aborted, for the transaction index. Nothing may be placed.
        """
        if batch.last_offset < self.end_offset:
            return ()
        if batch.producer_id >= 0:
            self._apply(batch, self._entries.get(batch.producer_id))
        return self.written(batch.next_offset)

    def written(self, end_offset: int) -> Sequence[AbortedTransaction]:
        """All below ``end_offset`` is written. Gives the transactions whose abort marker that wrote."""
        if end_offset > self.end_offset:
            self.end_offset = end_offset
        placed = self._placed
        while placed and placed[0].base_offset < end_offset:
            placed.popleft()
        if not self._aborted:
            return ()
        aborted = []
        while self._aborted and self._aborted[0].last_offset < end_offset:
            aborted.append(self._aborted.popleft())
        return aborted

    def undo_placed(self, from_offset: int) -> None:
        """What was placed from ``from_offset`` on was not written and is gone."""
        placed = self._placed
        if not placed or placed[-1].base_offset < from_offset:
            return
        while placed and placed[-1].base_offset >= from_offset:
            last = placed.pop()
            self._changed_at = last.changed_before
            if last.before is None:
                del self._entries[last.producer_id]
            else:
                self._entries[last.producer_id] = last.before
            self._unreplicated.pop(last.completed_first_offset, None)
        while self._aborted and self._aborted[-1].last_offset >= from_offset:
            self._aborted.pop()
        self._find_ongoing()

    def high_watermark_moved(self, high_watermark: int) -> None:
        """Markers below it are replicated: their transactions are over for readers too."""
        if self._unreplicated:
            self._unreplicated = {
                first: last for first, last in self._unreplicated.items() if last >= high_watermark
            }

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Forget producers without an open transaction that have been silent for ``expiration_ms``
        (``producer.id.expiration.ms``): by the highest timestamp of their last batch, and by the checks that found
        them as they are; of a snapshot by the timestamp alone. The number forgotten.

        Kafka goes by the timestamp alone, so it forgets who writes records of long ago at each check, and takes a
        batch that is sent again as a new one.
        """
        busy = {placed.producer_id for placed in self._placed}
        idle: dict[int, tuple[ProducerEntry, int]] = {}
        for producer_id, entry in self._entries.items():
            seen, since_ms = self._idle.get(producer_id, (entry, now_ms))
            idle[producer_id] = (entry, since_ms if seen is entry else now_ms)
        silent = [
            entry.producer_id
            for entry in self._entries.values()
            if entry.txn_first_offset < 0
            and now_ms - entry.last_timestamp_ms >= expiration_ms
            and now_ms - idle[entry.producer_id][1] >= expiration_ms
            and entry.producer_id not in busy
        ]
        for producer_id in silent:
            del self._entries[producer_id], idle[producer_id]
        self._idle = idle
        return len(silent)

    def truncate_to(self, offset: int) -> bool:
        """The log ends at ``offset`` now, and nothing is placed.

        True: what is known holds. False: a producer had written there; everything is forgotten and
        :attr:`end_offset` is 0: :meth:`load` the newest snapshot at or below ``offset``, if there is one, and
        :meth:`replay` from there.
        """
        self.undo_placed(self.end_offset)
        if offset > self._changed_at:
            self.end_offset = min(self.end_offset, offset)
            return True
        self.clear(0)
        return False

    def clear(self, end_offset: int) -> None:
        """Forget everything: the log was emptied, and starts at ``end_offset``."""
        self._entries.clear()
        self._ongoing.clear()
        self._unreplicated.clear()
        self._placed.clear()
        self._aborted.clear()
        self._changed_at = NO_OFFSET
        self.end_offset = end_offset

    def snapshot(self, offset: int) -> bytes:
        """The bytes of ``<offset>.snapshot``: the state below ``offset``, entries by producer id. What is placed
        from there on is left out, so that it may be taken in the middle of a write, when the log rolls.

        :raises ValueError: a batch from ``offset`` on was written already
        """
        entries = dict(self._entries)
        changed_at = self._changed_at
        for placed in reversed(self._placed):
            if placed.base_offset < offset:
                break
            changed_at = placed.changed_before
            if placed.before is None:
                del entries[placed.producer_id]
            else:
                entries[placed.producer_id] = placed.before
        if changed_at >= offset:
            raise ValueError(f"the state at {offset} is gone: it is that behind {changed_at} now")
        return encode_snapshot(entries[producer_id] for producer_id in sorted(entries))

    def load(self, snapshot: bytes, offset: int) -> None:
        """Forget everything and take the state of ``<offset>.snapshot`` instead.

        :raises CorruptSnapshot: it can't be read; nothing has changed
        """
        entries = decode_snapshot(snapshot)
        self.clear(offset)
        self._entries = {entry.producer_id: entry for entry in entries}
        self._idle = {entry.producer_id: (entry, NO_TIMESTAMP) for entry in entries}
        # Which offset changed it last isn't in the file: a truncation below its end needs an older one.
        self._changed_at = offset - 1 if entries else NO_OFFSET
        self._find_ongoing()

    def _find_ongoing(self) -> None:
        open_ones = (
            (e.txn_first_offset, e.producer_id) for e in self._entries.values() if e.txn_first_offset >= 0
        )
        self._ongoing = dict(sorted(open_ones))

    def _apply(self, batch: RecordBatch, before: ProducerEntry | None) -> int:
        self._changed_at = batch.last_offset
        marker = end_marker_of(batch) if batch.is_control else None
        if marker is not None:
            return self._apply_marker(batch, before, marker)
        entry = after_data(batch, before)
        self._entries[batch.producer_id] = entry
        if entry.txn_first_offset == batch.base_offset:
            self._ongoing[batch.base_offset] = batch.producer_id
        return NO_OFFSET

    def _apply_marker(self, batch: RecordBatch, before: ProducerEntry | None, marker: EndMarker) -> int:
        self._entries[batch.producer_id] = after_marker(batch, before, marker)
        if before is None or before.txn_first_offset < 0:
            return NO_OFFSET
        first_offset = before.txn_first_offset
        self._ongoing.pop(first_offset, None)
        self._unreplicated[first_offset] = batch.last_offset
        if not marker.committed:
            stable = next(iter(self._ongoing), batch.next_offset)
            self._aborted.append(
                AbortedTransaction(batch.producer_id, first_offset, batch.last_offset, stable)
            )
        return first_offset
