"""The simulated ZooKeeper keeps the contract of a session, with one server and with several."""

from __future__ import annotations

from typing import cast

import pytest

from blumfeld.spi.zookeeper import ZooKeeper
from blumfeld_kit.fakes.real_time import RealTimeRuntime
from blumfeld_kit.fakes.runtime import FakeRuntime
from blumfeld_kit.fakes.zookeeper import SimulatedZooKeeper
from blumfeld_kit.fakes.zookeeper_session import SimulatedSession
from blumfeld_kit.zookeeper_contract import ZooKeeperContract
from blumfeld_kit.zookeeper_contract.kit import ZooKeeperServers


class SimulatedServers:
    """An ensemble on the test's virtual time."""

    timeout_ms = 6_000.0

    def __init__(self, runtime: FakeRuntime, servers: int, seed: int = 2) -> None:
        self.runtime = runtime
        self.ensemble = SimulatedZooKeeper(FakeRuntime(seed, loop=runtime.loop), servers=servers)
        self.nobody = SimulatedZooKeeper(FakeRuntime(seed, loop=runtime.loop))
        self.nobody.stop_all()

    def session(self, *, chroot: str, create_chroot: bool = True, reachable: bool = True) -> SimulatedSession:
        """As the kit asks."""
        ensemble = self.ensemble if reachable else self.nobody
        return ensemble.session(
            self.runtime, chroot=chroot, create_chroot=create_chroot, timeout_ms=self.timeout_ms
        )

    def cut(self, session: ZooKeeper) -> None:
        """As the kit asks."""
        cast(SimulatedSession, session).cut()

    def heal(self, session: ZooKeeper) -> None:
        """As the kit asks."""
        cast(SimulatedSession, session).heal()

    def disconnect(self, session: ZooKeeper) -> None:
        """As the kit asks."""
        cast(SimulatedSession, session).disconnect()

    def lose_answer(self, session: ZooKeeper) -> None:
        """As the kit asks."""
        cast(SimulatedSession, session).lose_answers()

    def end(self) -> None:
        """As the kit asks."""


@pytest.mark.parametrize("servers", [1, 3])
class TestTheSimulatedZooKeeper(ZooKeeperContract):
    """One server, and one that leads with two that follow."""

    virtual_time = True
    many_nodes = 200

    @pytest.fixture(autouse=True)
    def _servers(self, servers: int) -> None:
        self.servers = servers

    def make_servers(self, runtime: FakeRuntime | RealTimeRuntime) -> ZooKeeperServers:
        """As the kit asks."""
        assert isinstance(runtime, FakeRuntime)
        return SimulatedServers(runtime, self.servers)
