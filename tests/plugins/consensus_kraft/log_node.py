"""A voter that is nothing but storage and a raft log, in virtual time; and its death at each operation of its disk."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from blumfeld.config.values import TopicConfig
from blumfeld.log.leader_epochs import FILE_NAME as EPOCHS_NAME
from blumfeld.log.leader_epochs import LeaderEpochCache
from blumfeld.metadata.image.checkpoint import CheckpointId, encode_checkpoint, metadata_batch
from blumfeld.spi.completion import Completion
from blumfeld.spi.internal_topics import CLUSTER_METADATA_TOPIC_ID
from blumfeld.spi.parts import join, release
from blumfeld.spi.storage import LogRead
from blumfeld.wire.batches.record_batch import RecordBatch, split_batches
from blumfeld.wire.messages.metadata_records import TopicRecord
from blumfeld_consensus_kraft.opened_metadata import METADATA_PARTITION
from blumfeld_consensus_kraft.raft_log import RaftLog
from blumfeld_consensus_kraft.stored_state import Loaded, load
from blumfeld_kit.fakes.files import Adversary, FakeDisk
from blumfeld_kit.fakes.loop import SimulatedLoop, SimulationError
from blumfeld_kit.fakes.runtime import FakeRuntime
from blumfeld_kit.storage_driver.node import Listener
from blumfeld_storage_local.storage import LocalStorage
from tests.coordinator.fakes import Events
from tests.plugins.consensus_kraft.kraft_node import CLUSTER_ID, DATA_DIR

NODE_ID = 2
TIME_MS = 1_700_000_000_000
READS = frozenset(
    {
        "pread",
        "size",
        "exists",
        "is_dir",
        "list_dir",
        "read_bytes",
        "region",
        "is_cached",
        "space",
        "modified_ms",
    }
)


def topics(*names: str) -> list[Any]:
    return [TopicRecord(name=name, topic_id=name.encode().ljust(16, b"\1")[:16]) for name in names]


def batch(base_offset: int, epoch: int, *names: str) -> bytes:
    return bytes(metadata_batch(topics(*names), base_offset=base_offset, epoch=epoch, timestamp_ms=TIME_MS))


def history(*runs: tuple[int, int]) -> list[bytes]:
    """Returns a leader's batches of two records: for each (epoch, count) so many."""
    history_batches: list[bytes] = []
    for epoch, count in runs:
        for _ in range(count):
            offset = 2 * len(history_batches)
            history_batches.append(batch(offset, epoch, f"e{epoch}-{offset}", f"e{epoch}-{offset + 1}"))
    return history_batches


class LogNode:
    """One incarnation of a voter. Several, one after the other, may have one disk."""

    def __init__(
        self,
        disk: FakeDisk | None = None,
        seed: int = 0,
        *,
        segment_bytes: int = 1 << 20,
        loop: SimulatedLoop | None = None,
    ) -> None:
        self.runtime = FakeRuntime(seed, disk=disk, loop=loop)
        self.disk = self.runtime.disk
        self.storage = LocalStorage(self.runtime, DATA_DIR, Events())
        self.config = {"internal.segment.bytes": segment_bytes}
        self.flushed: list[int] = []
        self.committed: list[int] = []
        self.failed: list[tuple[OSError, bool]] = []
        self.warnings: list[str] = []
        self.loaded: Loaded | None = None

    def start(self) -> LogNode:
        """Open and load the log, and make all of it last."""
        self.runtime.run(self.storage.start(CLUSTER_ID, NODE_ID))
        opening = self.storage.open_log(
            METADATA_PARTITION, CLUSTER_METADATA_TOPIC_ID, TopicConfig(self.config), Listener()
        )
        log = self.runtime.run(opening)
        self.loaded = load(log, CLUSTER_ID, self.warnings.append)
        self.raft = RaftLog(
            self.runtime,
            log,
            self.committed.append,
            lambda error, for_good: self.failed.append((error, for_good)),
            flushed=self.flushed.append,
        )
        self.raft.flush()
        self.settle()
        return self

    def settle(self) -> None:
        self.runtime.run(self.raft.settle())

    def stop(self) -> None:
        self.raft.log.close()
        self.runtime.run(self.storage.stop(1))

    def follow(self, *batches: bytes) -> None:
        """Append batches of a leader, and wait until they are flushed."""
        self.raft.append_fetched(memoryview(b"".join(batches)))
        self.settle()

    def install(self, snapshot: CheckpointId, *names: str) -> None:
        """Write a snapshot with topics, and go on behind it."""
        self.write_snapshot(snapshot, *names)
        self.raft.truncate_fully_to(*snapshot)

    def write_snapshot(self, snapshot: CheckpointId, *names: str, last_contained_ms: int = TIME_MS) -> None:
        data = encode_checkpoint(
            topics(*names), epoch=snapshot.epoch, timestamp_ms=TIME_MS, last_contained_ms=last_contained_ms
        )
        self.raft.log.aux.write(snapshot.name, data)
        self.raft.snapshots.added(snapshot)

    def batches(self) -> list[bytes]:
        """All batches of the log, as they are stored."""
        raft = self.raft
        start, end = raft.log.log_start_offset, raft.log.written_end_offset
        return [bytes(log_batch.data) for log_batch in raft.log.batches(start)] if start < end else []

    def read(self, offset: int, bytes_max: int = 1 << 20) -> list[RecordBatch]:
        """What a fetching voter gets."""
        answer = self.raft.read(offset, bytes_max)
        log_read: LogRead = self.runtime.run(_wait(answer)) if isinstance(answer, Completion) else answer
        data = join(log_read.parts)
        release(log_read.parts)
        return list(split_batches(memoryview(data), allow_partial=True))

    def epochs(self) -> list[tuple[int, int]]:
        """The content of ``leader-epoch-checkpoint``."""
        data = self.raft.log.aux.read(EPOCHS_NAME)
        return (
            [] if data is None else [(epoch, start) for epoch, start in LeaderEpochCache.decode(data).entries]
        )


async def _wait(answer: Completion[LogRead]) -> LogRead:
    return await answer


def epochs_of(batches: list[bytes]) -> list[tuple[int, int]]:
    """Epochs and where they begin, as the batches say."""
    cache = LeaderEpochCache()
    for data in batches:
        record_batch = RecordBatch(memoryview(data))
        cache.assign(record_batch.partition_leader_epoch, record_batch.base_offset)
    return [(epoch, start) for epoch, start in cache.entries]


class Died(Exception):  # noqa: N818 - it is told to
    """The node was killed."""


class Deaths:
    """Runs a story again and again. Each time the node dies before another operation that changes its disk: by a kill,
    and by a power cut of every kind.

    :param prepare: brings a new node to the point at which the story begins
    :param story: gets the node, and dies in the middle
    """

    def __init__(self, prepare: Callable[[LogNode], None], story: Callable[[LogNode], None]) -> None:
        self._prepare = prepare
        self._story = story
        self.count = 0

    def __iter__(self) -> Iterator[tuple[LogNode, LogNode, str]]:
        """Yields the dead node, the one that starts after it, and where the death was."""
        cuts: list[Adversary | None] = [None, *Adversary]
        at = 0
        operation = ""
        while True:
            at += 1
            for cut in cuts:
                dead, operation = self._die(at, cut)
                if not operation:
                    assert self.count, "the story changes nothing on the disk"
                    return
                self.count += 1
                again = LogNode(dead.disk, seed=at).start()
                yield dead, again, f"{at}: {operation}, {'kill' if cut is None else cut.name}"

    def _die(self, at: int, cut: Adversary | None) -> tuple[LogNode, str]:
        node = LogNode(FakeDisk())
        node.start()
        self._prepare(node)
        seen: list[str] = []

        def watch(operation: str, path: str) -> None:
            if operation in READS or node.runtime.dead:
                return
            seen.append(f"{operation} {path}")
            if len(seen) == at:
                node.runtime.crash(power_cut=cut is not None, luck=cut)

        node.disk.watch = watch
        try:
            self._story(node)
        except (OSError, ValueError, SimulationError, asyncio.CancelledError):
            if not node.runtime.dead:
                raise
        node.disk.watch = None
        with suppress(SimulationError):
            node.runtime.loop.run_ready()  # so that the tasks of the dead node end
        if not node.runtime.dead:
            return node, ""
        return node, seen[at - 1]
