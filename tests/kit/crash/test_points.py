"""A part of the crash points on every day; and the oracle must bite, or the points prove nothing."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from blumfeld.broker.replicas.state.epoch_files import EpochFiles
from blumfeld.broker.replicas.state.replica_state import ReplicaState
from blumfeld_kit.crash.machine import Machine, Point, make_storage
from blumfeld_kit.crash.points import die_and_restart, try_points
from blumfeld_kit.crash.promises import Broken, FoundLog, LogPromises
from blumfeld_kit.crash.replica import Replica
from blumfeld_kit.crash.script import PHASES, run_script
from blumfeld_kit.fakes.files import Luck
from blumfeld_kit.storage_driver.node import Log, StoredBatch
from campaigns.crash.__main__ import main
from campaigns.group_kills.rounds import Kills

EVERYDAY_POINTS = 50


def batches(*texts: str) -> list[StoredBatch]:
    """Batches of two records, one after the other from offset 0."""
    return [StoredBatch(at * 2, at * 2 + 2, 0, text.encode()) for at, text in enumerate(texts)]


def found(*texts: str, start: int = 0) -> FoundLog:
    """A log with these batches."""
    return FoundLog(start, len(texts) * 2, batches(*texts)[start // 2 :])


def promises() -> LogPromises:
    """Three batches written, of which one is flushed, and a fourth on its way."""
    it = LogPromises("log")
    it.placed(batches("a", "b", "c", "d"))
    it.written(6)
    it.flushed(2)
    return it


def test_no_point_loses_anything() -> None:
    """Every phase is met; ``python -m campaigns crash`` tries all points."""
    outcome = try_points(make_storage(), limit=EVERYDAY_POINTS)
    assert outcome.failures == []
    assert outcome.points == EVERYDAY_POINTS
    assert tuple(outcome.phases)[: len(PHASES)] == PHASES
    assert sum(count.second for count in outcome.phases.values()) > EVERYDAY_POINTS // 4


@pytest.mark.parametrize("left", [1, 2, 3, 4])
def test_a_power_cut_may_leave_any_prefix_with_what_was_flushed(left: int) -> None:
    assert len(promises().check(found(*"abcd"[:left]), power_cut=True)) == left


@pytest.mark.parametrize(
    ("left", "power_cut", "complaint"),
    [
        (found(), True, "ends at offset 0; everything below 2 was flushed"),
        (found("a", "b"), False, "ends at offset 4; everything below 6 was acknowledged"),
        (found("a", "x"), True, "the batch at 2 is not one that was written there"),
        (found("a", "b", "c", "c"), True, "the batch at 6 is not one that was written there"),
        (found("a", "b", "c", "d", "e"), True, "the batch at 8 is not one that was written there"),
        (found("a", "b", "c", start=2), True, "starts at 2; allowed: 0 to 0"),
        (FoundLog(0, 5, batches("a", "b", "c")), True, "the last batch ends at 6, but the log says 5"),
        (FoundLog(0, 6, [batches("a", "b")[0], batches("a", "b", "c")[2]]), True, "not in order"),
        (FoundLog(0, 4, [*batches("a", "b"), *batches("a")]), True, "not in order"),
    ],
)
def test_each_broken_promise_is_told(left: FoundLog, power_cut: bool, complaint: str) -> None:
    with pytest.raises(Broken, match=complaint):
        promises().check(left, power_cut=power_cut)


def test_a_cut_may_be_undone_by_the_power_only() -> None:
    """And not once anything behind it was flushed."""
    it = promises()
    it.truncate(2)
    assert len(it.check(found("a", "b", "c"), power_cut=False)) == 3
    it.truncated()
    assert len(it.check(found("a", "b", "c"), power_cut=True)) == 3
    with pytest.raises(Broken):
        it.check(found("a", "b", "c"), power_cut=False)
    it.placed([StoredBatch(2, 4, 0, b"B")])
    it.written(4)
    with pytest.raises(Broken, match="the batch at 4 is not one that was written there"):
        it.check(found("a", "B", "c"), power_cut=True)
    it.flushed(4)
    with pytest.raises(Broken, match="at 2"):
        it.check(found("a", "b", "c"), power_cut=True)


def complaints(
    phase: str, operation: str = "", *, plant: Callable[[Machine], None] = lambda _: None
) -> list[str]:
    """The complaints when a node with a bug is killed at such operations of a phase."""
    machine = Machine(make_storage())
    plant(machine)
    run_script(machine)
    said: list[str] = []
    for at, (where, what) in enumerate(machine.operations, 1):
        if where == phase and operation in (what, ""):
            for luck in (None, Luck(0)):
                try:
                    die_and_restart(make_storage(), Point(at, luck is not None, luck), plant)
                except Broken as broken:
                    said.append(f"{'power cut' if luck else 'kill'}: {broken}")
    return said


def test_a_flush_that_does_nothing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def skip(log: Log) -> int:
        return log.log.written_end_offset

    monkeypatch.setattr(Log, "flush", skip)
    said = complaints("delete")
    assert any(line.startswith("power cut: ") for line in said)
    assert all(line.endswith("must be there") for line in said)


def test_a_sync_that_does_nothing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The storage believes in it; the first power cut of the script shows it."""
    monkeypatch.setattr("blumfeld_kit.fakes.files.FakeFile.fdatasync", lambda file: file._step("fdatasync"))
    with pytest.raises(Broken, match="must be there"):
        run_script(Machine(make_storage()))


def test_a_truncation_that_is_forgotten_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log goes on as if it had been cut, and the file wasn't."""
    monkeypatch.setattr("blumfeld_kit.fakes.files.FakeFile.truncate", lambda file, _: None)
    assert any(line.startswith("kill: ") for line in complaints("truncate", "pwritev"))


def test_a_write_that_is_acknowledged_before_it_is_done_is_found() -> None:
    def plant(machine: Machine) -> None:
        append = machine.append

        def early(replica: Replica, *counts: int) -> None:
            replica.promises.written(replica.promises.end_offset + sum(counts))
            append(replica, *counts)

        machine.append = early  # type: ignore[method-assign]

    said = complaints("append", plant=plant)
    assert any(line.startswith("kill: ") and line.endswith("must be there") for line in said)


def test_epochs_that_are_not_kept_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A start that trusts a snapshot does not look for epochs in the batches before it."""
    save = ReplicaState.save_epochs

    def save_once(state: ReplicaState) -> None:
        if len(state.epochs.entries) == 1:
            save(state)

    monkeypatch.setattr(ReplicaState, "save_epochs", save_once)
    monkeypatch.setattr(EpochFiles, "save", lambda *_: None)
    with pytest.raises(Broken, match="leader epochs"):
        run_script(Machine(make_storage()))


def test_the_power_brings_nothing_back_in_front_of_a_newer_segment() -> None:
    """A cut that did not last, then a segment that begins where the old bytes end: a bug that these points found."""
    machine = Machine(make_storage())
    run_script(machine)
    syncs = [at for at, done in enumerate(machine.operations, 1) if done == ("truncate", "fdatasync")]
    for operation in syncs[-4:]:
        for seed in range(8):
            die_and_restart(make_storage(), Point(operation, power_cut=True, luck=random.Random(seed)))


@pytest.mark.parametrize(
    ("storage", "complaint"),
    [
        ("storage_memory", "the script 'life' fails without any crash (Broken: "),
        ("storage_lokal", "which isn't installed"),
        ("net_asyncio", "a plug-in for storage"),
    ],
)
def test_a_storage_that_cant_be_crashed_is_refused_in_a_line(
    capsys: pytest.CaptureFixture[str], storage: str, complaint: str
) -> None:
    assert main(["--storage", storage, "--points", "3", "--rounds", "0"]) == 2
    output = capsys.readouterr()
    assert complaint in output.err
    assert len(output.err.splitlines()) == 1
    assert output.out == ""


def test_a_broker_is_killed_with_the_storage_that_was_asked_for(tmp_path: Path) -> None:
    kills = Kills(tmp_path, seed=0, rounds=1, rate=100, storage="storage_memory")
    assert "storage.plugin=storage_memory" in kills._broker.command
