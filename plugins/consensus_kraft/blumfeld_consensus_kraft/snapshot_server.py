"""FetchSnapshot as a message: a follower's request, and the answer of a voter that may lead."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, cast

from blumfeld.metadata.image.checkpoint import CheckpointId
from blumfeld.spi.internal_topics import CLUSTER_METADATA_TOPIC
from blumfeld.wire.errors import ErrorCode, known_code
from blumfeld.wire.messages.fetch_snapshot import (
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    RequestPartitionSnapshot,
    RequestTopicSnapshot,
    ResponsePartitionSnapshot,
    ResponseTopicSnapshot,
    SnapshotId,
)
from blumfeld_consensus_kraft.snapshot_source import SnapshotChunk, SnapshotSource

NO_PARTITION = ResponsePartitionSnapshot()


class KnownLeader(NamedTuple):
    """A voter's knowledge of the epoch."""

    leader_id: int
    """-1: none is known."""
    epoch: int
    is_me: bool
    nodes: Iterable[tuple[int, str, int]] = ()
    """The leader as (node id, host, port), where it is known."""


async def serve_snapshot(
    request: FetchSnapshotRequest, source: SnapshotSource, known: KnownLeader
) -> FetchSnapshotResponse:
    """Answer a follower. The caller has checked the cluster id (INCONSISTENT_CLUSTER_ID stands above the partitions).

    The partition's error is UNKNOWN_TOPIC_OR_PARTITION for any other than ``__cluster_metadata-0``;
    FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH or NOT_LEADER_OR_FOLLOWER with the leader that is known; or that of
    :class:`SnapshotChunk`.

    :raises OSError: the snapshot can't be read
    """
    name = request.topics[0].name if request.topics else CLUSTER_METADATA_TOPIC
    partition = request.topics[0].partitions[0] if request.topics and request.topics[0].partitions else None
    leader = LeaderIdAndEpoch(leader_id=known.leader_id, leader_epoch=known.epoch)
    if partition is None or name != CLUSTER_METADATA_TOPIC or partition.partition != 0:
        answer = ResponsePartitionSnapshot(
            index=0 if partition is None else partition.partition,
            error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            unaligned_records=b"",
        )
        return _response(name, answer, known)
    snapshot = CheckpointId(partition.snapshot_id.end_offset, partition.snapshot_id.epoch)
    error = _epoch_error(partition.current_leader_epoch, known)
    if error is not ErrorCode.NONE:
        chunk = SnapshotChunk(error)
    else:
        chunk = await source.chunk(snapshot, partition.position, request.max_bytes)
    answer = ResponsePartitionSnapshot(
        error_code=chunk.error,
        snapshot_id=partition.snapshot_id,
        current_leader=leader,
        size=chunk.size_bytes,
        position=chunk.position,
        unaligned_records=chunk.data,
    )
    return _response(name, answer, known)


def _epoch_error(epoch: int, known: KnownLeader) -> ErrorCode:
    if epoch < known.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if epoch > known.epoch:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    return ErrorCode.NONE if known.is_me else ErrorCode.NOT_LEADER_OR_FOLLOWER


def _response(name: str, answer: ResponsePartitionSnapshot, known: KnownLeader) -> FetchSnapshotResponse:
    return FetchSnapshotResponse(
        topics=[ResponseTopicSnapshot(name=name, partitions=[answer])],
        node_endpoints=[
            NodeEndpoint(node_id=node_id, host=host, port=port) for node_id, host, port in known.nodes
        ],
    )


def snapshot_request(
    cluster_id: str,
    replica: tuple[int, bytes],
    epoch: int,
    snapshot: CheckpointId,
    position: int,
    bytes_max: int,
) -> FetchSnapshotRequest:
    """Returns the request for a part of a snapshot.

    :param replica: id and directory id of the node that asks
    :param epoch: the leader epoch that it knows
    """
    node_id, directory_id = replica
    part = RequestPartitionSnapshot(
        current_leader_epoch=epoch,
        snapshot_id=SnapshotId(end_offset=snapshot.end_offset, epoch=snapshot.epoch),
        position=position,
        replica_directory_id=directory_id,
    )
    return FetchSnapshotRequest(
        cluster_id=cluster_id,
        replica_id=node_id,
        max_bytes=bytes_max,
        topics=[RequestTopicSnapshot(name=CLUSTER_METADATA_TOPIC, partitions=[part])],
    )


def chunk_of(response: FetchSnapshotResponse, snapshot: CheckpointId) -> SnapshotChunk:
    """Returns the part that an answer holds; an error of the whole answer stands for one of the partition.

    :raises ValueError: it is of another snapshot
    """
    parts = [part for topic in response.topics for part in topic.partitions]
    part = parts[0] if parts else NO_PARTITION
    error = known_code(response.error_code or part.error_code)
    if not parts and error is ErrorCode.NONE:
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if error is not ErrorCode.NONE:
        return SnapshotChunk(error)
    if part.snapshot_id != SnapshotId(end_offset=snapshot.end_offset, epoch=snapshot.epoch):
        sent_id = CheckpointId(part.snapshot_id.end_offset, part.snapshot_id.epoch)
        raise ValueError(
            f"{snapshot.name}: the leader sent a part of {sent_id.name}: the download begins anew"
        )
    data = cast(
        "bytes | bytearray | memoryview | None", part.unaligned_records
    )  # a decoded message has no regions
    return SnapshotChunk(error, part.size, part.position, bytes(data or b""))
