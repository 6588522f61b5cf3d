"""The base of the contract of ``blumfeld.spi.zookeeper``: the servers under test, and the fixture."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import pytest

from blumfeld.spi.completion import Completion
from blumfeld.spi.zookeeper import SessionState, WatchEvent, ZooKeeper
from blumfeld_kit.fakes.real_time import RealTimeRuntime
from blumfeld_kit.fakes.runtime import FakeRuntime


class ZooKeeperServers(Protocol):
    """The servers under test, and the faults of a client's connection to them."""

    timeout_ms: float
    """The timeout of a session: short, since tests wait for its end."""

    def session(self, *, chroot: str, create_chroot: bool = True, reachable: bool = True) -> ZooKeeper:
        """Return a session that is not connected yet.

        :param reachable: whether there is a server where it looks for one
        """
        ...

    def cut(self, session: ZooKeeper) -> None:
        """Lose every packet between a session's client and the servers until :meth:`heal`."""
        ...

    def heal(self, session: ZooKeeper) -> None:
        """End a cut."""
        ...

    def disconnect(self, session: ZooKeeper) -> None:
        """Reset the session's connection. The client may connect again at once."""
        ...

    def lose_answer(self, session: ZooKeeper) -> None:
        """Let the next request reach the server, and reset the connection before its answer arrives."""
        ...

    def end(self) -> None:
        """The test is over."""
        ...


class Trail:
    """The events, states and answers of a session, in order."""

    def __init__(self) -> None:
        self.seen: list[object] = []

    def watch(self, name: str = "") -> Callable[[WatchEvent], None]:
        """Return a watch that notes its event."""

        def note(event: WatchEvent) -> None:
            self.seen.append((name, event.kind, event.path) if name else (event.kind, event.path))

        return note

    def state(self, state: SessionState) -> None:
        """Note a state."""
        self.seen.append(state)

    def answer(self, completion: Completion[Any], name: str) -> None:
        """Note ``name`` when a request succeeds, and ``(name, error's class)`` when it fails."""

        def note(done: Completion[Any]) -> None:
            self.seen.append(name if done.error is None else (name, type(done.error)))

        completion.when_done(note)


class Opened:
    """The servers, sessions on an empty chroot of them, and the runtime that all were made with."""

    def __init__(
        self, servers: ZooKeeperServers, runtime: FakeRuntime | RealTimeRuntime, chroot: str
    ) -> None:
        self.servers = servers
        self.runtime = runtime
        self.chroot = chroot
        self.sessions: list[ZooKeeper] = []
        self.trail = Trail()

    def new_session(self, **differing: Any) -> ZooKeeper:
        """Return another session, not connected."""
        session = self.servers.session(**{"chroot": self.chroot, **differing})
        self.sessions.append(session)
        return session

    async def connected(self, **differing: Any) -> ZooKeeper:
        """Return another session, connected."""
        session = self.new_session(**differing)
        await session.connect(20_000)
        return session

    async def until(self, condition: Callable[[], bool], timeout_ms: float = 30_000) -> None:
        """Wait until ``condition()`` holds."""
        end_ms = self.runtime.monotonic_ms() + timeout_ms
        while not condition():
            assert self.runtime.monotonic_ms() < end_ms, f"after {timeout_ms} ms: {self.trail.seen}"
            await asyncio.sleep(0.01)

    async def expire(self, session: ZooKeeper) -> None:
        """Cut a client until its session is over, heal, and wait until it has learnt that."""
        other = await self.connected()
        owner, path = session.session_id, "/expires-with-the-session"
        await session.create(path, ephemeral=True)
        self.servers.cut(session)
        gone = Trail()
        stat = await other.exists(path, gone.watch())
        assert stat is not None
        assert stat.ephemeral_owner == owner
        await self.until(lambda: bool(gone.seen))
        self.servers.heal(session)
        await self.until(lambda: session.state is SessionState.EXPIRED)
        await other.close()


class ZooKeeperKit:
    """The methods and values that a subclass may or must override."""

    virtual_time = False
    """The sessions wait for nothing but the runtime: they are tried on virtual time."""
    many_nodes = 2_000
    """Nodes that pipelined requests are tried with."""

    def make_servers(self, runtime: FakeRuntime | RealTimeRuntime) -> ZooKeeperServers:
        """Return your servers. What other tests left in them doesn't matter."""
        raise NotImplementedError("override make_servers")

    @pytest.fixture
    def opened(self, request: pytest.FixtureRequest) -> Iterator[Opened]:
        """Your servers, with an empty chroot for this test."""
        runtime = FakeRuntime(1) if self.virtual_time else RealTimeRuntime()
        chroot = f"/contract/{request.node.name[:60]}-{runtime.new_uuid().hex()}"
        opened = Opened(self.make_servers(runtime), runtime, chroot)
        try:
            yield opened
            for session in opened.sessions:
                runtime.run(session.close())
        finally:
            opened.servers.end()
            if isinstance(runtime, RealTimeRuntime):
                runtime.end()
