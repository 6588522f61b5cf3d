"""The metadata log of one voter or observer: placed, written, flushed; and committed when the quorum says so.

Appends of one turn are written together and flushed together (group commit); what comes in while a flush is under way
waits for the next one. Kafka flushes its raft log before it counts itself, and so do we: a committed record survives
a power cut.

Four ends, from the largest down:

* ``end_offset``: the next batch gets this offset.
* the written end, ``log.written_end_offset``: what :meth:`RaftLog.read` gives to other voters.
* ``flushed_end_offset``: this voter's own word for the high watermark. It may go back by a truncation.
* ``committed_end``: the high watermark, as far as it is written here. It never goes back.

``leader-epoch-checkpoint`` is written beside the flush, and the flushed end waits for it: the file knows the epochs of
all that is flushed. ``stored_state.load`` mends the rest of it at a start.
"""

from __future__ import annotations

from collections.abc import Callable

from blumfeld.log.leader_epochs import FILE_NAME as EPOCHS_NAME
from blumfeld.log.leader_epochs import NO_OFFSET, LeaderEpochCache
from blumfeld.metadata.image.checkpoint import CheckpointId
from blumfeld.spi.completion import Completion
from blumfeld.spi.leader_epochs import EpochEnd
from blumfeld.spi.runtime import Phase, Runtime
from blumfeld.spi.storage import LACKS, LogReadOutcome, PartitionLog, WriteOutcome, segmented
from blumfeld.wire.batches.record_batch import RecordBatch
from blumfeld_consensus_kraft.aux_file_writer import AuxFileWriter
from blumfeld_consensus_kraft.fetched_batches import fetched_batches
from blumfeld_consensus_kraft.kept_snapshots import KeptSnapshots
from blumfeld_consensus_kraft.raft.messages import SnapshotId

_NONE = 1 << 62


class RaftLog:
    """Appends to a :class:`PartitionLog`, and says what is flushed and committed. The state machine's ``LogView``.

    :param committed: called with the new committed end, each time it moved up
    :param failed: called when a write failed (everything behind the written end is gone) or, with ``True``, a flush
        (the log takes no more)
    :param flushed: called with the new flushed end, each time it moved up
    :param written: called with the written end, each time something was written: other voters may read it, unflushed
    """

    def __init__(
        self,
        runtime: Runtime,
        log: PartitionLog,
        committed: Callable[[int], None],
        failed: Callable[[OSError, bool], None],
        *,
        flushed: Callable[[int], None],
        written: Callable[[int], None] = lambda _: None,
    ) -> None:
        self.log = log
        self.flushed_end_offset = log.flushed_end_offset
        self.epochs = LeaderEpochCache()
        """Epochs of all that is placed."""
        self.snapshots = KeptSnapshots(runtime, log.aux)
        # A crash may have kept the files that went with the log's start. The oldest snapshot is the one that the log
        # goes on behind: by its epoch a leader knows a log whose divergence lies below its own start.
        self.snapshots.delete_before(CheckpointId(log.log_start_offset, 0))
        self._runtime = runtime
        self._committed = committed
        self._failed = failed
        self._told_flushed = flushed
        self._told_written = written
        self.committed_end = self._commit_target = _committed_at_least(log, self.snapshots)
        """``_commit_target`` is the high watermark that the driver told. It may be beyond what is written here."""
        self._write_is_due = False
        self._writing = 0
        """Writes whose outcome is to come: a storage may sync first."""
        self._flushing = False
        self._flushed_once = False
        self._epochs_changed = False
        """The epochs changed with a batch that is not written yet."""
        self._saving_epochs = 0
        self._epochs_unsaved_from = _NONE
        """From this offset on ``leader-epoch-checkpoint`` may be wrong."""
        self._epochs_file = AuxFileWriter(runtime, log.aux, EPOCHS_NAME)
        self._settled: list[Completion[None]] = []
        data = log.aux.read(EPOCHS_NAME)
        if data is not None:
            self.epochs = LeaderEpochCache.decode(data)
            self.epochs.truncate_from_end(log.written_end_offset)

    # What there is

    @property
    def start_offset(self) -> int:
        """The first offset that can be read."""
        return self.log.log_start_offset

    @property
    def end_offset(self) -> int:
        """The offset that the next batch gets."""
        return self.log.placed_end_offset

    @property
    def last_epoch(self) -> int:
        """Epoch of the last record that is placed; of the newest snapshot where the log is empty; 0 without either."""
        return self.epoch_before(self.log.placed_end_offset)

    @property
    def latest_snapshot(self) -> SnapshotId | None:
        """The newest snapshot."""
        return _snapshot(self.snapshots.latest)

    @property
    def earliest_snapshot(self) -> SnapshotId | None:
        """The oldest snapshot."""
        return _snapshot(self.snapshots.earliest)

    def epoch_before(self, offset: int) -> int:
        """Returns the epoch of the last record below ``offset``: ``LastFetchedEpoch`` of a fetch from there.

        Where the log begins at ``offset``, it is the epoch of the snapshot that ends there; 0 where nothing is known.
        """
        epoch = self.epochs.epoch_for_offset(offset - 1) if offset > self.log.log_start_offset else -1
        if epoch >= 0:
            return epoch
        return next(
            (
                snapshot_id.epoch
                for snapshot_id in reversed(self.snapshots.ids)
                if snapshot_id.end_offset == offset
            ),
            0,
        )

    def end_of_epoch(self, epoch: int) -> EpochEnd:
        """Returns the largest epoch of this log that is not above ``epoch``, and where it ends: a leader's answer to a
        follower whose last record has that epoch.

        Example: records 0 to 9 in epoch 1, 10 to 14 in epoch 3: 3 gives (3, 15), 2 gives (1, 10), and 4, which this
        log doesn't know, its end: (3, 15). An epoch from before the oldest snapshot gives the snapshot's id. As Kafka's
        ``KafkaRaftLog.endOffsetForEpoch``.
        """
        epoch_end = self.epochs.end_offset_for(epoch, self.log.written_end_offset)
        if epoch_end.end_offset == NO_OFFSET:
            return EpochEnd(self.epoch_before(self.log.written_end_offset), self.log.written_end_offset)
        earliest = self.snapshots.earliest
        if earliest is not None and epoch_end == (epoch, earliest.end_offset):
            return EpochEnd(earliest.epoch, earliest.end_offset)
        return epoch_end

    def read(self, offset: int, bytes_max: int) -> LogReadOutcome:
        """Whole batches from the one that contains ``offset`` up to the written end, as parts of a Fetch answer; the
        first one even if it is larger than ``bytes_max``. The last one may be cut.

        Regions of files, or a completion of them where a device must be waited for. The caller releases the regions.

        :raises OffsetOutOfRangeError: ``offset`` is below the log start or above the written end
        """
        return self.log.read(offset, bytes_max, self.log.written_end_offset, True)

    # Append

    def append(self, data: bytearray, epoch: int) -> int:
        """Place a batch of this leader's; its base offset. It is written at the end of this turn."""
        base_offset = self.log.place(RecordBatch(memoryview(data)), epoch)
        self._assign_epoch(epoch, base_offset)
        self._write_this_turn()
        return base_offset

    def append_fetched(self, data: memoryview, leader_epoch: int | None = None) -> list[RecordBatch]:
        """Place batches as the leader sent them, with its offsets and epochs. They are written at the end of this turn.

        :param data: may be changed after this call: the batches are copied
        :param leader_epoch: batches of a later epoch, and all behind them, are left out
        :return: the batches that are placed. One that is cut off at the end is not among them
        :raises CorruptBatch, UnsupportedMagic: a batch is damaged; nothing is placed
        :raises ValueError: a batch doesn't follow the one before it; nothing is placed
        :raises OSError: the log directory is offline; nothing is placed
        """
        batches = fetched_batches(bytes(data), self.end_offset, self.last_epoch, leader_epoch)
        for batch in batches:
            self.log.place_as_is(batch)
            self._assign_epoch(batch.partition_leader_epoch, batch.base_offset)
        if batches:
            self._write_this_turn()
        return batches

    def flush(self) -> None:
        """Flush what is written, unless a flush runs already.

        A voter calls this at its start and waits for :meth:`settle`, before it votes. After an unclean stop a log has
        records that no flush is known to have covered. And the directory of a new log lasts only since its first
        flush: a power cut would take ``quorum-state`` with it.
        """
        self._advance()
        unflushed = self.log.flushed_end_offset < self.log.written_end_offset
        if not self._flushing and (unflushed or not self._flushed_once):
            self._flushed_once = True
            try:
                flushing = self.log.flush()
            except OSError as error:  # the directory went offline meanwhile
                self._failed(error, True)
                self._wake()
                return
            self._flushing = True
            flushing.when_done(self._flush_ended)

    async def settle(self) -> None:
        """Return when all that was placed is flushed, or has failed."""
        if self._is_busy:
            done: Completion[None] = Completion()
            self._settled.append(done)
            await done

    # Commit

    def commit_to(self, offset: int) -> None:
        """The high watermark is ``offset``: the committed end follows it as far as the log is written here, now and
        with later writes. It never goes back.
        """
        self._commit_target = max(self._commit_target, offset)
        end_offset = min(self._commit_target, self.log.written_end_offset)
        if end_offset > self.committed_end:
            self.committed_end = end_offset
            self._committed(end_offset)

    # Take away

    def truncate_to(self, offset: int) -> int:
        """Drop all batches with an offset ≥ ``offset``, placed ones too. Returns the new end of the log.

        The cut is on the device when this returns. Epochs that begin behind it are forgotten.

        :raises ValueError: records below the committed end would go; nothing is changed
        :raises OSError: the log can't be cut. Its directory is offline; or it lacks room (``LACKS``), may be half cut,
            and must be opened again
        """
        self._check_cut(offset)
        self.log.truncate_to(offset)
        end_offset = self.log.written_end_offset
        self._was_cut(end_offset, self.epochs.truncate_from_end(end_offset))
        return end_offset

    def truncate_fully_to(self, offset: int, epoch: int) -> None:
        """Drop all records: the log goes on behind the snapshot ``(offset, epoch)``, which was fetched from the leader.
        All below is committed; ``committed`` is not called for it. Older snapshots are deleted.

        A crash before this leaves the snapshot and the old log: ``stored_state.load`` makes the cut then.

        :raises ValueError: there is no such snapshot, or more than it contains is committed; nothing is changed
        :raises OSError: the log can't be emptied; as :meth:`truncate_to`
        """
        snapshot = CheckpointId(offset, epoch)
        if snapshot not in self.snapshots.ids:
            raise ValueError(
                f"the metadata log can't go on behind {snapshot.name}: there is no such snapshot"
            )
        if offset < self.committed_end:
            raise ValueError(
                f"the metadata log is committed up to {self.committed_end}: it can't go back to {snapshot.name}"
            )
        self.log.truncate_fully(offset)
        self.committed_end = self._commit_target = offset
        self._was_cut(offset, self.epochs.clear())
        self.flushed_end_offset = offset
        self.snapshots.delete_before(snapshot)

    def opened_again(self, log: PartitionLog) -> None:
        """The log was closed, since a change of it was broken off, and is open again: go on with what it has left."""
        self.log = log
        end_offset = log.written_end_offset
        self._was_cut(end_offset, self.epochs.truncate_from_end(end_offset))
        self.flush()

    def start_at(self, snapshot: CheckpointId) -> None:
        """Let the log start where a snapshot ends. Whole segments below it, and older snapshots, are deleted.

        :raises ValueError: not all that the snapshot contains is written here
        :raises OSError: the log directory is offline
        """
        offset = snapshot.end_offset
        drop_below(self.log, offset)
        if self.epochs.truncate_from_start(offset):
            self._save_epochs()
        self.snapshots.delete_before(snapshot)

    def _check_cut(self, offset: int) -> None:
        if self.log.log_start_offset < offset < self.log.written_end_offset:
            # A batch goes whole.
            offset = next(self.log.batches(offset)).base_offset
        if offset < self.committed_end:
            raise ValueError(
                f"the metadata log is committed up to {self.committed_end}: it can't be cut at {offset}. A leader that "
                f"asks for this has lost committed records"
            )

    def _was_cut(self, end_offset: int, epochs_changed: bool) -> None:
        self.flushed_end_offset = min(self.flushed_end_offset, end_offset)
        self._commit_target = max(min(self._commit_target, end_offset), self.committed_end)
        self._epochs_changed = False
        if epochs_changed:
            self._epochs_unsaved_from = min(self._epochs_unsaved_from, end_offset)
            self._save_epochs()

    # Write and flush

    def _assign_epoch(self, epoch: int, base_offset: int) -> None:
        if self.epochs.assign(epoch, base_offset):
            self._epochs_changed = True
            self._epochs_unsaved_from = min(self._epochs_unsaved_from, base_offset)

    def _write_this_turn(self) -> None:
        if not self._write_is_due:
            self._write_is_due = True
            self._runtime.at_end_of_turn(Phase.WRITE, self._write)

    def _write(self) -> None:
        self._write_is_due = False
        self._writing += 1
        self.log.write(self._written)

    def _written(self, outcome: WriteOutcome) -> None:
        self._writing -= 1
        if outcome.error is not None:
            if self.epochs.truncate_from_end(outcome.written_end_offset):
                # The file may hold an epoch of what failed. The disk may be full, so the next batch brings a new file.
                self._epochs_changed = True
            self._failed(outcome.error, False)
            self._wake()
        elif self._epochs_changed:
            self._epochs_changed = False
            self._save_epochs()
        self.commit_to(self._commit_target)
        self.flush()
        if outcome.error is None:
            self._told_written(outcome.written_end_offset)

    def _flush_ended(self, done: Completion[int]) -> None:
        self._flushing = False
        if isinstance(done.error, OSError):
            self._failed(done.error, True)
            self._wake()
            return
        done.result()
        self.flush()

    def _save_epochs(self) -> None:
        self._saving_epochs += 1
        self._epochs_file.write(self.epochs.encode()).when_done(self._epochs_saved)

    def _epochs_saved(self, done: Completion[None]) -> None:
        self._saving_epochs -= 1
        if isinstance(done.error, OSError):
            self._epochs_changed = True
            self._failed(done.error, done.error.errno not in LACKS)
            self._wake()
            return
        if not self._saving_epochs and not self._epochs_changed:
            self._epochs_unsaved_from = _NONE
        self._advance()

    def _advance(self) -> None:
        """Tell the flushed end, if it moved and the file of epochs knows all of it."""
        # Not what the flush told: a truncation meanwhile may have taken some of that back.
        end_offset = min(self.log.flushed_end_offset, self._epochs_unsaved_from)
        if end_offset > self.flushed_end_offset:
            self.flushed_end_offset = end_offset
            self._told_flushed(end_offset)
        if not self._is_busy:
            self._wake()

    @property
    def _is_busy(self) -> bool:
        return self._write_is_due or bool(self._writing) or self._flushing or bool(self._saving_epochs)

    def _wake(self) -> None:
        waiting, self._settled = self._settled, []
        for completion in waiting:
            completion.complete(None)


def drop_below(log: PartitionLog, offset: int) -> None:
    """Let the log start at ``offset``, and delete whole segments below it.

    :raises ValueError: ``offset`` is above the written end
    :raises OSError: the log directory is offline
    """
    log.advance_log_start(offset)
    kept = segmented(log)
    if kept is not None:
        kept.drop_segments(offset)


def _committed_at_least(log: PartitionLog, snapshots: KeptSnapshots) -> int:
    """All that a snapshot contains is committed; all below the log start is in a snapshot."""
    ends = [
        snapshot_id.end_offset
        for snapshot_id in snapshots.ids
        if snapshot_id.end_offset <= log.written_end_offset
    ]
    return max([log.log_start_offset, *ends])


def _snapshot(checkpoint_id: CheckpointId | None) -> SnapshotId | None:
    # The bootstrap checkpoint ends at offset 0: it holds settings for a new log, and replaces nothing of it.
    return (
        None
        if checkpoint_id is None or checkpoint_id.end_offset == 0
        else SnapshotId(checkpoint_id.end_offset, checkpoint_id.epoch)
    )
