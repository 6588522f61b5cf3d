"""A node's directories before and during a restore: formatted, empty, then full. Blocks.

A file in the first directory marks a restore that isn't finished. It is there before anything else is written, and goes
last. With it a node doesn't start, and a restore may begin anew. Without it only empty directories are taken, and those
that the same restore has finished.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from blumfeld.log.checkpoints import (
    HIGH_WATERMARKS,
    LOCK,
    LOG_STARTS,
    META_PROPERTIES,
    RECOVERY_POINTS,
    decode_meta_properties,
)
from blumfeld.log.segments.file_names import parse_partition_dir
from blumfeld.metadata.image.checkpoint import BOOTSTRAP_NAME, CheckpointId, decode_checkpoint
from blumfeld.spi.runtime import Files
from blumfeld.wire.messages.metadata_records import FeatureLevelRecord
from blumfeld_storage_tiered.restore.files import METADATA_FOLDER, RestoredNode, log_files, metadata_file
from blumfeld_storage_tiered.restore.places import NodePlace
from blumfeld_storage_tiered.restore.plan import RestorePlan
from blumfeld_storage_tiered.restore.under_way import UNDER_WAY_FILE

FIRST_CHECKPOINT = CheckpointId(0, 0).name
"""The snapshot with the first voters of a dynamic quorum."""
_EMPTY = frozenset({META_PROPERTIES, BOOTSTRAP_NAME, LOCK, "lost+found", f"{UNDER_WAY_FILE}.tmp"})
"""Names in a directory that is formatted and empty. The last one is left by a restore that died in its first step."""
_CHECKPOINTS = frozenset({LOG_STARTS, RECOVERY_POINTS, HIGH_WATERMARKS})
_NAMES_SHOWN = 5


class RestoreRefusedError(OSError):
    """A directory can't be restored into. Nothing was written."""


def formatted_node(files: Files, place: NodePlace, cluster_id: str) -> RestoredNode:
    """Return what formatting has left for a node. Reads only.

    :raises RestoreRefusedError: a directory isn't formatted, or belongs to another node or cluster
    :raises OSError: a directory can't be read
    :raises ValueError: a file of formatting is damaged
    """
    for directory in place.directories:
        _check_formatted(files, place, directory, cluster_id)
    path = f"{place.directories[0]}/{BOOTSTRAP_NAME}"
    records = decode_checkpoint(files.read_bytes(path), path).records
    path = f"{place.directories[0]}/{METADATA_FOLDER}/{FIRST_CHECKPOINT}"
    first = decode_checkpoint(files.read_bytes(path), path) if files.exists(path) else None
    return RestoredNode(
        node_id=place.node_id,
        directories=place.directories,
        features=[record for record in records if isinstance(record, FeatureLevelRecord)],
        min_insync_replicas=place.min_insync_replicas,
        kraft_version=0 if first is None else first.kraft_version,
        voters=None if first is None else first.voters,
    )


def _check_formatted(files: Files, place: NodePlace, directory: str, cluster_id: str) -> None:
    path = f"{directory}/{META_PROPERTIES}"
    if not files.exists(path):
        command = f"blumfeld format {place.manifest} --cluster-id {cluster_id}"
        raise RestoreRefusedError(f"{directory}: isn't formatted. Run first: {command}")
    meta = decode_meta_properties(files.read_bytes(path), path)
    if (meta.cluster_id, meta.node_id) != (cluster_id, place.node_id):
        raise RestoreRefusedError(
            f"{path}: found node {meta.node_id} of cluster {meta.cluster_id}; allowed: node {place.node_id} of cluster"
            f" {cluster_id}, to which the store belongs"
        )


def _held(files: Files, directory: str) -> Iterator[str]:
    """Yield the names of what formatting doesn't write."""
    for name in files.list_dir(directory):
        if name == METADATA_FOLDER:
            inside = [name for name in files.list_dir(f"{directory}/{name}") if name != FIRST_CHECKPOINT]
            yield from (f"{METADATA_FOLDER}/{each}" for each in inside)
        elif name not in _EMPTY:
            yield name


def _is_ours(name: str) -> bool:
    """Whether a restore that was interrupted may have written it."""
    whole = name.removesuffix(".tmp")
    in_log = name.startswith(f"{METADATA_FOLDER}/") or parse_partition_dir(name) is not None
    return in_log or whole == UNDER_WAY_FILE or whole in _CHECKPOINTS


def restore_nodes(files: Files, plan: RestorePlan, nodes: Sequence[RestoredNode]) -> None:
    """Write the files of nodes. After a crash at any point, the same may be done again.

    All nodes are marked before the first file is written, and stay so until all are done: the voters that have nothing
    yet would begin a cluster without topics, and the restored one would follow them. A node that this plan has restored
    already, and that has not started since, is left as it is.

    :raises RestoreRefusedError: a directory holds something else
    :raises OSError: a file can't be written. The restore is under way then
    """
    pending = [node for node in nodes if not _is_done(files, plan, node)]
    for node in pending:
        files.write_atomically(_marker(node), f"cluster {plan.cluster_id}\n".encode())
    for node in pending:
        _write(files, plan, node)
    for node in pending:
        files.unlink(_marker(node))
        files.sync_dir(node.directories[0])


def check_takes(files: Files, node: RestoredNode) -> None:
    """Check that a node's directories are empty, or hold what a restore has written.

    :raises RestoreRefusedError: one holds something else
    """
    for directory in node.directories:
        held = list(_held(files, directory))
        if not all(map(_is_ours, held)):
            _refuse(directory, held)


def _is_done(files: Files, plan: RestorePlan, node: RestoredNode) -> bool:
    """Return whether this plan has restored the node, and nothing has changed since.

    :raises RestoreRefusedError: it isn't marked, and holds something else
    """
    check_takes(files, node)
    if files.exists(_marker(node)):
        return False
    held = {f"{directory}/{name}" for directory in node.directories for name in _files_in(files, directory)}
    if not held:
        return False
    wanted = dict([*log_files(plan, node), metadata_file(plan, node)])
    if held == wanted.keys() and all(files.read_bytes(path) == content for path, content in wanted.items()):
        return True
    for directory in node.directories:
        _refuse(directory, list(_held(files, directory)))
    raise AssertionError("what is held lies in one of the directories")


def _refuse(directory: str, held: Sequence[str]) -> None:
    if held:
        more = f" and {len(held) - _NAMES_SHOWN} more" if len(held) > _NAMES_SHOWN else ""
        raise RestoreRefusedError(
            f"{directory}: found {', '.join(held[:_NAMES_SHOWN])}{more}; allowed: a directory that is formatted and"
            " empty. A restore replaces nothing: move away what is there"
        )


def _files_in(files: Files, directory: str) -> Iterator[str]:
    """Yield the names of all files that formatting doesn't write, those in folders too."""
    for name in _held(files, directory):
        if files.is_dir(f"{directory}/{name}"):
            yield from (f"{name}/{each}" for each in files.list_dir(f"{directory}/{name}"))
        else:
            yield name


def _marker(node: RestoredNode) -> str:
    return f"{node.directories[0]}/{UNDER_WAY_FILE}"


def _write(files: Files, plan: RestorePlan, node: RestoredNode) -> None:
    for directory in node.directories:
        _clear(files, directory)
    folders: dict[str, None] = {}
    for path, content in log_files(plan, node):
        folder = path.rpartition("/")[0]
        if folder not in folders:
            folders[folder] = None
            files.make_dirs(folder)
        files.write_atomically(path, content)
    for directory in node.directories:
        files.sync_dir(directory)  # the names of the logs' directories
    files.write_atomically(*metadata_file(plan, node))


def _clear(files: Files, directory: str) -> None:
    """Remove what an interrupted restore has left."""
    for name in list(_held(files, directory)):
        path = f"{directory}/{name}"
        if files.is_dir(path):
            files.remove_tree(path)
        elif name != UNDER_WAY_FILE:
            files.unlink(path)
    files.sync_dir(directory)
