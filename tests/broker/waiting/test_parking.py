"""The purgatory in the turn: woken in Phase.COMPLETE, expired by one timer."""

from __future__ import annotations

from blumfeld.broker.waiting.parking import PurgatoryParking
from blumfeld.spi.runtime import Phase
from blumfeld_kit.fakes.runtime import FakeRuntime
from tests.broker.harness import Quiet


class Waiting:
    """Done when the test says so."""

    def __init__(self, name: str, told: list[str]) -> None:
        self.name = name
        self.told = told
        self.ready = False
        self.breaks = False

    def try_complete(self) -> bool:
        if self.breaks:
            raise ZeroDivisionError
        if self.ready:
            self.told.append(f"{self.name} completed")
        return self.ready

    def expire(self) -> None:
        self.told.append(f"{self.name} expired")


class World:
    """A parking on virtual time."""

    def __init__(self) -> None:
        self.runtime = FakeRuntime()
        self.log = Quiet()
        self.parking = PurgatoryParking(self.runtime, self.log)
        self.told: list[str] = []

    def park(self, name: str, timeout_ms: float) -> Waiting:
        waiting = Waiting(name, self.told)
        self.parking.park(waiting, ("key", name), timeout_ms)
        return waiting


def test_what_is_woken_completes_before_the_answers_of_the_turn() -> None:
    world = World()
    world.park("a", 1000).ready = True
    world.runtime.at_end_of_turn(Phase.ANSWER, lambda: world.told.append("answers"))
    world.parking.wake("a")
    assert world.told == []
    world.runtime.run_turn()
    assert world.told == ["a completed", "answers"]


def test_deadlines_are_kept_in_order_whatever_the_order_of_parking() -> None:
    world = World()
    for name, timeout_ms in (("slow", 500), ("fast", 20), ("middle", 100.5)):
        world.park(name, timeout_ms)
    world.runtime.advance(19)
    assert world.told == []
    world.runtime.advance(2)
    assert world.told == ["fast expired"]
    world.runtime.advance(480)
    assert world.told == ["fast expired", "middle expired", "slow expired"]


def test_a_negative_timeout_expires_at_once() -> None:
    world = World()
    world.park("a", -5)
    world.runtime.advance(2)
    assert world.told == ["a expired"]


def test_an_operation_that_raises_is_logged_and_ends() -> None:
    world = World()
    world.park("a", 1000).breaks = True
    world.parking.wake("a")
    world.runtime.run_turn()
    assert [event[1] for event in world.log.events] == ["parked operation failed"]
    assert len(world.parking.purgatory) == 0


def test_a_stop_expires_everything_and_what_comes_later() -> None:
    """With keys and without."""
    world = World()
    world.park("a", 1000)
    world.parking.until(Waiting("b", world.told), 1000, 0.0)
    world.parking.stop()
    world.park("c", 1000)
    world.parking.until(Waiting("d", world.told), 1000, 0.0)
    assert sorted(world.told) == ["a expired", "b expired", "c expired", "d expired"]
    world.runtime.advance(5000)
    assert len(world.told) == 4


def test_a_wait_without_keys_ends_at_its_deadline_unless_it_ended_before() -> None:
    world = World()
    for name, wait_ms in (("slow", 500), ("fast", 20), ("also fast", 20), ("done", 20)):
        world.parking.until(Waiting(name, world.told), wait_ms, world.runtime.monotonic_ms())
    assert world.parking.waiting == 4
    done = Waiting("gone", world.told)
    world.parking.until(done, 20, world.runtime.monotonic_ms())
    world.parking.forget(done, 20)
    world.runtime.advance(19)
    assert world.told == []
    world.runtime.advance(1)
    assert world.told == ["fast expired", "also fast expired", "done expired"]
    world.runtime.advance(480)
    assert world.told[3:] == ["slow expired"]
    assert (world.parking.waiting, world.parking.purgatory.expired_total) == (0, 4)


def test_waits_of_both_kinds_share_the_timer() -> None:
    world = World()
    world.park("parked", 30.25)
    world.parking.until(Waiting("waits", world.told), 10.1, world.runtime.monotonic_ms())
    world.runtime.advance(11)
    assert world.told == ["waits expired"]
    world.runtime.advance(25)
    assert world.told == ["waits expired", "parked expired"]
