"""kazoo behind the port keeps the contract of a session, on a real ZooKeeper."""

from __future__ import annotations

import pytest

from blumfeld_kit.fakes.real_time import RealTimeRuntime
from blumfeld_kit.fakes.runtime import FakeRuntime
from blumfeld_kit.zookeeper_contract import ZooKeeperContract
from blumfeld_kit.zookeeper_contract.kit import ZooKeeperServers
from tests.plugins.consensus_zk_compat.zookeeper.real_servers import RealServers, zookeeper_address

__all__ = ["zookeeper_address"]

pytestmark = pytest.mark.slow


class TestKazoo(ZooKeeperContract):
    """Each session goes through a proxy of its own."""

    @pytest.fixture(autouse=True)
    def _address(self, zookeeper_address: str) -> None:
        self.address = zookeeper_address

    def make_servers(self, runtime: FakeRuntime | RealTimeRuntime) -> ZooKeeperServers:
        """As the kit asks."""
        assert isinstance(runtime, RealTimeRuntime)
        return RealServers(runtime, self.address)
