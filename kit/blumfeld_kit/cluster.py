"""The nodes of a cluster as processes on this machine, of this build or a foreign broker."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from blumfeld.testing.cluster import (
    BROKER,
    COMBINED,
    CONTROLLER,
    LOOPBACK,
    NodePlace,
    Roles,
    filled,
    node_places,
    node_settings,
)
from blumfeld.testing.process import NodeProcess, start_together

END_S = 20.0
"""Time that all nodes of a cluster together have to end."""
REPLICAS = 3
REPLICATED = (
    *(f'config."{prefix}replication.factor"={REPLICAS}' for prefix in ("default.", "offsets.topic.")),
    f'config."transaction.state.log.replication.factor"={REPLICAS}',
    'config."transaction.state.log.min.isr"=2',
    'config."min.insync.replicas"=2',
)
"""Laid over a cluster that has so many nodes: the replicas of each topic, and how many of them acks=all needs."""


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
        start_together(self.nodes, self.brokers)

    def stop(self) -> None:
        """End all nodes, as :func:`end_together`."""
        end_together(self.nodes)


def end_together(nodes: Sequence[NodeProcess]) -> None:
    """End the nodes of a cluster, paused ones too: SIGTERM to all, then SIGKILL to those that take too long.

    An exception that interrupts the wait, such as that of a second Ctrl-C, kills those that are left.
    """
    try:
        for node in nodes:
            node.resume()
            node.terminate()
        deadline = time.monotonic() + END_S
        for node in nodes:
            node.await_end(max(0.0, deadline - time.monotonic()))
    finally:
        for node in nodes:
            if node.is_up:
                node.kill()


THIS_BUILD = (sys.executable, "-m", "blumfeld.cli.main")
"""The program ``blumfeld`` of this environment."""


def build_commands(
    manifest: Path | None = None, settings: Sequence[str] = (), program: Sequence[str] = THIS_BUILD
) -> dict[Roles, tuple[str, ...]]:
    """Return the commands that start nodes of a build, by their roles.

    :param manifest: what every node is made of; ids, roles, listeners and voters are laid over it
    :param settings: ``section.key=value``, laid over the manifest
    :param program: the ``blumfeld`` of another build, such as an artefact, which brings its manifest
    """
    command = [*program, "run"]
    command += [str(manifest.resolve())] if manifest is not None else []
    command += ["--data-dir", "{folder}/data"]
    commands = {}
    for roles in (COMBINED, BROKER, CONTROLLER):
        laid = [word for setting in (*settings, *node_settings(roles)) for word in ("--set", setting)]
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
