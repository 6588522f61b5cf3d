"""A node with one storage on a simulated disk, its replicas' state, a ledger of each log. It dies when it is told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import msgspec

from blumfeld.broker.replica_state import ReplicaState
from blumfeld.kernel.registry import Registry
from blumfeld.log.file_names import Suffix, parse_segment_name
from blumfeld.log.leader_epochs import LeaderEpochCache
from blumfeld.log.producer_state import ProducerState
from blumfeld.spi.config import BrokerConfig, TopicConfig
from blumfeld.spi.hooks import Composition
from blumfeld.spi.runtime import Random
from blumfeld.spi.storage import LogStorage, TopicPartition, WriteOutcome
from blumfeld.testing.crash.ledger import Branch, Broken, FoundLog, LogLedger
from blumfeld.testing.fake_power import PowerCut
from blumfeld.testing.fake_runtime import FakeRuntime
from blumfeld.testing.simulated_loop import SimulationError
from blumfeld.testing.storage_node import TIME_MS, Log, Node, StoredBatch
from blumfeld.wire.batch_builder import build_batch
from blumfeld.wire.record_batch import RecordBatch
from blumfeld.wire.records import Record

T = TypeVar("T")
MakeStorage = Callable[[FakeRuntime], LogStorage]

READS = frozenset(
    {"pread", "size", "exists", "is_dir", "list_dir", "read_bytes", "region", "mmap_read", "modified_ms"}
)
"""Operations that change nothing."""
PRODUCERS = 3
SEGMENT_BYTES = 800
_NO_TOPIC_ID = bytes(16)


class Died(Exception):  # noqa: N818 - it is told to
    """The node is dead: nothing more of the script is done."""


class Point(msgspec.Struct, frozen=True):
    """Where to die: before the ``operation``-th file operation, counted from 1, and how."""

    operation: int
    power_cut: bool = False
    luck: Random | PowerCut | None = None
    """Of a power cut: what of the unsynced is kept."""


class _Silent:
    def debug(self, event: str, **values: Any) -> None:
        """Nobody listens."""

    info = warning = error = debug


def make_storage(name: str = "storage_local") -> MakeStorage:
    """Makes the storage of an installed plug-in."""
    plugin = Registry().load_any(name)

    def make(runtime: FakeRuntime) -> LogStorage:
        composition = SimpleNamespace(
            runtime=runtime, data_dir="/data", config=BrokerConfig({}), log=lambda _: _Silent()
        )
        made: LogStorage = cast(Any, plugin()).blumfeld_make_storage(cast(Composition, composition))
        return made

    return make


class Replica:
    """One partition: its log while it is open, and what is known of it beyond every crash."""

    def __init__(self, name: str, topic_id: int, *, flush_messages: int | None = None) -> None:
        self.partition = TopicPartition(name, 0)
        self.topic_id = bytes([topic_id]) * 16
        self.ledger = LogLedger(name)
        self.leader_epoch = 0
        self.values = 0
        settings = {"internal.segment.bytes": SEGMENT_BYTES, "index.interval.bytes": 200}
        if flush_messages is not None:
            settings["flush.messages"] = flush_messages
        self.config = TopicConfig(settings)
        self.log: Log | None = None
        self.state: ReplicaState | None = None


class Machine:
    """Runs the script's steps. With a :class:`Point` it dies there; :meth:`check` says what the disk has of it."""

    def __init__(self, make: MakeStorage, point: Point | None = None) -> None:
        self.point = point
        self.phase = "start"
        self.operations: list[tuple[str, str]] = []
        """(phase, operation) of every file operation."""
        self.node = Node(_runtime, make)
        self.node.runtime.disk.watch = self._watch
        self.replicas: dict[str, Replica] = {}
        self.gone: dict[bytes, bool] = {}
        """Topic ids of deleted logs; whether their name is known to be gone for good."""
        self.power_was_cut = False
        """Since the logs were last found whole."""

    # The script's steps

    def do(self, step: Callable[[], T]) -> T:
        """One step. :raises Died: the node died in it"""
        try:
            result = step()
        except (OSError, SimulationError, asyncio.CancelledError):
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
        """Open or create a log, and find the replica's state as a broker does."""
        self.replicas[replica.partition.topic] = replica
        log = self.do(lambda: self._open(replica))
        replica.log = log
        return log

    def _open(self, replica: Replica) -> Log:
        runtime = self.node.runtime
        state = ReplicaState(replica.partition.topic, runtime.now_ms, _Silent())
        opening = self.node.storage.open_log(replica.partition, replica.topic_id, replica.config, state)
        log = Log(self.node, runtime.run(opening))
        state.attach(log.log, 0)
        for _ in state.replay():
            pass
        replica.state = state
        return log

    def append(self, replica: Replica, *counts: int) -> None:
        """One turn: a batch for each count of records; acknowledged when this returns."""
        log, state, ledger = replica.log, replica.state, replica.ledger
        assert log is not None
        assert state is not None
        if replica.leader_epoch > state.epochs.latest_epoch:
            state.epoch_started(replica.leader_epoch, log.log.placed_end_offset)
        placed: list[StoredBatch] = []
        for count in counts:
            batch = self._batch(replica, [*ledger.current, *placed], count)
            log.log.place(batch, replica.leader_epoch)
            state.producers.place(batch, TIME_MS)
            placed.append(
                StoredBatch(batch.base_offset, batch.next_offset, replica.leader_epoch, bytes(batch.data))
            )
        ledger.placed(placed)

        def written(outcome: WriteOutcome) -> None:
            if self.node.runtime.dead:
                return
            if outcome.error is not None:
                raise outcome.error
            if state.epoch_unsaved:
                state.save_epochs()
            state.written(outcome.written_end_offset)
            if not self.node.runtime.dead:
                ledger.written(outcome.written_end_offset)
                if replica.config.flush_messages == 1:
                    ledger.flushed(outcome.written_end_offset)

        self.do(lambda: log.log.write(written))
        self.do(self.node.runtime.run_turn)
        assert ledger.written_end == ledger.end_offset, "no outcome"

    def _batch(self, replica: Replica, before: Branch, count: int) -> RecordBatch:
        replica.values += 1
        producer_id = replica.values % PRODUCERS
        sequence = sum(
            batch.next_offset - batch.base_offset
            for batch in before
            if _header(batch).producer_id == producer_id
        )
        value = b"%s-%06d-" % (replica.partition.topic.encode(), replica.values)
        records = [Record(b"%d" % n, value * 3, timestamp=TIME_MS + replica.values) for n in range(count)]
        data = build_batch(records, producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
        return RecordBatch(memoryview(data))

    def flush(self, replica: Replica) -> None:
        """Flush; done when this returns."""
        assert replica.log is not None
        end_offset = self.do(replica.log.flush)
        replica.ledger.flushed(end_offset)
        if end_offset < replica.ledger.written_end:
            raise Broken(
                f"{replica.partition}: a flush of {replica.ledger.written_end} ended at {end_offset}"
            )

    def truncate(self, replica: Replica, offset: int) -> None:
        """Truncate log and state: snapshots first, so that none speaks of records that are gone."""
        log, state = replica.log, replica.state
        assert log is not None
        assert state is not None
        replica.ledger.truncate(offset)
        state.epochs.truncate_from_end(offset)
        self.do(state.save_epochs)
        for name in self.do(log.log.aux.names):
            file = parse_segment_name(name)
            if file is not None and file.suffix is Suffix.PRODUCER_SNAPSHOT and file.base_offset > offset:
                self.do(lambda name=name: log.log.aux.delete(name))  # type: ignore[misc]
        self.do(lambda: log.log.truncate_to(offset))
        replica.ledger.truncated()
        state.producers.clear(log.log.log_start_offset)
        for batch in replica.ledger.current:
            state.producers.replay(_header(batch), TIME_MS)

    def advance_log_start(self, replica: Replica, offset: int) -> None:
        """DeleteRecords, then retention of what is below."""
        log, state = replica.log, replica.state
        assert log is not None
        assert state is not None
        replica.ledger.start_asked = max(replica.ledger.start_asked, offset)
        self.do(lambda: log.log.advance_log_start(offset))
        self.do(lambda: state.log_start_moved(offset))
        self.do(lambda: log.log.drop_segments(offset))
        self.do(lambda: state.log_start_moved(log.log.log_start_offset))

    def checkpoint(self) -> None:
        """Checkpoint, and wait until it lasts."""
        starts = {name: r.log.log.log_start_offset for name, r in self.replicas.items() if r.log is not None}
        ends = [(r.partition, r.ledger.written_end) for r in self.replicas.values()]
        self.do(lambda: self.node.storage.checkpoint(ends))
        self.do(self.node.runtime.run_turn)
        for name, start in starts.items():
            self.replicas[name].ledger.start_kept = start

    def delete(self, replica: Replica) -> None:
        """Delete the log, as DeleteTopics does; the name may be used again at once."""
        self.gone[replica.topic_id] = False
        del self.replicas[replica.partition.topic]
        self.do(lambda: self.node.storage.delete_log(replica.partition))

    def wait(self, ms: float) -> None:
        """Time passes."""
        self.do(lambda: self.node.runtime.advance(ms))

    def stop(self) -> None:
        """A clean stop, as SIGTERM makes."""
        for replica in self.replicas.values():
            if replica.state is not None:
                state, end = replica.state, replica.ledger.written_end
                self.do(lambda state=state, end=end: state.save_producers(end))  # type: ignore[misc]
        self.do(self.node.stop)
        for replica in self.replicas.values():
            assert replica.log is not None
            replica.ledger.flushed(replica.ledger.written_end)
            replica.ledger.start_kept = replica.log.log.log_start_offset

    # Death and what comes after

    def _watch(self, operation: str, path: str) -> None:
        if self.node.runtime.dead:
            return
        self.operations.append((self.phase, operation))
        if self.point is not None and len(self.operations) == self.point.operation:
            self.die(self.point)

    def die(self, point: Point) -> None:
        """Now. What every log claims to have flushed counts as a promise."""
        for replica in self.replicas.values():
            if replica.log is not None:
                replica.ledger.flushed(replica.log.log.flushed_end_offset)
        self.power_was_cut |= point.power_cut
        self.node.runtime.crash(power_cut=point.power_cut, luck=point.luck)

    def restart(self) -> None:
        """Start on what the disk has, and delete strays, as a broker does."""
        with suppress(SimulationError):
            self.node.runtime.loop.run_ready()  # what the dead one spawned ends, in vain
        self.do(self.node.restart)
        for partition, topic_id in self.node.storage.partitions():
            replica = self.replicas.get(partition.topic)
            if replica is not None and topic_id in (replica.topic_id, _NO_TOPIC_ID):
                continue
            if topic_id not in self.gone and topic_id != _NO_TOPIC_ID:
                raise Broken(f"{partition}: has the topic id {topic_id.hex()}, which nobody gave it")
            if not self.power_was_cut and replica is not None and replica.ledger.written_end:
                raise Broken(f"{partition}: the log that was deleted is back")
            self.do(lambda partition=partition: self.node.storage.delete_log(partition))  # type: ignore[misc]

    def check(self) -> None:
        """Open every log and hold it against its ledger. :raises Broken: a promise was not kept"""
        for replica in self.replicas.values():
            self.open(replica)
            found = self.do(lambda replica=replica: find(replica))  # type: ignore[misc]
            ledger = replica.ledger
            branch = ledger.check(found, power_cut=self.power_was_cut)
            ledger.survived(branch, found, power_cut=self.power_was_cut)
            if not ledger.cut_undone:
                _check_state(replica, branch, found)
        self.power_was_cut = False


def find(replica: Replica) -> FoundLog:
    """The whole log by reads, which must be what a replay sees."""
    assert replica.log is not None
    log = replica.log.log
    batches = replica.log.read_all()
    replayed = [(b.base_offset, bytes(b.data)) for b in log.batches(log.log_start_offset)]
    if replayed != [(batch.base_offset, batch.data) for batch in batches]:
        raise Broken(f"{replica.partition}: a replay sees other batches than a reader")
    for batch in batches:
        _header(batch).verify_crc()
    return FoundLog(log.log_start_offset, log.written_end_offset, batches)


def _check_state(replica: Replica, branch: Branch, found: FoundLog) -> None:
    """Leader epochs and producers must be those of the batches that are there."""
    state = replica.state
    assert state is not None
    producers, epochs, held = ProducerState(), LeaderEpochCache(), LeaderEpochCache(state.epochs.entries)
    for batch in branch:
        producers.replay(_header(batch), TIME_MS)
        if batch.leader_epoch > epochs.latest_epoch:
            epochs.assign(batch.leader_epoch, batch.base_offset)
    for cache in (epochs, held):  # records below were to go: their epochs were forgotten first
        cache.truncate_from_start(
            max(found.log_start_offset, min(replica.ledger.start_asked, found.end_offset))
        )
    if held.entries != epochs.entries:
        raise Broken(
            f"{replica.partition}: leader epochs {_in_words(held)}, of the batches {_in_words(epochs)}"
        )
    known, true = _sequences(state.producers), _sequences(producers)
    if (
        any(known.get(producer_id, last) != last for producer_id, last in true.items())
        or known.keys() - true.keys()
    ):
        raise Broken(f"{replica.partition}: producers {known}, of the batches {true}")
    seen = {_header(batch).producer_id for batch in found.batches}
    if missing := sorted(seen - known.keys()):
        raise Broken(f"{replica.partition}: forgot the producers {missing}")


def _sequences(state: ProducerState) -> dict[int, tuple[int, int]]:
    return {entry.producer_id: (entry.last_sequence, entry.last_offset) for entry in state.producers()}


def _in_words(epochs: LeaderEpochCache) -> str:
    return ", ".join(f"{entry.epoch} from {entry.start_offset}" for entry in epochs.entries)


def _header(batch: StoredBatch) -> RecordBatch:
    return RecordBatch(memoryview(batch.data))


def _runtime(previous: FakeRuntime | None) -> FakeRuntime:
    return FakeRuntime(1) if previous is None else FakeRuntime(2, disk=previous.disk)
