"""Streams keep TCP's promises under every trouble of a link, and a machine without power is silent."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from blumfeld_kit.fakes.loop import SimulatedLoop
from blumfeld_kit.simulation.network.links import Weather
from blumfeld_kit.simulation.network.network import CLIENTS, PROXY_S_MAX, Network, Wire
from blumfeld_kit.simulation.network.streams import ACK_S_MAX
from blumfeld_kit.simulation.trace import Trace
from tests.everyday import first

HERE, THERE = "10.0.0.1", "10.0.0.2"


class Kept:
    """An end that keeps what arrives."""

    def __init__(self) -> None:
        self.received = b""
        self.gone: list[str] = []

    def data(self, data: bytes) -> None:
        assert not self.gone
        self.received += data

    def lost(self, reason: str) -> None:
        self.gone.append(reason)


class World:
    """Two machines with one connection."""

    def __init__(self, seed: int = 1, weather: Weather | None = None) -> None:
        self.loop = SimulatedLoop()
        self.network = Network(self.loop, Random(seed), Trace(self.loop.time), weather)
        self.client, self.server = Kept(), Kept()
        self.accepted: list[Wire] = []
        self.network.listen(THERE, 1, self.accept)
        self.wire = self.connect()
        self.back = self.accepted[0]

    def accept(self, wire: Wire) -> Kept:
        self.accepted.append(wire)
        return self.server

    def connect(self) -> Wire:
        return self.loop.run(self.network.connect(THERE, 1, lambda _: self.client, HERE))

    def wait(self, seconds: float) -> None:
        self.loop.advance(seconds * 1000)


def test_a_one_way_cut_holds_one_direction_and_its_bytes_arrive_after_the_heal() -> None:
    world = World()
    world.network.cut(HERE, THERE)
    world.wire.send(b"question")
    world.back.send(b"unasked")
    world.wait(5)
    assert (world.server.received, world.client.received) == (b"", b"unasked")
    world.wire.send(b", again")
    world.network.heal(HERE, THERE)
    world.wait(5)
    assert world.server.received == b"question, again"
    assert world.client.gone == world.server.gone == []


def test_bytes_that_were_under_way_when_the_link_was_cut_wait_too() -> None:
    world = World(weather=Weather(latency_ms_min=50, latency_ms_max=60, slow_chance=0))
    world.wire.send(b"x")
    world.network.cut(HERE, THERE)
    world.wait(5)
    assert world.server.received == b""
    world.network.heal_all()
    world.wait(5)
    assert world.server.received == b"x"


@pytest.mark.parametrize("direction", [(HERE, THERE), (THERE, HERE)], ids=["bytes", "acknowledgements"])
def test_a_sender_gives_up_what_is_never_acknowledged_and_its_peer_hears_nothing(
    direction: tuple[str, str],
) -> None:
    world = World()
    world.network.cut(*direction)
    world.wire.send(b"x")
    world.wait(ACK_S_MAX - 1)
    assert world.client.gone == []
    world.wait(2)
    assert len(world.client.gone) == 1
    assert world.server.gone == []
    world.network.heal_all()
    world.back.send(b"is anybody there?")
    world.wait(5)
    assert len(world.server.gone) == 1, "the system at the other end resets what it doesn't know"


def test_a_short_cut_ends_nothing() -> None:
    world = World()
    for _ in range(5):
        world.network.cut(HERE, THERE)
        world.wire.send(b"x")
        world.wait(ACK_S_MAX - 5)
        world.network.heal(HERE, THERE)
        world.wait(5)
    assert world.server.received == b"xxxxx"
    assert world.client.gone == []


def test_a_stall_delays_and_keeps_the_order() -> None:
    world = World()
    world.network.stall(HERE, THERE, 10.0)
    for n in range(50):
        world.wire.send(b"%d," % n)
    world.wait(9)
    assert world.server.received == b""
    world.wait(2)
    assert world.server.received == b"".join(b"%d," % n for n in range(50))


def test_power_loss_is_silent_until_the_machine_is_up_again() -> None:
    world = World()
    world.network.site(THERE).power_lost()
    world.wait(1_000)
    assert world.client.gone == world.server.gone == []
    world.wire.send(b"x")
    world.wait(10)
    assert world.client.gone == []
    world.network.site(THERE).boot()
    world.wait(5)
    assert len(world.client.gone) == 1
    assert world.server.received == b""


def test_power_loss_that_lasts_is_found_by_the_senders_patience() -> None:
    world = World()
    world.network.site(THERE).power_lost()
    world.wire.send(b"x")
    world.wait(ACK_S_MAX + 1)
    assert len(world.client.gone) == 1


def test_a_killed_process_resets_behind_the_bytes_that_it_had_sent() -> None:
    world = World()
    world.back.send(b"last words")
    world.network.site(THERE).process_died("killed")
    assert world.client.gone == []
    world.wait(5)
    assert (world.client.received, world.client.gone) == (b"last words", ["killed"])
    assert world.server.gone == [], "nothing is told to a dead process"
    with pytest.raises(ConnectionRefusedError):
        world.connect()


def test_an_orderly_close_comes_behind_all_bytes_and_ends_both_ends_once() -> None:
    world = World()
    world.wire.send(b"all of it" * 1000)
    world.wire.close("enough")
    world.wait(5)
    assert world.server.received == b"all of it" * 1000
    assert (world.server.gone, world.client.gone) == (["enough"], ["enough"])
    assert world.network.connections == {}


def test_a_machine_without_power_answers_no_attempt_to_connect() -> None:
    world = World()
    world.network.site(THERE).power_lost()
    began_s = world.loop.time()
    with pytest.raises(TimeoutError):
        world.connect()
    assert world.loop.time() - began_s > 20


def test_an_attempt_to_connect_succeeds_once_the_link_is_healed() -> None:
    world = World()
    world.network.cut(THERE, HERE)
    world.loop.call_later(5.0, world.network.heal, THERE, HERE)
    world.connect()
    assert 5.0 < world.loop.time() < 10.0


def test_links_of_others_are_left_alone() -> None:
    world = World()
    world.network.cut(CLIENTS, THERE)
    world.wire.send(b"x")
    world.wait(5)
    assert world.server.received == b"x"


@pytest.mark.parametrize("seed", first(5, range(20)))
def test_no_byte_is_lost_doubled_or_overtaken_whatever_the_link_does(seed: int) -> None:
    """Short of a reset, which is told."""
    world, chance = World(seed), Random(seed)
    sent = b""
    for n in range(100):
        data = b"%d:%d;" % (seed, n) * (1 + chance.randrange(5))
        sent += data
        world.wire.send(data)
        trouble = chance.random()
        if trouble < 0.1:
            world.network.cut(HERE, THERE)
        elif trouble < 0.2:
            world.network.stall(HERE, THERE, chance.random())
        elif trouble < 0.3:
            world.network.heal_all()
        world.wait(chance.random() * 0.1)
        assert sent.startswith(world.server.received)
    world.network.heal_all()
    world.wait(5)
    assert world.server.received == sent


def test_calm_is_known_for_each_pair_of_machines() -> None:
    world = World()
    network = world.network
    assert network.calm_since_s(HERE, THERE) == 0.0
    network.cut(HERE, THERE)
    assert network.calm_since_s(HERE, THERE) is None
    assert network.calm_since_s(THERE, HERE) is None
    assert network.calm_since_s(CLIENTS, THERE) == 0.0
    world.wait(1)
    network.heal(HERE, THERE)
    assert network.calm_since_s(HERE, THERE) == world.loop.time()
    network.stall(THERE, HERE, 2.0)
    assert network.calm_since_s(HERE, THERE) is None
    world.wait(3)
    assert network.calm_since_s(HERE, THERE) == pytest.approx(3.0, abs=0.1)
    network.trouble(THERE)
    assert network.calm_since_s(CLIENTS, THERE) is None
    assert network.calm_since_s(CLIENTS, HERE) == 0.0


def test_a_firewall_resets_what_is_there_and_refuses_what_is_new_in_one_direction() -> None:
    world = World()
    world.network.listen(HERE, 1, world.accept)
    world.network.refuse(HERE, THERE)
    world.wait(1)
    assert len(world.client.gone) == len(world.server.gone) == 1
    with pytest.raises(ConnectionRefusedError):
        world.connect()
    world.loop.run(world.network.connect(HERE, 1, lambda _: Kept(), THERE))
    world.network.refuse_no_more(HERE, THERE)
    assert world.connect().is_open


def test_a_full_backlog_answers_nobody_and_ends_nothing() -> None:
    world = World()
    world.network.site(THERE).backlog_full = True
    with pytest.raises(TimeoutError):
        world.connect()
    world.wire.send(b"x")
    world.wait(5)
    assert world.server.received == b"x"


def test_an_attempt_to_connect_that_nobody_answers_is_counted_while_it_waits() -> None:
    world = World()
    world.network.site(THERE).backlog_full = True
    attempt = world.loop.create_task(world.network.connect(THERE, 1, lambda _: world.client, HERE))
    world.wait(0.5)
    assert world.network.unanswered == 1
    world.network.site(THERE).backlog_full = False
    world.wait(2)
    assert attempt.done()
    assert not world.network.unanswered


def test_closed_ports_refuse_until_they_are_opened_again() -> None:
    world = World()
    assert world.network.close_ports(THERE)
    world.wait(1)
    assert len(world.client.gone) == len(world.server.gone) == 1
    with pytest.raises(ConnectionRefusedError):
        world.connect()
    world.network.open_ports(THERE)
    assert world.connect().is_open


def test_ports_of_a_process_that_has_ended_are_not_opened_again() -> None:
    world = World()
    world.network.close_ports(THERE)
    world.network.site(THERE).process_died("killed")
    world.network.open_ports(THERE)
    with pytest.raises(ConnectionRefusedError):
        world.connect()
    assert not world.network.close_ports(THERE)


@pytest.mark.parametrize("power", [True, False])
def test_a_proxy_accepts_for_a_process_that_is_gone_and_closes_later(power: bool) -> None:
    world = World()
    site = world.network.site(THERE)
    site.behind_proxy = True
    passed = world.connect()
    assert passed.peer.site is site, "the proxy hands connections to a process that is there"
    if power:
        site.power_lost()
    else:
        site.process_died("killed")
    world.client = Kept()
    world.connect().send(b"is anybody there?")
    assert world.client.gone == []
    world.wait(PROXY_S_MAX + 1)
    assert world.server.received == b""
    assert len(world.client.gone) == 1


def test_held_streams_are_overtaken_by_later_connections() -> None:
    world = World()
    world.network.hold_streams_of(HERE, 10.0)
    world.wire.send(b"old")
    world.network.site(HERE).process_died("killed")
    successor = world.connect()
    successor.send(b"new, ")
    world.wait(5)
    assert world.server.received == b"new, "
    world.wait(10)
    assert world.server.received == b"new, old"


@pytest.mark.parametrize("opened", [False, True])
def test_what_a_dead_process_sent_is_read_before_its_reset_comes(opened: bool) -> None:
    """With ``opened`` its answers go out at once: they are on connections that others have opened to it."""
    world = World()
    world.network.listen(HERE, 2, world.accept)
    connection = world.loop.run(world.network.connect(HERE, 2, lambda _: world.client, THERE))

    def run_later(arrive: Callable[..., object], *what: object) -> None:  # the machine is busy
        world.loop.call_later(0.01, arrive, *what)

    world.network.site(THERE).run = run_later
    world.network.hold_streams_of(HERE, 10.0, opened=opened)
    world.wire.send(b"request")
    connection.peer.send(b"answer")
    world.wait(5)
    assert (world.server.received, world.client.received) == (b"", b"answer" if opened else b"")
    world.network.site(HERE).process_died("killed")
    world.wait(5.04)
    assert (world.server.received, world.server.gone) == (b"request", [])
    assert world.client.received == b"answer"
    world.wait(1)
    assert (world.server.gone, world.client.gone) == (["killed"], ["killed"])


def test_a_reset_long_after_the_hold_comes_at_once() -> None:
    world = World()
    world.network.hold_streams_of(HERE, 1.0)
    world.wait(5)
    world.network.site(HERE).process_died("killed")
    world.wait(0.04)
    assert world.server.gone == ["killed"]


def test_connections_to_a_machine_are_broken_and_those_from_it_stay() -> None:
    world = World()
    world.network.break_between([HERE], THERE)
    assert not world.wire.is_open
    other = world.connect()
    world.network.break_between([THERE], HERE)
    assert other.is_open


def test_the_heal_ends_refusals_and_opens_ports() -> None:
    world = World()
    world.network.refuse(HERE, THERE)
    world.network.close_ports(THERE)
    world.network.site(THERE).backlog_full = True
    world.network.heal_all()
    assert world.connect().is_open
