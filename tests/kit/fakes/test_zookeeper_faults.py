"""The simulated ZooKeeper fails as it is told, and never otherwise than a real one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import pytest

from blumfeld.spi.zookeeper import (
    BadVersionError,
    Check,
    ConnectionLostError,
    DeniedError,
    NodeExistsError,
    SessionExpiredError,
    SessionState,
    Set,
    WatchEvent,
    WatchKind,
    ZooKeeperError,
)
from blumfeld_kit.fakes.runtime import FakeRuntime
from blumfeld_kit.fakes.zookeeper import SimulatedZooKeeper
from blumfeld_kit.fakes.zookeeper_session import SimulatedSession

TIMEOUT_MS = 6_000


class Rig:
    """An ensemble and a node on one virtual time."""

    def __init__(self, seed: int = 1, servers: int = 3) -> None:
        self.node = FakeRuntime(seed)
        self.ensemble = SimulatedZooKeeper(FakeRuntime(seed + 1_000, loop=self.node.loop), servers=servers)
        self.run = self.node.run
        self.advance = self.node.advance

    async def connected(self, runtime: FakeRuntime | None = None, **options: Any) -> SimulatedSession:
        """Return a connected session, of the node unless another runtime is given."""
        session = self.ensemble.session(runtime or self.node, timeout_ms=TIMEOUT_MS, **options)
        await session.connect(60_000)
        return session

    async def connected_to(self, wanted: Callable[[int], bool]) -> SimulatedSession:
        """Return a session whose server is a wanted one."""
        while True:
            session = await self.connected()
            if session.server is not None and wanted(session.server):
                return session
            await session.close()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until ``condition()`` holds."""
        for _ in range(10_000):
            if condition():
                return
            await asyncio.sleep(0.05)
        raise AssertionError("it never held")


def played(scene: Callable[[Rig], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Make a coroutine that needs a rig into a test."""

    def test() -> None:
        rig = Rig()
        rig.run(scene(rig))

    test.__doc__ = scene.__doc__
    return test


# Servers that lag


@played
async def test_a_lagging_server_shows_what_was_until_a_sync(rig: Rig) -> None:
    writer = await rig.connected_to(lambda number: number == 0)
    await writer.create("/a", b"old")
    reader = await rig.connected_to(lambda number: number == 1)
    rig.ensemble.lag(1, 5_000)
    await writer.set("/a", b"new")
    assert (await reader.get("/a")).data == b"old"
    await reader.sync("/a")
    assert (await reader.get("/a")).data == b"new"


@played
async def test_a_session_sees_its_own_writes_at_a_lagging_server(rig: Rig) -> None:
    rig.ensemble.lag(1, 500)
    session = await rig.connected_to(lambda number: number == 1)
    await session.create("/a", b"0")
    assert (await session.get("/a")).data == b"0"
    session.set("/a", b"1")
    assert (await session.get("/a")).data == b"1"


@played
async def test_a_session_that_moves_to_a_lagging_server_waits_for_it(rig: Rig) -> None:
    """A server that has seen less than the client sends it away."""
    session = await rig.connected_to(lambda number: number == 0)
    await session.create("/a", b"0")
    for number in (1, 2):
        rig.ensemble.lag(number, 20_000)
    await session.set("/a", b"1")
    for _ in range(5):
        session.disconnect()
        await rig.until(lambda: session.state is not SessionState.CONNECTED)
        await rig.until(lambda: session.state is SessionState.CONNECTED)
        assert (await session.get("/a")).data == b"1"


# Servers that are lost


@played
async def test_the_loss_of_the_leader_ends_connections_and_no_session(rig: Rig) -> None:
    """Acknowledged writes are there after the election, and so are ephemeral nodes."""
    sessions = [await rig.connected() for _ in range(4)]
    for number, session in enumerate(sessions):
        await session.create(f"/{number}", b"acknowledged", ephemeral=True)
    under_way = sessions[0].create("/under-way")
    rig.ensemble.lose_leader()
    with pytest.raises(ConnectionLostError):
        await under_way
    await rig.until(lambda: all(session.state is SessionState.CONNECTED for session in sessions))
    for number, session in enumerate(sessions):
        node = await sessions[-1].get(f"/{number}")
        assert (node.data, node.stat.ephemeral_owner) == (b"acknowledged", session.session_id)


@played
async def test_sessions_wait_for_a_majority_however_long_that_takes(rig: Rig) -> None:
    """Without a leader nobody expires a session. One that doesn't come back in time after that is expired."""
    back, gone = await rig.connected(), await rig.connected()
    await back.create("/back", ephemeral=True)
    await gone.create("/gone", ephemeral=True)
    for number in (0, 1):
        rig.ensemble.stop_server(number)
    gone.cut()
    await asyncio.sleep(60)
    assert back.state is SessionState.SUSPENDED
    rig.ensemble.start_server(1)
    await rig.until(lambda: back.state is SessionState.CONNECTED)
    assert await back.children("/") == ("back", "gone")
    await asyncio.sleep(2 * TIMEOUT_MS / 1000)
    assert await back.children("/") == ("back",)
    assert not rig.ensemble.is_alive(gone.session_id)


@played
async def test_a_server_that_comes_back_has_what_it_missed(rig: Rig) -> None:
    session = await rig.connected_to(lambda number: number != 2)
    rig.ensemble.stop_server(2)
    await session.create("/a", b"missed")
    rig.ensemble.start_server(2)
    late = await rig.connected_to(lambda number: number == 2)
    assert (await late.get("/a")).data == b"missed"
    await session.set("/a", b"seen")
    await late.sync("/a")
    assert (await late.get("/a")).data == b"seen"


@played
async def test_a_leader_that_hangs_answers_reads_and_no_writes(rig: Rig) -> None:
    session = await rig.connected()
    await session.create("/a", b"0")
    rig.ensemble.hang(3_000)
    begin_ms = rig.node.monotonic_ms()
    assert (await session.get("/a")).data == b"0"
    assert rig.node.monotonic_ms() - begin_ms < 100
    await session.set("/a", b"1")
    assert rig.node.monotonic_ms() - begin_ms > 2_900
    assert session.state is SessionState.CONNECTED


# Clients that are lost


@played
async def test_a_paused_client_wakes_with_a_session_that_is_over(rig: Rig) -> None:
    """It takes itself for connected, and what it writes then is never seen."""
    paused, other = await rig.connected(), await rig.connected()
    await paused.create("/controller", ephemeral=True)
    await other.create("/epoch", b"1")
    events: list[WatchEvent] = []
    await other.exists("/controller", events.append)
    paused.pause()
    await rig.until(lambda: bool(events))
    assert events == [WatchEvent(WatchKind.DELETED, "/controller")]
    paused.resume()
    assert paused.state is SessionState.CONNECTED
    with pytest.raises(ZooKeeperError):
        await paused.multi([Check("/epoch", 0), Set("/epoch", b"2")])
    await rig.until(lambda: paused.state is SessionState.EXPIRED)
    assert (await other.get("/epoch")).data == b"1"


@played
async def test_a_client_that_was_paused_for_less_than_its_timeout_goes_on(rig: Rig) -> None:
    """It reads what had arrived: the answer, the event, and no loss."""
    paused, other = await rig.connected(), await rig.connected()
    await paused.create("/a", ephemeral=True)
    events: list[WatchEvent] = []
    await paused.get("/a", events.append)
    paused.pause()
    await other.set("/a", b"1")
    await asyncio.sleep(TIMEOUT_MS / 3 / 1000)
    assert events == []
    paused.resume()
    assert (await paused.get("/a")).data == b"1"
    assert events == [WatchEvent(WatchKind.DATA, "/a")]
    await asyncio.sleep(TIMEOUT_MS / 1000)
    assert paused.state is SessionState.CONNECTED


@played
async def test_a_short_cut_is_only_a_delay(rig: Rig) -> None:
    """TCP sends again what was lost."""
    session = await rig.connected()
    session.cut()
    late = session.create("/a")
    await asyncio.sleep(1)
    assert not late.done
    session.heal()
    assert await late == "/a"


@played
async def test_a_dead_nodes_ephemeral_nodes_go_after_its_timeout(rig: Rig) -> None:
    """The node that comes back finds its own old node, and is not its owner."""
    dying = FakeRuntime(7, loop=rig.node.loop)
    old = await rig.connected(dying)
    await old.create("/brokers", ephemeral=True)
    dying.crash(power_cut=False)
    new = await rig.connected(FakeRuntime(8, loop=rig.node.loop))
    with pytest.raises(NodeExistsError):
        await new.create("/brokers", ephemeral=True)
    stat = await new.exists("/brokers")
    assert stat is not None
    assert stat.ephemeral_owner == old.session_id != new.session_id
    await asyncio.sleep(2 * TIMEOUT_MS / 1000)
    await new.create("/brokers", ephemeral=True)


@played
async def test_an_operator_may_end_a_session(rig: Rig) -> None:
    session = await rig.connected()
    states: list[SessionState] = []
    session.on_state(states.append)
    rig.ensemble.expire(session.session_id)
    await rig.until(lambda: session.state is SessionState.EXPIRED)
    assert states == [SessionState.SUSPENDED, SessionState.EXPIRED]
    with pytest.raises(SessionExpiredError):
        await session.sync("/")


@played
async def test_a_protected_node_is_written_by_its_owner_only(rig: Rig) -> None:
    owner, other = await rig.connected(auth="kafka"), await rig.connected()
    await owner.create("/a")
    rig.ensemble.protect("/a", "kafka")
    for denied in (other.create("/a/b"), other.set("/a", b"1"), other.multi([Set("/a", b"1")])):
        with pytest.raises(DeniedError):
            await denied
    await other.get("/a")
    await owner.set("/a", b"1")
    await other.create("/ab")


# Any order of faults


class Life:
    """One client under faults: it reads, watches and writes one node, and checks what a session is promised."""

    def __init__(self, rig: Rig, name: str) -> None:
        self.rig = rig
        self.name = name
        self.acknowledged = self.unknown = 0
        self.trace: list[str] = []

    async def live(self, steps: int) -> None:
        """Take ``steps`` steps, with a new session whenever the old one has ended."""
        random = self.rig.node.random
        session: SimulatedSession | None = None
        seen_mzxid, watched = 0, None
        for _ in range(steps):
            if session is None or session.state is SessionState.EXPIRED:
                session, seen_mzxid, watched = await self.rig.connected(), 0, None
            try:
                told: list[WatchEvent] = []
                node = await session.get("/shared", told.append)
                assert node.stat.mzxid >= seen_mzxid, f"{self.name} went back in time"
                if watched is not None and node.stat.mzxid > watched[0]:
                    assert watched[1], f"{self.name} saw a change before its event"
                seen_mzxid, watched = node.stat.mzxid, (node.stat.mzxid, told)
                self.trace.append(f"{self.name} {node.stat.version}")
                if random.randrange(2):
                    await session.set("/shared", self.name.encode(), node.stat.version)
                    self.acknowledged += 1
            except BadVersionError:
                pass
            except (ConnectionLostError, SessionExpiredError):
                self.unknown += 1
            await asyncio.sleep(random.random() * 0.2)


async def harm(rig: Rig, sessions: Callable[[], list[SimulatedSession]], rounds: int) -> None:
    """Do one thing after the other to servers and clients, and mend all at the end."""
    ensemble, random = rig.ensemble, rig.node.random
    for _ in range(rounds):
        number, session = (
            random.randrange(len(ensemble.servers)),
            sessions()[random.randrange(len(sessions()))],
        )
        faults: list[Callable[[], object]] = [
            ensemble.lose_leader,
            partial(ensemble.stop_server, number),
            partial(ensemble.start_server, number),
            partial(ensemble.lag, number, random.randrange(1_500)),
            partial(ensemble.hang, random.randrange(2_000)),
            session.cut,
            session.heal,
            session.pause,
            session.resume,
            session.disconnect,
            session.lose_answers,
        ]
        faults[random.randrange(len(faults))]()
        await asyncio.sleep(random.random() * 3)
    for server in ensemble.servers:
        ensemble.lag(server.number, 0)
    ensemble.start_all()
    for session in sessions():
        session.resume()
        session.heal()
        session.lose_answers(0)


def lived(seed: int) -> tuple[list[str], int, int, int]:
    """Return the trace of three lives under faults, the writes acknowledged and unknown, and the writes there are."""
    rig = Rig(seed)
    made: list[SimulatedSession] = []
    make = rig.ensemble.session

    def session(*args: Any, **options: Any) -> SimulatedSession:
        made.append(make(*args, **options))
        return made[-1]

    rig.ensemble.session = session  # type: ignore[method-assign]
    lives = [Life(rig, name) for name in ("a", "b", "c")]

    async def play() -> int:
        first = await rig.connected()
        await first.create("/shared")
        await asyncio.gather(harm(rig, lambda: made[-4:], 30), *(life.live(60) for life in lives))
        last = await rig.connected()
        await last.sync("/shared")
        return (await last.get("/shared")).stat.version

    version = rig.run(play())
    trace = [line for life in lives for line in life.trace]
    return trace, sum(life.acknowledged for life in lives), sum(life.unknown for life in lives), version


@pytest.mark.parametrize("seed", range(20))
def test_under_any_faults_a_session_never_goes_back_and_no_acknowledged_write_is_lost(seed: int) -> None:
    _, acknowledged, unknown, version = lived(seed)
    assert acknowledged <= version <= acknowledged + unknown


def test_a_seed_always_gives_the_same_run() -> None:
    assert lived(3) == lived(3)
    assert lived(3) != lived(4)


def test_a_server_that_is_cut_off_tells_old_news_and_its_writes_wait_for_the_others() -> None:
    rig = Rig()

    async def story() -> None:
        one, other = await rig.connected_to(lambda at: at == 1), await rig.connected_to(lambda at: at != 1)
        await other.create("/seen", b"old")
        await one.sync("/seen")
        rig.ensemble.part(1)
        await other.set("/seen", b"new")
        assert (await one.get("/seen")).data == b"old"
        waits = one.create("/late")
        await asyncio.sleep(0.5)
        assert not waits.done
        rig.ensemble.join(1)
        assert await waits == "/late"
        assert (await one.get("/seen")).data == b"new"

    rig.run(story())


def test_a_server_that_stays_cut_off_serves_no_more_and_its_clients_go_to_others() -> None:
    rig = Rig()

    async def story() -> None:
        session = await rig.connected_to(lambda at: at == 1)
        rig.ensemble.part(1)
        lost = session.create("/never")
        with pytest.raises(ConnectionLostError):
            await lost
        await rig.until(lambda: session.state is SessionState.CONNECTED)
        assert session.server != 1
        assert await session.exists("/never") is None
        rig.ensemble.join(1)
        again = await rig.connected_to(lambda at: at == 1)
        assert await again.exists("/never") is None

    rig.run(story())


def test_a_leader_that_is_cut_off_decides_nothing_and_another_is_elected() -> None:
    rig = Rig()

    async def story() -> None:
        session = await rig.connected_to(lambda at: at != 0)
        rig.ensemble.part(0)
        with pytest.raises(ConnectionLostError):
            await session.create("/never")
        await rig.until(lambda: session.state is SessionState.CONNECTED)
        assert rig.ensemble.leader is not rig.ensemble.servers[0]
        await session.create("/decided")
        rig.ensemble.join(0)
        assert await (await rig.connected_to(lambda at: at == 0)).exists("/never") is None

    rig.run(story())


def test_a_session_that_ends_before_its_write_is_decided_writes_nothing() -> None:
    rig = Rig()

    async def story() -> None:
        session = await rig.connected()
        rig.ensemble.deciding = lambda session_id, _: rig.ensemble.expire(session_id)
        with pytest.raises((ConnectionLostError, SessionExpiredError)):
            await session.create("/never")
        rig.ensemble.deciding = lambda *_: None
        assert await (await rig.connected()).exists("/never") is None

    rig.run(story())
