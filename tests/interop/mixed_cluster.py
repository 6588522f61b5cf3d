"""Clusters of nodes of this build and of Apache Kafka 4.3.1, each node a process of its own."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs

from blumfeld.testing.cluster import CLUSTER_ID, LOOPBACK, NodePlace, Roles, filled, node_places
from blumfeld_kit.cluster import Cluster, Node
from campaigns.cluster.contenders import Contender, kafka, this_build

RELEASE_VERSION = "4.3-IV0"
"""Kafka's name of ``metadata.version`` 30, the only one that this build speaks."""
KAFKA_FEATURES_OFF = ("transaction.version", "share.version", "streams.version")
"""Features that Kafka's format would finalize and that this build doesn't have: its broker could not register."""
JVM_OPTIONS = "-Xms128m -Xmx320m"
"""The Java machine takes these over the heap that the start script names."""
FORMAT_S = 60.0
ENVIRONMENT = ("env", f"_JAVA_OPTIONS={JVM_OPTIONS}", f"KAFKA_CLUSTER_ID={CLUSTER_ID}")
"""Laid before a command of Kafka's start script. The process id stays that of the node."""


@attrs.frozen
class Member:
    """A node of a mixed cluster."""

    kind: str
    """``kafka`` or ``blumfeld``."""
    roles: Roles
    settings: tuple[str, ...] = ()
    """Kafka's configuration as ``key=value``, laid over that of all nodes."""


def mixed_cluster(
    members: Sequence[Member], peer: Path, folder: Path, places: Sequence[NodePlace] = ()
) -> Cluster:
    """Return the cluster, its Kafka nodes formatted; nothing is started. Ids are 1, 2, … in the order of members.

    A directory that a node of an earlier cluster left in ``folder`` is taken as it is, whichever kind that node was.

    :param peer: the script that runs Kafka
    :param places: the nodes' places; those of an earlier cluster where its directories are used again
    """
    if not places:
        places = node_places([LOOPBACK] * len(members), roles=[member.roles for member in members])
    contenders: Mapping[str, Contender] = {"kafka": kafka(peer), "blumfeld": this_build()}
    cluster = Cluster(dict.fromkeys({member.roles for member in members}, ()), places, folder)
    nodes = []
    for member, place in zip(members, places, strict=True):
        own = folder / f"node{place.id}"
        command = filled(contenders[member.kind].commands[member.roles], place, places, own)
        if member.kind == "kafka":
            command += member.settings
            if not (own / "data" / "meta.properties").exists():
                _format_kafka(peer, own, command[4:])
            command = [*ENVIRONMENT, *command]
        else:
            command += [word for setting in member.settings for word in ("--set", _in_manifest(setting))]
        nodes.append(Node(place, command, own))
    cluster.nodes = tuple(nodes)
    return cluster


def _in_manifest(setting: str) -> str:
    key, _, value = setting.partition("=")
    return f'config."{key}"="{value}"'


def _format_kafka(peer: Path, folder: Path, settings: Sequence[str]) -> None:
    """Format as Kafka's operators do, with the features that every node of the cluster has."""
    folder.mkdir(parents=True)
    config = folder / "format.properties"
    lines = [*settings, f"log.dirs={folder}/data", "controller.listener.names=CONTROLLER"]
    config.write_text("\n".join(lines) + "\n")
    features = [word for name in KAFKA_FEATURES_OFF for word in ("--feature", f"{name}=0")]
    command = [str(peer), "tool", "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(config)]
    done = subprocess.run(
        [*ENVIRONMENT, *command, "--release-version", RELEASE_VERSION, *features],
        capture_output=True,
        text=True,
        timeout=FORMAT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
