"""Formatting a log directory ahead of the first start: whose it is, and the feature levels to begin with.

``run`` does the same by itself where there is nothing yet; this is for who wants to choose the cluster id, or to hand
the directory to Kafka first.
"""

from __future__ import annotations

from blumfeld.kernel.plan import Plan
from blumfeld.kernel.plugins import PluginSet
from blumfeld.log.checkpoints import META_PROPERTIES, MetaProperties, encode_meta_properties
from blumfeld.metadata.bootstrap import bootstrap_checkpoint
from blumfeld.metadata.checkpoint import BOOTSTRAP_NAME
from blumfeld.metadata.feature_levels import default_levels, supported_features
from blumfeld.spi.runtime import Runtime
from blumfeld.wire.primitives import uuid_text


class AlreadyFormatted(Exception):  # noqa: N818 - it may be what was wanted
    """The directory has a ``meta.properties``; nothing was changed."""


def format_directory(plan: Plan, runtime: Runtime) -> MetaProperties:
    """Write ``meta.properties`` and ``bootstrap.checkpoint`` to the node's data directory.

    :raises AlreadyFormatted: it is formatted
    :raises OSError: it can't be written
    """
    node = plan.manifest.node
    files, directory = runtime.files, node.data_dir
    if files.exists(f"{directory}/{META_PROPERTIES}"):
        raise AlreadyFormatted(f"{directory} is formatted already: see {directory}/{META_PROPERTIES}")
    brought = [f for _, features in PluginSet(plan.plugins).each("blumfeld_features") for f in features]
    levels = default_levels(supported_features(brought))
    meta = MetaProperties(
        cluster_id=node.cluster_id or uuid_text(runtime.new_uuid()),
        node_id=node.id,
        directory_id=runtime.new_uuid(),
    )
    files.make_dirs(directory)
    files.write_atomically(f"{directory}/{BOOTSTRAP_NAME}", bootstrap_checkpoint(levels, runtime.now_ms()))
    # Last: a directory that has it is formatted.
    files.write_atomically(f"{directory}/{META_PROPERTIES}", encode_meta_properties(meta))
    return meta
