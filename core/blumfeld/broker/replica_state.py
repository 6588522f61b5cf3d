"""What a replica knows beside its batches: producers, leader epochs, aborted transactions, and their small files.

The storage only stores; this keeps ``leader-epoch-checkpoint`` and producer snapshots beside the log by its
``AuxFiles``, and finds the state again at start: newest snapshot, then the batches behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from blumfeld.log.aborted_transactions import AbortedTransactions, decode_aborted
from blumfeld.log.checkpoints import MalformedFile
from blumfeld.log.file_names import Suffix, parse_segment_name, segment_name
from blumfeld.log.leader_epochs import FILE_NAME as EPOCHS
from blumfeld.log.leader_epochs import LeaderEpochCache
from blumfeld.log.producer_snapshot import CorruptSnapshot
from blumfeld.log.producer_state import ProducerState
from blumfeld.spi.compaction import AbortedTransaction
from blumfeld.spi.hooks import EventLog
from blumfeld.spi.storage import PartitionLog
from blumfeld.wire.record_batch import RecordBatch

REPLAY_STEP = 512
"""Batches that are replayed before the loop gets its turn."""


class ReplicaState:
    """Implements ``LogListener``: made before its log is opened, then :meth:`attach`, then :meth:`replay`."""

    __slots__ = (
        "_log",
        "_now_ms",
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
        self._now_ms = now_ms
        self._log: PartitionLog | None = None

    # At start

    def attach(self, log: PartitionLog, high_watermark: int) -> None:
        """The log is open: read its files. Raises OSError."""
        self._log = log
        end = log.written_end_offset
        self.high_watermark = max(log.log_start_offset, min(high_watermark, end))
        self._read_epochs(log)
        self._read_aborted(log)
        self._read_snapshot(log)

    def _read_epochs(self, log: PartitionLog) -> None:
        data = log.aux.read(EPOCHS)
        if data is not None:
            try:
                self.epochs = LeaderEpochCache.decode(data, f"{self.log_name}/{EPOCHS}")
            except MalformedFile as error:
                self.events.warning("leader epochs unreadable, begun anew", error=str(error))
        self.epochs.truncate_from_end(log.written_end_offset)
        self.epochs.truncate_from_start(log.log_start_offset)

    def _read_aborted(self, log: PartitionLog) -> None:
        found: list[AbortedTransaction] = []
        for name in log.aux.names():
            if name.endswith(Suffix.TRANSACTION_INDEX.value):
                try:
                    found += decode_aborted(log.aux.read(name) or b"")
                except ValueError as error:
                    self.events.warning("transaction index unreadable", log=self.log_name, error=str(error))
        for entry in sorted(found, key=lambda e: e.last_offset):
            if entry.last_offset < log.written_end_offset:
                self.aborted.append(entry)

    def _read_snapshot(self, log: PartitionLog) -> None:
        end = log.written_end_offset
        for offset, name in sorted(self._snapshots(log), reverse=True):
            data = log.aux.read(name)
            if offset > end or data is None:
                log.aux.delete(name)
                continue
            try:
                self.producers.load(data, offset, self._now_ms())
            except CorruptSnapshot as error:
                self.events.warning("producer snapshot unreadable, removed", file=name, error=str(error))
                log.aux.delete(name)
                continue
            return
        self.producers.clear(log.log_start_offset)

    def replay(self) -> Iterator[None]:
        """Take in the batches behind the snapshot; stops now and then so that the loop can do other things.

        Raises OSError.
        """
        log = self._log
        if log is None or self.producers.end_offset >= log.written_end_offset:
            return
        start = max(self.producers.end_offset, log.log_start_offset)
        known = self.aborted.entries[-1].last_offset if len(self.aborted) else -1
        for count, batch in enumerate(log.batches(start), start=1):
            if batch.partition_leader_epoch > self.epochs.latest_epoch:
                self.epoch_started(batch.partition_leader_epoch, batch.base_offset)
                self.save_epochs()
            for entry in self.producers.replay(batch, self._now_ms()):
                if entry.last_offset > known:
                    self.aborted.append(entry)
            if count % REPLAY_STEP == 0:
                yield
        self.producers.end_offset = log.written_end_offset

    # LogListener

    def rolled(self, base_offset: int) -> None:
        """A new segment starts: keep the producers as they were before it.

        The epochs go first: a start that finds the snapshot does not look for epochs in the batches before it.
        """
        if self._log is not None:
            if self.epoch_unsaved:
                self.save_epochs()
            self._log.aux.write(
                segment_name(base_offset, Suffix.PRODUCER_SNAPSHOT), self.producers.snapshot(base_offset)
            )

    def recovered(self, batch: RecordBatch) -> None:
        """Recovery walked over a batch. :meth:`replay` reads what it needs once the log is open."""

    # In service

    def written(self, end_offset: int) -> None:
        """All below ``end_offset`` is written."""
        for entry in self.producers.written(end_offset):
            self.aborted.append(entry)

    def epoch_started(self, epoch: int, start_offset: int) -> None:
        """A leader epoch begins. It is told of at once, and kept in the file with its first batch."""
        if self.epochs.assign(epoch, start_offset):
            self.epoch_unsaved = True

    def save_epochs(self) -> None:
        """Keep what is known of epochs. Raises OSError."""
        if self._log is not None:
            self.epoch_unsaved = False
            self._log.aux.write(EPOCHS, self.epochs.encode())

    def log_start_moved(self, log_start_offset: int) -> None:
        """Records below are gone: forget what was said of them. Raises OSError."""
        log = self._log
        if log is None:
            return
        if self.epochs.truncate_from_start(log_start_offset):
            log.aux.write(EPOCHS, self.epochs.encode())
        self.aborted.drop_below(log_start_offset)
        segments = log.segments()
        oldest = segments[0].base_offset if segments else log_start_offset
        for offset, name in self._snapshots(log):
            if offset < oldest:
                log.aux.delete(name)

    def save_producers(self, end_offset: int) -> None:
        """A clean close: the next start needs no replay. Raises OSError."""
        if self._log is not None and len(self.producers):
            self._log.aux.write(
                segment_name(end_offset, Suffix.PRODUCER_SNAPSHOT), self.producers.snapshot(end_offset)
            )

    @staticmethod
    def _snapshots(log: PartitionLog) -> list[tuple[int, str]]:
        """(offset, name) of each producer snapshot."""
        files = ((parse_segment_name(name), name) for name in log.aux.names())
        return [
            (file.base_offset, name)
            for file, name in files
            if file is not None and file.suffix is Suffix.PRODUCER_SNAPSHOT and not file.mark
        ]
