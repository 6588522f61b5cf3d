"""A real ZooKeeper for tests: the one that ``BLUMFELD_ZOOKEEPER`` names, or a child process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from blumfeld.spi.zookeeper import ZooKeeper
from blumfeld_consensus_zk_compat.zookeeper import Access, open_session
from blumfeld_kit.fakes.real_time import RealTimeRuntime
from campaigns.zookeeper_server import JARS_VARIABLE, ZooKeeperServer, server_command
from tests.plugins.consensus_zk_compat.zookeeper.proxy import Proxy

VARIABLE = "BLUMFELD_ZOOKEEPER"
"""Environment variable with HOST:PORT of a ZooKeeper that runs. Its sessions may have a timeout of 3 s."""


class RealServers:
    """A real ZooKeeper, and a proxy to it for each session."""

    timeout_ms = 3_000.0

    def __init__(self, runtime: RealTimeRuntime, address: str) -> None:
        self.runtime = runtime
        host, _, port = address.rpartition(":")
        self._target = host, int(port)
        self._proxies: dict[int, Proxy] = {}

    def session(self, *, chroot: str, create_chroot: bool = True, reachable: bool = True) -> ZooKeeper:
        """As the kit asks."""
        proxy = Proxy(*self._target)
        access = Access(
            servers=proxy.address if reachable else "127.0.0.1:1",
            chroot=chroot,
            create_chroot=create_chroot,
            session_timeout_ms=self.timeout_ms,
        )
        session = open_session(self.runtime, access)
        self._proxies[id(session)] = proxy
        return session

    def cut(self, session: ZooKeeper) -> None:
        """As the kit asks."""
        self._proxies[id(session)].cut()

    def heal(self, session: ZooKeeper) -> None:
        """As the kit asks."""
        self._proxies[id(session)].heal()

    def disconnect(self, session: ZooKeeper) -> None:
        """As the kit asks."""
        self._proxies[id(session)].disconnect()

    def lose_answer(self, session: ZooKeeper) -> None:
        """As the kit asks."""
        self._proxies[id(session)].lose_answer()

    def end(self) -> None:
        """As the kit asks."""

        async def stop() -> None:
            for proxy in self._proxies.values():
                await proxy.stop()

        self.runtime.run(stop())


@pytest.fixture(scope="session")
def zookeeper_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """HOST:PORT of a real ZooKeeper; the test is skipped without one."""
    if named := os.environ.get(VARIABLE):
        yield named
        return
    server = started_server(tmp_path_factory.mktemp("zookeeper"))
    yield f"127.0.0.1:{server.port}"
    server.kill()


def started_server(folder: Path) -> ZooKeeperServer:
    """Return a server that serves. Skips the test if this machine has none."""
    if server_command(folder, 0) is None:
        pytest.skip(
            f"no ZooKeeper: set {VARIABLE}=HOST:PORT or {JARS_VARIABLE}, or install Debian's zookeeper"
        )
    server = ZooKeeperServer(folder)
    server.start()
    return server
