"""Swarms of real nodes: promises are kept, planted bugs are found, and the same seed tells the same story."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

import pytest

from blumfeld_kit.simulation.clients.oracle import ViolationError
from blumfeld_kit.simulation.swarm import FaultClass, Shape, Swarm, SwarmFailure, World
from blumfeld_kit.simulation.swarm.brokers import Brokers, Hours
from blumfeld_kit.simulation.swarm.reduction import shrunk
from blumfeld_kit.simulation.workloads import run_shape
from tests.everyday import first

FORGETFUL = Shape(nodes=2, clients=6, seconds=60.0, storage="storage_memory")
"""Brokers that forget at every restart."""


@pytest.mark.parametrize("seed", first(1, [8, 3]))
def test_brokers_keep_their_promises_under_every_fault_of_the_seed(seed: int) -> None:
    report = Swarm(Shape(seed=seed, clients=12, seconds=60.0), Brokers()).run()
    assert report.progress > 500
    assert sum(report.faults.values()) > 10
    assert report.converged_s < 60.0


def test_one_broker_is_a_swarm_too() -> None:
    report = Swarm(Shape(seed=4, nodes=1, clients=5, seconds=360.0), Hours()).run()
    assert report.progress > 300
    assert report.counts["read"] > report.counts["acked"]
    assert report.counts["commits"] > 30


def test_a_storage_in_memory_loses_everything_and_is_found_out() -> None:
    """The oracle bites: a broker that forgets at every restart breaks its promise."""
    with pytest.raises(SwarmFailure, match="ViolationError"):
        Swarm(FORGETFUL, Brokers()).run()


def test_the_same_shape_gives_the_same_trace_and_another_seed_another() -> None:
    first, again, other = (
        Swarm(Shape(seed=seed, clients=6, seconds=30.0), Brokers()).run() for seed in (5, 5, 6)
    )
    assert first == again
    assert first.digest != other.digest


# What fails a run


class Idle(Brokers):
    """Clients that do nothing."""

    def clients(self, world: World, until_s: float) -> Sequence[Coroutine[Any, Any, None]]:
        return []

    async def converge(self, world: World) -> None:
        return


class Fragile(Idle):
    """Breaks its promise once a process was killed."""

    def clients(self, world: World, until_s: float) -> Sequence[Coroutine[Any, Any, None]]:
        return [self._watch(world, until_s)]

    async def _watch(self, world: World, until_s: float) -> None:
        while world.loop.time() < until_s:
            if any(machine.kills for machine in world.machines):
                raise ViolationError("a process was killed")
            await asyncio.sleep(1.0)


def test_a_failure_is_reduced_to_a_smaller_one_of_its_kind() -> None:
    with pytest.raises(SwarmFailure) as raised:
        Swarm(Shape(seed=67, seconds=60.0), Fragile()).run()

    def run(shape: Shape) -> SwarmFailure | None:
        outcome = run_shape(shape, Fragile)
        return outcome if isinstance(outcome, SwarmFailure) else None

    smallest, runs = shrunk(raised.value, run, runs_max=7)
    assert "a process was killed" in str(raised.value)
    assert runs <= 7
    assert smallest.kind == raised.value.kind
    assert smallest.shape.faults is not None
    assert len(smallest.shape.faults) < 6
    assert smallest.events < raised.value.events
    again = run(smallest.shape)
    assert again is not None
    assert (again.events, again.at_s, again.newest) == (smallest.events, smallest.at_s, smallest.newest)


def test_a_run_without_work_fails() -> None:
    with pytest.raises(SwarmFailure, match="proves nothing"):
        Swarm(Shape(seconds=5.0, faults=()), Idle()).run()


class NeverWell(Idle):
    """Waits for ever after the heal."""

    async def converge(self, world: World) -> None:
        await asyncio.Event().wait()


def test_no_convergence_within_the_stated_time_fails() -> None:
    with pytest.raises(
        SwarmFailure, match="convergence after the heal did not end within 40 virtual"
    ) as raised:
        Swarm(Shape(seconds=5.0, faults=(), settle_s=40.0), NeverWell()).run()
    assert raised.value.at_s == pytest.approx(45.0, abs=1.0)


class SaysWhy(NeverWell):
    """Knows what it waits for."""

    async def converge(self, world: World) -> None:
        try:
            await super().converge(world)
        except asyncio.CancelledError:
            raise ViolationError("partition 3 has no leader") from None


def test_what_is_waited_for_is_told() -> None:
    with pytest.raises(SwarmFailure, match="partition 3 has no leader"):
        Swarm(Shape(seconds=5.0, faults=(), settle_s=40.0), SaysWhy()).run()


class Bursting(Idle):
    """An error escapes from a callback of a machine's process."""

    async def prepare(self, world: World) -> None:
        async def burst_in_the_dark() -> None:
            raise RuntimeError("escaped")

        loop = world.machines[0]._loop
        assert loop is not None
        runtime = world.machines[0]._runtime
        assert runtime is not None
        runtime.spawn(burst_in_the_dark(), "dark")
        await asyncio.sleep(1.0)


def test_a_failure_tells_what_escaped_and_how_to_see_it_again() -> None:
    shape = Shape(
        seed=7, nodes=2, clients=3, seconds=5.0, faults=(FaultClass.CUT, FaultClass.KILL), settle_s=9.0
    )
    with pytest.raises(SwarmFailure) as raised:
        Swarm(shape, Bursting()).run()
    text = raised.value.told()
    assert "in burst_in_the_dark" in text
    assert text.endswith(
        "again: blumfeld simulate --seeds 7 --nodes 2 --clients 3 --seconds 5 --settle 9 "
        "--storage storage_local --workload brokers --faults cut,kill"
    )
    assert len(raised.value.newest) > 10
