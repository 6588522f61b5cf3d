"""A node with one storage on a simulated disk, with its replicas' state and a promises for each log. It dies at a given
point.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import msgspec

from blumfeld.broker.replicas.state.epoch_files import EpochFiles, Unsaved
from blumfeld.broker.replicas.state.replica_state import ReplicaState
from blumfeld.config.values import BrokerConfig
from blumfeld.plugging.registry import Registry
from blumfeld.spi.compaction import CompactionAbandonedError
from blumfeld.spi.hooks import Composition
from blumfeld.spi.runtime import Random
from blumfeld.spi.storage import LogStorage, WriteOutcome
from blumfeld_kit.crash.leftovers import leftovers
from blumfeld_kit.crash.promises import Broken
from blumfeld_kit.crash.replica import SEGMENT_BYTES, Replica, check_state, find
from blumfeld_kit.fakes.loop import SimulationError
from blumfeld_kit.fakes.power import PowerCut
from blumfeld_kit.fakes.runtime import FakeRuntime
from blumfeld_kit.storage_driver.compaction_model import compact, content
from blumfeld_kit.storage_driver.node import Log, Node, StoredBatch

T = TypeVar("T")
MakeStorage = Callable[[FakeRuntime], LogStorage]

READS = frozenset(
    {
        "pread",
        "size",
        "exists",
        "is_dir",
        "list_dir",
        "read_bytes",
        "region",
        "mmap_read",
        "modified_ms",
        "is_cached",
    }
    | {"read_ahead", "space"}
)
"""Operations that change nothing."""
DIRECTORIES = ("/data", "/more")
SETTLED_MS = 70_000
"""After this time every deleted file must be gone."""
_NO_TOPIC_ID = bytes(16)


class Died(Exception):  # noqa: N818 - it is told to
    """The node is dead, and the script ends."""


class Point(msgspec.Struct, frozen=True):
    """The point of death: before the ``operation``-th file operation, counted from 1."""

    operation: int
    power_cut: bool = False
    luck: Random | PowerCut | None = None
    """Chooses the unsynced changes that survive a power cut."""


class _Silent:
    def debug(self, event: str, **values: Any) -> None:
        """Drop the event."""

    info = warning = error = debug


class _EveryOther(EpochFiles):
    """Writes every other file. The rest wait for ever, as in a node that dies before their turn."""

    def __init__(self, runtime: FakeRuntime) -> None:
        super().__init__(runtime)
        self._count = 0

    def save(self, state: Unsaved, failed: Callable[[OSError], None]) -> None:
        self._count += 1
        if self._count % 2:
            super().save(state, failed)


def _fails(error: OSError) -> None:
    raise error


def make_storage(name: str = "storage_local") -> MakeStorage:
    """Return a function that makes the storage of an installed plug-in.

    :raises ManifestError: the plug-in isn't installed, or is no storage
    """
    plugin = Registry().load(name, "storage", "installed plug-ins", "storage")

    def make(runtime: FakeRuntime) -> LogStorage:
        composition = SimpleNamespace(
            runtime=runtime,
            data_dir=DIRECTORIES[0],
            data_dirs=DIRECTORIES,
            config=BrokerConfig({}),
            log=lambda _: _Silent(),
            options=plugin.options_class(),
        )
        made: LogStorage = cast(Any, plugin()).blumfeld_make_storage(cast(Composition, composition))
        return made

    return make


class Machine:
    """Runs the script's steps. With a :class:`Point` it dies there, and :meth:`check` compares the disk with the
    promises.
    """

    def __init__(self, make: MakeStorage, point: Point | None = None) -> None:
        self.point = point
        self.phase = "start"
        self.operations: list[tuple[str, str]] = []
        """(phase, operation) of every file operation."""
        self.node = Node(_Runtimes(), make)
        self.node.runtime.disk.watch = self._watch
        self.replicas: dict[str, Replica] = {}
        self.gone: dict[bytes, bool] = {}
        """Topic ids of deleted logs, and whether the deletion is known to be durable."""
        self.power_was_cut = False
        """The power was cut since the last check that held."""

    # The script's steps

    def do(self, step: Callable[[], T]) -> T:
        """Run one step. :raises Died: the node died in it"""
        try:
            result = step()
        except (OSError, SimulationError, asyncio.CancelledError, CompactionAbandonedError):
            if self.node.runtime.dead:
                raise Died from None
            raise
        if self.node.runtime.dead:
            raise Died
        return result

    def start(self) -> None:
        """Start the storage."""
        self.do(self.node.start)

    def open(self, replica: Replica) -> Log:
        """Open or create a log, and restore the replica's state as a broker does."""
        self.replicas[replica.partition.topic] = replica
        log = self.do(lambda: self._open(replica))
        replica.log = log
        return log

    def _open(self, replica: Replica) -> Log:
        runtime = self.node.runtime
        state = ReplicaState(replica.partition.topic, runtime.now_ms, _Silent(), _EveryOther(runtime))
        opening = self.node.storage.open_log(replica.partition, replica.topic_id, replica.config, state)
        log = Log(self.node, runtime.run(opening))
        state.attach(log.log, 0)
        for _ in state.replay():
            pass
        replica.state = state
        return log

    def append(self, replica: Replica, *counts: int) -> None:
        """Append a batch for each count of records, in one turn. All are acknowledged when this returns."""
        (log, state), promises = replica.open, replica.promises
        if replica.leader_epoch > state.epochs.latest_epoch:
            state.epoch_started(replica.leader_epoch, log.log.placed_end_offset)
        placed: list[StoredBatch] = []
        for count in counts:
            batch = replica.make_batch([*promises.current, *placed], count)
            log.log.place(batch, replica.leader_epoch)
            state.producers.place(batch)
            placed.append(
                StoredBatch(batch.base_offset, batch.next_offset, replica.leader_epoch, bytes(batch.data))
            )
        promises.placed(placed)

        def written(outcome: WriteOutcome) -> None:
            if self.node.runtime.dead:
                return
            if outcome.error is not None:
                raise outcome.error
            if state.epoch_unsaved:
                state.save_epochs_soon(_fails)
            state.index_aborted(state.producers.written(outcome.written_end_offset))
            if not self.node.runtime.dead:
                promises.written(outcome.written_end_offset)
                if replica.config.flush_messages == 1:
                    promises.flushed(outcome.written_end_offset)

        self.do(lambda: log.log.write(written))
        self.do(self.node.runtime.run_turn)
        assert promises.written_end == promises.end_offset, "no outcome"

    def flush(self, replica: Replica) -> None:
        """Flush, and wait for it."""
        log, _ = replica.open
        end_offset = self.do(log.flush)
        replica.promises.flushed(end_offset)
        if end_offset < replica.promises.written_end:
            raise Broken(
                f"{replica.partition}: a flush of {replica.promises.written_end} ended at {end_offset}"
            )

    def roll(self, replica: Replica) -> None:
        """Seal the active segment."""
        log, _ = replica.open
        self.do(log.roll)
        self.do(self.node.runtime.run_turn)

    def truncate(self, replica: Replica, offset: int) -> None:
        """Truncate log and state, as a follower does."""
        _, state = replica.open
        replica.promises.truncate(offset)
        self.do(lambda: state.truncate_to(offset))
        replica.promises.truncated()

    def truncate_fully(self, replica: Replica, start_offset: int) -> None:
        """Empty the log and begin anew, as a follower that fell behind the leader's log start."""
        _, state = replica.open
        replica.promises.truncate_fully(start_offset)
        self.do(lambda: state.truncate_fully(start_offset))
        replica.promises.truncated()

    def advance_log_start(self, replica: Replica, offset: int) -> None:
        """Advance the log start (DeleteRecords), then drop the segments below it (retention)."""
        log, state = replica.open
        replica.promises.start_asked = max(replica.promises.start_asked, offset)
        self.do(lambda: log.log.advance_log_start(offset))
        self.do(lambda: state.log_start_moved(offset))
        if self.node.has_segments:
            self.do(lambda: log.log.drop_segments(offset))
        self.do(lambda: state.log_start_moved(log.log.log_start_offset))

    def compact(self, replica: Replica, *, first_dirty_offset: int | None = None) -> None:
        """Run one cleaner pass over everything sealed. Its result must be the model's."""
        (log, _), promises = replica.open, replica.promises
        infos = self.do(log.log.segments)
        horizons = {
            batch.base_offset: content(batch.data) for batch in self.do(lambda: log.read_all(holes=True))
        }
        producers = replica.producers()
        compaction = self.do(lambda: log.compaction(segment_bytes=SEGMENT_BYTES, producers=producers))
        known = [
            horizons.get(batch.base_offset, content(batch.data).without(promises.cleaned.removed))
            for batch in promises.current
        ]
        model = compact([batch for batch in known if batch.base_offset >= infos[0].base_offset], compaction)
        promises.compact(model.removed, compaction.end_offset, [info.base_offset for info in infos[:-1]])

        async def wait() -> int:
            return (await log.log.compact(compaction)).cleaned_end_offset

        end_offset = self.do(lambda: self.node.runtime.run(wait()))
        promises.compacted()
        if end_offset != compaction.end_offset or log.log.cleaned_end_offset != end_offset:
            raise Broken(
                f"{replica.partition}: the log was cleaned to {end_offset}, requested was {compaction.end_offset}"
            )
        promises.check(self.do(lambda: find(replica)), power_cut=False)

    def move(self, replica: Replica) -> None:
        """Move the log to the next directory, and wait for it."""
        log, _ = replica.open
        directories = self.node.directories
        wanted = directories[(directories.index(log.log.directory_id) + 1) % len(directories)]
        self.do(lambda: self.node.storage.move_log(replica.partition, wanted))
        for _ in range(100):
            self.do(lambda: self.node.runtime.advance(10))
            if log.log.directory_id == wanted and not self.node.storage.moves():
                return
        raise Broken(f"{replica.partition}: a move doesn't end")

    def checkpoint(self) -> None:
        """Checkpoint, and wait until it is durable."""
        starts = {name: r.log.log.log_start_offset for name, r in self.replicas.items() if r.log is not None}
        ends = [(r.partition, r.promises.written_end) for r in self.replicas.values()]
        self.do(lambda: self.node.storage.checkpoint(ends))
        self.do(self.node.runtime.run_turn)
        for name, start in starts.items():
            self.replicas[name].promises.start_kept = start

    def delete(self, replica: Replica) -> None:
        """Delete the log, as DeleteTopics does. The name may be used again at once."""
        self.gone[replica.topic_id] = False
        del self.replicas[replica.partition.topic]
        self.do(lambda: self.node.storage.delete_log(replica.partition))

    def wait(self, ms: float) -> None:
        """Let time pass."""
        self.do(lambda: self.node.runtime.advance(ms))

    def stop(self) -> None:
        """Stop the node cleanly, as SIGTERM does."""
        for replica in self.replicas.values():
            if replica.state is not None:
                state, end = replica.state, replica.promises.written_end
                self.do(lambda state=state, end=end: state.save_producers(end))  # type: ignore[misc]
        self.do(self.node.stop)
        for replica in self.replicas.values():
            log, _ = replica.open
            replica.promises.flushed(replica.promises.written_end)
            replica.promises.start_kept = log.log.log_start_offset

    # Death and what comes after

    def _watch(self, operation: str, path: str) -> None:
        if self.node.runtime.dead:
            return
        self.operations.append((self.phase, operation))
        if self.point is not None and len(self.operations) == self.point.operation:
            self.die(self.point)

    def die(self, point: Point) -> None:
        """Die now. Every offset that a log reports as flushed counts as a promise."""
        for replica in self.replicas.values():
            if replica.log is not None and not replica.promises.truncating:
                replica.promises.flushed(replica.log.log.flushed_end_offset)
        self.power_was_cut |= point.power_cut
        self.node.runtime.crash(power_cut=point.power_cut, luck=point.luck)

    def restart(self) -> None:
        """Start on what the disk has, and delete strays, as a broker does."""
        for replica in self.replicas.values():
            replica.log = replica.state = None
        self.do(self.node.restart)
        for partition, topic_id in self.node.storage.partitions():
            replica = self.replicas.get(partition.topic)  # type: ignore[assignment]
            if replica is not None and topic_id in (replica.topic_id, _NO_TOPIC_ID):
                continue
            if topic_id not in self.gone and topic_id != _NO_TOPIC_ID:
                raise Broken(
                    f"{partition}: the log has the topic id {topic_id.hex()}, which it was never given"
                )
            if not self.power_was_cut and replica is not None and replica.promises.written_end:
                raise Broken(f"{partition}: a deleted log is back, though the power was not cut")
            self.do(lambda partition=partition: self.node.storage.delete_log(partition))  # type: ignore[misc]

    def check(self) -> None:
        """Open every log and compare it with what it promised. :raises Broken: a promise was not kept"""
        for replica in self.replicas.values():
            self.open(replica)
        for replica in self.replicas.values():
            found_log = self.do(lambda replica=replica: find(replica))  # type: ignore[misc]
            promises = replica.promises
            branch = promises.check(found_log, power_cut=self.power_was_cut)
            promises.survived(branch, found_log, power_cut=self.power_was_cut)
            log, _ = replica.open
            if log.cleaned_end_offset > promises.cleaned.end_offset:
                raise Broken(
                    f"{replica.partition}: cleaned_end_offset is {log.cleaned_end_offset}, "
                    f"but the log is clean only to {promises.cleaned.end_offset}"
                )
            if not promises.cut_undone:
                check_state(replica, branch, found_log)
        self.power_was_cut = False

    def check_again(self) -> None:
        """Check that every open log still reads as it was found."""
        for replica in self.replicas.values():
            found_log = self.do(lambda replica=replica: find(replica))  # type: ignore[misc]
            replica.promises.check(found_log, power_cut=False)

    def settle(self) -> None:
        """Let time pass, then check that no file is left behind. :raises Broken: one is"""
        self.wait(SETTLED_MS)
        paths = [info.path for info in self.node.storage.log_dirs()]
        left = leftovers(self.node.runtime.files, paths)
        if left:
            raise Broken(f"files that must be gone are left: {', '.join(left)}")


class _Runtimes:
    """Makes the runtime of each process on one disk. Each has a seed of its own."""

    def __init__(self) -> None:
        self.made = 0

    def __call__(self, previous: FakeRuntime | None) -> FakeRuntime:
        self.made += 1
        return FakeRuntime(self.made, disk=None if previous is None else previous.disk)
