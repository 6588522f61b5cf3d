"""The storage role: a :class:`LogStorage` opens a :class:`PartitionLog` for each partition. **It only stores.**

A partition has three ends: placed ≥ written ≥ flushed (docs/design.md, "The turn"). Producer state, leader epochs,
retention and compaction decisions are not storage: they live in :mod:`blumfeld.log` and above, and keep small
files beside the log by
:class:`AuxFiles`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from errno import EDQUOT, EMFILE, ENFILE, ENOMEM, ENOSPC
from typing import Protocol, TypeAlias, cast

import msgspec

from blumfeld.config.values import TopicConfig
from blumfeld.spi.compaction import AbortedTransaction, CompactionRequest, CompactionResult
from blumfeld.spi.completion import Completion
from blumfeld.spi.parts import Part
from blumfeld.wire.batches.record_batch import RecordBatch

LACKS = frozenset({ENOSPC, EDQUOT, EMFILE, ENFILE, ENOMEM})
"""``OSError.errno`` of what failed for want of room, descriptors or memory: nothing is bad, it may be tried again."""


class OffsetOutOfRangeError(LookupError):
    """A read at an offset that is below the log start or above the written end. OFFSET_OUT_OF_RANGE on the wire."""


class InconsistentTopicIdError(ValueError):
    """The directory of a log holds the log of another topic of that name. INCONSISTENT_TOPIC_ID on the wire."""


class LogDirNotFoundError(LookupError):
    """There is no log directory with this id, or it is offline. LOG_DIR_NOT_FOUND on the wire."""


class LogNotOpenError(ValueError):
    """The log that should move is not open. REPLICA_NOT_AVAILABLE on the wire."""


class TopicPartition(msgspec.Struct, frozen=True, order=True):
    """A topic's name and a partition's number."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class LogRead(msgspec.Struct):
    """Bytes of batches, in offset order, from one read."""

    parts: list[Part]
    """Empty when there is nothing to give. The first batch is always whole. Behind it the last one may be cut at
    ``bytes_max``, as in Kafka: clients leave such a piece out.
    """
    size_bytes: int
    end_offset: int
    """Every record in ``parts`` has a lower offset: the bound for aborted transactions."""
    aborted: Sequence[AbortedTransaction] = ()
    """Aborted transactions with a record or marker in the range that was read, for bytes whose segment isn't among the
    log's own (in an object store). The transaction index of such a segment isn't among the small files of ``aux``, so
    the read brings what it says. The broker adds those that it knows itself.
    """


class TimestampOffset(msgspec.Struct, frozen=True):
    """A record's timestamp and offset, with the leader epoch of its batch."""

    timestamp_ms: int
    offset: int
    leader_epoch: int


class SegmentInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The facts about one segment, active or sealed. A log's last segment is the active one."""

    base_offset: int
    next_offset: int
    """One past its last offset."""
    size_bytes: int
    max_timestamp_ms: int
    """-1 when empty; the file's time of change stands in where no record has one."""
    created_ms: int
    modified_ms: int
    sealed: bool
    files: tuple[str, ...]
    """Paths of its files, log first; empty for a storage without files."""


class WriteOutcome(msgspec.Struct, frozen=True):
    """The outcome of writing one turn."""

    written_end_offset: int
    """Everything below it is written."""
    error: OSError | None = None
    """If set: all that was placed from ``written_end_offset`` on is gone, the placed end is back at it, the file
    was cut back.
    """


LogReadOutcome: TypeAlias = LogRead | Completion[LogRead]


class AuxFiles(Protocol):
    """Small named files beside a log: ``leader-epoch-checkpoint``, ``<offset>.snapshot``,
    ``partition.metadata``, ``<offset>.txnindex``.

    A storage in memory keeps them too. Writes replace the whole file atomically. A storage that lasts has each file
    again after a restart, whatever its name is, and after a power cut too once the log has been flushed. It changes
    none of them by itself, in a roll, a truncation or a close: only the transaction index of a segment goes with that
    segment, and all go with the log. They can be read and written while the log is closed, too.
    """

    def names(self) -> list[str]:
        """Return the names of all files, sorted."""
        ...

    def read(self, name: str) -> bytes | None:
        """The file's bytes, or ``None``."""
        ...

    def write(self, name: str, data: bytes) -> None:
        """Replace it. Raises ``OSError``."""
        ...

    def write_unsynced(self, name: str, data: bytes) -> None:
        """Replace it, and wait for no device. Raises ``OSError``.

        A kill leaves it whole. Until the next flush of the log has ended, a power cut may take it, leave the older
        file, or leave bytes of both: only for files that a start checks, and can do without.
        """
        ...

    def delete(self, name: str) -> None:
        """Remove it; it may be absent."""
        ...


class LogListener(Protocol):
    """The calls that a log makes to its owner, on the loop's thread."""

    def rolled(self, base_offset: int) -> None:
        """A new active segment starts at ``base_offset``: write a producer snapshot for that offset."""
        ...

    def recovered(self, batch: RecordBatch) -> None:
        """A batch that recovery walked over, in order, during ``open_log``, and that says something of producers or
        epochs.

        Those are the first of each segment (so the first told says where recovery began), all with a producer id, and
        those of another leader epoch than the batch before. ``data`` is the whole of a control batch, of others the
        header alone; it may be kept. A storage may tell of more batches.
        """
        ...


class PartitionLog(Protocol):
    """The log of one replica: what every storage has. Segments are apart: :class:`SegmentedLog`.

    Every method is called on the loop's thread and never blocks for long.

    ``OSError`` from any method but :meth:`write`, which reports it in the outcome, means the log directory is bad:
    its partitions go offline with KAFKA_STORAGE_ERROR. One of ``LACKS`` takes no directory offline. A read that
    lacked something may be asked again. A change that lacked something may be half done: the owner closes the log
    and opens it again, which recovers it.
    """

    log_start_offset: int
    """Reads below it answer OFFSET_OUT_OF_RANGE. May be inside a segment (DeleteRecords)."""
    placed_end_offset: int
    written_end_offset: int
    """The log end offset: only what is written is seen by Fetch, followers, ListOffsets and the high watermark.
    """
    flushed_end_offset: int
    directory_id: bytes
    """Id of the log directory that holds the log now. A finished move changes it (``StorageWatcher.moved``)."""
    aux: AuxFiles

    def place(self, batch: RecordBatch, leader_epoch: int) -> int:
        """Give the batch the next offsets; the base offset that it got.

        Base offset and leader epoch are patched into the batch's own buffer, which stays pinned (unmoved,
        unchanged) until the outcome of the next :meth:`write`. Nothing is promised yet and no reader sees it.
        """
        ...

    def place_as_is(self, batch: RecordBatch) -> None:
        """Place a batch that has its offsets already (a follower, a replayed raft log).

        :raises ValueError: its base offset is below the placed end
        """
        ...

    def write(self, done: Callable[[WriteOutcome], None]) -> None:
        """Write all that was placed since the last write, in one gather write (split at IOV_MAX), rolling where
        the rules say.

        ``done`` is called once, maybe before this returns; or later (the ring, ``flush.messages``), and then
        outcomes come in the order of the writes: more may be placed and written meanwhile. A write that fails takes
        what was placed behind it along, until its outcome is told. On success readers see the records; they survive
        a crash of the process, and a power cut only after :meth:`flush`. A failed or short write cuts the file back
        to the written end, drops what was placed behind it, and reports it in the outcome; so does a log whose
        directory is offline. Raises nothing. With ``flush.messages`` reached, ``done`` waits until they are
        flushed.
        """
        ...

    def flush(self) -> Completion[int]:
        """Make what is written now last (fdatasync, off the loop); completes with the new flushed end.

        A flush that comes while a sync runs waits for the next one. A truncation lowers what a sync that runs
        covers. A failure takes the log offline and fails every flush and every outcome that waits; it is never
        retried as if it had worked. A close ends every flush.
        """
        ...

    def read(self, offset: int, bytes_max: int, end_offset: int, minimum_one_batch: bool) -> LogReadOutcome:
        """Bytes from the batch that contains ``offset`` up to, not including, ``end_offset`` (which must be ≤
        written end).

        ``end_offset`` inside a batch excludes that batch. A first batch that is larger than ``bytes_max`` is given
        whole with ``minimum_one_batch``; without it nothing is given, and never a piece of it: clients take a first
        batch that isn't whole for one that can never be fetched (KIP-74). Example: batches [0..4] [5..9],
        ``read(7, 1, 10, True)`` gives the whole of [5..9], ``end_offset`` 10; ``read(7, 1, 10, False)`` gives no parts.

        :raises OffsetOutOfRangeError: ``offset`` is below the log start or above the written end
        """
        ...

    def batches(self, offset: int) -> Iterator[RecordBatch]:
        """Written batches from the one that contains ``offset`` on: replay. A batch's bytes are valid until the
        next step.
        """
        ...

    def offset_for_time(
        self, timestamp_ms: int
    ) -> TimestampOffset | Completion[TimestampOffset | None] | None:
        """The first record with a timestamp ≥ ``timestamp_ms``, looked up inside its batch; ``None`` if there is
        none (ListOffsets by timestamp, KIP-79).
        """
        ...

    def max_timestamp(self) -> TimestampOffset | Completion[TimestampOffset | None] | None:
        """The record with the highest timestamp, the first such; ``None`` in an empty log."""
        ...

    def size_bytes(self) -> int:
        """Bytes of record batches in all segments."""
        ...

    def truncate_to(self, offset: int) -> None:
        """Drop all batches with an offset ≥ ``offset``. A no-op above the written end. What was placed is
        dropped too.
        """
        ...

    def truncate_fully(self, start_offset: int) -> None:
        """Drop everything; the log is empty and starts at ``start_offset``."""
        ...

    def advance_log_start(self, offset: int) -> None:
        """The log starts at ``offset`` now (≤ written end); whole segments below it are deleted later by
        :meth:`SegmentedLog.drop_segments`. A log without segments may free what lies below at once.

        :raises ValueError: ``offset`` is above the written end
        """
        ...

    def reconfigure(self, config: TopicConfig) -> None:
        """The topic's configuration changed."""
        ...

    def close(self) -> None:
        """Flush and close: the log was shut down cleanly. May be called twice.

        Where only room was lacking, for an index say, it closes all the same and raises nothing: the next opening
        recovers it.
        """
        ...


class SegmentedLog(PartitionLog, Protocol):
    """A log that is kept in segments, of which old ones are dropped and sealed ones compacted. All of it or nothing.

    Without it a log counts as one segment that is never sealed. Retention by time and size then takes nothing away
    (DeleteRecords still moves the log start), compacted topics keep every record, and ``plan`` says so.
    """

    cleaned_end_offset: int
    """Below it the log was compacted: as of the last :meth:`compact`, kept over restarts (Kafka's
    ``cleaner-offset-checkpoint``), lowered by a truncation; 0 where it never was.
    """

    def segments(self) -> Sequence[SegmentInfo]:
        """All segments, oldest first, the active one last."""
        ...

    def roll(self) -> None:
        """Seal the active segment now (nothing may be placed and unwritten). No-op on an empty active segment."""
        ...

    def drop_segments(self, end_offset: int) -> int:
        """Delete sealed segments whose ``next_offset`` ≤ ``end_offset``; the number deleted. Moves the log start
        if it must.

        Files are renamed ``.deleted`` and removed after ``file.delete.delay.ms``; regions in flight keep
        theirs open.
        """
        ...

    def compact(self, request: CompactionRequest) -> Completion[CompactionResult]:
        """Rewrite the sealed segments below ``request.end_offset`` so that every key keeps its newest record.

        Works off the loop, one pass at a time; appends and reads go on. What comes of it takes its place at
        once: a reader, or a crash, sees the old segments or the new ones, never both or none. Base and last
        offsets of batches, producer fields and leader epochs stay; whole batches are copied where nothing falls
        out. The completion fails with ``CompactionAbandonedError``, or with ``OSError``: a bad batch or a full
        disk leaves the log as it was; a directory that is offline is offline.

        :raises NotImplementedError: the storage does not compact (``LogStorage.compacts``)
        :raises ValueError: a pass runs already
        """
        ...


class LogDirInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One log directory, for DescribeLogDirs and the broker's registration."""

    path: str
    directory_id: bytes
    online: bool
    total_bytes: int = -1
    """Size of the directory's file system; -1 if that isn't known."""
    usable_bytes: int = -1


class LogMove(msgspec.Struct, frozen=True, kw_only=True):
    """A replica on its way to another log directory (KIP-113): Kafka's future replica."""

    partition: TopicPartition
    from_directory_id: bytes
    to_directory_id: bytes
    size_bytes: int
    """Bytes copied so far."""
    copied_end_offset: int
    """The copy holds everything below this offset. ``offset_lag`` is the log end offset less this."""


class StorageWatcher(Protocol):
    """The calls that a storage makes to its owner. On the loop's thread, never from within a call of the owner's."""

    def directory_failed(self, directory: LogDirInfo, error: OSError) -> None:
        """A log directory is offline until the next start: every log in it raises ``OSError`` from now on (KIP-112)."""
        ...

    def moved(self, partition: TopicPartition, directory_id: bytes) -> None:
        """A replica lies in another directory now. Its ``PartitionLog`` is the same object."""
        ...


class LogStorage(Protocol):
    """Made by ``blumfeld_make_storage``. Made → started → stopped. What every storage has.

    Two more parts are apart, and each is had whole or not at all: :class:`LastingStorage` for what is there after a
    restart, :class:`SeveralDirectories` for more than one log directory.
    """

    compacts: bool
    """Whether its logs can :meth:`SegmentedLog.compact`. If not, compacted topics keep all; ``plan`` says so."""

    @property
    def log_class(self) -> type[PartitionLog]:
        """The class of what :meth:`open_log` gives: the kernel looks at it before anything is opened."""
        ...

    def promise(self) -> str:
        """The meaning of "written" and "flushed" with this storage, for ``plan``: ``"page cache; flushed by the
        operating system"``.
        """
        ...

    async def start(self, cluster_id: str, node_id: int) -> None:
        """Take the directories (lock files), check or write their ``meta.properties``, read checkpoints; was the
        last stop clean?

        :raises OSError: a directory can't be used; the node doesn't start when none is left
        :raises ValueError: a directory belongs to another cluster or node
        """
        ...

    def log_dirs(self) -> Sequence[LogDirInfo]:
        """All directories, also offline ones. Where no ``StorageWatcher`` is told, the node asks each second, and ends
        when one is offline: so this must not block."""
        ...

    async def open_log(
        self,
        partition: TopicPartition,
        topic_id: bytes,
        config: TopicConfig,
        listener: LogListener,
        *,
        directory_id: bytes | None = None,
    ) -> PartitionLog:
        """Open, or create, the log of one partition; recover it if the last stop was not clean (off the loop).

        Never called twice at once for the same partition.

        :param directory_id: where a log that is not there yet is made; by default in the directory online with
            the fewest logs. A log that was found at start is opened where it lies
        :raises OSError: KAFKA_STORAGE_ERROR for the partition: its directory is offline, or none is online; one of
            ``LACKS`` leaves what was there, and it may be opened again
        :raises InconsistentTopicIdError: the directory holds another topic id
        """
        ...

    def delete_log(self, partition: TopicPartition) -> None:
        """Rename to ``…-delete`` at once (the name is free when this returns), remove after
        ``file.delete.delay.ms``. The log may be open: it is let go, and nothing of it needs to last. Nobody calls
        it any more.
        """
        ...

    async def stop(self, broker_epoch: int) -> None:
        """Close every log, checkpoint, write the clean-shutdown file, release the lock. Legal without start.

        On a full disk there is no clean-shutdown file, and nothing is raised: the next start recovers.
        """
        ...


class LastingStorage(LogStorage, Protocol):
    """A storage that has its logs again after a restart.

    Without it nothing is found at a start: no log is a stray, high watermarks begin at the log start, and the node
    registers as one whose last stop was not clean.
    """

    def partitions(self) -> Sequence[tuple[TopicPartition, bytes]]:
        """(partition, topic id) of every log found at start, before any is opened: to find strays."""
        ...

    def set_aside_log(self, partition: TopicPartition) -> None:
        """Keep the files of a log that was found at start and that the metadata doesn't place here, under the name of a
        stray (``…-stray``), for a person to look at. Its name is free when this returns. Not legal for an open log.

        :raises OSError: its directory can't be changed: the log stays in its place
        """
        ...

    def checkpoint(self, high_watermarks: Iterable[tuple[TopicPartition, int]]) -> None:
        """Write recovery points, log start offsets and these high watermarks to the checkpoint files.

        Of many logs a part may be taken down now, and the rest in turns to come: ``high_watermarks`` is asked for each
        when its turn has come. A checkpoint that begins before the last has ended takes its place; :meth:`stop` ends
        it.
        """
        ...

    def high_watermarks(self) -> dict[TopicPartition, int]:
        """High watermarks as of the last checkpoint."""
        ...

    def previous_broker_epoch(self) -> int:
        """The broker epoch of the last clean stop, as the start found it; -1: an unclean restart (KIP-966).

        A process that ended, however it did, before it opened any log but the metadata log has lost nothing: the next
        one may name the same epoch. With -1 this node's replicas are eligible leaders no more, and a partition that has
        no other one takes its last leader, with what that one lost.
        """
        ...


class SeveralDirectories(LogStorage, Protocol):
    """A storage that can have several log directories (JBOD): they fail one by one, and logs move between them.

    Without it a manifest with several ``node.data_dirs`` is refused; AlterReplicaLogDirs to the directory where the log
    lies answers NONE, to any other path LOG_DIR_NOT_FOUND; an ``OSError`` of a log takes that log offline alone.
    """

    def watch(self, watcher: StorageWatcher) -> None:
        """Tell ``watcher`` from now on. Called once, before :meth:`start`."""
        ...

    def move_log(self, partition: TopicPartition, directory_id: bytes) -> None:
        """Begin to move an open log to another directory (KIP-113); to its own directory: give up a move that runs.

        Copies off the loop while the log serves, then changes over between two turns. A move outlives a restart: the
        ``-future`` directory says that it was wanted.

        :raises LogDirNotFoundError: no such directory, or it is offline
        :raises LogNotOpenError: the log is not open
        """
        ...

    def moves(self) -> Sequence[LogMove]:
        """Moves that run, for DescribeLogDirs."""
        ...


def segmented(log: PartitionLog) -> SegmentedLog | None:
    """The same log, if it is kept in segments."""
    return cast("SegmentedLog", log) if hasattr(log, "segments") else None


def segment_bases(log: PartitionLog) -> list[int]:
    """Base offsets of all segments, oldest first; a log without segments is one that begins at 0."""
    kept = segmented(log)
    return [0] if kept is None else [segment.base_offset for segment in kept.segments()]


def lasting(storage: LogStorage) -> LastingStorage | None:
    """The same storage, if it has its logs again after a restart."""
    return cast("LastingStorage", storage) if hasattr(storage, "partitions") else None


def several_directories(storage: LogStorage) -> SeveralDirectories | None:
    """The same storage, if it can have several log directories."""
    return cast("SeveralDirectories", storage) if hasattr(storage, "move_log") else None
