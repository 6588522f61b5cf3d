"""The cluster id of a node: from its directories, or else from the manifest, or else a new one."""

from __future__ import annotations

import re
from collections.abc import Sequence

from blumfeld.log.checkpoints import META_PROPERTIES, MetaProperties, decode_meta_properties
from blumfeld.spi.runtime import Runtime
from blumfeld.wire.primitives import uuid_text


class IdentityError(ValueError):
    """The directories are not those of the manifest's node and cluster. Another start would end the same way."""


_CLUSTER_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


def cluster_id_of(
    runtime: Runtime,
    data_dirs: Sequence[str],
    node_id: int,
    wanted: str | None,
    *,
    may_be_new: bool = True,
) -> str:
    """Returns the cluster id for a node that is about to start on these directories. Writes nothing.

    Directories that are not formatted yet are skipped. So are unreadable ones, except for the first: they may be
    offline, and the storage reports them.

    :param wanted: the manifest's ``node.cluster_id``
    :param may_be_new: whether the node may begin a cluster; one of several nodes would begin a cluster without the
        others
    :raises IdentityError: a directory belongs to another cluster or node, two belong to different clusters or are one,
        or a ``meta.properties`` can't be understood; or there is no cluster id, and the node may not begin a cluster
    :raises OSError: the first directory can't be read
    """
    known = known_cluster_id(runtime, data_dirs, node_id, wanted)
    if known is None and not may_be_new:
        raise IdentityError(
            f"{data_dirs[0]} isn't formatted, and a node of a cluster needs the cluster's id: run `blumfeld format "
            "--cluster-id ID` first, or set node.cluster_id"
        )
    return known if known is not None else uuid_text(runtime.new_uuid())


def known_cluster_id(
    runtime: Runtime,
    data_dirs: Sequence[str],
    node_id: int,
    wanted: str | None,
    *,
    zookeeper: bool = False,
) -> str | None:
    """As :func:`cluster_id_of`; ``None`` where neither the directories nor the manifest have a cluster id.

    :param zookeeper: as of :func:`formatted_directories`
    """
    formatted = formatted_directories(runtime, data_dirs, zookeeper=zookeeper)
    for path, meta in formatted.items():
        others = []
        if wanted is not None and wanted != meta.cluster_id:
            others.append(f"of cluster {meta.cluster_id}, not {wanted} (node.cluster_id)")
        if meta.node_id != node_id:
            others.append(f"of node {meta.node_id}, not {node_id} (node.id)")
        if others:
            raise IdentityError(f"{path}: the directory is {', and '.join(others)}")
    for meta in formatted.values():
        return meta.cluster_id
    return wanted


def formatted_directories(
    runtime: Runtime, data_dirs: Sequence[str], *, zookeeper: bool = False
) -> dict[str, MetaProperties]:
    """Returns path of ``meta.properties`` → its content, for each directory that has one, in order.

    :param zookeeper: whether directories of a Kafka with a ZooKeeper are taken: the cluster's id is kept elsewhere
    :raises IdentityError: they contradict each other, or one can't be understood
    :raises OSError: the first directory can't be read
    """
    formatted: dict[str, MetaProperties] = {}
    for nth, directory in enumerate(data_dirs):
        path = f"{directory}/{META_PROPERTIES}"
        try:
            data = runtime.files.read_bytes(path) if runtime.files.exists(path) else None
        except OSError:
            if nth == 0:
                raise
            data = None
        if data is None:
            continue
        try:
            meta = decode_meta_properties(data, path, zookeeper=zookeeper)
        except ValueError as error:
            raise IdentityError(str(error)) from error
        for other_path, other in formatted.items():
            _check_together(path, meta, other_path, other)
        formatted[path] = meta
    return formatted


def _check_together(path: str, meta: MetaProperties, other_path: str, other: MetaProperties) -> None:
    if meta.cluster_id != other.cluster_id:
        raise IdentityError(
            f"{path}: the directory is of cluster {meta.cluster_id}, but {other_path} says {other.cluster_id}"
        )
    if meta.directory_id == other.directory_id != bytes(16):
        raise IdentityError(
            f"{path}: directory.id {uuid_text(meta.directory_id)} is that of {other_path} too: one is a copy"
        )


def is_cluster_id(text: str) -> bool:
    """Whether the text is a cluster id that Kafka's tools accept in a file name and on a command line."""
    return _CLUSTER_ID.fullmatch(text) is not None
