"""DescribeQuorum: the quorum as its leader knows it (KIP-836, KIP-853)."""

from __future__ import annotations

from blumfeld.spi.consensus import Quorum
from blumfeld.spi.hooks import Composition
from blumfeld.spi.internal_topics import CLUSTER_METADATA_TOPIC
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    ReplicaState,
    ResponsePartitionData,
    ResponseTopicData,
)
from blumfeld_consensus_kraft.quorum.driver import RaftDriver
from blumfeld_consensus_kraft.quorum.endpoints import own_endpoints
from blumfeld_consensus_kraft.raft.leadership import Progress
from blumfeld_consensus_kraft.raft_log import RaftLog


def known_quorum(driver: RaftDriver, log: RaftLog, *, leads: bool) -> Quorum:
    """Returns the quorum as this node knows it.

    :param leads: whether this node's controller is at work
    """
    raft = driver.raft
    return Quorum(
        leader_id=raft.me.id if leads else raft.leader_id,
        leader_epoch=raft.epoch,
        high_watermark=log.committed_end,
        log_end_offset=log.log.written_end_offset,
        voters=raft.voters.ids,
        voter_directory_ids=tuple(
            raft.me.directory_id if voter.key.id == raft.me.id else voter.key.directory_id
            for voter in raft.voters.voters.values()
        ),
        kraft_version=raft.history.latest.kraft_version,
    )


def describe_quorum(
    request: DescribeQuorumRequest, driver: RaftDriver, log: RaftLog, composition: Composition
) -> DescribeQuorumResponse:
    """Returns the answer of the leader. Times are those of the wall clock; the state machine has others.

    Errors: UNKNOWN_TOPIC_OR_PARTITION, INVALID_REQUEST; NOT_LEADER_OR_FOLLOWER, in the partition
    """
    if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
        return DescribeQuorumResponse(error_code=ErrorCode.INVALID_REQUEST)
    topic, partition_index = request.topics[0].topic_name, request.topics[0].partitions[0].partition_index
    partition = ResponsePartitionData(partition_index=partition_index)
    answer = DescribeQuorumResponse(topics=[ResponseTopicData(topic_name=topic, partitions=[partition])])
    raft = driver.raft
    leadership = raft.leadership
    if topic != CLUSTER_METADATA_TOPIC or partition_index:
        partition.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return answer
    if leadership is None:
        partition.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        partition.leader_id, partition.leader_epoch = raft.leader_id, raft.epoch
        return answer

    now_ms, monotonic_ms = composition.runtime.now_ms(), composition.runtime.monotonic_ms()

    def wall_ms(at_ms: float) -> int:
        return -1 if at_ms < 0 else round(now_ms - (monotonic_ms - at_ms))

    def state(progress: Progress) -> ReplicaState:
        return ReplicaState(
            replica_id=progress.key.id,
            replica_directory_id=progress.key.directory_id,
            log_end_offset=progress.end_offset,
            last_fetch_timestamp=wall_ms(progress.last_fetch_ms),
            last_caught_up_timestamp=wall_ms(progress.last_caught_up_ms),
        )

    partition.leader_id, partition.leader_epoch = raft.me.id, raft.epoch
    partition.high_watermark = leadership.high_watermark
    for voter in raft.voters.voters.values():
        if voter.key.id == raft.me.id:
            partition.current_voters.append(
                ReplicaState(
                    replica_id=raft.me.id,
                    replica_directory_id=raft.me.directory_id,
                    log_end_offset=log.end_offset,
                    last_fetch_timestamp=now_ms,
                    last_caught_up_timestamp=now_ms,
                )
            )
        else:
            partition.current_voters.append(state(leadership.progress(voter.key)))
        endpoints = own_endpoints(composition) if voter.key.id == raft.me.id else voter.endpoints
        answer.nodes.append(
            Node(
                node_id=voter.key.id,
                listeners=[
                    Listener(name=endpoint.listener, host=endpoint.host, port=endpoint.port)
                    for endpoint in endpoints
                ],
            )
        )
    partition.observers = [state(progress) for progress in leadership.observers(monotonic_ms)]
    return answer
