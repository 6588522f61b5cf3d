"""Formats log directories before the first start: writes their cluster and node id, and the first feature levels.

``run`` formats empty directories by itself. Formatting beforehand lets a user choose the cluster id, or start Kafka on
the directories first.
"""

from __future__ import annotations

from blumfeld.kernel.composing.plan import Plan
from blumfeld.kernel.identity import cluster_id_of, formatted_directories
from blumfeld.log.checkpoints import META_PROPERTIES, MetaProperties, encode_meta_properties
from blumfeld.metadata.brokers.feature_levels import default_levels, supported_features
from blumfeld.metadata.image.bootstrap import bootstrap_checkpoint
from blumfeld.metadata.image.checkpoint import BOOTSTRAP_NAME
from blumfeld.plugging.plugins import PluginSet
from blumfeld.spi.runtime import Runtime


class AlreadyFormatted(Exception):  # noqa: N818 - it may be what was wanted
    """A directory already has a ``meta.properties``. Nothing was changed."""


def format_directories(
    plan: Plan, runtime: Runtime, ignore_formatted: bool = False
) -> dict[str, MetaProperties]:
    """Write ``meta.properties`` to each of the node's log directories, ``bootstrap.checkpoint`` to the first.

    :param ignore_formatted: format those that aren't, for the cluster of those that are
    :return: directory → what was written, in their order
    :raises AlreadyFormatted: one is formatted
    :raises ValueError: one is formatted for another cluster or node
    :raises OSError: one can't be read or written
    """
    node, files = plan.manifest.node, runtime.files
    there = formatted_directories(runtime, node.directories)
    if there and not ignore_formatted:
        path = next(iter(there))
        raise AlreadyFormatted(f"{path.removesuffix('/' + META_PROPERTIES)} is formatted already: see {path}")
    cluster_id = cluster_id_of(runtime, node.directories, node.id, node.cluster_id)
    formatted = {}
    for nth, directory in enumerate(node.directories):
        if f"{directory}/{META_PROPERTIES}" in there:
            continue
        meta = MetaProperties(cluster_id=cluster_id, node_id=node.id, directory_id=runtime.new_uuid())
        files.make_dirs(directory)
        if nth == 0:
            files.write_atomically(f"{directory}/{BOOTSTRAP_NAME}", _bootstrap(plan, runtime))
        # Last, because it marks the directory as formatted: after a crash before it, a retry starts over.
        files.write_atomically(f"{directory}/{META_PROPERTIES}", encode_meta_properties(meta))
        formatted[directory] = meta
    return formatted


def _bootstrap(plan: Plan, runtime: Runtime) -> bytes:
    brought = [f for _, features in PluginSet(plan.plugins).each("blumfeld_features") for f in features]
    return bootstrap_checkpoint(default_levels(supported_features(brought)), runtime.now_ms())
