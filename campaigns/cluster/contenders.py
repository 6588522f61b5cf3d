"""The clusters that are measured: this build, and Apache Kafka by its start script."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs

from blumfeld.testing.cluster import BROKER, COMBINED, CONTROLLER, Roles, node_settings

_KAFKA_LISTENERS = {
    "broker": "PLAINTEXT://{host}:{port}",
    "controller": "CONTROLLER://{host}:{controller_port}",
}


def kafka_settings(roles: Roles = COMBINED) -> tuple[str, ...]:
    """Return the configuration of one Kafka node of several. Every time-out keeps Kafka's default."""
    listeners = [_KAFKA_LISTENERS[role] for role in roles]
    return (
        "node.id={id}",
        f"process.roles={','.join(roles)}",
        "controller.quorum.voters={voters}",
        f"listeners={','.join(listeners)}",
        f"advertised.listeners={listeners[0]}",
        "offsets.topic.replication.factor=3",
        "transaction.state.log.replication.factor=3",
        "transaction.state.log.min.isr=2",
        "share.coordinator.state.topic.replication.factor=3",
        "share.coordinator.state.topic.min.isr=2",
    )


LAYOUTS: Mapping[str, tuple[Roles, ...]] = {
    "combined": (COMBINED,) * 3,
    "apart": (*(BROKER,) * 3, *(CONTROLLER,) * 3),
}
"""The roles of all nodes, by the name of the layout."""


@attrs.frozen
class Contender:
    """A cluster by its name and the command that starts a node (:mod:`blumfeld.testing.cluster`)."""

    name: str
    commands: Mapping[Roles, tuple[str, ...]]


def this_build(manifest: Path | None = None, settings: Sequence[str] = ()) -> Contender:
    """Return nodes of this checkout.

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
    return Contender("blumfeld", commands)


def kafka(peer: Path) -> Contender:
    """Return nodes of Apache Kafka."""
    start = (str(peer.resolve()), "start", "{folder}", "{port}")
    return Contender(
        "kafka", {roles: (*start, *kafka_settings(roles)) for roles in (COMBINED, BROKER, CONTROLLER)}
    )
