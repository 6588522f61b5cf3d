"""Leader epoch files that are due: none of their syncs on the loop, none lost, none written for a log that has gone."""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable
from typing import cast

import pytest

from blumfeld.broker.replicas.state.epoch_files import EpochDraft, EpochFiles
from blumfeld.log.leader_epochs import FILE_NAME as EPOCHS
from blumfeld.wire.batches.record_batch import RecordBatch
from blumfeld_kit.fakes.runtime import FakeRuntime
from tests.broker.replica_on_disk import ReplicaOnDisk
from tests.log.batches import batch_bytes


class State:
    """A replica whose file is due."""

    def __init__(self, log: list[State]) -> None:
        self.epoch_unsaved = True
        self.fails: OSError | None = None
        self.place = 0
        self.tries = 0
        self._log = log

    def draft_epochs(self) -> EpochDraft:
        self.tries += 1
        return cast("EpochDraft", Draft(self))

    def holds(self, draft: EpochDraft) -> bool:
        return self.epoch_unsaved and cast("Draft", draft).place == self.place

    def epochs_saved(self) -> None:
        self.epoch_unsaved = False
        self._log.append(self)


class Draft:
    """A file whose write fails or not."""

    def __init__(self, state: State) -> None:
        self._state = state
        self.place = state.place

    def write(self) -> None:
        if self._state.fails is not None:
            raise self._state.fails

    def put(self) -> None: ...

    settle = abort = put


class Bench:
    def __init__(self) -> None:
        self.clock = FakeRuntime()
        self.files = EpochFiles(self.clock)
        self.saved: list[State] = []
        self.failed: list[OSError] = []

    def due(self, count: int = 1) -> list[State]:
        states = [State(self.saved) for _ in range(count)]
        for state in states:
            self.files.save(state, self.failed.append)
        return states


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_all_files_that_are_due_are_written_in_their_order(bench: Bench) -> None:
    states = bench.due(100)
    bench.clock.run_turn()
    assert bench.saved == states


def test_the_device_serves_others_four_times_as_long_as_a_write_took(bench: Bench) -> None:
    bench.clock.offload_delay_ms = lambda: 5.0
    states = bench.due(4)
    for written in (1, 1, 1, 1, 1, 2):  # at 10 ms the first, then one in 50 ms
        bench.clock.advance(10)
        assert bench.saved == states[:written]


def test_a_file_that_was_written_meanwhile_is_not_written_again(bench: Bench) -> None:
    first, second, third = bench.due(3)
    second.epoch_unsaved = False
    bench.clock.run_turn()
    assert bench.saved == [first, third]


def test_a_disk_that_fails_is_told_and_the_others_are_written(bench: Bench) -> None:
    first, second, third = bench.due(3)
    second.fails = OSError(errno.EIO, "bad disk")
    bench.clock.run_turn()
    assert bench.saved == [first, third]
    assert bench.failed == [second.fails]
    later = bench.due()
    bench.clock.run_turn()
    assert bench.saved == [first, third, *later]


def test_a_log_that_moved_in_the_middle_of_its_write_is_no_failure(bench: Bench) -> None:
    """Its old directory has gone. The file is written where the log lies now."""
    (state,) = bench.due()
    state.fails = OSError(errno.ENOENT, "no such directory")

    def draft_epochs() -> EpochDraft:
        draft = State.draft_epochs(state)
        state.place = 1
        if state.tries > 1:
            state.fails = None
        return draft

    state.draft_epochs = draft_epochs  # type: ignore[method-assign]
    bench.clock.run_turn()
    assert not bench.failed
    assert bench.saved == [state]


def test_a_full_disk_is_tried_again_until_there_is_room(bench: Bench) -> None:
    """No failure is told, and meanwhile the disk is asked once a second, however many files are due."""
    states = bench.due(3)
    for state in states:
        state.fails = OSError(errno.ENOSPC, "no space left")
    bench.clock.advance(5_000)
    assert not bench.saved
    assert not bench.failed
    assert sum(state.tries for state in states) <= 6
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


def test_workers_sync_the_file_and_the_loop_renames_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that renamed it could put it over a newer one, which a roll wrote meanwhile."""
    replica = ReplicaOnDisk()
    runtime = replica.node.runtime
    seen: list[tuple[str, bool]] = []
    works = False

    def offload(work: Callable[[], None]) -> Awaitable[None]:
        def marked() -> None:
            nonlocal works
            works = True
            work()
            works = False

        return FakeRuntime.offload(runtime, marked)

    monkeypatch.setattr(runtime, "offload", offload)
    runtime.disk.watch = lambda operation, _: seen.append((operation, works))
    put(replica, 1)
    runtime.run_turn()
    steps = ("fdatasync", "rename", "sync_dir")
    assert [step for step in seen if step[0] in steps] == list(zip(steps, (True, False, True), strict=True))
    assert file_of(replica) == b"0\n1\n1 0\n"
    assert not replica.state.epoch_unsaved


@pytest.mark.parametrize("at", ["fdatasync", "sync_dir"])
def test_a_file_that_a_worker_writes_takes_no_newer_ones_place(at: str) -> None:
    """An epoch begins, or a roll writes the file, while a worker is at work: the file ends with all epochs."""
    for rolls in (False, True):
        replica = ReplicaOnDisk()
        left = [at]

        def meanwhile(
            operation: str, _: str, replica: ReplicaOnDisk = replica, left: list[str] = left
        ) -> None:
            if operation in left:
                left.remove(operation)
                put(replica, 2)
                if rolls:  # noqa: B023 - called in this round alone
                    replica.log.roll()

        put(replica, 1)
        replica.node.runtime.disk.watch = meanwhile
        replica.node.runtime.run_turn()
        assert not left
        assert file_of(replica) == b"0\n2\n1 0\n2 1\n"
        assert not replica.state.epoch_unsaved


def test_a_roll_before_the_file_is_durable_writes_it() -> None:
    """A worker's file that lies in its place may still be lost: the start behind a roll searches no batches for it."""
    replica = ReplicaOnDisk()
    disk = replica.node.runtime.disk
    rolling: list[str] = []

    def rolls(operation: str, _: str) -> None:
        if operation == "sync_dir":
            disk.watch = lambda operation, path: rolling.append(operation) if EPOCHS in path else None
            replica.log.roll()
            disk.watch = None

    put(replica, 1)
    disk.watch = rolls
    replica.node.runtime.run_turn()
    assert "write_atomically:sync_dir" in rolling
    assert file_of(replica) == b"0\n1\n1 0\n"


def test_nothing_is_written_for_a_log_that_has_gone() -> None:
    replica = ReplicaOnDisk()
    put(replica, 1, 2)
    replica.state.give_up_epochs()
    replica.node.runtime.advance(10)
    assert file_of(replica) is None
