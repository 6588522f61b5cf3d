"""The clusters that are measured: this build, and Apache Kafka by its start script."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import attrs

from blumfeld.testing.brokers.cluster import NODE_SETTINGS

KAFKA_SETTINGS = (
    "node.id={id}",
    "controller.quorum.voters={voters}",
    "listeners=PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller_port}",
    "advertised.listeners=PLAINTEXT://{host}:{port}",
    "offsets.topic.replication.factor=3",
    "transaction.state.log.replication.factor=3",
    "transaction.state.log.min.isr=2",
    "share.coordinator.state.topic.replication.factor=3",
    "share.coordinator.state.topic.min.isr=2",
)
"""Configuration of one of three combined nodes. Every time-out keeps Kafka's default."""


@attrs.frozen
class Contender:
    """A cluster by its name and the command that starts one node (:mod:`blumfeld.testing.brokers.cluster`)."""

    name: str
    command: tuple[str, ...]


def this_build(manifest: Path | None = None, settings: Sequence[str] = ()) -> Contender:
    """Return three nodes of this checkout.

    :param manifest: what every node is made of; ids, listeners and voters are laid over it
    :param settings: ``section.key=value``, laid over the manifest
    """
    command = [sys.executable, "-m", "blumfeld.cli.main", "run"]
    command += [str(manifest.resolve())] if manifest is not None else []
    command += ["--data-dir", "{folder}/data"]
    for setting in (*settings, *NODE_SETTINGS):
        command += ["--set", setting]
    return Contender("blumfeld", tuple(command))


def kafka(peer: Path) -> Contender:
    """Return three nodes of Apache Kafka."""
    return Contender("kafka", (str(peer.resolve()), "start", "{folder}", "{port}", *KAFKA_SETTINGS))
