"""The quorum's requests and answers as messages of the wire, and back. The topic is always ``__cluster_metadata``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from blumfeld.log.quorum_state import EPOCH_MAX
from blumfeld.spi.cluster import Endpoint
from blumfeld.spi.internal_topics import CLUSTER_METADATA_TOPIC as TOPIC
from blumfeld.spi.internal_topics import CLUSTER_METADATA_TOPIC_ID as TOPIC_ID
from blumfeld.spi.leader_epochs import EpochEnd
from blumfeld.wire.codec import leave_out
from blumfeld.wire.errors import BrokerError, ErrorCode, known_code
from blumfeld.wire.messages import begin_quorum_epoch as begin
from blumfeld.wire.messages import end_quorum_epoch as end
from blumfeld.wire.messages import fetch, vote
from blumfeld.wire.schema import Message
from blumfeld_consensus_kraft.raft.messages import (
    BeginEpoch,
    EndEpoch,
    EpochAnswer,
    FetchAnswer,
    FetchRequest,
    Request,
    SnapshotId,
    VoteAnswer,
    VoteRequest,
)
from blumfeld_consensus_kraft.raft.voters import ReplicaKey

Nodes = Iterable[tuple[int, str, int]]
"""(node id, host, port)."""


class FetchSettings(NamedTuple):
    """Fields of a fetch of metadata beside its place."""

    cluster_id: str
    max_wait_ms: int
    max_bytes: int


def to_wire(request: Request, settings: FetchSettings, own_endpoints: Sequence[Endpoint]) -> Message:
    """Returns the message of a request.

    :param own_endpoints: this voter's controller listeners, which a new leader tells
    """
    if isinstance(request, VoteRequest):
        return _vote(request, settings.cluster_id)
    if isinstance(request, FetchRequest):
        return _fetch(request, settings)
    if isinstance(request, BeginEpoch):
        partition = begin.RequestPartitionData(
            voter_directory_id=request.voter.directory_id,
            leader_id=request.leader_id,
            leader_epoch=request.epoch,
        )
        return begin.BeginQuorumEpochRequest(
            cluster_id=settings.cluster_id,
            voter_id=request.voter.id,
            topics=[begin.RequestTopicData(topic_name=TOPIC, partitions=[partition])],
            leader_endpoints=[
                begin.LeaderEndpoint(name=e.listener, host=e.host, port=e.port) for e in own_endpoints
            ],
        )
    candidates = [
        end.ReplicaInfo(candidate_id=key.id, candidate_directory_id=key.directory_id)
        for key in request.successors
    ]
    ending = end.RequestPartitionData(
        leader_id=request.leader_id,
        leader_epoch=request.epoch,
        preferred_successors=[key.id for key in request.successors],
        preferred_candidates=candidates,
    )
    return end.EndQuorumEpochRequest(
        cluster_id=settings.cluster_id,
        topics=[end.RequestTopicData(topic_name=TOPIC, partitions=[ending])],
        leader_endpoints=[
            end.LeaderEndpoint(name=e.listener, host=e.host, port=e.port) for e in own_endpoints
        ],
    )


def _vote(request: VoteRequest, cluster_id: str) -> Message:
    partition = vote.RequestPartitionData(
        replica_epoch=request.epoch,
        replica_id=request.candidate.id,
        replica_directory_id=request.candidate.directory_id,
        voter_directory_id=request.voter.directory_id,
        last_offset_epoch=request.last_epoch,
        last_offset=request.end_offset,
        pre_vote=request.pre_vote,
    )
    topic = vote.RequestTopicData(topic_name=TOPIC, partitions=[partition])
    return vote.VoteRequest(cluster_id=cluster_id, voter_id=request.voter.id, topics=[topic])


def _fetch(request: FetchRequest, settings: FetchSettings) -> Message:
    partition = fetch.FetchPartition(
        current_leader_epoch=request.epoch,
        fetch_offset=request.offset,
        last_fetched_epoch=request.last_epoch,
        partition_max_bytes=settings.max_bytes,
        replica_directory_id=request.replica.directory_id,
        high_watermark=request.high_watermark,
    )
    return fetch.FetchRequest(
        cluster_id=settings.cluster_id,
        replica_state=fetch.ReplicaState(replica_id=request.replica.id),
        max_wait_ms=settings.max_wait_ms,
        max_bytes=settings.max_bytes,
        topics=[fetch.FetchTopic(topic=TOPIC, topic_id=TOPIC_ID, partitions=[partition])],
    )


# Requests that came


def from_wire(message: Message, own_id: int) -> Request:
    """Returns the request of a message.

    :raises BrokerError: INVALID_REQUEST: it names another topic or partition, or several
    """
    if isinstance(message, vote.VoteRequest):
        fetch_partition = _only(message.topics)
        return VoteRequest(
            fetch_partition.replica_epoch,
            ReplicaKey(fetch_partition.replica_id, fetch_partition.replica_directory_id),
            ReplicaKey(
                own_id if message.voter_id < 0 else message.voter_id, fetch_partition.voter_directory_id
            ),
            fetch_partition.last_offset_epoch,
            fetch_partition.last_offset,
            fetch_partition.pre_vote,
        )
    if isinstance(message, begin.BeginQuorumEpochRequest):
        begun = _only(message.topics)
        voter_id = own_id if message.voter_id < 0 else message.voter_id
        return BeginEpoch(begun.leader_epoch, begun.leader_id, ReplicaKey(voter_id, begun.voter_directory_id))
    if isinstance(message, end.EndQuorumEpochRequest):
        ended = _only(message.topics)
        keys = [
            ReplicaKey(candidate.candidate_id, candidate.candidate_directory_id)
            for candidate in ended.preferred_candidates
        ]
        keys = keys or [ReplicaKey(successor) for successor in ended.preferred_successors]
        return EndEpoch(ended.leader_epoch, ended.leader_id, tuple(keys))
    assert isinstance(message, fetch.FetchRequest)
    place = _only(message.topics)
    replica_id = max(message.replica_id, message.replica_state.replica_id)
    return FetchRequest(
        ReplicaKey(replica_id, place.replica_directory_id),
        place.current_leader_epoch,
        place.fetch_offset,
        place.last_fetched_epoch,
        place.high_watermark,
    )


def _only(topics: Sequence[Any]) -> Any:
    """The partition of a request: the quorum has one."""
    if len(topics) == 1 and len(topics[0].partitions) == 1:
        topic, partition = topics[0], topics[0].partitions[0]
        name = topic.topic_name if hasattr(topic, "topic_name") else topic.topic
        is_metadata = name == TOPIC or getattr(topic, "topic_id", None) == TOPIC_ID
        index = partition.partition_index if hasattr(partition, "partition_index") else partition.partition
        if is_metadata and index == 0:
            return partition
    raise BrokerError(ErrorCode.INVALID_REQUEST, f"this listener serves partition 0 of {TOPIC} alone")


# Answers


def answer_to_wire(
    answer: VoteAnswer | EpochAnswer | FetchAnswer, request: Message, nodes: Nodes, version: int
) -> Message:
    """Returns the message of an answer, as far as the request's version has a place for it.

    :param nodes: the address of the leader, if it is known
    """
    message = _answer_to_wire(answer, request, nodes)
    leave_out(message, version)
    if isinstance(message, fetch.FetchResponse):
        leave_out(message.responses[0].partitions[0], version)
    return message


def _answer_to_wire(
    answer: VoteAnswer | EpochAnswer | FetchAnswer, request: Message, nodes: Nodes
) -> Message:
    if isinstance(answer, VoteAnswer):
        voted = vote.ResponsePartitionData(
            error_code=answer.error,
            leader_id=answer.leader_id,
            leader_epoch=answer.epoch,
            vote_granted=answer.granted,
        )
        return vote.VoteResponse(
            topics=[vote.ResponseTopicData(topic_name=TOPIC, partitions=[voted])],
            node_endpoints=[vote.NodeEndpoint(node_id=n, host=h, port=p) for n, h, p in nodes],
        )
    if isinstance(answer, FetchAnswer):
        return _fetch_answer(answer, nodes)
    if isinstance(request, begin.BeginQuorumEpochRequest):
        begun = begin.ResponsePartitionData(
            error_code=answer.error, leader_id=answer.leader_id, leader_epoch=answer.epoch
        )
        return begin.BeginQuorumEpochResponse(
            topics=[begin.ResponseTopicData(topic_name=TOPIC, partitions=[begun])],
            node_endpoints=[begin.NodeEndpoint(node_id=n, host=h, port=p) for n, h, p in nodes],
        )
    ended = end.ResponsePartitionData(
        error_code=answer.error, leader_id=answer.leader_id, leader_epoch=answer.epoch
    )
    return end.EndQuorumEpochResponse(
        topics=[end.ResponseTopicData(topic_name=TOPIC, partitions=[ended])],
        node_endpoints=[end.NodeEndpoint(node_id=n, host=h, port=p) for n, h, p in nodes],
    )


def _fetch_answer(answer: FetchAnswer, nodes: Nodes) -> Message:
    partition = fetch.PartitionData(
        error_code=answer.error,
        high_watermark=answer.high_watermark,
        current_leader=fetch.LeaderIdAndEpoch(leader_id=answer.leader_id, leader_epoch=answer.epoch),
        aborted_transactions=[],
        records=answer.records or b"",
    )
    if answer.diverging is not None:
        partition.diverging_epoch = fetch.EpochEndOffset(
            epoch=answer.diverging.epoch, end_offset=answer.diverging.end_offset
        )
    if answer.snapshot is not None:
        partition.snapshot_id = fetch.SnapshotId(
            end_offset=answer.snapshot.end_offset, epoch=answer.snapshot.epoch
        )
    topic = fetch.FetchableTopicResponse(topic=TOPIC, topic_id=TOPIC_ID, partitions=[partition])
    return fetch.FetchResponse(
        responses=[topic],
        node_endpoints=[fetch.NodeEndpoint(node_id=n, host=h, port=p) for n, h, p in nodes],
    )


def answer_from_wire(message: Any) -> VoteAnswer | EpochAnswer | FetchAnswer:
    """Returns the answer of a message.

    :raises BrokerError: the answer has an error for the whole request (INCONSISTENT_CLUSTER_ID…), no partition, or an
        epoch behind the last one
    """
    if message.error_code:
        raise BrokerError(known_code(message.error_code))
    topics = message.responses if isinstance(message, fetch.FetchResponse) else message.topics
    if len(topics) != 1 or len(topics[0].partitions) != 1:
        raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"the answer has no partition of {TOPIC}")
    partition: Any = topics[0].partitions[0]
    leader_fields = partition.current_leader if isinstance(message, fetch.FetchResponse) else partition
    if leader_fields.leader_epoch > EPOCH_MAX:
        raise BrokerError(
            ErrorCode.UNKNOWN_LEADER_EPOCH,
            f"epoch {leader_fields.leader_epoch} is behind the last one, {EPOCH_MAX}",
        )
    error = known_code(partition.error_code)
    if isinstance(message, vote.VoteResponse):
        return VoteAnswer(error, partition.leader_epoch, partition.leader_id, partition.vote_granted)
    if not isinstance(message, fetch.FetchResponse):
        return EpochAnswer(error, partition.leader_epoch, partition.leader_id)
    leader, diverging, snapshot = partition.current_leader, partition.diverging_epoch, partition.snapshot_id
    return FetchAnswer(
        error,
        leader.leader_epoch,
        leader.leader_id,
        partition.high_watermark,
        EpochEnd(diverging.epoch, diverging.end_offset) if diverging.end_offset >= 0 else None,
        SnapshotId(snapshot.end_offset, snapshot.epoch) if snapshot.end_offset >= 0 else None,
        partition.records or None,
    )


def nodes_of(message: Any) -> list[tuple[int, str, int]]:
    """Returns the addresses that an answer names."""
    return [(endpoint.node_id, endpoint.host, endpoint.port) for endpoint in message.node_endpoints]
