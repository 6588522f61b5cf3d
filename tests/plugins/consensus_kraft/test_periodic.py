"""Commands that the controller gives itself, under the driver: when, in parts, and after a defect."""

from __future__ import annotations

import pytest

from blumfeld.metadata.controller import Controller, PeriodicCommand
from blumfeld.metadata.decision import ControllerDecision, ControllerState, Moment
from blumfeld.spi.cluster import ImageDelta
from blumfeld.wire.messages.broker_heartbeat import BrokerHeartbeatResponse
from blumfeld.wire.messages.metadata_records import NoOpRecord
from blumfeld_consensus_kraft.raft_log import RaftLog
from blumfeld_kit.fakes.files import FakeDisk
from tests.plugins.consensus_kraft.kraft_node import KraftNode

DONE = BrokerHeartbeatResponse()


def test_it_is_given_after_each_interval_and_never_overtakes_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """A decision of three parts: the next interval begins behind the last."""
    given: list[tuple[float, int]] = []

    def part(number: int, moment: Moment) -> ControllerDecision:
        given.append((moment.now_ms, number))

        def rest(_: ControllerState, moment: Moment) -> ControllerDecision:
            return part(number + 1, moment)

        return ControllerDecision([NoOpRecord()], DONE, atomic=False, rest=rest if number < 2 else None)

    command = PeriodicCommand("three parts", 1_000, lambda moment: part(0, moment))
    monkeypatch.setattr(Controller, "periodic", lambda _: (command,))
    node = KraftNode(FakeDisk()).start()
    began_ms = node.runtime.monotonic_ms()
    node.runtime.advance(3_500)
    assert [number for _, number in given] == [0, 1, 2] * 3
    assert [round((at_ms - began_ms) / 1_000) for at_ms, _ in given] == [1] * 3 + [2] * 3 + [3] * 3
    node.stop()
    count = len(given)
    node.runtime.advance(5_000)
    assert len(given) == count


def test_after_a_defect_it_is_given_again(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[float] = []

    def decide(moment: Moment) -> ControllerDecision:
        given.append(moment.now_ms)
        if len(given) == 1:
            raise ZeroDivisionError
        return ControllerDecision([], DONE)

    monkeypatch.setattr(Controller, "periodic", lambda _: (PeriodicCommand("defect", 1_000, decide),))
    node = KraftNode(FakeDisk()).start()
    node.runtime.advance(2_500)
    assert len(given) == 2
    assert ("error", "a controller's command met a defect") in node.parts.events.told
    assert node.metadata.controller is not None


def test_a_controller_that_failed_while_it_began_gives_no_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log fails under the first elections of the epoch: what it gave later was decided on an image of its own."""
    given: list[Moment] = []

    def decide(moment: Moment) -> ControllerDecision:
        given.append(moment)
        return ControllerDecision([NoOpRecord()], DONE)

    def full(*_: object) -> ControllerDecision:
        monkeypatch.setattr(RaftLog, "append", fails)
        return ControllerDecision([NoOpRecord()], DONE)

    def fails(*_: object) -> None:
        raise OSError(5, "the directory is offline")

    monkeypatch.setattr(Controller, "periodic", lambda _: (PeriodicCommand("periodic", 1_000, decide),))
    monkeypatch.setattr(Controller, "elect_left_over", full)
    node = KraftNode(FakeDisk())
    with pytest.raises(OSError, match="offline"):
        node.start()
    node.runtime.advance(5_000)
    assert given == []


@pytest.mark.parametrize(("interval_ms", "written"), [(500, 10), (1_000, 5), (0, 0)])
def test_an_idle_controller_writes_no_op_records_at_its_interval(interval_ms: int, written: int) -> None:
    """They are committed, and change nothing else: nobody is told of topics, brokers or configs."""
    node = KraftNode(FakeDisk(), config={"metadata.max.idle.interval.ms": interval_ms}).start()
    before, delta_count = node.metadata.applied_offset, len(node.deltas)
    node.runtime.advance(5_100)
    assert node.metadata.applied_offset - before == written
    assert len(node.deltas) - delta_count == written
    assert all(delta == ImageDelta() for delta in node.deltas[delta_count:])
    node.stop()
