"""A replica's log and state on a simulated disk, driven as its partition drives it."""

from __future__ import annotations

from typing import Any, cast

from blumfeld.broker.replicas.state.epoch_files import EpochFiles
from blumfeld.broker.replicas.state.replica_state import ReplicaState
from blumfeld.config.values import TopicConfig
from blumfeld.log.producers.aborted_transactions import decode_aborted
from blumfeld.log.producers.snapshot import decode_snapshot
from blumfeld.spi.storage import SegmentedLog, WriteOutcome
from blumfeld.wire.batches.record_batch import RecordBatch
from blumfeld_kit.crash.machine import make_storage
from blumfeld_kit.fakes.power import Adversary
from blumfeld_kit.fakes.runtime import FakeRuntime
from blumfeld_kit.storage_driver.node import PARTITION, TOPIC_ID, Node
from tests.broker.harness import Quiet


def _runtime(previous: FakeRuntime | None) -> FakeRuntime:
    return FakeRuntime(1 if previous is None else 2, disk=None if previous is None else previous.disk)


def _fails(error: OSError) -> None:
    raise error


class ReplicaOnDisk:
    """Opened when made. ``segment_bytes`` is large: segments are cut by :meth:`roll` only."""

    def __init__(self) -> None:
        self.node = Node(_runtime, make_storage()).start()
        self.events = Quiet()
        self.log: SegmentedLog
        self.state: ReplicaState
        self.open()

    def open(self) -> None:
        self.state = ReplicaState(
            "topic-0", self.node.runtime.now_ms, self.events, EpochFiles(self.node.runtime)
        )
        opening = self.node.storage.open_log(PARTITION, TOPIC_ID, TopicConfig({}), self.state)
        self.log = cast("SegmentedLog", self.node.runtime.run(opening))
        self.state.attach(self.log, self.log.written_end_offset)
        for _ in self.state.replay():
            pass

    def put(self, *batches: RecordBatch, epoch: int = 0) -> None:
        """One turn."""
        self.state.epoch_started(
            epoch, self.log.placed_end_offset
        ) if epoch > self.state.epochs.latest_epoch else None
        for batch in batches:
            self.log.place(batch, epoch)
            if batch.producer_id >= 0:
                self.state.producers.place(batch)
        self.log.write(self._written)

    def _written(self, outcome: WriteOutcome) -> None:
        assert outcome.error is None
        if self.state.epoch_unsaved:
            self.state.save_epochs_soon(_fails)
        self.state.index_aborted(self.state.producers.written(outcome.written_end_offset))

    def roll(self) -> None:
        self.log.roll()
        self.node.runtime.run_turn()

    def flush(self) -> None:
        async def wait() -> int:
            return await self.log.flush()

        self.node.runtime.run(wait())

    def restart(self) -> None:
        """A clean stop and a start."""
        self.state.save_producers(self.log.written_end_offset)
        self.node.stop()
        self.node.restart()
        self.open()

    def kill(self) -> None:
        """``kill -9`` and a start."""
        self.node.crash(power_cut=False)
        self.open()

    def cut_power(self, adversary: Adversary) -> None:
        self.node.crash(luck=adversary)
        self.open()

    # What is there

    @property
    def sequences(self) -> dict[int, int]:
        """Producer id → its last sequence."""
        return {entry.producer_id: entry.last_sequence for entry in self.state.producers.producers()}

    @property
    def aborted(self) -> list[tuple[int, int, int]]:
        """(producer id, first offset, marker's offset) as readers are told."""
        return [(e.producer_id, e.first_offset, e.last_offset) for e in self.state.aborted.entries]

    def files(self, suffix: str) -> list[int]:
        """Base offsets of the files with that suffix."""
        return [int(name.split(".")[0]) for name in self.log.aux.names() if name.endswith(suffix)]

    def snapshot(self, offset: int) -> dict[int, int]:
        """What one says: producer id → last sequence."""
        data = self.log.aux.read(f"{offset:020d}.snapshot")
        assert data is not None
        return {entry.producer_id: entry.last_sequence for entry in decode_snapshot(data)}

    def index(self, base_offset: int) -> list[tuple[int, int, int]]:
        """What a transaction index says, as :attr:`aborted`."""
        data: Any = self.log.aux.read(f"{base_offset:020d}.txnindex")
        return [(e.producer_id, e.first_offset, e.last_offset) for e in decode_aborted(data)]
