"""The nodes of a cluster on this machine: their ids and ports, and the commands that start them.

A command has places that are filled in for each node: ``{id}``, ``{host}``, ``{port}``, ``{controller_port}``,
``{voters}`` and ``{folder}``. So one command serves this build and a foreign broker alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import attrs

from blumfeld.testing.process import LOOPBACK as LOOPBACK
from blumfeld.testing.process import free_port

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
