"""All shards of a node: found by key, built on election, rebuilt after a failure."""

from __future__ import annotations

from typing import Any

from blumfeld.coordinator.coordinator import RELOAD_DELAY_MS, Coordinator, gather
from blumfeld.coordinator.host import REPLAY_SLICE_RECORDS
from blumfeld.spi.completion import Completion
from blumfeld.testing.fake_runtime import FakeRuntime
from blumfeld.wire.errors import BrokerError, ErrorCode
from tests.coordinator.fakes import Events, FakeLog, code_of
from tests.coordinator.test_host import Notes, entry, note, read

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
        self.coordinator = Coordinator(self.runtime, self.events, self._new_shard, lambda: self.partitions)

    def _new_shard(self, partition: int) -> Notes:
        self.built.append(partition)
        return Notes()

    def submit(self, partition: int, command: Any) -> Completion[Any]:
        return self.coordinator.submit(KEY[partition], command, None)


def test_a_key_goes_to_the_shard_of_its_partition() -> None:
    """Where this node doesn't lead that, it says so."""
    stage = Stage()
    stage.coordinator.elected(0, FakeLog([entry("zero")]))
    assert stage.submit(0, read).result() == ["zero"]
    assert code_of(stage.submit(1, read)) is ErrorCode.NOT_COORDINATOR


def test_without_the_internal_topic_nobody_is_coordinator() -> None:
    """It is made when the first client looks for one."""
    stage = Stage()
    stage.partitions = 0
    assert code_of(stage.submit(0, read)) is ErrorCode.NOT_COORDINATOR


def test_a_dropped_shard_is_rebuilt_from_the_log() -> None:
    """After a pause, with what was placed before it failed; a client that retries is served."""
    stage = Stage()
    log = FakeLog()
    stage.coordinator.elected(0, log)
    stage.submit(0, note("kept"))
    log.refuse = ErrorCode.NOT_ENOUGH_REPLICAS
    assert code_of(stage.submit(0, note("lost"))) is ErrorCode.NOT_COORDINATOR
    stage.runtime.advance(RELOAD_DELAY_MS - 1)
    assert code_of(stage.submit(0, read)) is ErrorCode.NOT_COORDINATOR
    stage.runtime.advance(1)
    assert stage.submit(0, read).result() == ["kept"]
    assert [event for _, event, _ in stage.events.said] == ["coordinator shard dropped"]


def test_a_log_that_stays_broken_is_tried_again_and_again() -> None:
    """Until it can be read."""
    stage = Stage()
    log = FakeLog([entry("a")])
    log.broken = BrokerError(ErrorCode.KAFKA_STORAGE_ERROR)
    stage.coordinator.elected(0, log)
    stage.runtime.advance(RELOAD_DELAY_MS * 3)
    log.broken = None
    stage.runtime.advance(RELOAD_DELAY_MS)
    assert stage.submit(0, read).result() == ["a"]


def test_a_dropped_shard_is_not_rebuilt_where_leadership_has_gone() -> None:
    """Nor over the shard of a newer epoch."""
    stage = Stage()
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


def test_resigning_refuses_who_waits() -> None:
    """And being elected again begins from the log."""
    stage = Stage()
    log = FakeLog(hold=True)
    stage.coordinator.elected(0, log)
    held = stage.submit(0, note("a"))
    stage.coordinator.elected(0, log)
    assert code_of(held) is ErrorCode.NOT_COORDINATOR
    stage.coordinator.stop()
    assert code_of(stage.submit(0, read)) is ErrorCode.NOT_COORDINATOR


def test_loading_is_known() -> None:
    """For ListGroups, and whoever waits for a node to be ready."""
    stage = Stage()
    stage.coordinator.elected(1, FakeLog([entry("x")] * (REPLAY_SLICE_RECORDS + 1)))
    assert stage.coordinator.loading()
    stage.runtime.run_turn()
    assert not stage.coordinator.loading()


def test_a_command_for_all_goes_to_every_shard_in_order() -> None:
    """By partition, whatever the order of their elections."""
    stage = Stage()
    stage.coordinator.elected(1, FakeLog([entry("one")]))
    stage.coordinator.elected(0, FakeLog([entry("zero")]))
    assert [c.result() for c in stage.coordinator.submit_to_all(read, None)] == [["zero"], ["one"]]


def test_gathering_waits_for_the_last() -> None:
    """Errors are among what is gathered; nothing to gather is gathered at once."""
    first: Completion[Any] = Completion()
    second: Completion[Any] = Completion()
    gathered = gather([first, second])
    second.fail(BrokerError(ErrorCode.NOT_COORDINATOR))
    assert not gathered.done
    first.complete(1)
    assert gathered.result() == [first, second]
    assert gather([]).result() == []
