"""Leader epoch files that are due together: spread over turns, none lost, none written for a log that has gone."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator

import pytest

from blumfeld.broker.replicas.state.epoch_files import EpochFiles
from blumfeld.log.leader_epochs import FILE_NAME as EPOCHS
from blumfeld.wire.batches.record_batch import RecordBatch
from blumfeld_kit.fakes.runtime import FakeRuntime
from tests.broker.replica_on_disk import ReplicaOnDisk
from tests.log.batches import batch_bytes

SYNC_MS = 0.75


class Clock(FakeRuntime):
    """A runtime whose syncs take time."""

    def __init__(self) -> None:
        super().__init__()
        self.synced_ms = 0.0

    def monotonic_ms(self) -> float:
        return super().monotonic_ms() + self.synced_ms


class State:
    """A replica whose file is due."""

    def __init__(self, clock: Clock, log: list[State]) -> None:
        self.epoch_unsaved = True
        self.fails: OSError | None = None
        self.tries = 0
        self._clock = clock
        self._log = log

    def save_epochs(self) -> None:
        self.tries += 1
        self._clock.synced_ms += SYNC_MS
        if self.fails is not None:
            raise self.fails
        self.epoch_unsaved = False
        self._log.append(self)


class Bench:
    def __init__(self) -> None:
        self.clock = Clock()
        self.files = EpochFiles(self.clock)
        self.saved: list[State] = []
        self.failed: list[OSError] = []

    def due(self, count: int = 1) -> list[State]:
        states = [State(self.clock, self.saved) for _ in range(count)]
        for state in states:
            self.files.save(state, self.failed.append)
        return states

    def slices(self) -> Iterator[int]:
        """The number of files that each turn writes, until none is due."""
        before = len(self.saved)
        for _ in range(1_000):
            self.clock.advance(1)
            if len(self.saved) > before:
                yield len(self.saved) - before
                before = len(self.saved)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_file_that_is_due_alone_is_written_at_once(bench: Bench) -> None:
    assert bench.due() == bench.saved


def test_a_turn_writes_one_of_many_files(bench: Bench) -> None:
    states = bench.due(100)
    assert len(bench.saved) == 1
    slices = list(bench.slices())
    assert bench.saved == states
    assert max(slices) == 1


def test_others_have_most_of_the_time(bench: Bench) -> None:
    bench.due(100)
    began, synced = bench.clock.loop.time(), bench.clock.synced_ms
    list(zip(range(20), bench.slices(), strict=False))
    passed_ms = (bench.clock.loop.time() - began) * 1000
    assert passed_ms >= 3 * (bench.clock.synced_ms - synced)


def test_a_file_that_was_written_meanwhile_is_not_written_again(bench: Bench) -> None:
    first, second, third = bench.due(3)
    second.epoch_unsaved = False
    list(bench.slices())
    assert bench.saved == [first, third]


def test_a_disk_that_fails_is_told_and_the_others_are_written(bench: Bench) -> None:
    first, second, third = bench.due(3)
    second.fails = OSError(errno.EIO, "bad disk")
    list(bench.slices())
    assert bench.saved == [first, third]
    assert bench.failed == [second.fails]


def test_a_write_at_once_that_fails_is_raised_and_does_not_stop_the_next_ones(bench: Bench) -> None:
    broken = State(bench.clock, bench.saved)
    broken.fails = OSError(errno.EIO, "bad disk")
    with pytest.raises(OSError, match="bad disk"):
        bench.files.save(broken, bench.failed.append)
    states = bench.due(2)
    list(bench.slices())
    assert bench.saved == states


def test_a_full_disk_is_tried_again_until_there_is_room(bench: Bench) -> None:
    """No failure is told, and meanwhile the disk is asked once a second, however many files are due."""
    states = bench.due(1)
    full = OSError(errno.ENOSPC, "no space left")
    bench.saved.clear()
    states[0].epoch_unsaved, states[0].fails = True, full
    bench.clock.advance(10)
    bench.files.save(states[0], bench.failed.append)
    states += bench.due(2)
    for state in states:
        state.fails = full
    bench.clock.advance(5_000)
    assert not bench.saved
    assert not bench.failed
    assert states[0].tries <= 7
    for state in states:
        state.fails = None
    bench.clock.advance(2_000)
    assert sorted(bench.saved, key=states.index) == states


# The replica


def put(replica: ReplicaOnDisk, *epochs: int) -> None:
    for epoch in epochs:
        replica.put(RecordBatch(memoryview(bytearray(batch_bytes(leader_epoch=epoch)))), epoch=epoch)


def file_of(replica: ReplicaOnDisk) -> bytes | None:
    return replica.log.aux.read(EPOCHS)


def entries(replica: ReplicaOnDisk) -> list[tuple[int, int]]:
    return [(entry.epoch, entry.start_offset) for entry in replica.state.epochs.entries]


@pytest.mark.parametrize("ends", [ReplicaOnDisk.restart, ReplicaOnDisk.kill], ids=["clean stop", "kill -9"])
def test_an_epoch_whose_file_waits_is_known_to_the_next_start(ends: Callable[[ReplicaOnDisk], None]) -> None:
    replica = ReplicaOnDisk()
    put(replica, 1, 2, 3)
    ends(replica)
    assert entries(replica) == [(1, 0), (2, 1), (3, 2)]


def test_an_epoch_whose_file_waits_is_kept_by_a_roll() -> None:
    replica = ReplicaOnDisk()
    put(replica, 1, 2)
    replica.roll()
    assert file_of(replica) == b"0\n2\n1 0\n2 1\n"


def test_an_epoch_without_records_is_forgotten_and_the_one_before_it_still_saved() -> None:
    replica = ReplicaOnDisk()
    put(replica, 1, 2)
    replica.state.epoch_started(3, 2)
    replica.state.forget_empty_epochs()
    replica.node.runtime.advance(10)
    assert file_of(replica) == b"0\n2\n1 0\n2 1\n"
    assert not replica.state.epoch_unsaved


def test_nothing_is_written_for_a_log_that_has_gone() -> None:
    replica = ReplicaOnDisk()
    put(replica, 1, 2)
    replica.state.give_up_epochs()
    replica.node.runtime.advance(10)
    assert file_of(replica) == b"0\n1\n1 0\n"
