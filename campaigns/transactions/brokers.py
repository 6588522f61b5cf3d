"""The nodes of a run: one, or three with replicas, formatted with the wanted level of ``transaction.version``."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from blumfeld.testing.process import NodeError
from blumfeld_kit.cluster import Cluster, cluster_of_this_build

FORMAT_S = 60.0
SETTINGS = (
    'config."group.initial.rebalance.delay.ms"=0',
    'config."group.min.session.timeout.ms"=1000',
    'config."offsets.topic.num.partitions"=12',
    'config."transaction.state.log.num.partitions"=12',
)
"""Settings other than the defaults. A member that was killed is gone after 3 s, where Kafka allows 6 s at least."""


def cluster_of(
    nodes: int,
    version: int | None,
    folder: Path,
    manifest: Path | None = None,
    settings: Sequence[str] = (),
) -> Cluster:
    """Return a cluster whose nodes are formatted and not started.

    :param version: level of the feature ``transaction.version``; None on a ZooKeeper, where nothing is formatted
    :param settings: ``section.key=value``, laid over the manifest and the settings of the campaign
    :raises NodeError: a node could not be formatted
    """
    cluster = cluster_of_this_build(nodes, folder, [*SETTINGS, *settings], manifest)
    for node in cluster.nodes if version is not None else ():
        node.folder.mkdir(parents=True, exist_ok=True)
        command = [*("format" if word == "run" else word for word in node.command)]
        command += ["--feature", f"transaction.version={version}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=FORMAT_S, check=False)
        if done.returncode:
            raise NodeError(f"node {node.place.id} was not formatted: {done.stderr or done.stdout}")
    return cluster
