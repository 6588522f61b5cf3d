"""What a replica knows beside its batches: producers, leader epochs, aborted transactions, and their small
files.

The storage only stores; this keeps ``leader-epoch-checkpoint``, producer snapshots and transaction indexes
beside the log by its ``AuxFiles``, and finds the state again at start: a snapshot, then the batches behind
it.

What recovery walked over was not flushed when the node died, so no file is believed that speaks of it: a
power cut may bring back a snapshot, or entries of an index, that were removed with an earlier end of the log.
All such is made anew from the batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from blumfeld.broker.replicas.producer_snapshots import ProducerSnapshots
from blumfeld.broker.replicas.recovered_batches import RecoveredBatches
from blumfeld.broker.replicas.transaction_index import SOUND, TransactionIndex
from blumfeld.log.checkpoints import MalformedFile
from blumfeld.log.leader_epochs import FILE_NAME as EPOCHS
from blumfeld.log.leader_epochs import LeaderEpochCache
from blumfeld.log.producers.aborted_transactions import AbortedTransactions
from blumfeld.log.producers.state import ProducerState
from blumfeld.spi.hooks import EventLog
from blumfeld.spi.storage import PartitionLog, segment_bases
from blumfeld.wire.record_batch import RecordBatch

REPLAY_STEP = 512
"""Batches that are replayed before the loop gets its turn."""


class ReplicaState:
    """Implements ``LogListener``: made before its log is opened, then :meth:`attach`, then :meth:`replay`.

    Every method that may touch a file raises ``OSError``: the log directory is bad.
    """

    __slots__ = (
        "_index",
        "_log",
        "_recovered",
        "_renew",
        "_replay_from",
        "_snapshots",
        "aborted",
        "epoch_unsaved",
        "epochs",
        "events",
        "high_watermark",
        "log_name",
        "producers",
    )

    def __init__(self, log_name: str, now_ms: Callable[[], int], events: EventLog) -> None:
        self.log_name = log_name
        self.producers = ProducerState()
        self.epochs = LeaderEpochCache()
        self.aborted = AbortedTransactions()
        self.high_watermark = 0
        """As of the last checkpoint, or of when this replica last led or followed."""
        self.epoch_unsaved = False
        """The latest epoch has no batch yet, and isn't in the file."""
        self.events = events
        self._recovered = RecoveredBatches()
        self._renew: list[int] = []
        """Snapshots that may be of an earlier end of the log: to be held against the state on the way."""
        self._replay_from = 0
        """Batches below it tell nothing new."""
        self._log: PartitionLog
        self._index: TransactionIndex
        self._snapshots: ProducerSnapshots

    # At start

    def attach(self, log: PartitionLog, high_watermark: int) -> None:
        """The log is open: read its files."""
        self._log = log
        names = log.aux.names()
        self._index = TransactionIndex(log, self.aborted)
        self._snapshots = ProducerSnapshots(log, names)
        start, end = log.log_start_offset, log.written_end_offset
        self.high_watermark = max(start, min(high_watermark, end))
        believed = end if self._recovered.start_offset < 0 else min(end, self._recovered.start_offset)
        sound_below = self._index.read(names, believed, self.events)
        if believed < end:
            self._index.forget_from(believed)
        self._snapshots.remove_above(end)
        believed = min(believed, sound_below, self._read_epochs(log))
        self._renew = [offset for offset in self._snapshots.offsets if offset > believed]
        if not self._snapshots.load(self.producers, believed, self.events):
            self.producers.clear(start)
        self._replay_from = max(self.producers.end_offset, start)

    def _read_epochs(self, log: PartitionLog) -> int:
        """Read the epochs; from where on the batches must tell them, or ``SOUND``."""
        data = log.aux.read(EPOCHS)
        try:
            self.epochs = LeaderEpochCache.decode(data or b"", f"{self.log_name}/{EPOCHS}")
        except MalformedFile as error:
            self.events.warning("leader epochs unreadable, made anew", error=str(error))
        if not self.epochs.entries:
            self.epoch_unsaved = log.written_end_offset > log.log_start_offset
            return log.log_start_offset
        cut = self.epochs.truncate_from_end(log.written_end_offset)
        if self.epochs.truncate_from_start(log.log_start_offset) or cut:
            self.save_epochs()
        return SOUND

    def replay(self) -> Iterator[None]:
        """Take in the batches behind the snapshot; stops now and then so that the loop can do other things."""
        log = self._log
        end = log.written_end_offset
        if self._replay_from < end:
            for count, batch in enumerate(self._batches(log, end), start=1):
                self._renew_snapshots(batch.base_offset)
                self._take_in(batch)
                if count % REPLAY_STEP == 0:
                    yield
            self._renew_snapshots(end)
            for entry in self.producers.written(end):
                self._index.append(entry)
            if self.epoch_unsaved:
                self.save_epochs()
        self._recovered.clear()
        self._replay_from = end
        if self._index.unsaved:
            self.save_aborted()
        # What ended below it is over for readers; it need not move again before they ask.
        self.producers.high_watermark_moved(self.high_watermark)

    def _batches(self, log: PartitionLog, end: int) -> Iterator[RecordBatch]:
        """From ``_replay_from`` on: read, and from where recovery walked what it kept."""
        kept = self._recovered
        read_to = kept.start_offset if kept.complete else end
        if self._replay_from < read_to:
            for batch in log.batches(self._replay_from):
                if batch.base_offset >= read_to:
                    break
                yield batch
        if kept.complete:
            for batch in kept.batches(end):
                if batch.next_offset > self._replay_from:
                    yield batch

    def _take_in(self, batch: RecordBatch) -> None:
        if batch.partition_leader_epoch > self.epochs.latest_epoch:
            self.epoch_started(batch.partition_leader_epoch, batch.base_offset)
        known = self.aborted.latest_offset
        for entry in self.producers.replay(batch):
            if entry.last_offset > known:
                self._index.append(entry)

    def _renew_snapshots(self, offset: int) -> None:
        """The state is that below ``offset`` now."""
        renew = self._renew
        while renew and renew[0] <= offset:
            at = renew.pop(0)
            if at >= self.producers.end_offset:
                self._snapshots.renew(at, self.producers.snapshot(at))
            else:  # within a batch: no log that is there ever ended so
                self._snapshots.remove(at)

    # LogListener

    def rolled(self, base_offset: int) -> None:
        """A new segment starts: keep the producers as they were before it, and the index of the one that ended.

        The epochs go first: a start that finds the snapshot does not look for epochs in the batches before
        it.
        """
        self.written(base_offset)
        if self.epoch_unsaved:
            self.save_epochs()
        if self._index.unsaved:
            self.save_aborted()
        self._snapshots.write(base_offset, self.producers.snapshot(base_offset))

    def recovered(self, batch: RecordBatch) -> None:
        """Recovery walked over a batch: :meth:`replay` needs some of it once the log is open."""
        self._recovered.add(batch)

    # In service

    def written(self, end_offset: int) -> None:
        """All below ``end_offset`` is written."""
        for entry in self.producers.written(end_offset):
            self._index.append(entry)

    def epoch_started(self, epoch: int, start_offset: int) -> None:
        """A leader epoch begins. It is told of at once, and kept in the file with its first batch."""
        if self.epochs.assign(epoch, start_offset):
            self.epoch_unsaved = True

    def save_epochs(self) -> None:
        """Keep what is known of epochs."""
        self.epoch_unsaved = False
        self._log.aux.write(EPOCHS, self.epochs.encode())

    def save_aborted(self) -> None:
        """Bring the transaction indexes of all segments to what is known; cheap when nothing was aborted since."""
        if self._index.unsaved:
            self._index.save(segment_bases(self._log))

    def log_start_moved(self, log_start_offset: int, *, segments_dropped: bool = True) -> None:
        """Records below are gone: forget what was said of them.

        :param segments_dropped: False: the start moved within what is there (DeleteRecords), so nothing goes with a
            segment, and the segments, which may be many, need not be looked at
        """
        if self.epochs.truncate_from_start(log_start_offset):
            self._log.aux.write(EPOCHS, self.epochs.encode())
        if segments_dropped and (self._snapshots.offsets or len(self.aborted)):
            first_offset = segment_bases(self._log)[0]
            self._index.segments_dropped(first_offset)
            self._snapshots.remove_below(first_offset)

    def remove_strays(self, bases: list[int]) -> None:
        """Remove producer snapshots that no replay begins from.

        :param bases: of all segments
        """
        self._snapshots.remove_strays(bases)

    def compacted(self) -> None:
        """A round of compaction has put other segments in the place of sealed ones. For who asked for it to
        call, on the loop, before anything else happens to the log.

        Reads the aborted transactions of sealed segments again, from the ``.txnindex`` files that took their
        place with them, and removes the snapshots of segments that are no more.
        """
        bases = segment_bases(self._log)
        self._index.replaced(bases[-1], self.events)
        self._snapshots.remove_strays(bases)

    def save_producers(self, end_offset: int) -> None:
        """A clean close: the next start needs no replay. Written also without producers, as Kafka does."""
        self.save_aborted()
        if end_offset > max(self._snapshots.latest, 0):
            self._snapshots.write(end_offset, self.producers.snapshot(end_offset))

    # Truncation

    def truncate_to(self, offset: int) -> None:
        """Drop all batches with an offset ≥ ``offset`` (within one: all of it), and what is known of them:
        producers go back to what they were, by a snapshot and a replay from there. What was placed is dropped
        too.
        """
        log = self._log
        log.truncate_to(offset)
        self._truncated(log)

    def truncate_fully(self, start_offset: int) -> None:
        """Drop everything; the log is empty and starts at ``start_offset``.

        Snapshots and epochs go first, and last so: without them a start on the log as it was finds all in its batches,
        and one on the empty log finds nothing of what was before.
        """
        self._snapshots.remove_below(SOUND)
        self.epochs.clear()
        self.save_epochs()  # a write that lasts, and with it the removals in the same directory
        self._log.truncate_fully(start_offset)
        self.high_watermark = min(self.high_watermark, start_offset)
        self._index.forget_from(0)
        self.producers.clear(start_offset)
        self.save_aborted()

    def _truncated(self, log: PartitionLog) -> None:
        start, end = log.log_start_offset, log.written_end_offset
        self.high_watermark = min(self.high_watermark, end)
        self._snapshots.remove_above(end)
        self._index.forget_from(end)
        cut = self.epochs.truncate_from_end(end)
        if self.epochs.truncate_from_start(start) or cut:
            self.save_epochs()
        if self.producers.truncate_to(end):
            self.save_aborted()
            return
        if not self._snapshots.load(self.producers, end, self.events):
            self.producers.clear(start)
        self._replay_from = max(self.producers.end_offset, start)
        for _ in self.replay():
            pass
