"""The files of a node of a restored cluster, in the formats of Kafka and of ``storage_local``. Pure.

A partition gets a log that begins at the remote end and has no records yet, with the leader epochs and the producers
of those before it. The metadata is a snapshot that stands before an empty log: every node has the same, so it doesn't
matter which one is elected first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from blumfeld.log.checkpoints import (
    HIGH_WATERMARKS,
    LOG_STARTS,
    PARTITION_METADATA,
    RECOVERY_POINTS,
    encode_offsets,
    encode_partition_metadata,
)
from blumfeld.log.leader_epochs import FILE_NAME, LeaderEpochCache
from blumfeld.log.segments.file_names import Suffix, partition_dir, segment_name
from blumfeld.metadata.image.bootstrap import first_records
from blumfeld.metadata.image.checkpoint import CheckpointId, encode_checkpoint
from blumfeld.metadata.partitions.directories import UNASSIGNED_DIRECTORY
from blumfeld.spi.cluster import TOPIC_RESOURCE
from blumfeld.spi.internal_topics import CLUSTER_METADATA_TOPIC, CLUSTER_METADATA_TOPIC_ID
from blumfeld.spi.leader_epochs import EpochEntry
from blumfeld.spi.storage import TopicPartition
from blumfeld.wire.batches.builder import build_batch
from blumfeld.wire.batches.control_records import build_transaction_marker
from blumfeld.wire.batches.records import Record
from blumfeld.wire.messages.metadata_records import (
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    PartitionRecord,
    ProducerIdsRecord,
    TopicRecord,
)
from blumfeld.wire.messages.raft_records import VotersRecord
from blumfeld.wire.schema import Message
from blumfeld_storage_tiered.catalog.records import encode_change
from blumfeld_storage_tiered.logs.tiered_log import START_FILE, encode_start
from blumfeld_storage_tiered.restore.plan import RestoredPartition, RestoredTopic, RestorePlan

BATCH_RECORDS = 1_000
"""Records of the metadata topic in one batch: 200 kB, where a batch may have 1 MB."""
METADATA_FOLDER = f"{CLUSTER_METADATA_TOPIC}-0"


class RestoredNode(msgspec.Struct, frozen=True, kw_only=True):
    """One node, as formatting has left it."""

    node_id: int
    directories: tuple[str, ...]
    """Its log directories; the first has the metadata."""
    features: Sequence[Message]
    """Its bootstrap records: the feature levels."""
    min_insync_replicas: int = 1
    """``min.insync.replicas`` in its manifest."""
    kraft_version: int = 0
    voters: VotersRecord | None = None
    """The first voters of a dynamic quorum, if its files name them."""


def log_files(plan: RestorePlan, node: RestoredNode) -> Iterator[tuple[str, bytes]]:
    """Yield path and content of each file of the node's logs, then those of its directories' checkpoints.

    The log of the metadata is empty and begins where the snapshot ends.
    """
    starts: list[dict[TopicPartition, int]] = [{} for _ in node.directories]
    ends: list[dict[TopicPartition, int]] = [{} for _ in node.directories]
    metadata = TopicPartition(CLUSTER_METADATA_TOPIC, 0)
    starts[0][metadata] = ends[0][metadata] = end = sum(1 for _ in metadata_records(plan, node))
    folder = f"{node.directories[0]}/{METADATA_FOLDER}"
    yield f"{folder}/{PARTITION_METADATA}", encode_partition_metadata(CLUSTER_METADATA_TOPIC_ID)
    yield f"{folder}/{segment_name(end)}", b""
    nth = 0
    for topic in (*plan.topics, plan.metadata_topic):
        for partition in topic.partitions:
            if node.node_id not in partition.replicas:
                continue
            at = TopicPartition(topic.name, partition.number)
            where = nth % len(node.directories)
            nth += 1
            if topic is plan.metadata_topic:
                ends[where][at], files = _metadata_log(plan, topic, partition)
            else:
                starts[where][at] = partition.history.end_offset
                ends[where][at], files = _tiered_log(plan, topic, partition)
            folder = f"{node.directories[where]}/{partition_dir(at)}"
            yield from ((f"{folder}/{name}", content) for name, content in files.items())
    for directory, starts_here, ends_here in zip(node.directories, starts, ends, strict=True):
        # All logs are flushed and committed up to their ends.
        yield f"{directory}/{LOG_STARTS}", encode_offsets(starts_here.items())
        yield f"{directory}/{RECOVERY_POINTS}", encode_offsets(ends_here.items())
        yield f"{directory}/{HIGH_WATERMARKS}", encode_offsets(ends_here.items())


def _tiered_log(
    plan: RestorePlan, topic: RestoredTopic, partition: RestoredPartition
) -> tuple[int, dict[str, bytes]]:
    """Returns the end of a tiered log, and its files. It has no records but markers that abort transactions."""
    history, epoch = partition.history, partition.leader_epoch
    epochs = LeaderEpochCache(history.epochs)
    data, end_offset = bytearray(), history.end_offset
    for producer in partition.open_transactions:
        data += build_transaction_marker(
            commit=False,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            coordinator_epoch=max(producer.coordinator_epoch, 0),
            timestamp_ms=plan.time_ms,
            base_offset=end_offset,
            leader_epoch=epoch,
        )
        epochs.assign(epoch, end_offset)
        end_offset += 1
    files = {
        PARTITION_METADATA: encode_partition_metadata(topic.topic_id),
        segment_name(history.end_offset): bytes(data),
        START_FILE: encode_start(history.start_offset),
    }
    if epochs.entries:
        files[FILE_NAME] = epochs.encode()
    if partition.producers is not None:
        files[segment_name(history.end_offset, Suffix.PRODUCER_SNAPSHOT)] = partition.producers
    return end_offset, files


def _metadata_log(
    plan: RestorePlan, topic: RestoredTopic, partition: RestoredPartition
) -> tuple[int, dict[str, bytes]]:
    """Returns the end of a log of ``__remote_log_metadata``, and its files."""
    changes = plan.changes.get(partition.number, ())
    data, end_offset = bytearray(), 0
    for begin in range(0, len(changes), BATCH_RECORDS):
        batch = changes[begin : begin + BATCH_RECORDS]
        records = [Record(value=encode_change(change), timestamp=plan.time_ms) for change in batch]
        data += build_batch(records, base_offset=end_offset, leader_epoch=partition.leader_epoch)
        end_offset += len(batch)
    files = {PARTITION_METADATA: encode_partition_metadata(topic.topic_id), segment_name(0): bytes(data)}
    if changes:
        files[FILE_NAME] = LeaderEpochCache([EpochEntry(partition.leader_epoch, 0)]).encode()
    return end_offset, files


def metadata_file(plan: RestorePlan, node: RestoredNode) -> tuple[str, bytes]:
    """Returns path and content of the metadata snapshot. The node's restore is done once it is there."""
    content = [*metadata_records(plan, node)]
    data = encode_checkpoint(
        content,
        epoch=0,
        timestamp_ms=plan.time_ms,
        last_contained_ms=plan.time_ms,
        kraft_version=node.kraft_version,
        voters=node.voters,
    )
    return f"{node.directories[0]}/{METADATA_FOLDER}/{CheckpointId(len(content), 0).name}", data


def metadata_records(plan: RestorePlan, node: RestoredNode) -> Iterator[Message]:
    """Yield the records of the restored cluster's image."""
    for record in first_records(list(node.features), node.min_insync_replicas):
        if not isinstance(record, BeginTransactionRecord | EndTransactionRecord):
            yield record
    for topic in (*plan.topics, plan.metadata_topic):
        yield TopicRecord(name=topic.name, topic_id=topic.topic_id)
        for partition in topic.partitions:
            yield PartitionRecord(
                partition_id=partition.number,
                topic_id=topic.topic_id,
                replicas=list(partition.replicas),
                isr=list(partition.replicas),
                leader=-1,
                leader_epoch=partition.leader_epoch,
                partition_epoch=0,
                directories=[UNASSIGNED_DIRECTORY] * len(partition.replicas),
            )
        for name, value in sorted(topic.configs.items()):
            yield ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name=topic.name, name=name, value=value)
    yield ProducerIdsRecord(broker_id=-1, broker_epoch=-1, next_producer_id=plan.next_producer_id)
