"""Directories of a metadata quorum with many partitions, in Kafka's file formats: as a snapshot, or as a log."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

from blumfeld.log.checkpoints import (
    META_PROPERTIES,
    PARTITION_METADATA,
    MetaProperties,
    encode_meta_properties,
    encode_partition_metadata,
)
from blumfeld.metadata.image.bootstrap import bootstrap_checkpoint
from blumfeld.metadata.image.checkpoint import BOOTSTRAP_NAME, CheckpointId, checkpoint_parts, metadata_batch
from blumfeld.spi.internal_topics import CLUSTER_METADATA_TOPIC, CLUSTER_METADATA_TOPIC_ID
from blumfeld.testing.cluster import CLUSTER_ID
from blumfeld.wire.messages.metadata_records import (
    BrokerEndpoint,
    BrokerFeature,
    FeatureLevelRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from blumfeld.wire.schema import Message

LEVELS = {"metadata.version": 30, "eligible.leader.replicas.version": 1, "group.version": 1}
FORMS = ("snapshot", "log")
PARTITIONS_PER_TOPIC = 1000
BROKERS = (101, 102, 103)
"""They hold all replicas. They are fenced, so no partition has a leader and no session ends."""
REPLICAS = 3
ENDPOINT = BrokerEndpoint(name="PLAINTEXT", host="127.0.0.1", port=1, security_protocol=0)
BATCH_RECORDS = 1000
EPOCH = 1
LOG = f"{CLUSTER_METADATA_TOPIC}-0"


def topic_of(number: int) -> str:
    """Returns the name of a topic, by its number from 0 on."""
    return f"scale-{number}"


def records_of(
    partitions: int,
    per_topic: int = PARTITIONS_PER_TOPIC,
    brokers: Sequence[int] = BROKERS,
    *,
    serving: bool = False,
) -> Iterator[Message]:
    """Yields the records of a cluster with so many partitions, in the order in which Kafka writes an image.

    :param serving: the brokers aren't fenced and have no listener; all replicas are in sync with the first one, which
        leads
    """
    for name, level in LEVELS.items():
        yield FeatureLevelRecord(name=name, feature_level=level)
    features = [
        BrokerFeature(
            name=name,
            min_supported_version=level if name == "metadata.version" else 0,
            max_supported_version=level,
        )
        for name, level in LEVELS.items()
    ]
    for broker in brokers:
        yield RegisterBrokerRecord(
            broker_id=broker,
            incarnation_id=_id(3, broker),
            broker_epoch=broker,
            end_points=[] if serving else [ENDPOINT],
            features=features,
            rack=None,
            fenced=not serving,
            log_dirs=[_id(2, broker)],
        )
    for number in range(partitions):
        topic, partition = divmod(number, per_topic)
        if not partition:
            yield TopicRecord(name=topic_of(topic), topic_id=_id(1, topic))
        replicas = [brokers[(number + nth) % len(brokers)] for nth in range(REPLICAS)]
        yield PartitionRecord(
            partition_id=partition,
            topic_id=_id(1, topic),
            replicas=replicas,
            isr=replicas if serving else replicas[:1],
            leader=replicas[0] if serving else -1,
            leader_epoch=1,
            partition_epoch=1,
            directories=[_id(2, node_id) for node_id in replicas],
        )


def _id(kind: int, number: int) -> bytes:
    return bytes([kind, 0, 0, 0, 0, 0, 0x40, 0, 0x80, 0, 0, 0]) + number.to_bytes(4, "big")


def write_metadata(folder: Path, partitions: int, form: str, timestamp_ms: int) -> int:
    """Write the metadata log of a cluster; return its bytes.

    :param form: ``snapshot``: all in a snapshot, and an empty log behind it. ``log``: all in the log
    """
    folder.mkdir(parents=True)
    (folder / PARTITION_METADATA).write_bytes(encode_partition_metadata(CLUSTER_METADATA_TOPIC_ID))
    content = records_of(partitions)
    if form == "log":
        path = folder / f"{0:020}.log"
        with path.open("wb") as file:
            offset = 0
            while batch := list(islice(content, BATCH_RECORDS)):
                file.write(metadata_batch(batch, base_offset=offset, epoch=EPOCH, timestamp_ms=timestamp_ms))
                offset += len(batch)
        (folder / "leader-epoch-checkpoint").write_text(f"0\n1\n{EPOCH} 0\n")
        return path.stat().st_size
    count = sum(1 for _ in records_of(partitions))
    path = folder / CheckpointId(count, EPOCH).name
    with path.open("wb") as file:
        file.writelines(_parts(content, timestamp_ms))
    return path.stat().st_size


def _parts(content: Iterable[Message], timestamp_ms: int) -> Iterator[bytes | bytearray]:
    parts = checkpoint_parts(content, epoch=EPOCH, timestamp_ms=timestamp_ms, last_contained_ms=timestamp_ms)
    return (part for part in parts if part is not None)


def make_directory(data: Path, node_id: int, metadata: Path | None) -> None:
    """Make a node's formatted data directory.

    :param metadata: the metadata log, which is copied; ``None``: the node begins without
    """
    data.mkdir(parents=True)
    meta = MetaProperties(cluster_id=CLUSTER_ID, node_id=node_id, directory_id=_id(4, node_id))
    (data / META_PROPERTIES).write_bytes(encode_meta_properties(meta))
    (data / BOOTSTRAP_NAME).write_bytes(bootstrap_checkpoint(dict(LEVELS), 0))
    if metadata is not None:
        shutil.copytree(metadata, data / LOG)
