"""The clusters that are measured: this build, and Apache Kafka by its start script."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs

from blumfeld.testing.cluster import BROKER, COMBINED, CONTROLLER, Roles
from blumfeld_kit.cluster import build_commands

OURS, KAFKA = "blumfeld", "kafka"
MIXED = "mixed"
"""A layout: three nodes of this build, and one of Apache Kafka on the same ZooKeeper."""
NO_CONFIGS: Mapping[str, str] = {}
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
    MIXED: (*(COMBINED,) * 3, BROKER),
}
"""The roles of all nodes, by the name of the layout."""
LAST_WITH_ZOOKEEPER = "3.9.2"
"""The last version of Apache Kafka that keeps its metadata in a ZooKeeper."""


@attrs.frozen
class Contender:
    """A cluster by its name and the command that starts a node (:mod:`blumfeld.testing.cluster`)."""

    name: str
    commands: Mapping[Roles, tuple[str, ...]]


def this_build(manifest: Path | None = None, settings: Sequence[str] = ()) -> Contender:
    """Return nodes of this checkout; parameters as of :func:`blumfeld_kit.cluster.build_commands`."""
    return Contender(OURS, build_commands(manifest, settings))


def kafka(peer: Path, configs: Mapping[str, str] = NO_CONFIGS) -> Contender:
    """Return nodes of Apache Kafka.

    :param configs: further settings of each
    """
    start = (str(peer.resolve()), "start", "{folder}", "{port}")
    further = tuple(f"{name}={value}" for name, value in configs.items())
    return Contender(
        KAFKA, {roles: (*start, *kafka_settings(roles), *further) for roles in (COMBINED, BROKER, CONTROLLER)}
    )


def kafka_on_zookeeper(peer: Path, connect: str, session_timeout_ms: int) -> tuple[str, ...]:
    """Return the command that starts a node of the last Apache Kafka with a ZooKeeper; parameters as of
    :func:`with_kafka`."""
    return (
        "env",
        f"KAFKA_PEER_VERSION={LAST_WITH_ZOOKEEPER}",
        *(str(peer.resolve()), "start", "{folder}", "{port}"),
        "broker.id={id}",
        f"zookeeper.connect={connect}",
        f"zookeeper.session.timeout.ms={session_timeout_ms}",
        "offsets.topic.replication.factor=3",
    )


def with_kafka(ours: Contender, peer: Path, connect: str, session_timeout_ms: int) -> Contender:
    """Return nodes of this build beside one of Apache Kafka, both on one ZooKeeper (:data:`MIXED`).

    :param connect: ``zookeeper.connect``
    """
    command = kafka_on_zookeeper(peer, connect, session_timeout_ms)
    return Contender(ours.name, {**ours.commands, BROKER: command})


def contenders_of(
    names: Sequence[str], ours: Contender, peer: Path | None, configs: Mapping[str, str] = NO_CONFIGS
) -> list[Contender]:
    """Return the clusters of these names.

    :param peer: the script that starts Apache Kafka
    :param configs: further settings of Apache Kafka's nodes
    :raises ValueError: a name is unknown
    """
    known = {OURS: ours} | ({KAFKA: kafka(peer, configs)} if peer else {})
    for name in names:
        if name not in known:
            raise ValueError(
                f"--only: found {name}; allowed: {OURS}, and {KAFKA} where --peer names its script"
            )
    return [known[name] for name in names]
