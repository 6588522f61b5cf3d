"""Checks before several nodes start: their directories are formatted for one cluster, and its voters stay."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from blumfeld.config.quorum import VOTERS, quorum_voters
from blumfeld.kernel.composing.plan import Plan
from blumfeld.kernel.formatting.directories import AlreadyFormatted, Formatting, format_directories
from blumfeld.kernel.identity import IdentityError, formatted_directories
from blumfeld.kernel.manifest.sections import Manifest
from blumfeld.log.checkpoints import META_PROPERTIES, MetaProperties
from blumfeld.log.quorum_state import FILE_NAME, decode_quorum_state
from blumfeld.spi.internal_topics import CLUSTER_METADATA_TOPIC
from blumfeld.spi.runtime import Runtime
from blumfeld.wire.primitives import uuid_text


def prepare_nodes(manifest: Manifest, plans: Sequence[Plan], runtime: Runtime) -> None:
    """Format the directories that aren't formatted yet, and check the others.

    :param manifest: the manifest with ``nodes = N``
    :raises IdentityError: a directory belongs to one node, to another cluster or node, or to a quorum of other voters
    :raises OSError: a directory can't be read or written
    """
    check_directories(manifest, plans, runtime)
    if not plans[0].quorum:
        return  # the consensus keeps the cluster's id, and each node formats its directories with it
    format_nodes(plans, runtime, Formatting(ignore_formatted=True))


def check_directories(manifest: Manifest, plans: Sequence[Plan], runtime: Runtime) -> None:
    """Check that the directories are those of these nodes. Writes nothing.

    :raises IdentityError: see :func:`prepare_nodes`
    """
    first = plans[0].manifest.node
    for path, below in zip(manifest.node.directories, first.directories, strict=True):
        if runtime.files.exists(f"{path}/{META_PROPERTIES}"):
            raise IdentityError(
                f"{path} is the directory of one node, and nodes = {manifest.nodes} has one below it for each: move "
                f"its content to {below}, or set nodes = 1"
            )
    for plan in plans:
        _check_voters(manifest.nodes, plan, runtime)


def _check_voters(count: int, plan: Plan, runtime: Runtime) -> None:
    """Refuse to change the voters of a static quorum: new voters with empty logs could elect a leader without the
    cluster's metadata.
    """
    path = f"{plan.manifest.node.directories[0]}/{CLUSTER_METADATA_TOPIC}-0/{FILE_NAME}"
    if not runtime.files.exists(path):
        return
    known = set(decode_quorum_state(runtime.files.read_bytes(path), path).current_voters)
    wanted = {voter.voter_id for voter in quorum_voters(plan.config.list(VOTERS))}
    if known and wanted and known != wanted:
        raise IdentityError(
            f"{path}: the quorum began with the voters {_joined(known)}, and nodes = {count} has {_joined(wanted)}: "
            "take a number of nodes with the same voters (1 or 2; or 3 and more)"
        )


def format_nodes(
    plans: Sequence[Plan], runtime: Runtime, formatting: Formatting
) -> dict[str, MetaProperties]:
    """Format the directories of all nodes for one cluster. Either all can be formatted, or none is touched.

    :return: directory → what was written
    :raises AlreadyFormatted: one is formatted, and that isn't ignored
    :raises ManifestError: as :func:`~blumfeld.kernel.formatting.directories.format_directories`
    :raises IdentityError: one is formatted for another cluster or node
    :raises OSError: one can't be read or written
    """
    cluster_id = plans[0].manifest.node.cluster_id
    for plan in plans:
        for path, meta in formatted_directories(runtime, plan.manifest.node.directories).items():
            if not formatting.ignore_formatted:
                directory = path.removesuffix("/" + META_PROPERTIES)
                raise AlreadyFormatted(f"{directory} is formatted already: see {path}")
            if cluster_id not in (None, meta.cluster_id):
                raise IdentityError(
                    f"{path}: the directory is of cluster {meta.cluster_id}, not {cluster_id}"
                )
            cluster_id = meta.cluster_id
    cluster_id = cluster_id or uuid_text(runtime.new_uuid())
    formatted: dict[str, MetaProperties] = {}
    for plan in plans:
        node = msgspec.structs.replace(plan.manifest.node, cluster_id=cluster_id)
        manifest = msgspec.structs.replace(plan.manifest, node=node)
        formatted |= format_directories(msgspec.structs.replace(plan, manifest=manifest), runtime, formatting)
    return formatted


def _joined(ids: set[int]) -> str:
    return ", ".join(map(str, sorted(ids)))
