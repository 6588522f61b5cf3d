"""A process on a machine's loop: paused, loaded, on a clock of its own, dead."""

from __future__ import annotations

import asyncio
import math

import pytest

from blumfeld_kit.fakes.loop import SimulatedLoop, SimulationError
from blumfeld_kit.simulation.machine.clocks import MachineClock
from blumfeld_kit.simulation.machine.machine_loop import MachineLoop


class Process:
    """A loop of a machine, and what happened on it: (virtual time, name)."""

    def __init__(self, rate: float = 1.0) -> None:
        self.world = SimulatedLoop()
        self.clock = MachineClock(0, rate=rate)
        self.loop = MachineLoop(self.world, self.clock)
        self.seen: list[tuple[float, str]] = []

    def note(self, name: str) -> None:
        self.seen.append((round(self.world.time(), 3), name))

    def names(self) -> list[str]:
        return [name for _, name in self.seen]


def test_ordinary_asyncio_code_lives_on_the_machines_clock() -> None:
    """Also code that asks for the running loop, as a plug-in of a third party may."""
    process = Process(rate=2.0)

    async def plugin() -> None:
        loop = asyncio.get_running_loop()
        assert loop is process.loop
        async with asyncio.timeout(5.0):
            await asyncio.sleep(1.0)
        process.note("slept")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), 2.0)
        process.note("waited")
        await asyncio.gather(asyncio.sleep(1.0), asyncio.sleep(3.0))
        process.note("gathered")

    process.loop.create_task(plugin())
    process.world.advance(10_000)
    assert process.seen == [(0.5, "slept"), (1.5, "waited"), (3.0, "gathered")]


def test_what_came_in_a_pause_comes_all_at_once_and_in_order() -> None:
    process = Process()
    for nth in range(5):
        process.loop.call_later(nth, process.note, f"timer {nth}")
    process.world.call_later(1.5, process.loop.pause)
    process.world.call_later(2.5, process.loop.deliver, process.note, "frame")
    process.world.call_later(3.5, process.loop.resume)
    process.world.advance(10_000)
    assert process.seen == [
        (0.0, "timer 0"),
        (1.0, "timer 1"),
        (3.5, "timer 2"),
        (3.5, "frame"),
        (3.5, "timer 3"),
        (4.0, "timer 4"),
    ]


def test_a_loaded_machine_takes_time_for_each_turn() -> None:
    process = Process()
    process.loop.turn_cost_s = 0.1

    def again(left: int) -> None:
        process.note(str(left))
        if left:
            process.loop.call_soon(again, left - 1)

    process.loop.call_soon(again, 3)
    process.world.advance(1_000)
    assert process.seen == [(0.0, "3"), (0.1, "2"), (0.2, "1"), (0.3, "0")]


def test_a_dead_process_hears_nothing_and_its_tasks_unwind() -> None:
    process = Process()

    async def lives() -> None:
        try:
            await asyncio.sleep(100.0)
        finally:
            process.note("unwound")

    task = process.loop.create_task(lives())
    process.loop.call_later(2.0, process.note, "timer")
    process.world.advance(1_000)
    process.loop.deliver(process.note, "frame")
    process.loop.die()
    task.cancel()
    process.world.advance(10_000)
    assert process.names() == ["unwound"]


def test_a_cancelled_timer_does_not_fire() -> None:
    process = Process()
    process.loop.call_later(1.0, process.note, "never").cancel()
    timer = process.loop.call_later(2.0, process.note, "paused away")
    process.world.call_later(1.5, process.loop.pause)
    process.world.call_later(3.0, timer.cancel)
    process.world.call_later(4.0, process.loop.resume)
    process.world.advance(10_000)
    assert process.seen == []


def test_what_escapes_from_a_callback_fails_the_simulation() -> None:
    process = Process()
    process.loop.call_soon(lambda: 1 / 0)
    with pytest.raises(SimulationError, match="ZeroDivisionError"):
        process.world.advance(1_000)


def test_threads_are_refused() -> None:
    process = Process()

    async def threads() -> None:
        await asyncio.to_thread(print)

    task = process.loop.create_task(threads())
    process.world.advance(1_000)
    assert isinstance(task.exception(), SimulationError)


def test_clocks_drift_and_jump() -> None:
    clock = MachineClock(1_000_000, rate=1.5, offset_ms=-200)
    assert clock.wall_ms(2.0) == 1_000_000 - 200 + 3_000
    clock.jump(5_000)
    assert clock.wall_ms(2.0) == 1_000_000 - 200 + 3_000 + 5_000
    clock.set_rate(0.5, 2.0)
    assert clock.monotonic_s(2.0) == 3.0
    assert clock.monotonic_s(4.0) == 4.0
    with pytest.raises(ValueError, match="greater than 0"):
        clock.set_rate(0.0, 4.0)


def test_a_timer_waits_for_a_clock_that_became_slower() -> None:
    process = Process(rate=2.0)
    process.loop.call_later(2.0, process.note, "due")
    process.clock.set_rate(0.5, 0.0)
    process.world.advance(10_000)
    assert process.seen == [(4.0, "due")]


def test_a_turn_that_was_due_waits_for_the_end_of_a_pause() -> None:
    process = Process()
    process.loop.call_soon(process.note, "due")
    process.loop.pause()
    process.world.advance(1_000)
    assert process.seen == []
    process.loop.resume()
    process.world.advance(1_000)
    assert process.names() == ["due"]


def test_virtual_time_goes_on_however_short_a_timer_is() -> None:
    """Code that waits for what is left of a pause would otherwise wait for ever, where a real clock goes on."""
    process = Process(rate=0.5)
    process.world.advance(70_000)
    process.clock.set_rate(1.25, process.world.time())
    before_s = process.world.time()
    seen: list[float] = []
    process.loop.call_at(
        math.nextafter(process.loop.time(), math.inf), lambda: seen.append(process.world.time())
    )
    process.world.advance(1)
    assert before_s < seen[0] < before_s + 1e-6
