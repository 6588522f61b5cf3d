"""The nodes of a cluster on this machine: their ids and ports, the commands that start them, their processes.

A command has places that are filled in for each node: ``{id}``, ``{host}``, ``{port}``, ``{controller_port}``,
``{voters}`` and ``{folder}``. So one command serves this build and a foreign broker alike.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs

from blumfeld.testing.process import LOOPBACK as LOOPBACK
from blumfeld.testing.process import POLL_S, START_TIMEOUT_S, NodeError, NodeProcess, free_port
from blumfeld.wire.messages.metadata import MetadataRequest, MetadataResponse
from blumfeld.wire.primitives import DecodeError

END_S = 20.0
"""Time that all nodes of a cluster together have to end."""
METADATA_VERSION = 8
PORTS_PER_NODE = 2
CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
"""One id for every cluster of a test: the nodes of one must agree on it before any of them starts."""
Roles = tuple[str, ...]
COMBINED: Roles = ("broker", "controller")
BROKER: Roles = ("broker",)
CONTROLLER: Roles = ("controller",)
_BROKER_LISTENER = '{ name = "PLAINTEXT", kind = "broker", bind = "{host}:{port}", inter_broker = true }'
_CONTROLLER_LISTENER = '{ name = "CONTROLLER", kind = "controller", bind = "{host}:{controller_port}" }'
_LISTENERS = {"broker": _BROKER_LISTENER, "controller": _CONTROLLER_LISTENER}


def node_settings(roles: Roles = COMBINED) -> tuple[str, ...]:
    """Return what ``--set`` lays over the manifest of a node of this build, so that it is one of several."""
    return (
        "node.id={id}",
        f'node.cluster_id="{CLUSTER_ID}"',
        "node.roles=[" + ", ".join(f'"{role}"' for role in roles) + "]",
        "network.listeners=[" + ", ".join(_LISTENERS[role] for role in roles) + "]",
        'config."controller.quorum.voters"="{voters}"',
    )


NODE_SETTINGS = node_settings()
"""The settings of a node that is broker and voter (Kafka's combined mode)."""


REPLICAS = 3
REPLICATED = (
    *(f'config."{prefix}replication.factor"={REPLICAS}' for prefix in ("default.", "offsets.topic.")),
    f'config."transaction.state.log.replication.factor"={REPLICAS}',
    'config."transaction.state.log.min.isr"=2',
    'config."min.insync.replicas"=2',
)
"""Laid over a cluster that has so many nodes: the replicas of each topic, and how many of them acks=all needs."""


@attrs.frozen
class NodePlace:
    """One node's id, its roles and its listeners."""

    id: int
    host: str
    port: int
    """Port of the broker listener."""
    controller_port: int
    roles: Roles = COMBINED

    @property
    def is_broker(self) -> bool:
        """Whether clients can ask it."""
        return "broker" in self.roles

    @property
    def address(self) -> str:
        """``host:port`` of its broker listener, or of its only listener."""
        return f"{self.host}:{self.first_port}"

    @property
    def first_port(self) -> int:
        """Port of its broker listener, or of its only listener."""
        return self.port if self.is_broker else self.controller_port


def node_places(
    hosts: Sequence[str], first_port: int = 0, roles: Sequence[Roles] = ()
) -> tuple[NodePlace, ...]:
    """Return places with ids from 1 on, one for each host.

    :param first_port: the nodes take the ports from here on, two for each; 0 takes free loopback ports
    :param roles: of each node; combined ones if not given
    :raises OSError: there are no free ports
    """
    first = first_port or free_port(adjacent=PORTS_PER_NODE * len(hosts))
    return tuple(
        NodePlace(nth + 1, host, first + PORTS_PER_NODE * nth, first + PORTS_PER_NODE * nth + 1, its)
        for nth, (host, its) in enumerate(zip(hosts, roles or [COMBINED] * len(hosts), strict=True))
    )


def voters(places: Sequence[NodePlace]) -> str:
    """Return Kafka's ``controller.quorum.voters``: ``id@host:port`` of every node that is a controller, by comma."""
    return ",".join(
        f"{place.id}@{place.host}:{place.controller_port}" for place in places if "controller" in place.roles
    )


def filled(command: Sequence[str], place: NodePlace, places: Sequence[NodePlace], folder: Path) -> list[str]:
    """Return the command of one node. Braces around other words stay as they are: an override may hold a table."""
    values = {
        "id": str(place.id),
        "host": place.host,
        "port": str(place.port),
        "controller_port": str(place.controller_port),
        "voters": voters(places),
        "folder": str(folder),
    }
    parts = []
    for part in command:
        for name, value in values.items():
            part = part.replace(f"{{{name}}}", value)
        parts.append(part)
    return parts


class Node(NodeProcess):
    """One node of a cluster. Its data and its log lie in ``folder``."""

    def __init__(self, place: NodePlace, command: Sequence[str], folder: Path) -> None:
        super().__init__(f"node {place.id}", command, folder / "node.log", (place.host, place.first_port))
        self.place = place
        self.folder = folder


class Cluster:
    """All nodes, each in a folder of its own below ``folder``."""

    def __init__(
        self,
        commands: Mapping[Roles, Sequence[str]],
        places: Sequence[NodePlace],
        folder: Path,
        prefixes: Sequence[Sequence[str]] = (),
    ) -> None:
        """:param commands: the start command of a node, by its roles
        :param prefixes: for each node a command that runs the node's command and keeps its process id"""
        self.folder = folder
        given = prefixes or [()] * len(places)
        self.nodes = tuple(
            Node(
                place,
                [*prefix, *filled(commands[place.roles], place, places, folder / f"node{place.id}")],
                folder / f"node{place.id}",
            )
            for place, prefix in zip(places, given, strict=True)
        )

    @property
    def addresses(self) -> str:
        """``bootstrap.servers`` of a client."""
        return ",".join(node.place.address for node in self.brokers)

    @property
    def brokers(self) -> tuple[Node, ...]:
        """The nodes that clients can ask."""
        return tuple(node for node in self.nodes if node.place.is_broker)

    def node(self, node_id: int) -> Node:
        """Return the node with this id."""
        return next(node for node in self.nodes if node.place.id == node_id)

    def start(self) -> None:
        """Start all nodes, and wait until each answers and each broker names all brokers.

        :raises NodeError: one did not
        """
        for node in self.nodes:
            node.launch()
        for node in self.nodes:
            node.await_ready()
        deadline = time.monotonic() + START_TIMEOUT_S
        for node in self.brokers:
            while not self._names_all(node):
                if time.monotonic() > deadline:
                    raise NodeError(f"{node.name} does not name all brokers; it printed:\n{node.printed()}")
                time.sleep(POLL_S)

    def _names_all(self, node: Node) -> bool:
        with contextlib.suppress(OSError, DecodeError), node.connect() as connection:
            answer = connection.ask(MetadataRequest(topics=[]), MetadataResponse, METADATA_VERSION)
            return len(answer.brokers) == len(self.brokers)
        return False

    def stop(self) -> None:
        """End all nodes, paused ones too: SIGTERM to all, then SIGKILL to those that take too long.

        An exception that interrupts the wait, such as that of a second Ctrl-C, kills those that are left.
        """
        try:
            for node in self.nodes:
                node.resume()
                node.terminate()
            deadline = time.monotonic() + END_S
            for node in self.nodes:
                node.await_end(max(0.0, deadline - time.monotonic()))
        finally:
            for node in self.nodes:
                if node.is_up:
                    node.kill()


def build_commands(
    manifest: Path | None = None, settings: Sequence[str] = ()
) -> dict[Roles, tuple[str, ...]]:
    """Return the commands that start nodes of this build, by their roles.

    :param manifest: what every node is made of; ids, roles, listeners and voters are laid over it
    :param settings: ``section.key=value``, laid over the manifest
    """
    command = [sys.executable, "-m", "blumfeld.cli.main", "run"]
    command += [str(manifest.resolve())] if manifest is not None else []
    command += ["--data-dir", "{folder}/data"]
    commands = {}
    for roles in (COMBINED, BROKER, CONTROLLER):
        laid = [word for one in (*settings, *node_settings(roles)) for word in ("--set", one)]
        commands[roles] = (*command, *laid)
    return commands


def cluster_of_this_build(
    nodes: int, folder: Path, settings: Sequence[str] = (), manifest: Path | None = None
) -> Cluster:
    """Return so many combined nodes of this build on loopback, not started. From :data:`REPLICAS` nodes on every topic
    has replicas.

    :param settings: ``section.key=value``, laid over the manifest
    """
    laid = [*(REPLICATED if nodes >= REPLICAS else ()), *settings]
    return Cluster(build_commands(manifest, laid), node_places([LOOPBACK] * nodes), folder)
