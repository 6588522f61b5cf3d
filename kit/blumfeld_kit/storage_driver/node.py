"""Drives a storage for the contract kit as a node does, on virtual time, through stops, kills and power cuts."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Protocol, TypeVar, cast

import msgspec

from blumfeld.config.values import TopicConfig
from blumfeld.spi.compaction import CompactionRequest, CompactionResult
from blumfeld.spi.completion import Completion
from blumfeld.spi.parts import join, release
from blumfeld.spi.runtime import Random
from blumfeld.spi.storage import (
    LastingStorage,
    LogDirInfo,
    LogRead,
    LogStorage,
    PartitionLog,
    SegmentedLog,
    SeveralDirectories,
    TimestampOffset,
    TopicPartition,
    WriteOutcome,
    several_directories,
)
from blumfeld.wire.batches.builder import build_batch
from blumfeld.wire.batches.record_batch import RecordBatch, split_batches
from blumfeld.wire.batches.records import Record
from blumfeld.wire.compression.codec import Codec
from blumfeld_kit.fakes.files import FakeFiles
from blumfeld_kit.fakes.loop import SimulationError
from blumfeld_kit.fakes.power import PowerCut
from blumfeld_kit.fakes.runtime import FakeRuntime

T = TypeVar("T")

PARTITION = TopicPartition("topic", 0)
TOPIC_ID = bytes(range(16, 32))
CLUSTER_ID = "kit-cluster"
NODE_ID = 7
TIME_MS = 1_700_000_000_000
SMALL_FILES = {
    "00000000000000000000.txnindex": b"aborted transactions",
    "00000000000000000003-0000000001.checkpoint": b"a snapshot of the metadata",
    "00000000000000000003.snapshot": b"producers at offset 3",
    "00000000000000000005.snapshot": b"producers at offset 5",
    "leader-epoch-checkpoint": b"0\n1\n0 0\n",
    "quorum-state": b'{"votedId":-1}',
}
"""Small files by the names that the broker and the consensus give them. A kit that invents a name proves nothing of
these.
"""


def make_batch(
    count: int = 1,
    *,
    timestamp_ms: int = TIME_MS,
    value_bytes: int = 10,
    seed: int = 0,
    codec: Codec = Codec.NONE,
    timestamps: Sequence[int] = (),
    base_offset: int = 0,
) -> RecordBatch:
    """Return a client's batch with ``count`` records, or with one for each of ``timestamps``."""
    times = timestamps or [timestamp_ms] * count
    records = [
        Record(b"%d" % n, bytes([(seed + n) % 251]) * value_bytes, timestamp=time)
        for n, time in enumerate(times)
    ]
    return RecordBatch(memoryview(build_batch(records, codec=codec, base_offset=base_offset)))


def keyed_batch(
    *pairs: tuple[bytes | None, bytes | None], timestamp_ms: int = TIME_MS, codec: Codec = Codec.NONE
) -> RecordBatch:
    """Return a client's batch of keys and values, for a compacted topic."""
    records = [Record(key, value, timestamp=timestamp_ms + n) for n, (key, value) in enumerate(pairs)]
    return RecordBatch(memoryview(build_batch(records, codec=codec)))


class Listener:
    """``LogListener`` that records its calls."""

    def __init__(self) -> None:
        self.rolls: list[int] = []
        self.recoveries: list[tuple[int, int]] = []
        """(base offset, next offset) of each batch that recovery walked over."""

    def rolled(self, base_offset: int) -> None:
        """Record a new active segment."""
        self.rolls.append(base_offset)

    def recovered(self, batch: RecordBatch) -> None:
        """Record a batch that recovery walked over."""
        self.recoveries.append((batch.base_offset, batch.next_offset))


class Watcher:
    """``StorageWatcher`` that records its calls. It fails if the storage calls it inside a call of the node."""

    def __init__(self, runtime: FakeRuntime) -> None:
        self._runtime = runtime
        self.failures: list[tuple[LogDirInfo, OSError]] = []
        self.moves: list[tuple[TopicPartition, bytes]] = []

    def directory_failed(self, directory: LogDirInfo, error: OSError) -> None:
        """Record a directory that went offline."""
        self._check()
        self.failures.append((directory, error))

    def moved(self, partition: TopicPartition, directory_id: bytes) -> None:
        """Record a replica that moved."""
        self._check()
        self.moves.append((partition, directory_id))

    def _check(self) -> None:
        # The node calls the storage while the loop rests. So a running loop means a later turn.
        assert self._runtime.loop.is_running(), (
            "the storage called its watcher inside a call of the node; it must do so in a later turn"
        )


class StoredBatch(msgspec.Struct, frozen=True):
    """A batch as a reader got it."""

    base_offset: int
    next_offset: int
    leader_epoch: int
    data: bytes


class EveryStorage(LastingStorage, SeveralDirectories, Protocol):
    """A storage with every optional part of the contract. Tests of an optional part check first that it is there
    (``StorageKit.need_…``).
    """


class Node:
    """A node with one storage. ``make_runtime(previous)`` gives it a runtime, with the disk of the previous one.

    Nothing is started until :meth:`start`.
    """

    def __init__(
        self,
        make_runtime: Callable[[FakeRuntime | None], FakeRuntime],
        make_storage: Callable[[FakeRuntime], LogStorage],
    ) -> None:
        self._make_runtime = make_runtime
        self._make_storage = make_storage
        self.runtime = make_runtime(None)
        self.storage = cast("EveryStorage", make_storage(self.runtime))
        self.watcher = self._watch()
        self.listener = Listener()

    def _watch(self) -> Watcher:
        watcher = Watcher(self.runtime)
        if several_directories(self.storage) is not None:
            self.storage.watch(watcher)
        return watcher

    @property
    def is_simulated(self) -> bool:
        """Return whether the disk is in memory, so that it can crash and fail."""
        return isinstance(self.runtime.files, FakeFiles)

    @property
    def has_segments(self) -> bool:
        """Return whether the storage keeps its logs in segments."""
        return hasattr(self.storage.log_class, "drop_segments")

    def start(self, cluster_id: str = CLUSTER_ID, node_id: int = NODE_ID) -> Node:
        """Start the storage."""
        self.runtime.run(self.storage.start(cluster_id, node_id))
        return self

    def stop(self, broker_epoch: int = 3) -> None:
        """Stop it cleanly."""
        self.runtime.run(self.storage.stop(broker_epoch))

    def end(self) -> None:
        """End the test: give back the descriptors of a real disk, in whatever state the storage is."""
        with suppress(OSError):
            self.stop()
        self.runtime.run_turn()

    def restart(self) -> Node:
        """Start a new process on the same disk. The old one was stopped, or crashed."""
        if self.runtime.dead:
            with suppress(SimulationError):
                self.runtime.loop.run_ready()  # so that the dead process's tasks end before the next one starts
        self.runtime = self._make_runtime(self.runtime)
        self.storage = cast("EveryStorage", self._make_storage(self.runtime))
        self.watcher = self._watch()
        return self.start()

    def crash(self, *, power_cut: bool = True, luck: Random | PowerCut | None = None) -> Node:
        """Crash the node at once, and start a new process on what the disk still has."""
        self.runtime.crash(power_cut=power_cut, luck=luck)
        return self.restart()

    @property
    def directories(self) -> list[bytes]:
        """Ids of the log directories."""
        return [info.directory_id for info in self.storage.log_dirs()]

    def open(
        self,
        partition: TopicPartition = PARTITION,
        topic_id: bytes = TOPIC_ID,
        *,
        directory_id: bytes | None = None,
        **config: int | str,
    ) -> Log:
        """Open a log. Keywords are topic configuration: ``index_interval_bytes=0``."""
        self.listener = Listener()
        settings: dict[str, Any] = {name.replace("_", "."): value for name, value in config.items()}
        settings["internal.segment.bytes"] = settings.pop("segment.bytes", 1 << 30)
        opened = self.storage.open_log(
            partition, topic_id, TopicConfig(settings), self.listener, directory_id=directory_id
        )
        return Log(self, self.runtime.run(opened))


class Log:
    """A log whose methods wait: each returns the outcome."""

    def __init__(self, node: Node, log: PartitionLog) -> None:
        self.node = node
        self.log = cast("SegmentedLog", log)

    @property
    def record_files(self) -> str:
        """The common part of the paths of files with records, or "", which is part of every path."""
        files = self.log.segments()[-1].files if self.node.has_segments else ()
        return os.path.splitext(files[0])[1] if files else ""

    @property
    def cleaned_end_offset(self) -> int:
        """The offset below which the log is compacted; 0 for a log without segments."""
        return self.log.cleaned_end_offset if self.node.has_segments else 0

    def roll(self) -> None:
        """Seal the active segment, where there are segments."""
        if self.node.has_segments:
            self.log.roll()

    def write(self) -> WriteOutcome:
        """Write the placed batches, and wait for the outcome."""
        outcomes: list[WriteOutcome] = []
        self.log.write(outcomes.append)
        if not outcomes:
            self.node.runtime.run_turn()
        assert len(outcomes) == 1, "the outcome is reported once"
        return outcomes[0]

    def append(self, *batches: RecordBatch, epoch: int = 0) -> WriteOutcome:
        """Place batches and write them."""
        for batch in batches:
            self.log.place(batch, epoch)
        return self.write()

    def fill(self, *counts: int, **kind: Any) -> None:
        """For each count, append one batch with so many records in a write of its own."""
        for count in counts:
            assert self.append(make_batch(count, **kind)).error is None

    def flush(self) -> int:
        """Flush and wait."""

        async def wait() -> int:
            return await self.log.flush()

        return self.node.runtime.run(wait())

    def compact(self, **options: Any) -> CompactionResult:
        """Run one cleaner pass over everything sealed and dirty, or as ``options`` says, and wait for its end."""
        return self.node.runtime.run(_wait(self.log.compact(self.compaction(**options))))

    def compaction(self, **options: Any) -> CompactionRequest:
        """Return the request that :meth:`compact` uses."""
        request: dict[str, Any] = {
            "first_dirty_offset": self.log.cleaned_end_offset,
            "end_offset": self.log.segments()[-1].base_offset,
            "now_ms": self.node.runtime.now_ms(),
            "delete_retention_ms": 1000,
            "segment_bytes": 1 << 30,
            "segment_index_bytes": 1 << 20,
            "index_interval_bytes": 100,
            "batch_bytes_max": 1 << 20,
            "map_bytes": 1 << 16,
        }
        return CompactionRequest(**{**request, **options})

    def read_raw(
        self, offset: int, bytes_max: int = 1 << 30, end_offset: int | None = None, *, minimum: bool = True
    ) -> LogRead:
        """Read, and wait for cold bytes. The caller releases the parts."""
        end_offset = self.log.written_end_offset if end_offset is None else end_offset
        return self.finish(self.log.read(offset, bytes_max, end_offset, minimum))

    def read(
        self, offset: int, bytes_max: int = 1 << 30, end_offset: int | None = None, *, minimum: bool = True
    ) -> list[StoredBatch]:
        """Read once, and return the whole batches."""
        raw_read = self.read_raw(offset, bytes_max, end_offset, minimum=minimum)
        return _batches(raw_read)

    def time(self, timestamp_ms: int) -> TimestampOffset | None:
        """Look up a time, and wait for a cold answer."""
        return self.finish(self.log.offset_for_time(timestamp_ms))

    def finish(self, answer: T | Completion[T]) -> T:
        """Wait for a cold answer."""
        return self.node.runtime.run(_wait(answer)) if isinstance(answer, Completion) else answer

    def finish_read(self, answer: LogRead | Completion[LogRead]) -> list[StoredBatch]:
        """Wait for a read, and return its whole batches."""
        return _batches(self.finish(answer))

    def highest(self) -> TimestampOffset | None:
        """Return the record with the highest timestamp. Waits for a cold answer."""
        return self.finish(self.log.max_timestamp())

    def read_raw_end(self, offset: int) -> int:
        """Return the ``end_offset`` of a read of one batch."""
        raw_read = self.read_raw(offset, 1)
        release(raw_read.parts)
        return raw_read.end_offset

    def read_raw_size(self, offset: int, bytes_max: int, *, minimum: bool = True) -> int:
        """Return the number of bytes of a read."""
        raw_read = self.read_raw(offset, bytes_max, minimum=minimum)
        release(raw_read.parts)
        return raw_read.size_bytes

    def read_all(self, offset: int | None = None, *, holes: bool = False) -> list[StoredBatch]:
        """Read to the end, as a consumer does."""
        return self.node.runtime.run(self.read_on(offset, holes=holes))

    async def read_on(self, offset: int | None = None, *, holes: bool = False) -> list[StoredBatch]:
        """Read to the end, within the loop.

        :param holes: the end may be missing though no cleaner pass is known to have removed it
        """
        it = self.log
        offset = it.log_start_offset if offset is None else offset
        all_batches: list[StoredBatch] = []
        while offset < it.written_end_offset:
            answer = it.read(offset, 1000, it.written_end_offset, True)
            batches = _batches(await answer if isinstance(answer, Completion) else answer)
            if not batches:
                assert holes or offset < self.cleaned_end_offset, (
                    f"nothing can be read at {offset}, before the end {it.written_end_offset}"
                )
                break  # compaction removed the last batches
            all_batches += batches
            offset = batches[-1].next_offset
        return all_batches

    def spans(self, offset: int | None = None) -> list[tuple[int, int]]:
        """Return (base offset, next offset) of every batch from ``offset`` on."""
        return [(batch.base_offset, batch.next_offset) for batch in self.read_all(offset)]


async def _wait(answer: Completion[T]) -> T:
    return await answer


def _batches(log_read: LogRead) -> list[StoredBatch]:
    data = join(log_read.parts)
    release(log_read.parts)
    assert len(data) == log_read.size_bytes
    batches = [
        StoredBatch(b.base_offset, b.next_offset, b.partition_leader_epoch, bytes(b.data))
        for b in split_batches(memoryview(data), allow_partial=True)
    ]
    assert all(batch.next_offset <= log_read.end_offset for batch in batches)
    return batches
