"""Formats log directories before the first start: writes their cluster and node id, the first feature levels, and the
first voters of a dynamic quorum.

``run`` formats empty directories by itself, for a static quorum. Formatting beforehand lets a user choose the cluster
id, begin a dynamic quorum, or start Kafka on the directories first.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from blumfeld.kernel.composing.plan import Plan
from blumfeld.kernel.formatting.features import chosen_levels
from blumfeld.kernel.formatting.quorum import (
    DYNAMIC_KRAFT_VERSION,
    STATIC,
    InitialQuorum,
    check_quorum,
    initial_voters,
    quorum_checkpoint,
)
from blumfeld.kernel.identity import cluster_id_of, formatted_directories
from blumfeld.log.checkpoints import META_PROPERTIES, MetaProperties, encode_meta_properties
from blumfeld.metadata.brokers.feature_levels import supported_features
from blumfeld.metadata.image.bootstrap import bootstrap_checkpoint
from blumfeld.metadata.image.checkpoint import BOOTSTRAP_NAME, CheckpointId
from blumfeld.plugging.errors import ManifestError, Problem
from blumfeld.plugging.plugins import PluginSet
from blumfeld.spi.internal_topics import CLUSTER_METADATA_TOPIC
from blumfeld.spi.runtime import Runtime
from blumfeld.wire.schema import Message

FIRST_CHECKPOINT = f"{CLUSTER_METADATA_TOPIC}-0/{CheckpointId(0, 0).name}"
"""Path of the checkpoint that names the voters, below the directory of the metadata."""


class AlreadyFormatted(Exception):  # noqa: N818 - it may be what was wanted
    """A directory already has a ``meta.properties``. Nothing was changed."""


class Formatting(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `blumfeld format`."""

    quorum: InitialQuorum = STATIC
    features: tuple[str, ...] = ()
    """``NAME=LEVEL`` each."""
    release_version: str | None = None
    add_scram: tuple[str, ...] = ()
    """``SCRAM-SHA-256=[name=…]`` each: credentials that the cluster begins with."""
    ignore_formatted: bool = False
    """Format the directories that aren't formatted yet, for the cluster of those that are."""


def format_directories(
    plan: Plan, runtime: Runtime, formatting: Formatting | None = None
) -> dict[str, MetaProperties]:
    """Write ``meta.properties`` to each of the node's log directories; to the first also ``bootstrap.checkpoint``, and
    the voters of a dynamic quorum.

    :return: directory → what was written, in their order
    :raises AlreadyFormatted: one is formatted
    :raises ManifestError: the node can't be formatted for this quorum, or with these feature levels
    :raises ValueError: one is formatted for another cluster or node
    :raises OSError: one can't be read or written
    """
    formatting = formatting or Formatting()
    node, files = plan.manifest.node, runtime.files
    if not plan.quorum:
        allowed = (
            "a consensus with a metadata quorum: a node of this one formats its directories when it starts"
        )
        found = f'"{plan.manifest.consensus.plugin}"'
        raise ManifestError(plan.source, [Problem("consensus.plugin", found, allowed)])
    check_quorum(plan, formatting.quorum)
    levels = _levels(plan, formatting)
    credentials = _first_credentials(plan, runtime, formatting.add_scram)
    there = formatted_directories(runtime, node.directories)
    if there and not formatting.ignore_formatted:
        path = next(iter(there))
        raise AlreadyFormatted(f"{path.removesuffix('/' + META_PROPERTIES)} is formatted already: see {path}")
    cluster_id = cluster_id_of(runtime, node.directories, node.id, node.cluster_id)
    formatted = {}
    for nth, directory in enumerate(node.directories):
        if f"{directory}/{META_PROPERTIES}" in there:
            continue
        own = formatting.quorum.own_directory_id(node.id) if nth == 0 else None
        directory_id = runtime.new_uuid() if own is None else own
        meta = MetaProperties(cluster_id=cluster_id, node_id=node.id, directory_id=directory_id)
        if not files.exists(directory):
            files.make_dirs(directory)
            # A power cut could else take this directory's name, and what the node flushes there with it.
            files.sync_dir(directory.rpartition("/")[0] or "/")
        if nth == 0:
            _write_metadata(plan, runtime, formatting.quorum, levels, credentials, meta)
        # Last, because it marks the directory as formatted: after a crash before it, a retry starts over.
        files.write_atomically(f"{directory}/{META_PROPERTIES}", encode_meta_properties(meta))
        formatted[directory] = meta
    return formatted


def _write_metadata(
    plan: Plan,
    runtime: Runtime,
    quorum: InitialQuorum,
    levels: dict[str, int],
    credentials: Sequence[Message],
    meta: MetaProperties,
) -> None:
    directory, files = plan.manifest.node.directories[0], runtime.files
    checkpoint = bootstrap_checkpoint(levels, runtime.now_ms(), credentials)
    files.write_atomically(f"{directory}/{BOOTSTRAP_NAME}", checkpoint)
    voters = initial_voters(plan, quorum, meta.directory_id)
    if voters is not None:
        path = f"{directory}/{FIRST_CHECKPOINT}"
        files.make_dirs(path.rpartition("/")[0])
        files.write_atomically(path, quorum_checkpoint(voters, runtime.now_ms()))


def _levels(plan: Plan, formatting: Formatting) -> dict[str, int]:
    brought = [f for _, features in PluginSet(plan.plugins).each("blumfeld_features") for f in features]
    return chosen_levels(
        supported_features(brought),
        formatting.features,
        formatting.release_version,
        kraft_version=DYNAMIC_KRAFT_VERSION if formatting.quorum.is_dynamic else 0,
    )


def _first_credentials(plan: Plan, runtime: Runtime, add_scram: Sequence[str]) -> Sequence[Message]:
    if not add_scram:
        return ()
    for plugin in plan.plugins:
        if plugin.role == "security":
            hook = "blumfeld_first_credentials"
            records = PluginSet(plan.plugins).call(plugin, hook, runtime=runtime, add_scram=add_scram)
            if records is not None:
                return records  # type: ignore[no-any-return]
    found = "--add-scram, and no plug-in of this build keeps credentials"
    raise ManifestError(plan.source, [Problem("security.plugin", found, 'one that does: "security"')])
