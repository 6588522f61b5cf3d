"""To which cluster a node belongs: what its directory says, or the manifest, or else a new id."""

from __future__ import annotations

import re

from blumfeld.log.checkpoints import META_PROPERTIES, decode_meta_properties
from blumfeld.spi.runtime import Runtime
from blumfeld.wire.primitives import uuid_text

_CLUSTER_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


def cluster_id_of(runtime: Runtime, data_dir: str, node_id: int, wanted: str | None) -> str:
    """The cluster id for a node that is about to start on ``data_dir``. Writes nothing.

    :param wanted: the manifest's ``node.cluster_id``
    :raises ValueError: the directory belongs to another cluster or node, or its ``meta.properties`` can't be read
    :raises OSError: it can't be read
    """
    path = f"{data_dir}/{META_PROPERTIES}"
    if not runtime.files.exists(path):
        return wanted if wanted is not None else uuid_text(runtime.new_uuid())
    meta = decode_meta_properties(runtime.files.read_bytes(path), path)
    if wanted is not None and wanted != meta.cluster_id:
        raise ValueError(
            f"{path}: the directory is of cluster {meta.cluster_id}, not {wanted} (node.cluster_id)"
        )
    if meta.node_id != node_id:
        raise ValueError(f"{path}: the directory is of node {meta.node_id}, not {node_id} (node.id)")
    return meta.cluster_id


def is_cluster_id(text: str) -> bool:
    """Whether Kafka's tools take it as a cluster id in a file name and on a command line."""
    return _CLUSTER_ID.fullmatch(text) is not None
