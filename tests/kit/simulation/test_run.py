"""Whole brokers with their clients on virtual time: promises are kept, and the same seed tells the same story."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Coroutine
from contextlib import suppress
from random import Random
from typing import Any

import pytest

from blumfeld_kit.fakes.loop import SimulatedLoop
from blumfeld_kit.simulation import Pace, Simulation, SimulationFailure
from blumfeld_kit.simulation.__main__ import main
from blumfeld_kit.simulation.machine.host import DATA_DIR, Machine, plan_of
from blumfeld_kit.simulation.network.network import Network, Weather, Wire
from blumfeld_kit.simulation.run import CONFIG
from blumfeld_kit.simulation.seeds import seeds_of
from blumfeld_kit.simulation.trace import Trace
from tests.everyday import first

BUSY = Pace(producer_pause_s=2.0, member_pause_s=1.0, life_s=25.0, down_s=1.0, break_s=15.0)
CLEAN_SHUTDOWN = f"{DATA_DIR}/.kafka_cleanshutdown"


@pytest.mark.parametrize("seed", first(1, range(2)))
def test_nothing_acknowledged_and_flushed_is_lost(seed: int) -> None:
    """Nor doubled, reordered or changed; commits never go back. The oracle raises otherwise."""
    report = Simulation(seed, hours=0.1, pace=BUSY).run()
    assert report.kills + report.power_cuts > 3
    assert report.counts.acked > 300
    assert report.counts.read > report.counts.acked
    assert report.counts.commits > 30


def test_the_same_seed_gives_the_same_trace() -> None:
    """And another seed another one."""
    first, again, other = (Simulation(seed, hours=0.03, pace=BUSY).run() for seed in (7, 7, 8))
    assert first == again
    assert first.events > 1000
    assert first.digest != other.digest


@pytest.mark.slow  # every day for the swarm, in tests/cli/test_simulate.py
def test_the_trace_does_not_depend_on_the_hash_seed() -> None:
    """No order of a set of names reaches what is done."""
    command = [sys.executable, "-m", "blumfeld_kit.simulation", "--seeds", "5", "--hours", "0.03"]
    digests = []
    for hash_seed in ("0", "4242"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        ran = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=100, check=True
        )
        digests.append(ran.stdout.splitlines()[1].split()[-1])
    assert digests[0] == digests[1]


def test_a_storage_in_memory_loses_everything_and_is_found_out() -> None:
    """The oracle bites: a broker that forgets at every restart breaks its promise."""
    with pytest.raises(SimulationFailure, match=r"seed 1, .*ViolationError"):
        Simulation(1, hours=0.1, pace=BUSY, storage="storage_memory").run()


def test_seeds_are_named_one_by_one_or_as_ranges() -> None:
    assert seeds_of("3") == [3]
    assert seeds_of("1,4-6") == [1, 4, 5, 6]


def test_the_command_prints_a_row_for_each_seed_and_a_sum(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "1-2", "--hours", "0.02"]) == 0
    heading, one, two, total = capsys.readouterr().out.splitlines()
    assert heading.split()[:3] == ["seed", "hours", "killed"]
    assert (one.split()[0], two.split()[0]) == ("1", "2")
    assert total.startswith("2 seeds, 0.04 virtual hours in ")


def test_the_command_says_how_to_see_a_failure_again(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "1", "--hours", "0.2", "--storage", "storage_memory"]) == 1
    again = "again: python -m blumfeld_kit.simulation --seeds 1 --hours 0.2 --storage storage_memory"
    assert capsys.readouterr().out.endswith(f"{again}\n")


def test_what_escapes_from_a_callback_shows_where_it_was_raised(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def burst_in_the_dark() -> None:
        raise RuntimeError("escaped")

    start = Simulation._begin

    async def begin(self: Simulation) -> None:
        self.loop.call_soon(burst_in_the_dark)
        await start(self)

    monkeypatch.setattr(Simulation, "_begin", begin)
    assert main(["--seeds", "1", "--hours", "0.01"]) == 1
    assert "in burst_in_the_dark" in capsys.readouterr().out


# The machine


class Lonely:
    """A machine with no clients."""

    def __init__(self) -> None:
        self.loop = SimulatedLoop()
        self.trace = Trace(self.loop.time)
        network = Network(self.loop, Random("network"), self.trace)
        self.defects: list[BaseException] = []
        self.machine = Machine(
            1,
            self.loop,
            network,
            plan_of(CONFIG, "storage_local"),
            lambda _, error: self.defects.append(error),
            lambda: None,
        )

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Run it on virtual time."""
        return self.loop.run(coroutine)

    def is_there(self, path: str) -> bool:
        """Whether the disk has it, whoever lives."""
        return self.machine.disk.tree.find(path) is not None


@pytest.mark.parametrize("power_cut", [True, False])
def test_a_crash_fences_the_dead_node(power_cut: bool) -> None:
    """Every handle of it raises; its ``finally`` blocks and its stop write no clean-shutdown file."""

    async def story(lonely: Lonely) -> None:
        assert await lonely.machine.start()
        dead = lonely.machine.node
        assert dead is not None
        lonely.machine.crash(power_cut=power_cut)
        with pytest.raises(OSError, match="dead"):
            dead.composition.runtime.files.list_dir(DATA_DIR)
        with suppress(OSError, TimeoutError):
            await asyncio.wait_for(lonely.machine.run(dead.stop()), 5.0)

    lonely = Lonely()
    lonely.run(story(lonely))
    assert not lonely.is_there(CLEAN_SHUTDOWN)
    assert not lonely.defects


def test_a_clean_stop_writes_it() -> None:
    async def story(lonely: Lonely) -> None:
        assert await lonely.machine.start()
        await lonely.machine.stop()

    lonely = Lonely()
    lonely.run(story(lonely))
    assert lonely.is_there(CLEAN_SHUTDOWN)


def test_it_starts_again_wherever_its_start_was_cut_short() -> None:
    """The power goes inside of the nth disk operation of a start, for every n that it has."""

    async def story(lonely: Lonely) -> int:
        nth = 0
        while True:
            nth += 1
            lonely.machine.crash_in_operation(nth, power_cut=nth % 2 == 0)
            if await lonely.machine.start():
                return nth
            assert lonely.machine.down.is_set()

    lonely = Lonely()
    assert lonely.run(story(lonely)) > 20
    assert not lonely.defects


# The network


class Kept:
    """An end that keeps what arrives."""

    def __init__(self) -> None:
        self.received = b""
        self.gone: list[str] = []

    def data(self, data: bytes) -> None:
        self.received += data

    def lost(self, reason: str) -> None:
        self.gone.append(reason)


def connected(weather: Weather) -> tuple[SimulatedLoop, Network, Wire, Kept, Kept]:
    """A connection; (loop, network, the client's wire, the client's end, the server's end)."""
    loop = SimulatedLoop()
    network = Network(loop, Random(3), Trace(loop.time), weather)
    client, server = Kept(), Kept()
    network.listen("h", 1, lambda _: server)
    wire = loop.run(network.connect("h", 1, lambda _: client))
    return loop, network, wire, client, server


def test_bytes_of_a_connection_arrive_in_pieces_but_in_order() -> None:
    loop, network, wire, _, server = connected(Weather(split_chance=1.0, slow_chance=0.3))
    sent = b""
    for n in range(200):
        data = bytes([n % 251]) * (1 + n % 40)
        sent += data
        wire.send(data)
    loop.advance(60_000)
    assert server.received == sent
    assert network.trace.events > 300


def test_a_broken_connection_loses_what_is_on_its_way_and_tells_both_ends_once() -> None:
    loop, network, wire, client, server = connected(Weather())
    wire.send(b"lost")
    network.break_one()
    wire.connection.break_off("again")
    loop.advance(1_000)
    assert server.received == b""
    assert client.gone == server.gone == ["the network broke it"]


def test_nobody_listens_is_a_refusal() -> None:
    loop = SimulatedLoop()
    network = Network(loop, Random(3), Trace(loop.time))
    with pytest.raises(ConnectionRefusedError):
        loop.run(network.connect("h", 1, lambda _: Kept()))
