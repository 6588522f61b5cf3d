"""Producer state of a partition: idempotence, open transactions, and the first unstable offset.

Pure (KIP-98, KIP-360, KIP-890). The state has two layers, because a log has a placed end and a written end.
Every later :meth:`ProducerState.check` of the turn sees a placed batch, so that a retry waits for the
original.
:meth:`ProducerState.written` makes it permanent; :meth:`ProducerState.undo_placed` forgets it.

The order for a batch with a producer id: ``check`` → ``PartitionLog.place`` → ``place``, then after the
turn's write ``written`` or ``undo_placed``. A batch without a producer id needs only ``written``, so
callers test ``batch.producer_id >= 0`` first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import msgspec

from blumfeld.log.producers.end_marker import EndMarker, end_marker_of
from blumfeld.log.producers.rules import (
    TRANSACTIONS_V2,
    after_data,
    after_emptied_marker,
    after_marker,
    check_data,
    check_first,
    check_marker,
)
from blumfeld.log.producers.snapshot import NO_OFFSET, ProducerEntry, decode_snapshot, encode_snapshot
from blumfeld.spi.compaction import AbortedTransaction
from blumfeld.wire.batches.record_batch import CONTROL_BIT, NO_TIMESTAMP, RecordBatch


class Duplicate(msgspec.Struct, frozen=True):
    """The batch is already in the log. Its retry succeeds with the original's offsets."""

    base_offset: int
    last_offset: int
    timestamp_ms: int
    """Highest timestamp of the original: its append time where the topic has LogAppendTime."""
    placed: bool
    """The original isn't written yet; the retry must be answered together with it."""


class _Placed(msgspec.Struct, frozen=True, gc=False):
    """Data to undo one placed batch."""

    base_offset: int
    before: ProducerEntry | None
    producer_id: int
    changed_before: int
    completed_first_offset: int


class ProducerState:
    """The producers of one partition.

    :param end_offset: written end of the log, up to which nothing has to be replayed
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
        """Everything below is written and in this state."""
        self._entries: dict[int, ProducerEntry] = {}
        self._idle: dict[int, tuple[ProducerEntry, int]] = {}
        """Producer id → (entry, time at which a check first found this entry)."""
        self._ongoing: dict[int, int] = {}
        """First offset of each open transaction → producer id; ascending."""
        self._unreplicated: dict[int, int] = {}
        """First offset → marker offset, for transactions that ended above the high watermark."""
        self._placed: deque[_Placed] = deque()
        self._aborted: deque[AbortedTransaction] = deque()
        self._changed_at = NO_OFFSET

    def __len__(self) -> int:
        """The number of known producers."""
        return len(self._entries)

    def producers(self) -> list[ProducerEntry]:
        """Returns all producers by id, for DescribeProducers."""
        return [self._entries[producer_id] for producer_id in sorted(self._entries)]

    def producer(self, producer_id: int) -> ProducerEntry | None:
        """Returns the producer's entry, or ``None``."""
        return self._entries.get(producer_id)

    def has_open_transaction(self, producer_id: int, epoch: int) -> bool:
        """Whether the producer has an open transaction here in that epoch; if so, it need not be verified
        again (KIP-890).
        """
        entry = self._entries.get(producer_id)
        return entry is not None and entry.txn_first_offset >= 0 and entry.epoch == epoch

    @property
    def first_unstable_offset(self) -> int | None:
        """First offset of the oldest transaction that is open or ended above the high watermark; ``None`` if
        there is none.

        The last stable offset is the lower of this and the high watermark.
        """
        if not self._ongoing and not self._unreplicated:
            return None
        if not self._unreplicated:
            return next(iter(self._ongoing))
        oldest = min(self._unreplicated)
        return min(oldest, next(iter(self._ongoing))) if self._ongoing else oldest

    def check(
        self, batch: RecordBatch, from_client: bool = True, transaction_version: int = 0
    ) -> Duplicate | None:
        """Check whether a producer's data batch may be appended now. ``None`` means yes. Changes nothing.

        :param from_client: False for a coordinator's own transactional records, which have no sequence
        :param transaction_version: the transaction's version, if the batch is part of one
        :raises BrokerError: INVALID_PRODUCER_EPOCH (fenced), OUT_OF_ORDER_SEQUENCE_NUMBER,
            INVALID_TXN_STATE (not transactional, while the producer has a transaction open here)
        """
        entry = self._entries.get(batch.producer_id)
        if entry is None:
            if transaction_version >= TRANSACTIONS_V2 and from_client:
                check_first(batch, True)
            return None
        known = check_data(entry, batch, from_client)
        if known is None:
            return None
        placed = known.last_offset >= self.end_offset
        return Duplicate(known.base_offset, known.last_offset, known.timestamp_ms, placed)

    def check_marker(
        self, producer_id: int, producer_epoch: int, coordinator_epoch: int, transaction_version: int = 0
    ) -> None:
        """Check whether the coordinator may end this producer's transaction here.

        :raises BrokerError: INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED
        """
        entry = self._entries.get(producer_id)
        if entry is not None:
            check_marker(entry, producer_epoch, coordinator_epoch, transaction_version)

    def place(self, batch: RecordBatch) -> None:
        """Add a placed batch with its final offsets. It isn't checked again: a follower takes its leader's log
        as it is.
        """
        before = self._entries.get(batch.producer_id)
        changed_before = self._changed_at
        completed = self._apply(batch, before)
        self._placed.append(_Placed(batch.base_offset, before, batch.producer_id, changed_before, completed))

    def place_markers(self, batches: Sequence[RecordBatch], markers: Sequence[EndMarker]) -> None:
        """:meth:`place` for markers that this node has built itself, so that their records need not be read."""
        entries, placed = self._entries, self._placed
        for batch, marker in zip(batches, markers, strict=True):
            base_offset, producer_id = batch.base_offset, batch.producer_id
            before = entries.get(producer_id)
            changed_before, self._changed_at = self._changed_at, base_offset  # a marker takes one offset
            completed = self._apply_marker(batch, before, marker)
            placed.append(_Placed(base_offset, before, producer_id, changed_before, completed))

    def replay(self, batch: RecordBatch) -> Sequence[AbortedTransaction]:
        """Add a written batch, after a crash or a truncation. A batch below :attr:`end_offset` is skipped.

        Returns the transactions that it aborted, for the transaction index. No batch may be placed at this
        time.
        """
        if batch.last_offset < self.end_offset:
            return ()
        if batch.producer_id >= 0:
            self._apply(batch, self._entries.get(batch.producer_id))
        return self.written(batch.next_offset)

    def written(self, end_offset: int) -> Sequence[AbortedTransaction]:
        """Make everything below ``end_offset`` permanent. Returns the transactions whose abort marker was
        among it.
        """
        if end_offset > self.end_offset:
            self.end_offset = end_offset
        placed = self._placed
        if placed and placed[-1].base_offset < end_offset:  # mostly all that was placed in a turn is written
            placed.clear()
        while placed and placed[0].base_offset < end_offset:
            placed.popleft()
        if not self._aborted:
            return ()
        aborted = []
        while self._aborted and self._aborted[0].last_offset < end_offset:
            aborted.append(self._aborted.popleft())
        return aborted

    def undo_placed(self, from_offset: int) -> None:
        """Forget the placed batches from ``from_offset`` on, because their write failed."""
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
        """Close the transactions whose marker is below the high watermark: the marker is replicated, so
        readers may pass it.
        """
        if self._unreplicated:
            self._unreplicated = {
                first: last for first, last in self._unreplicated.items() if last >= high_watermark
            }

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Forget idle producers. Returns their number.

        A producer is idle if it has no open transaction, and for ``expiration_ms``
        (``producer.id.expiration.ms``) both the highest timestamp of its last batch lies back and its entry
        has not changed from one check to the next. An entry that comes from a snapshot is judged by its
        timestamp alone until it changes.

        Kafka looks at the timestamp alone. A producer of old timestamps is then forgotten at each check,
        and its retry is appended as a new batch.
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
        """Adapt to a log that ends at ``offset`` now. No batch is placed afterwards.

        :return: True if the state still holds. False if a producer had written beyond ``offset``:
            everything is forgotten and :attr:`end_offset` is 0. The caller must then :meth:`load` the
            newest snapshot at or below ``offset``, if there is one, and :meth:`replay` the log from there.
        """
        self.undo_placed(self.end_offset)
        if offset > self._changed_at:
            self.end_offset = min(self.end_offset, offset)
            return True
        self.clear(0)
        return False

    def clear(self, end_offset: int) -> None:
        """Forget everything: the log was emptied and starts at ``end_offset``."""
        self._entries.clear()
        self._ongoing.clear()
        self._unreplicated.clear()
        self._placed.clear()
        self._aborted.clear()
        self._changed_at = NO_OFFSET
        self.end_offset = end_offset

    def snapshot(self, offset: int) -> bytes:
        """Returns the bytes of ``<offset>.snapshot``: the state below ``offset``, entries by producer id.

        Batches placed from ``offset`` on are left out, so that a snapshot can be taken in the middle of a
        write, when the log rolls.

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
            raise ValueError(f"the state at offset {offset} is gone: a batch at {changed_at} has changed it")
        return encode_snapshot(entries[producer_id] for producer_id in sorted(entries))

    def load(self, snapshot: bytes, offset: int) -> None:
        """Replace the state by that of ``<offset>.snapshot``.

        :raises CorruptSnapshot: it can't be read; nothing has changed
        """
        entries = decode_snapshot(snapshot)
        self.clear(offset)
        self._entries = {entry.producer_id: entry for entry in entries}
        self._idle = {entry.producer_id: (entry, NO_TIMESTAMP) for entry in entries}
        # The file doesn't say which offset changed the state last. A truncation below its end therefore needs
        # an older snapshot.
        self._changed_at = offset - 1 if entries else NO_OFFSET
        self._find_ongoing()

    def _find_ongoing(self) -> None:
        open_ones = (
            (e.txn_first_offset, e.producer_id) for e in self._entries.values() if e.txn_first_offset >= 0
        )
        self._ongoing = dict(sorted(open_ones))

    def _apply(self, batch: RecordBatch, before: ProducerEntry | None) -> int:
        self._changed_at = batch.base_offset + batch.last_offset_delta
        if batch.attributes & CONTROL_BIT:
            if not batch.record_count:
                self._entries[batch.producer_id] = after_emptied_marker(batch, before)
                return NO_OFFSET
            marker = end_marker_of(batch)
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
        self._unreplicated[first_offset] = batch.base_offset + batch.last_offset_delta
        if not marker.committed:
            stable = next(iter(self._ongoing), batch.next_offset)
            self._aborted.append(
                AbortedTransaction(batch.producer_id, first_offset, batch.last_offset, stable)
            )
        return first_offset
