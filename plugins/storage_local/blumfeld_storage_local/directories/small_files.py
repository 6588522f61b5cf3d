"""The small files of a log directory: ``meta.properties``, the clean-shutdown file, and each log's topic id."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from blumfeld.log.checkpoints import (
    CLEAN_SHUTDOWN,
    LAST_CLEAN_SHUTDOWN,
    META_PROPERTIES,
    NO_BROKER_EPOCH,
    PARTITION_METADATA,
    MalformedFile,
    MetaProperties,
    decode_clean_shutdown,
    decode_meta_properties,
    decode_partition_metadata,
    encode_clean_shutdown,
    encode_meta_properties,
)
from blumfeld.log.segments.file_names import DirState, parse_partition_dir
from blumfeld.spi.runtime import Runtime
from blumfeld.spi.storage import TopicPartition
from blumfeld_storage_local.directory import LogDirectory

NO_TOPIC_ID = bytes(16)
_NO_DIRECTORY_ID = bytes(16)


def claim(runtime: Runtime, path: str, cluster_id: str, node_id: int) -> bytes:
    """Check that the directory is this node's, or claim a new one for it. Return its directory id.

    A directory of a Kafka with a ZooKeeper gets an id and stays in version 0: that Kafka may have it again.

    :raises ValueError: it belongs to another cluster or node, or ``meta.properties`` can't be read
    """
    source = f"{path}/{META_PROPERTIES}"
    if not runtime.files.exists(source):
        meta = MetaProperties(cluster_id=cluster_id, node_id=node_id, directory_id=runtime.new_uuid())
        runtime.files.write_atomically(source, encode_meta_properties(meta))
        return meta.directory_id
    meta = decode_meta_properties(runtime.files.read_bytes(source), source, zookeeper=True)
    if meta.cluster_id != cluster_id:
        raise ValueError(f"{source}: the directory is of cluster {meta.cluster_id}, not {cluster_id}")
    if meta.node_id != node_id:
        raise ValueError(f"{source}: the directory is of node {meta.node_id}, not {node_id}")
    if meta.directory_id == _NO_DIRECTORY_ID:
        meta = replace(meta, directory_id=runtime.new_uuid())
        runtime.files.write_atomically(source, encode_meta_properties(meta))
    return meta.directory_id


def take_clean_shutdown(home: LogDirectory) -> bool:
    """Return whether the last process closed every log.

    The clean-shutdown file has its other name for good when this returns: if a power cut brought it back, the next
    start would not recover. A rename, because a full disk has no room to write the epoch again.
    """
    path = f"{home.path}/{CLEAN_SHUTDOWN}"
    if not home.files.exists(path):
        return False
    home.files.rename(path, f"{home.path}/{LAST_CLEAN_SHUTDOWN}")
    home.files.sync_dir(home.path)
    return True


def last_clean_epoch(home: LogDirectory) -> int | None:
    """Return the broker epoch of the last clean stop, or ``None`` if a log of the broker's was opened since."""
    path = f"{home.path}/{LAST_CLEAN_SHUTDOWN}"
    return decode_clean_shutdown(home.files.read_bytes(path)) if home.files.exists(path) else None


def leave_clean_shutdown(home: LogDirectory, broker_epoch: int) -> None:
    """Write the clean-shutdown file: every log is closed and synced, and the next start need not recover."""
    home.files.write_atomically(
        f"{home.path}/{CLEAN_SHUTDOWN}", encode_clean_shutdown(max(broker_epoch, NO_BROKER_EPOCH))
    )


def forget_clean_shutdown(home: LogDirectory) -> None:
    """Remove the epoch of the last clean stop: a log may get records that an unclean end loses.

    No sync: a power cut may bring it back, and the controller knows a newer epoch by then.
    """
    path = f"{home.path}/{LAST_CLEAN_SHUTDOWN}"
    if home.files.exists(path):
        home.files.unlink(path)


class FoundLogs(msgspec.Struct):
    """The logs that lie in a log directory."""

    current: dict[TopicPartition, bytes] = msgspec.field(default_factory=dict)
    """Topic id of every log; zero where a crash left no ``partition.metadata``, or a torn one."""
    deleted: list[str] = msgspec.field(default_factory=list)
    """Paths of directories whose deletion was not finished."""
    futures: list[tuple[TopicPartition, str]] = msgspec.field(default_factory=list)
    """Logs that were to move here, and the paths of their copies."""


def find_logs(home: LogDirectory) -> FoundLogs:
    """List the logs in a log directory."""
    logs = FoundLogs()
    for name in home.files.list_dir(home.path):
        parsed = parse_partition_dir(name)
        path = f"{home.path}/{name}"
        if parsed is None or not home.files.is_dir(path):
            continue
        if parsed.state is DirState.DELETE:
            logs.deleted.append(path)
        elif parsed.state is DirState.FUTURE:
            logs.futures.append((parsed.partition, path))
        elif parsed.state is DirState.CURRENT:
            logs.current[parsed.partition] = read_topic_id(home, path)
    return logs


def read_topic_id(home: LogDirectory, directory: str) -> bytes:
    """Return the topic id of the log in a directory; the zero id if no file tells it."""
    path = f"{directory}/{PARTITION_METADATA}"
    try:
        return decode_partition_metadata(home.files.read_bytes(path), path)
    except FileNotFoundError:
        return NO_TOPIC_ID
    except MalformedFile as error:
        home.events.warning("partition.metadata unreadable", error=str(error))
        return NO_TOPIC_ID
