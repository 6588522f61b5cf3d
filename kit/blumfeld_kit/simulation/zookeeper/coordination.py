"""The ZooKeeper of a run, and the consensus plug-in of its nodes, with a simulated session in place of the client."""

from __future__ import annotations

import random
from collections.abc import Callable
from importlib.metadata import EntryPoint
from typing import Any

from blumfeld.plugging.registry import GROUP
from blumfeld.spi.hooks import Composition
from blumfeld.spi.zookeeper import ZooKeeper
from blumfeld_kit.fakes.runtime import FakeRuntime
from blumfeld_kit.fakes.zookeeper import SimulatedZooKeeper
from blumfeld_kit.fakes.zookeeper_session import SimulatedSession
from blumfeld_kit.simulation.machine.host import installed
from blumfeld_kit.simulation.zookeeper.tree_oracle import TreeOracle

PLUGIN = "consensus_zk_compat"
NAME = "consensus_zk_simulated"
SESSION_TIMEOUT_MS = 3_000
"""Longer than ``replica.lag.time.max.ms``, so that an ISR changes before its broker goes."""
TICK_MS = 250
SERVERS = (1, 3, 3)
REQUEST_BYTES_MAX = (4_000, 0xFFFFF)
"""With little room in a request one decision takes several, and a fault comes between them."""


class Coordination:
    """The servers and the sessions of one run. The servers are made with the first session.

    :param seed: of the run
    """

    def __init__(self, seed: int) -> None:
        self.oracle = TreeOracle()
        self.sessions: dict[int, SimulatedSession] = {}
        """The newest session of each node."""
        self.troubles = 0
        """Faults of the servers, or of a way to them, that last now."""
        self.troubled_s = -1.0
        """When the last of them ended."""
        self._seed = seed
        self._servers: SimulatedZooKeeper | None = None

    @property
    def servers(self) -> SimulatedZooKeeper:
        """The servers. A node has asked for a session before."""
        assert self._servers is not None
        return self._servers

    def plugin(self) -> EntryPoint:
        """Return the plug-in :data:`PLUGIN` under the name :data:`NAME`: its sessions are those of this ZooKeeper."""
        coordination = self

        class Point(EntryPoint):
            def load(self) -> Any:
                [point] = [point for point in installed() if point.name == PLUGIN]
                return _simulated(point.load(), coordination.session)

        return Point(NAME, f"{__name__}:Coordination", GROUP)

    def session(self, composition: Composition, *, create_chroot: bool) -> ZooKeeper:
        """Return a session of a node's process."""
        runtime: Any = composition.runtime
        if self._servers is None:
            self._servers = self._make(runtime.network.loop)
        session = self._servers.session(runtime, create_chroot=create_chroot, timeout_ms=SESSION_TIMEOUT_MS)
        self.sessions[composition.node_id] = session
        return session

    def _make(self, loop: Any) -> SimulatedZooKeeper:
        chance = random.Random(f"{self._seed}/zookeeper")
        servers = SimulatedZooKeeper(
            FakeRuntime(chance.getrandbits(64), loop=loop),
            servers=chance.choice(SERVERS),
            tick_ms=TICK_MS,
            request_bytes_max=chance.choice(REQUEST_BYTES_MAX),
        )
        servers.decided = self.oracle.decided
        return servers


def _simulated(plugin: Any, session: Callable[..., ZooKeeper]) -> Any:
    class Simulated(plugin):  # type: ignore[misc]
        def zookeeper(self, composition: Composition, *, create_chroot: bool) -> ZooKeeper:
            return session(composition, create_chroot=create_chroot)

        def check_client(self) -> None:
            """None is needed."""

    return Simulated
