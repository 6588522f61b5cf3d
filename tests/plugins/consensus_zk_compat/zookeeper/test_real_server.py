"""A real server that is killed, paused and full of nodes, and kazoo's session of it."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from blumfeld.spi.completion import Completion
from blumfeld.spi.zookeeper import (
    Check,
    ConnectionLostError,
    Create,
    Node,
    NodeExistsError,
    SessionState,
    Set,
    ZooKeeper,
    ZooKeeperError,
)
from blumfeld_consensus_zk_compat.zookeeper import Access, open_session
from blumfeld_kit.fakes.real_time import RealTimeRuntime
from blumfeld_kit.zookeeper_contract.kit import Opened
from tests.plugins.consensus_zk_compat.zookeeper.real_servers import RealServers, started_server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

TIMEOUT_MS = 4_000


class Machine:
    """A server of this test's own, and sessions of it."""

    def __init__(self, folder: Path) -> None:
        self.server = started_server(folder)
        self.runtime = RealTimeRuntime()
        self.opened = Opened(RealServers(self.runtime, self.address), self.runtime, "")

    @property
    def address(self) -> str:
        """HOST:PORT of the server."""
        return f"127.0.0.1:{self.server.port}"

    async def connected(self, **differing: object) -> ZooKeeper:
        """Return a connected session."""
        access = Access(**{"servers": self.address, "session_timeout_ms": TIMEOUT_MS, **differing})  # type: ignore[arg-type]
        session = open_session(self.runtime, access)
        self.opened.sessions.append(session)
        await session.connect(30_000)
        return session


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    """A server of this test's own."""
    machine = Machine(tmp_path / "zookeeper")
    try:
        yield machine
        for session in machine.opened.sessions:
            machine.runtime.run(session.close())
    finally:
        machine.opened.servers.end()
        machine.server.kill()
        machine.runtime.end()


def test_a_killed_server_comes_back_with_all_that_it_acknowledged(machine: Machine) -> None:
    """Sessions and ephemeral nodes outlive it. What was under way is unknown, and takes place once or never."""

    async def play() -> None:
        zk = await machine.connected()
        states: list[SessionState] = []
        zk.on_state(states.append)
        await zk.create("/alive", ephemeral=True)
        await zk.create("/count", b"0")
        writes = [zk.multi([Set("/count", b"x"), Create("/n-", sequential=True)]) for _ in range(500)]
        await writes[100]
        machine.server.kill()
        await machine.opened.until(lambda: all(write.done for write in writes))
        acknowledged = sum(write.error is None for write in writes)
        assert {type(write.error) for write in writes} <= {type(None), ConnectionLostError}
        await machine.runtime.offload(machine.server.start)
        await machine.opened.until(lambda: zk.state is SessionState.CONNECTED)
        assert states == [SessionState.SUSPENDED, SessionState.CONNECTED]
        version = (await zk.get("/count")).stat.version
        assert acknowledged <= version <= len(writes)
        assert len(await zk.children("/")) == version + 3  # and /alive, /count, /zookeeper
        stat = await zk.exists("/alive")
        assert stat is not None
        assert stat.ephemeral_owner == zk.session_id

    machine.runtime.run(play())


def test_an_ephemeral_node_of_a_session_from_before_the_kill_goes(machine: Machine) -> None:
    """Its client is gone with the server; the server that comes back ends the session when its timeout has passed."""

    async def play() -> None:
        opened = machine.opened
        old = opened.servers.session(chroot="")
        await old.connect(30_000)
        await old.create("/broker", ephemeral=True)
        opened.servers.cut(old)
        machine.server.kill()
        await machine.runtime.offload(machine.server.start)
        new = await machine.connected()
        with pytest.raises(NodeExistsError):
            await new.create("/broker", ephemeral=True)
        gone: list[object] = []
        if await new.exists("/broker", gone.append) is not None:
            await opened.until(lambda: bool(gone))
        await new.create("/broker", ephemeral=True)
        opened.servers.heal(old)
        await opened.until(lambda: old.state is SessionState.EXPIRED)
        await old.close()

    machine.runtime.run(play())


def test_a_server_that_is_paused_beyond_the_timeout_suspends_and_expires_nobody(machine: Machine) -> None:
    """Its clock stood still too. The client that reaches it again in time has its session."""

    async def play() -> None:
        zk = await machine.connected()
        await zk.create("/alive", ephemeral=True)
        machine.server.pause()
        late = zk.get("/alive")
        with pytest.raises(ConnectionLostError):
            await late
        assert zk.state is SessionState.SUSPENDED
        machine.server.resume()
        await machine.opened.until(lambda: zk.state is not SessionState.SUSPENDED)

    machine.runtime.run(play())


def test_a_hundred_thousand_nodes_are_read_without_waiting_for_each(machine: Machine) -> None:
    """The loop keeps its turns meanwhile. The rates are printed."""
    count, data = 100_000, b"x" * 120

    async def play() -> None:
        zk = await machine.connected(session_timeout_ms=10_000)
        await zk.create("/brokers")
        operations = [Create(f"/brokers/{number:06}", data) for number in range(count)]
        begin_s = time.monotonic()
        for at in range(0, count, 20_000):
            parts = [zk.multi(operations[first : first + 1_000]) for first in range(at, at + 20_000, 1_000)]
            for part in parts:
                await part
        created_s = time.monotonic()
        names = await zk.children("/brokers")
        assert len(names) == count
        longest_turn_ms = 0.0
        last_ms = machine.runtime.monotonic_ms()
        reads: list[Completion[Node]] = []

        def turn() -> None:
            nonlocal longest_turn_ms, last_ms
            now_ms = machine.runtime.monotonic_ms()
            longest_turn_ms, last_ms = max(longest_turn_ms, now_ms - last_ms), now_ms
            if not reads or not reads[-1].done:
                machine.runtime.call_later(1, turn)

        read_s = time.monotonic()
        for at in range(0, count, 1_000):
            reads += [zk.get(f"/brokers/{name}") for name in names[at : at + 1_000]]
            if at == 0:
                turn()
            if at >= 4_000:
                await reads[at - 4_000]
        await reads[-1]
        end_s = time.monotonic()
        assert all(read.result().data == data for read in reads)
        print(f"\ncreated {count / (created_s - begin_s):.0f}/s, read {count / (end_s - read_s):.0f}/s")
        print(f"longest turn {longest_turn_ms:.1f} ms")

    machine.runtime.run(play())


def test_a_digest_and_set_acl_keep_others_out(machine: Machine) -> None:
    """Others read what isn't secret, and write nothing."""

    async def play() -> None:
        ours = await machine.connected(digest="kafka:secret", set_acl=True)
        other = await machine.connected()
        await ours.create("/config")
        await ours.create("/config/users", b"secret")
        await other.get("/config")
        for denied in (
            other.get("/config/users"),
            other.set("/config", b""),
            other.create("/config/x"),
            other.multi([Check("/config"), Set("/config", b"")]),
        ):
            with pytest.raises(ZooKeeperError) as error:
                await denied
            assert type(error.value).__name__ == "DeniedError"
        assert (await ours.get("/config/users")).data == b"secret"

    machine.runtime.run(play())


def test_the_session_of_this_process_survives_many_reconnections(machine: Machine) -> None:
    """Kill after kill, its state is one of the three, and the last one is CONNECTED."""

    async def play() -> None:
        zk = await machine.connected(session_timeout_ms=10_000)
        owner = zk.session_id
        await zk.create("/alive", ephemeral=True)
        for _ in range(3):
            machine.server.kill()
            await machine.opened.until(lambda: zk.state is SessionState.SUSPENDED)
            await machine.runtime.offload(machine.server.start)
            await machine.opened.until(lambda: zk.state is not SessionState.SUSPENDED)
            assert (zk.state, zk.session_id) == (SessionState.CONNECTED, owner)
            assert await zk.exists("/alive") is not None

    machine.runtime.run(play())


def test_a_client_that_was_paused_beyond_its_timeout_writes_nothing(machine: Machine) -> None:
    """``SIGSTOP``: it wakes as a leader that takes itself for connected, and its write is never seen."""

    async def play() -> None:
        other = await machine.connected()
        await other.create("/epoch", b"1")
        command = [sys.executable, str(Path(__file__).with_name("paused_client.py")), machine.address, "2000"]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            said = partial(machine.runtime.offload, process.stdout.readline)
            try:
                assert await said() == "leads\n"
                gone: list[object] = []
                assert await other.exists("/controller", gone.append) is not None
                process.send_signal(signal.SIGSTOP)
                await machine.opened.until(lambda: bool(gone))
                process.stdin.write("go\n")
                process.send_signal(signal.SIGCONT)
                woke_as, multi = await said(), await said()
                assert woke_as in ("connected\n", "suspended\n")
                assert multi in ("ConnectionLostError\n", "SessionExpiredError\n")
                assert await said() == "expired\n"
            finally:
                process.kill()
        await other.sync("/epoch")
        assert (await other.get("/epoch")).data == b"1"

    machine.runtime.run(play())


@pytest.mark.parametrize(
    ("answer", "refused"),
    [
        ("Zookeeper version: 3.4.14-4c25d480e, built on 03/06/2019 16:18 GMT\nLatency", True),
        ("Zookeeper version: 3.5.0, built on", False),
        ("srvr is not executed because it is not in the whitelist.\n", False),
        ("", False),
    ],
)
def test_a_server_that_is_too_old_is_refused(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, answer: str, refused: bool
) -> None:
    """One that doesn't tell its version is not."""
    monkeypatch.setattr(KazooClient, "command", lambda _, word: answer if word == b"srvr" else "")

    async def play() -> None:
        if refused:
            with pytest.raises(ZooKeeperError, match=r"is 3\.4\.14; 3\.5 or later is needed"):
                await machine.connected()
        else:
            await machine.connected()

    machine.runtime.run(play())
