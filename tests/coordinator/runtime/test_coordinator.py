"""All shards of a node: found by key, built on election, rebuilt after a failure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from blumfeld.coordinator.runtime.coordinator import RELOAD_DELAY_MAX_MS, RELOAD_DELAY_MS, Coordinator, gather
from blumfeld.coordinator.runtime.host import REPLAY_STEP_RECORDS
from blumfeld.coordinator.runtime.shard_contract import LogItem
from blumfeld.spi.completion import Completion
from blumfeld.spi.groups import Decision
from blumfeld.spi.repeated_events import INTERVAL_MS
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld_kit.fakes.loop import SimulationError
from blumfeld_kit.fakes.runtime import FakeRuntime
from tests.coordinator.fakes import Events, FakeLog, code_of
from tests.coordinator.runtime.test_host import Notes, entry, fail, note, read

PARTITIONS = 2
KEY = {0: "b", 1: "a"}
"""A key of each partition: hash 98 and 97."""


class Stage:
    """A coordinator of a topic with two partitions."""

    def __init__(self) -> None:
        self.runtime = FakeRuntime()
        self.events = Events()
        self.partitions = PARTITIONS
        self.built: list[int] = []
        self.performed: list[tuple[int, int, Any]] = []
        self.coordinator = Coordinator(
            self.runtime,
            self.events,
            self._new_shard,
            lambda: self.partitions,
            lambda *performed: self.performed.append(performed),
        )

    def _new_shard(self, partition: int) -> Notes:
        self.built.append(partition)
        return Notes()

    def submit(self, partition: int, command: Any) -> Completion[Any]:
        return self.coordinator.submit(KEY[partition], command, None)


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_a_key_goes_to_the_shard_of_its_partition(stage: Stage) -> None:
    stage.coordinator.elected(0, FakeLog([entry("zero")]))
    assert stage.submit(0, read).result() == ["zero"]
    assert code_of(stage.submit(1, read)) is ErrorCode.NOT_COORDINATOR


def test_an_effect_names_partition_and_epoch_and_its_outcome_comes_back_to_that_shard(stage: Stage) -> None:
    """The outcome of an order that a former leadership gave changes nothing: its transaction may be another by now."""
    log = FakeLog()
    stage.coordinator.elected(1, log)
    stage.submit(1, lambda _: Decision(records=[entry("a")], reply=1, after_commit=["send a"]))
    assert stage.performed == [(1, 1, "send a")]
    assert stage.coordinator.submit_in_epoch(1, 1, note("sent")).result() == "noted sent"
    assert code_of(stage.coordinator.submit_in_epoch(0, 1, note("sent"))) is ErrorCode.NOT_COORDINATOR
    log.epoch = 2
    stage.coordinator.elected(1, log)
    assert code_of(stage.coordinator.submit_in_epoch(1, 1, note("late"))) is ErrorCode.NOT_COORDINATOR
    assert stage.coordinator.submit_in_epoch(1, 2, note("new")).result() == "noted new"
    assert stage.submit(1, read).result() == ["a", "sent", "new"]


def test_an_effect_that_the_coordinator_does_not_perform_is_a_defect() -> None:
    """It fails the request before anything is placed: a marker that nobody sends would leave its transaction open."""
    runtime, log = FakeRuntime(), FakeLog()
    coordinator = Coordinator(runtime, Events(), lambda _: Notes(), lambda: PARTITIONS)
    coordinator.elected(0, log)
    answer = coordinator.submit(
        KEY[0], lambda _: Decision(records=[entry("a")], reply=1, after_commit=["x"]), None
    )
    assert code_of(answer) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert log.batches == []


def test_without_the_internal_topic_nobody_is_coordinator(stage: Stage) -> None:
    stage.partitions = 0
    assert code_of(stage.submit(0, read)) is ErrorCode.NOT_COORDINATOR


def test_a_dropped_shard_is_rebuilt_from_the_log(stage: Stage) -> None:
    log = FakeLog()
    stage.coordinator.elected(0, log)
    stage.submit(0, note("kept"))
    log.refuse = ErrorCode.KAFKA_STORAGE_ERROR
    assert code_of(stage.submit(0, note("lost"))) is ErrorCode.NOT_COORDINATOR
    stage.runtime.advance(RELOAD_DELAY_MS - 1)
    assert code_of(stage.submit(0, read)) is ErrorCode.NOT_COORDINATOR
    stage.runtime.advance(1)
    assert stage.submit(0, read).result() == ["kept"]
    assert [event for _, event, _ in stage.events.said] == ["coordinator shard dropped"]


def test_a_defect_is_logged_once_with_its_command_and_then_counted(stage: Stage) -> None:
    """A client that sends it again and again writes two lines in ten seconds, and keeps its shard."""
    stage.coordinator.elected(0, FakeLog([entry("kept")]))
    for _ in range(200):
        assert code_of(stage.submit(0, fail)) is ErrorCode.UNKNOWN_SERVER_ERROR
    stage.runtime.advance(INTERVAL_MS)
    (level, event, first), (_, _, summary) = stage.events.said
    assert (level, event) == ("error", "a coordinator's command met a defect")
    assert first["partition"] == 0
    assert first["command"] == "function"
    assert isinstance(first["exc_info"], ZeroDivisionError)
    assert summary["suppressed"] == 199
    assert stage.coordinator.counts.commands_undecided == 200
    assert stage.submit(0, read).result() == ["kept"]
    assert stage.coordinator.counts.shards_dropped == 0


def test_a_log_that_stays_broken_is_tried_again_and_again(stage: Stage) -> None:
    log = FakeLog([entry("a")])
    log.broken = BrokerError(ErrorCode.KAFKA_STORAGE_ERROR)
    stage.coordinator.elected(0, log)
    for number in range(10):
        stage.runtime.advance(RELOAD_DELAY_MAX_MS)
        assert len(stage.built) >= number + 2
    waits = [values["again_in_ms"] for _, _, values in stage.events.said]
    assert waits[:7] == [1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000]
    assert stage.coordinator.counts.loads_failed == len(waits)
    log.broken = None
    stage.runtime.advance(RELOAD_DELAY_MAX_MS)
    assert stage.submit(0, read).result() == ["a"]
    log.refuse = ErrorCode.KAFKA_STORAGE_ERROR
    stage.submit(0, note("lost"))
    stage.runtime.advance(RELOAD_DELAY_MS)
    assert stage.submit(0, read).result() == ["a"]
    assert stage.coordinator.counts.shards_dropped == 1


def test_a_defect_in_a_replay_is_no_end_of_the_others(stage: Stage) -> None:
    stage.coordinator.elected(1, FakeLog([entry("x")] * (REPLAY_STEP_RECORDS + 1)))
    bad = FakeLog([entry("defect")])
    stage.coordinator.elected(0, bad)
    stage.coordinator.elected(2, FakeLog([entry("behind it")]))
    assert stage.coordinator.loading()
    with pytest.raises(SimulationError, match="ZeroDivisionError"):
        stage.runtime.advance(1)
    stage.runtime.advance(1)
    assert stage.coordinator.counts.loads_completed == 2
    assert len(stage.submit(1, read).result()) == REPLAY_STEP_RECORDS + 1
    bad.items = [entry("mended")]
    stage.runtime.advance(RELOAD_DELAY_MS)
    assert stage.submit(0, read).result() == ["mended"]


class WatchedLog(FakeLog):
    """Tells which of several logs is being read."""

    def __init__(self, name: int, slices: int, read: list[int]) -> None:
        super().__init__([entry("x")] * (REPLAY_STEP_RECORDS * slices))
        self._name, self._read = name, read

    def records(self) -> Iterator[LogItem]:
        for at, item in enumerate(super().records()):
            if at % REPLAY_STEP_RECORDS == 0:
                self._read.append(self._name)
            yield item


def test_shards_are_replayed_in_turns(stage: Stage) -> None:
    """A slice of one at a time. The short ones needn't wait until the long one is done; four take turns at most."""
    stage.partitions = 6
    read: list[int] = []
    for partition, slices in enumerate([6, 2, 2, 2, 2, 1]):
        stage.coordinator.elected(partition, WatchedLog(partition, slices, read))
    assert read == [0], "the first is begun at once"
    stage.runtime.run_turn()
    assert not stage.coordinator.loading()
    assert "".join(map(str, read)) == "0" + 2 * "0123" + "004504"
    assert stage.coordinator.counts.loads_completed == 6


class ColdLog(FakeLog):
    """Its items but the first come from a slow disk."""

    def __init__(self, items: list[LogItem]) -> None:
        super().__init__(items)
        self.disk: Completion[None] = Completion()

    def records(self) -> Iterator[LogItem | Completion[Any]]:  # type: ignore[override]
        first, *others = list(super().records())
        yield first
        yield self.disk
        yield from others


def test_a_load_waits_for_its_disk_and_others_go_on(stage: Stage) -> None:
    cold = ColdLog([entry("a"), entry("b")])
    stage.coordinator.elected(0, cold)
    stage.coordinator.elected(1, FakeLog([entry("x")] * (REPLAY_STEP_RECORDS * 2)))
    stage.runtime.advance(60_000)
    assert code_of(stage.submit(0, read)) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert len(stage.submit(1, read).result()) == REPLAY_STEP_RECORDS * 2
    cold.disk.complete(None)
    stage.runtime.run_turn()
    assert stage.submit(0, read).result() == ["a", "b"]
    assert not stage.coordinator.loading()


def test_leadership_may_go_while_a_disk_is_waited_for(stage: Stage) -> None:
    cold = ColdLog([entry("a"), entry("b")])
    stage.coordinator.elected(0, cold)
    stage.coordinator.resigned(0)
    cold.disk.complete(None)
    stage.runtime.run_turn()
    assert stage.coordinator.counts.loads_completed == 0
    stage.coordinator.elected(0, FakeLog([entry("newer")]))
    assert stage.submit(0, read).result() == ["newer"]


def test_a_log_is_replayed_when_all_that_was_placed_is_written(stage: Stage) -> None:
    """A shard that was dropped may have placed what the disk has not taken yet: it will be there, or not."""
    log = FakeLog([entry("a")])
    log.unwritten = Completion()
    stage.coordinator.elected(0, log)
    assert code_of(stage.submit(0, read)) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    log.items.append(entry("written late"))
    log.unwritten.complete(None)
    assert stage.submit(0, read).result() == ["a", "written late"]


def test_leadership_that_goes_in_the_middle_of_a_load_ends_it(stage: Stage) -> None:
    stage.coordinator.elected(0, FakeLog([entry("x")] * (REPLAY_STEP_RECORDS * 3)))
    stage.coordinator.elected(1, FakeLog([entry("y")] * (REPLAY_STEP_RECORDS * 3)))
    stage.coordinator.resigned(0)
    stage.coordinator.elected(1, FakeLog([entry("newer")]))
    stage.runtime.advance(10)
    assert code_of(stage.submit(0, read)) is ErrorCode.NOT_COORDINATOR
    assert stage.submit(1, read).result() == ["newer"]
    assert stage.coordinator.counts.loads_completed == 1


def test_what_happened_during_a_load_is_decided_on_afterwards(stage: Stage) -> None:
    """A topic that is deleted meanwhile must not leave its offsets behind."""
    log = FakeLog([entry("x")])
    log.unwritten = Completion()
    stage.coordinator.elected(0, log)
    stage.coordinator.elected(1, FakeLog())
    stage.coordinator.tell_all(note("happened"))
    stage.runtime.run_turn()
    assert stage.submit(1, read).result() == ["happened"]
    log.unwritten.complete(None)
    assert stage.submit(0, read).result() == ["x", "happened"]


def test_what_happened_is_told_to_one_shard_after_the_other(stage: Stage) -> None:
    for partition in range(3):
        stage.coordinator.elected(partition, FakeLog())
    stage.coordinator.tell_all(note("first"))
    stage.coordinator.tell_all(note("second"))
    assert stage.submit(0, read).result() == [], "in turns to come"
    stage.coordinator.resigned(2)
    stage.runtime.run_turn()
    for partition in range(2):
        assert stage.submit(partition, read).result() == ["first", "second"]


def test_a_load_is_timed(stage: Stage) -> None:
    log = FakeLog([entry("a")])
    log.unwritten = Completion()
    stage.coordinator.elected(0, log)
    stage.runtime.advance(250)
    log.unwritten.complete(None)
    counts = stage.coordinator.counts
    assert (counts.loads_completed, counts.load_last_ms, counts.load_max_ms) == (1, 250.0, 250.0)
    stage.coordinator.elected(0, FakeLog())
    assert (counts.loads_completed, counts.load_last_ms, counts.load_max_ms) == (2, 0.0, 250.0)


def test_a_dropped_shard_is_not_rebuilt_where_leadership_has_gone(stage: Stage) -> None:
    first, second = FakeLog(), FakeLog()
    first.refuse = second.refuse = ErrorCode.KAFKA_STORAGE_ERROR
    stage.coordinator.elected(0, first)
    stage.coordinator.elected(1, second)
    stage.submit(0, note("x"))
    stage.submit(1, note("x"))
    stage.coordinator.resigned(0)
    stage.coordinator.elected(1, FakeLog([entry("newer")]))
    stage.runtime.advance(RELOAD_DELAY_MS * 2)
    assert code_of(stage.submit(0, read)) is ErrorCode.NOT_COORDINATOR
    assert stage.submit(1, read).result() == ["newer"]
    assert stage.built == [0, 1, 1]


def test_resigning_refuses_who_waits(stage: Stage) -> None:
    log = FakeLog(hold=True)
    stage.coordinator.elected(0, log)
    held = stage.submit(0, note("a"))
    stage.coordinator.elected(0, log)
    assert code_of(held) is ErrorCode.NOT_COORDINATOR
    stage.coordinator.stop()
    assert code_of(stage.submit(0, read)) is ErrorCode.NOT_COORDINATOR


def test_a_command_for_all_goes_to_every_shard_in_order(stage: Stage) -> None:
    stage.coordinator.elected(1, FakeLog([entry("one")]))
    stage.coordinator.elected(0, FakeLog([entry("zero")]))
    assert [c.result() for c in stage.coordinator.submit_to_all(read, None)] == [["zero"], ["one"]]


def test_gathering_waits_for_the_last() -> None:
    first: Completion[Any] = Completion()
    second: Completion[Any] = Completion()
    gathered = gather([first, second])
    second.fail(BrokerError(ErrorCode.NOT_COORDINATOR))
    assert not gathered.done
    first.complete(1)
    assert gathered.result() == [first, second]
    assert gather([]).result() == []
