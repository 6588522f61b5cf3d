"""The nodes of a cluster on this machine: their ids and ports, and the commands that start them.

A command has places that are filled in for each node: ``{id}``, ``{host}``, ``{port}``, ``{controller_port}``,
``{voters}`` and ``{folder}``. So one command serves this build and a foreign broker alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import attrs

from blumfeld.testing.brokers.process import free_port

LOOPBACK = "127.0.0.1"
PORTS_PER_NODE = 2
CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
"""One id for every cluster of a test: the nodes of one must agree on it before any of them starts."""
NODE_SETTINGS = (
    "node.id={id}",
    f'node.cluster_id="{CLUSTER_ID}"',
    "network.listeners=["
    '{ name = "PLAINTEXT", kind = "broker", bind = "{host}:{port}", inter_broker = true },'
    '{ name = "CONTROLLER", kind = "controller", bind = "{host}:{controller_port}" }]',
    'config."controller.quorum.voters"="{voters}"',
)
"""What ``--set`` lays over the manifest of each node of this build: every node is broker and voter (Kafka's combined
mode).
"""


@attrs.frozen
class NodePlace:
    """One node's id and its two listeners."""

    id: int
    host: str
    port: int
    """Port of the broker listener."""
    controller_port: int

    @property
    def address(self) -> str:
        """``host:port`` of the broker listener, for clients."""
        return f"{self.host}:{self.port}"


def node_places(hosts: Sequence[str], first_port: int = 0) -> tuple[NodePlace, ...]:
    """Return places with ids from 1 on, one for each host.

    :param first_port: the nodes take the ports from here on, two for each; 0 takes free loopback ports
    :raises OSError: there are no free ports
    """
    first = first_port or free_port(adjacent=PORTS_PER_NODE * len(hosts))
    return tuple(
        NodePlace(nth + 1, host, first + PORTS_PER_NODE * nth, first + PORTS_PER_NODE * nth + 1)
        for nth, host in enumerate(hosts)
    )


def voters(places: Sequence[NodePlace]) -> str:
    """Return Kafka's ``controller.quorum.voters`` for nodes that all vote: ``id@host:port``, by comma."""
    return ",".join(f"{place.id}@{place.host}:{place.controller_port}" for place in places)


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
