"""Three real servers: the loss of their leader ends connections and no session, as in the simulation."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from blumfeld.spi.completion import Completion
from blumfeld.spi.zookeeper import ConnectionLostError, NodeStat, SessionState
from blumfeld_consensus_zk_compat.zookeeper import Access, open_session
from blumfeld_kit.fakes.real_time import RealTimeRuntime
from blumfeld_kit.zookeeper_contract.kit import Trail
from campaigns.zookeeper_server import JARS_VARIABLE, ZooKeeperServer, jars_folder

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

SERVERS = 3


def free_ports(count: int) -> list[int]:
    """Return ports that nobody listens on."""
    listening = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in listening]
    for each in listening:
        each.close()
    return ports


@pytest.fixture
def ensemble(tmp_path: Path) -> Iterator[list[ZooKeeperServer]]:
    """Three servers that elect a leader."""
    if jars_folder() is None:
        pytest.skip(f"needs {JARS_VARIABLE}, or Debian's zookeeper")
    ports = free_ports(2 * SERVERS)
    addresses = {
        f"server.{number + 1}": f"127.0.0.1:{ports[2 * number]}:{ports[2 * number + 1]}"
        for number in range(SERVERS)
    }
    servers = []
    for number in range(SERVERS):
        folder = tmp_path / f"{number + 1}"
        (folder / "data").mkdir(parents=True)
        (folder / "data" / "myid").write_text(f"{number + 1}")
        servers.append(ZooKeeperServer(folder, {**addresses, "initLimit": 40, "syncLimit": 20}))
        servers[-1].launch()
    yield servers
    for server in servers:
        server.kill()


def test_the_loss_of_the_leader_ends_connections_and_no_session(ensemble: list[ZooKeeperServer]) -> None:
    """What was acknowledged is there after the election, and so are ephemeral nodes. Nobody's reads go back in time."""
    runtime = RealTimeRuntime()
    addresses = ",".join(f"127.0.0.1:{server.port}" for server in ensemble)
    sessions = [open_session(runtime, Access(servers=addresses, session_timeout_ms=10_000)) for _ in range(6)]
    trails = [Trail() for _ in sessions]

    async def until_all_are_connected() -> None:
        for _ in range(1_000):
            if all(session.state is SessionState.CONNECTED for session in sessions):
                return
            await sleep(runtime, 50)
        raise AssertionError([trail.seen for trail in trails])

    async def play() -> None:
        for number, session in enumerate(sessions):
            await session.connect(120_000)
            session.on_state(trails[number].state)
            await session.create(f"/{number}", b"acknowledged", ephemeral=True)
        await sessions[0].create("/count", b"")
        leader = next(server for server in ensemble if "Mode: leader" in server.status())
        writes = [session.set("/count", b"x") for session in sessions for _ in range(50)]
        await writes[10]
        leader.kill()
        await until_done(runtime, writes)
        acknowledged = sum(write.error is None for write in writes)
        assert {type(write.error) for write in writes} <= {type(None), ConnectionLostError}
        await until_all_are_connected()
        for number, session in enumerate(sessions):
            assert SessionState.EXPIRED not in trails[number].seen
            await session.sync("/")
            node = await session.get(f"/{number}")
            assert (node.data, node.stat.ephemeral_owner) == (b"acknowledged", session.session_id)
            assert acknowledged <= (await session.get("/count")).stat.version <= len(writes)
        for session in sessions:
            await session.close()

    try:
        runtime.run(play())
    finally:
        runtime.end()


async def sleep(runtime: RealTimeRuntime, ms: float) -> None:
    """Wait."""
    over: Completion[None] = Completion()
    runtime.call_later(ms, lambda: over.complete(None))
    await over


async def until_done(runtime: RealTimeRuntime, writes: list[Completion[NodeStat]]) -> None:
    """Wait for every answer, and every error."""
    while not all(write.done for write in writes):
        await sleep(runtime, 20)
