"""The ZooKeeper of a cluster: its servers, its tree, and the doors between it and the nodes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import attrs

from blumfeld.testing.cluster import LOOPBACK
from blumfeld_kit.cluster import Cluster
from campaigns.cluster.namespaces import Namespaces
from campaigns.cluster.sessions import SessionDoor
from campaigns.cluster.tree import Tree
from campaigns.zookeeper_server import CHROOT, ZooKeeperServer, leader_of, running, zookeeper_ensemble


@attrs.frozen
class Ensemble:
    """The ZooKeeper of a cluster, started. Its owner ends it."""

    servers: tuple[ZooKeeperServer, ...]
    tree: Tree
    door_host: str = ""
    """The host where the doors between each node and its ZooKeeper listen; empty where no fault needs doors."""
    doors: dict[int, SessionDoor] = attrs.field(factory=dict)
    """Node → its door, while they are open."""

    @property
    def connect(self) -> str:
        """``HOST:PORT,…/CHROOT`` for a node's command. A node has no controller listener, so its door takes that
        port.
        """
        places = f"{self.door_host}:{{controller_port}}"
        if not self.door_host:
            places = ",".join(server.place.address for server in self.servers)
        return f"{places}/{CHROOT}"

    @contextlib.contextmanager
    def opened(self, cluster: Cluster) -> Iterator[None]:
        """Open a door for each node, where faults need them, until the block ends."""
        targets = [(server.place.host, server.place.port) for server in self.servers]
        places = [node.place for node in cluster.nodes] if self.door_host else []
        try:
            for place in places:
                self.doors[place.id] = SessionDoor(targets, self.door_host, place.controller_port)
            yield
        finally:
            while self.doors:
                self.doors.popitem()[1].close()

    @property
    def ids(self) -> tuple[int, ...]:
        """The servers' ids, their leader first."""
        leader = leader_of(self.servers)
        return tuple(
            server.place.id for server in sorted(self.servers, key=lambda server: server is not leader)
        )


@contextlib.contextmanager
def started_ensemble(
    folder: Path,
    count: int,
    wires: Namespaces | None = None,
    nodes: int = 0,
    has_doors: bool = False,
) -> Iterator[Ensemble]:
    """Start the servers, and end them.

    :param wires: a network in which the servers' places come behind those of so many ``nodes``
    :raises FileNotFoundError: this machine has none
    :raises NodeError: one did not start
    """
    hosts = wires.hosts[nodes:] if wires is not None else ()
    prefixes = wires.prefixes[nodes:] if wires is not None else ()
    servers = zookeeper_ensemble(folder, count, hosts=hosts, prefixes=prefixes)
    with running(servers) as addresses, Tree(f"{addresses}/{CHROOT}") as tree:
        door_host = wires.load_host if wires is not None else LOOPBACK
        yield Ensemble(servers, tree, door_host if has_doors else "")
