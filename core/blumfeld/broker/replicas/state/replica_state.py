"""The state of a replica beside its batches: producers, leader epochs and aborted transactions, with their small files.

The storage only stores batches. This module keeps ``leader-epoch-checkpoint``, producer snapshots and transaction
indexes beside the log, through the log's ``AuxFiles``. At start it loads a snapshot and replays the batches behind it.

Recovery rule: the batches that recovery walked over were not flushed when the node died. A file that describes such
batches is not believed, because a power cut may bring back a snapshot or index entries that were removed when the log
was truncated. All of that is rebuilt from the batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from blumfeld.broker.replicas.state.epoch_files import EpochDraft, EpochFiles
from blumfeld.broker.replicas.state.producer_snapshots import ProducerSnapshots
from blumfeld.broker.replicas.state.recovered_batches import RecoveredBatches
from blumfeld.broker.replicas.state.transaction_index import SOUND, TransactionIndex
from blumfeld.log.checkpoints import MalformedFile
from blumfeld.log.leader_epochs import FILE_NAME as EPOCHS
from blumfeld.log.leader_epochs import LeaderEpochCache
from blumfeld.log.producers.aborted_transactions import AbortedTransactions
from blumfeld.log.producers.snapshot import SEQUENCE_MASK, decode_snapshot
from blumfeld.log.producers.state import Duplicate, ProducerState
from blumfeld.spi.compaction import AbortedTransaction
from blumfeld.spi.completion import Steps
from blumfeld.spi.hooks import EventLog
from blumfeld.spi.leader_epochs import EpochEntry
from blumfeld.spi.storage import LACKS, PartitionLog, segment_bases, segmented
from blumfeld.spi.tiering import local_log_start_offset, tiered
from blumfeld.wire.batches.record_batch import NO_PRODUCER_EPOCH, NO_SEQUENCE, RecordBatch
from blumfeld.wire.errors import BrokerError, ErrorCode

REPLAY_STEP = 512
"""Batches that are replayed before other requests get their turn."""
SEQUENCES_AHEAD_MAX = 1 << 30
"""A sequence that is further ahead of another one lies behind it: sequences begin anew after 2^31 - 1."""
PRODUCERS_SHARES = (1, 4, 16)
"""Guesses at the number of records of all producers for each of one: so far back a forgotten batch is looked for.
The last ``SEARCHED_MAX`` records are looked at in any case: dozens of producers may write small batches."""
SEARCHED_MAX = 256
"""Batches that are looked at from each place: their headers take about 2 ms."""
SEARCHED_BYTES_MAX = 2 << 20
"""Bytes of these batches. The storage reads them whole, on the loop: without a bound a refused batch held it for 82 ms
where batches have 900 kB, and for a second where they came from the disk."""
GAPS_MAX = 1_000
"""Producers whose gap a leader remembers. Beyond that the oldest is forgotten, and told once more to try again."""


class ReplicaState:
    """Implements ``LogListener``. Make it, open the log with it, call :meth:`attach`, then exhaust :meth:`replay`.

    Every method that may touch a file raises ``OSError``: the log directory has failed, or one of ``LACKS``: there was
    no room, and the log is to be closed and opened again.
    """

    __slots__ = (
        "_draft",
        "_epoch_files",
        "_epochs_due",
        "_epochs_stale",
        "_gaps",
        "_index",
        "_log",
        "_recovered",
        "_refused_at",
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
        "replaying",
    )

    def __init__(
        self,
        log_name: str,
        now_ms: Callable[[], int],
        events: EventLog,
        epoch_files: EpochFiles | None = None,
    ) -> None:
        """:param epoch_files: the node's; ``None``: :meth:`save_epochs_soon` writes at once"""
        self._epoch_files = epoch_files
        self._draft: EpochDraft | None = None
        """The file of epochs that a worker writes; ``None`` if it was written or given up since that began."""
        self._epochs_due = False
        """The unsaved epochs have records, and their file waits in ``_epoch_files``."""
        self._epochs_stale = False
        """The disk was full when the file had to lose epochs. The next write, roll or clean close writes it."""
        self.log_name = log_name
        self.producers = ProducerState()
        self.epochs = LeaderEpochCache()
        self.aborted = AbortedTransactions()
        self.high_watermark = 0
        """The value of the last checkpoint, or of the moment when this replica last stopped leading or following."""
        self._refused_at = 0
        """The log's end when this leader began, or last refused a batch that its producer may send again."""
        self._gaps: dict[int, tuple[int, int]] = {}
        """Producer id → (epoch, sequence) of the first batch behind a gap that was told to come again; without a
        sequence once it has.
        """
        self.epoch_unsaved = False
        """The latest epoch is not in the file yet. It is written with the epoch's first batch, or soon after it."""
        self.events = events
        self._recovered = RecoveredBatches()
        self._renew: list[int] = []
        """Offsets of snapshots that may stem from a truncated log. Replay compares each with the state it has there."""
        self._replay_from = 0
        """Offset where replay begins: the loaded snapshot covers all batches below."""
        self.replaying = False
        """A replay after a truncation has not ended. The log may roll meanwhile."""
        self._log: PartitionLog
        self._index: TransactionIndex
        self._snapshots: ProducerSnapshots

    # At start

    def attach(self, log: PartitionLog, high_watermark: int) -> None:
        """Read the small files of the log, which is open now."""
        self._log = log
        names = log.aux.names()
        self._index = TransactionIndex(log, self.aborted)
        self._snapshots = ProducerSnapshots(log, names)
        start, end = local_log_start_offset(log), log.written_end_offset
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
        self._replay_from = self._first_to_replay(log)

    def _first_to_replay(self, log: PartitionLog) -> int:
        """Returns the offset behind the loaded snapshot.

        It may lie below the log start, which DeleteRecords moves inside of a segment. What is between is replayed while
        its segment is there: a marker in it ends a transaction that is open in the snapshot.
        """
        start = local_log_start_offset(log)
        oldest = start if segmented(log) is None else segment_bases(log)[0]
        return max(self.producers.end_offset, min(oldest, start))

    def _read_epochs(self, log: PartitionLog) -> int:
        """Read the leader epochs. Returns the offset from which on replay must find them, or ``SOUND`` for nowhere."""
        data = log.aux.read(EPOCHS)
        try:
            self.epochs = LeaderEpochCache.decode(data or b"", f"{self.log_name}/{EPOCHS}")
        except MalformedFile as error:
            self.events.warning("leader epochs unreadable, made anew", error=str(error))
        if not self.epochs.entries:
            start = local_log_start_offset(log)
            self.epoch_unsaved = log.written_end_offset > start
            return start
        cut = self.epochs.truncate_from_end(log.written_end_offset)
        if self.epochs.truncate_from_start(log.log_start_offset) or cut:
            self._save_epochs_unless_full()
        return SOUND

    def replay(self) -> Steps[None]:
        """Apply the batches behind the snapshot. Yields now and then, so that the loop can do other things."""
        log = self._log
        end = log.written_end_offset
        if self._replay_from < end:
            for count, batch in enumerate(self._batches(log, end), start=1):
                self._renew_snapshots(batch.base_offset)
                self._take_in(batch)
                if count % REPLAY_STEP == 0:
                    yield None
            self._renew_snapshots(end)
            self.index_aborted(self.producers.written(end))
            if self.epoch_unsaved:
                self._save_epochs_unless_full()
        self._recovered.clear()
        self._replay_from = end
        self.replaying = False
        if self._index.unsaved:
            self.save_aborted()
        # Transactions that ended below the high watermark hold no reader back. Without this call they would, until the
        # high watermark moves again.
        self.producers.high_watermark_moved(self.high_watermark)

    def _batches(self, log: PartitionLog, end: int) -> Iterator[RecordBatch]:
        """Yields the batches from ``_replay_from`` on: first read from the log, then those that recovery kept."""
        kept = self._recovered
        read_to = kept.start_offset if kept.complete else end
        offset = self._replay_from
        more = offset < read_to
        while more:
            # Begun anew after each step: between two steps segments may have been compacted or dropped.
            batch_count = 0
            for batch in islice(log.batches(offset), REPLAY_STEP):
                if batch.base_offset >= read_to:
                    break
                batch_count += 1
                offset = max(batch.next_offset, offset)
                yield batch
            # The last batch may end below ``read_to``: compaction leaves holes, at the end of a log, too.
            more = batch_count == REPLAY_STEP and offset < read_to
        if kept.complete:
            for batch in kept.batches(end):
                if batch.next_offset > self._replay_from:
                    yield batch

    def _take_in(self, batch: RecordBatch) -> None:
        if (
            batch.partition_leader_epoch > self.epochs.latest_epoch
            and batch.next_offset > self._log.log_start_offset
        ):
            self.epoch_started(batch.partition_leader_epoch, batch.base_offset)
        known = self.aborted.latest_offset
        for entry in self.producers.replay(batch):
            if entry.last_offset > known:
                self._index.append(entry)

    def _renew_snapshots(self, offset: int) -> None:
        """Rewrite the doubtful snapshots at or below ``offset``: the state is complete up to there."""
        renew = self._renew
        while renew and renew[0] <= offset:
            at = renew.pop(0)
            if at >= self.producers.end_offset:
                self._snapshots.renew(at, self.producers.snapshot(at))
            else:  # it lies inside a batch, so it stems from a log that was truncated
                self._snapshots.remove(at)

    # LogListener

    def rolled(self, base_offset: int) -> None:
        """A new segment starts: write the epochs, the ended segment's transaction index, and a producer snapshot.

        The epochs are written first: a start that finds the snapshot doesn't search the batches before it for epochs.
        """
        if self.replaying:
            return  # the producers of this offset aren't known yet; the snapshot of the next roll follows
        self.index_aborted(self.producers.written(base_offset))
        if self.epoch_unsaved:
            self.save_epochs()
        if self._index.unsaved:
            self.save_aborted()
        self._snapshots.write_unsynced(base_offset, self.producers.snapshot(base_offset))

    def recovered(self, batch: RecordBatch) -> None:
        """Keep the parts of a recovered batch that :meth:`replay` needs later, so that it isn't read twice."""
        self._recovered.add(batch)

    # In service

    def use(self, log: PartitionLog) -> None:
        """Go on with another log of the same local records and the same ``aux``."""
        self._log = log
        self._index.use(log)
        self._snapshots.use(log)

    def readable_ends(self) -> tuple[int, int]:
        """Returns (high watermark, last stable offset) of a replica that doesn't lead."""
        stable = high_watermark = self.high_watermark
        unstable = self.producers.first_unstable_offset
        if unstable is not None and unstable < stable:
            stable = unstable
        if self.replaying:  # transactions behind what is replayed so far are not known yet
            stable = min(stable, self.producers.end_offset)
        return high_watermark, min(max(stable, self._log.log_start_offset), high_watermark)

    def index_aborted(self, transactions: Sequence[AbortedTransaction]) -> None:
        """Note transactions whose abort markers are written now, as :meth:`ProducerState.written` returns them."""
        for transaction in transactions:
            self._index.append(transaction)

    def original_of(self, batch: RecordBatch) -> Duplicate | None:
        """Returns the batch of the log that a refused one repeats, where the producer's entry has forgotten it.

        A snapshot has the last batch of each producer only, as in Kafka. After a clean restart a client repeats those
        that it had no answer for, up to five. OUT_OF_ORDER_SEQUENCE_NUMBER to the first one is fatal for librdkafka.
        The Java client may repeat older ones: it has five in flight at each of two leaders, and when the former one
        is given up, the next one has many more. It repeats a batch that gets OUT_OF_ORDER_SEQUENCE_NUMBER then, and
        sends nothing else to the partition, for ``delivery.timeout.ms`` (two minutes).

        So the log is searched back from the oldest batch that the entry has: about as far as the producer wrote in
        between, as other producers write there, too.

        :raises OSError: the log can't be read
        """
        entry = self.producers.producer(batch.producer_id)
        if entry is None or entry.epoch != batch.producer_epoch or not entry.batches:
            return None
        oldest = entry.batches[0]
        end_offset = oldest.last_offset - oldest.offset_delta
        records_back = (oldest.first_sequence - batch.base_sequence) & SEQUENCE_MASK
        if not 0 < records_back < SEQUENCES_AHEAD_MAX:
            return None
        wanted = batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.last_sequence
        log = self._log
        for back in sorted({SEARCHED_MAX, *(records_back * share for share in PRODUCERS_SHARES)}):
            start_offset = max(local_log_start_offset(log), end_offset - back)
            bytes_left = SEARCHED_BYTES_MAX
            for known in islice(log.batches(start_offset), SEARCHED_MAX):
                if known.base_offset >= end_offset or bytes_left <= 0:
                    break
                bytes_left -= known.size_bytes
                identity = known.producer_id, known.producer_epoch, known.base_sequence, known.last_sequence
                if identity == wanted:
                    return Duplicate(known.base_offset, known.last_offset, known.max_timestamp, placed=False)
        return None

    def doubt_gaps(self) -> None:
        """Take note that batches of any producer may have been refused until now, and may come again."""
        self._refused_at = self._log.placed_end_offset
        self._gaps.clear()

    def refusal(self, error: BrokerError, batch: RecordBatch) -> BrokerError:
        """Returns the error that the leader's client gets for a batch that was refused with this one.

        A producer sends several batches without waiting. The first may come a moment before this node leads, or before
        enough replicas are in sync, and the second a moment after. The second isn't out of order: the producer sends
        both again, in order. OUT_OF_ORDER_SEQUENCE_NUMBER would make librdkafka begin a producer epoch, and send again
        what is already written in other partitions.

        So a gap is NOT_LEADER_OR_FOLLOWER at first, if the producer has written nothing since this leader began or last
        refused a batch. The gap is real if the first batch behind it comes again and none that fills it came before.

        Called once for each refused batch: it remembers what it has said.
        """
        producer_id, epoch, sequence = batch.producer_id, batch.producer_epoch, batch.base_sequence
        if error.code != ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            self._refused_at = self._log.placed_end_offset
            self._gaps.pop(producer_id, None)
            return error
        entry = self.producers.producer(producer_id)
        if entry is not None and entry.last_offset >= self._refused_at:
            return error
        gap_epoch, after_gap = self._gaps.get(producer_id, (NO_PRODUCER_EPOCH, NO_SEQUENCE))
        if gap_epoch == epoch and after_gap in (sequence, NO_SEQUENCE):
            self._gaps[producer_id] = epoch, NO_SEQUENCE
            return error
        if gap_epoch != epoch or (after_gap - sequence) & SEQUENCE_MASK < SEQUENCES_AHEAD_MAX:
            self._gaps[producer_id] = epoch, sequence
            if len(self._gaps) > GAPS_MAX:
                del self._gaps[next(iter(self._gaps))]
        return BrokerError(
            ErrorCode.NOT_LEADER_OR_FOLLOWER, f"a batch that was refused may come again before: {error}"
        )

    def epoch_started(self, epoch: int, start_offset: int, leads: bool = False) -> None:
        """Begin a leader epoch. Answers show it at once; the file gets it with its first batch.

        :param leads: this replica leads in it
        """
        if leads:
            self.doubt_gaps()  # requests may have come before this replica led
        if self.epochs.assign(epoch, start_offset):
            self.epoch_unsaved = True

    def save_epochs_soon(self, failed: Callable[[OSError], None]) -> None:
        """Write the leader epochs to their file, off the loop.

        Until then the file lacks epochs whose batches lie in the active segment. Recovery walks over that segment, so a
        crash finds them there.

        :param failed: called with the error of a later write
        """
        if self._epoch_files is None:
            self.save_epochs()
        elif not self._epochs_due:
            self._epochs_due = True
            self._epoch_files.save(self, failed)

    def give_up_epochs(self) -> None:
        """Write nothing any more: the log has failed, or is to be deleted."""
        self.epochs_saved()

    def save_epochs(self) -> None:
        """Write the leader epochs to their file, which is durable when this returns."""
        self._log.aux.write(EPOCHS, self.epochs.encode())
        self.epochs_saved()

    def draft_epochs(self) -> EpochDraft:
        """As ``Unsaved.draft_epochs``."""
        self._draft = EpochDraft(self._log.aux, self.epochs.encode(), self._log.directory_id)
        return self._draft

    def holds(self, draft: EpochDraft) -> bool:
        """As ``Unsaved.holds``."""
        return (
            draft is self._draft
            and draft.directory_id == self._log.directory_id
            and draft.data == self.epochs.encode()
        )

    def epochs_saved(self) -> None:
        """As ``Unsaved.epochs_saved``."""
        self._draft = None
        self.epoch_unsaved = self._epochs_due = self._epochs_stale = False

    def _save_epochs_unless_full(self) -> None:
        """Write the leader epochs. On a full disk the file keeps what it has until the next write. That is safe: the
        batches of the active segment tell its epochs, and no producer snapshot is written before this file."""
        try:
            self.save_epochs()
        except OSError as error:
            if error.errno not in LACKS:
                raise
            self.epoch_unsaved = self._epochs_stale = True

    def save_aborted(self) -> None:
        """Bring the transaction indexes of all segments up to date; cheap if no transaction was aborted since."""
        if self._index.unsaved:
            self._index.save(segment_bases(self._log))

    def log_start_moved(self, log_start_offset: int, *, segments_dropped: bool = True) -> None:
        """Forget the state of records below the log's new start.

        :param segments_dropped: False if only the start moved (DeleteRecords). Then no segment's files are gone, and
            the segments, which may be many, are not listed
        """
        if self.epochs.truncate_from_start(log_start_offset):
            self._save_epochs_unless_full()
        if segments_dropped and (self._snapshots.offsets or len(self.aborted)):
            first_offset = segment_bases(self._log)[0]
            self._index.segments_dropped(first_offset)
            self._snapshots.remove_below(first_offset)

    def remove_strays(self, bases: list[int]) -> None:
        """Remove producer snapshots from which no replay begins.

        :param bases: base offsets of all segments
        """
        self._snapshots.remove_strays(bases)

    def compacted(self) -> None:
        """Catch up with a finished pass of the cleaner, which has replaced sealed segments.

        It reads their new ``.txnindex`` files, and removes the snapshots of segments that are gone. The caller of the
        pass must call it on the loop, before anything else happens to the log.
        """
        bases = segment_bases(self._log)
        self._index.replaced(bases[-1], self.events)
        self._snapshots.remove_strays(bases)

    def save_producers(self, end_offset: int) -> None:
        """Write a snapshot at a clean close, so that the next start needs no replay. As in Kafka, it may be empty."""
        if self._epochs_due or self._epochs_stale:
            self.save_epochs()
        self.save_aborted()
        if end_offset > max(self._snapshots.latest, 0):
            self._snapshots.write(end_offset, self.producers.snapshot(end_offset))

    # Truncation

    def truncate_to(self, offset: int) -> None:
        """Drop every batch that reaches ``offset`` or beyond, written or only placed, and the state that they left.

        The producers are loaded from an older snapshot and replayed from there.
        """
        for _ in self.truncate_in_steps(offset) or ():
            pass

    def truncate_in_steps(self, offset: int) -> Steps[None] | None:
        """As :meth:`truncate_to`. The log, the epochs and the aborted transactions are cut when this returns. The
        producers are complete after the steps, which may replay a whole segment; at once if there are none.
        """
        log = self._log
        log.truncate_to(offset)
        return self._truncated(log)

    def truncate_fully(self, start_offset: int, log_start_offset: int | None = None) -> None:
        """Drop everything; the log is empty afterwards and starts at ``start_offset``.

        :param log_start_offset: the whole log's start, as of ``TieredLog.truncate_fully``

        Snapshots and epochs are removed first, and durably. A crash before the truncation then finds the whole state in
        the batches, and a crash after it finds nothing of the old log.
        """
        self.replaying = False
        self._snapshots.remove_below(SOUND)
        self.epochs.clear()
        self.save_epochs()  # a durable write: it makes the removals in the same directory durable, too
        whole = None if log_start_offset is None else tiered(self._log)
        if whole is None:
            self._log.truncate_fully(start_offset)
        else:
            whole.truncate_fully(start_offset, log_start_offset)
        self.high_watermark = min(self.high_watermark, start_offset)
        self._index.forget_from(0)
        self.producers.clear(start_offset)
        self.save_aborted()

    def restart_at(
        self,
        offset: int,
        epochs: Sequence[EpochEntry],
        producers: bytes | None,
        log_start_offset: int | None = None,
    ) -> None:
        """Drop everything, and begin with the state of a log whose records below ``offset`` lie elsewhere or are gone.

        A crash in the middle leaves the log as it was, or an empty one that starts at ``offset``.

        :param epochs: the leader epochs of the records below ``offset``; later ones are left out
        :param producers: the bytes of ``<offset>.snapshot``; ``None`` if no producer is known
        :param log_start_offset: as of :meth:`truncate_fully`
        :raises CorruptSnapshot: ``producers`` can't be read; nothing has changed
        """
        if producers is not None:
            decode_snapshot(producers)
        self.truncate_fully(offset, log_start_offset)
        self.high_watermark = offset
        if producers is not None:
            self._snapshots.write(offset, producers)
            self.producers.load(producers, offset)
        for epoch, start_offset in epochs:
            if start_offset < offset:
                self.epochs.assign(epoch, start_offset)
        if self.epochs.entries:
            self.save_epochs()

    def forget_empty_epochs(self) -> None:
        """Drop the epochs that begin at the log's end: no record was written in them.

        A follower names the epoch of its last record when it fetches. The epoch of a leadership without a record is
        unknown to every other replica. The file doesn't have it either.
        """
        if self.epoch_unsaved:
            self.epochs.truncate_from_end(self._log.written_end_offset)
            self.epoch_unsaved = self._epochs_due or self._epochs_stale

    def _truncated(self, log: PartitionLog) -> Steps[None] | None:
        end = log.written_end_offset
        self.high_watermark = min(self.high_watermark, end)
        self._snapshots.remove_above(end)
        self._index.forget_from(end)
        cut = self.epochs.truncate_from_end(end)
        if self.epochs.truncate_from_start(log.log_start_offset) or cut:
            self._save_epochs_unless_full()
        # A replay that this truncation interrupts leaves producers that are good only up to where it came.
        if self.producers.end_offset >= end and self.producers.truncate_to(end):
            self.replaying = False
            self.save_aborted()
            return None
        if not self._snapshots.load(self.producers, end, self.events):
            self.producers.clear(local_log_start_offset(log))
        self._replay_from = self._first_to_replay(log)
        self.replaying = True
        return self.replay()
