"""AlterPartitionReassignments (KIP-455), as far as this build goes. Pure.

Replicas stay on their brokers, because nothing replicates here. Two requests are accepted: the present
assignment, and the same replicas in another order. Kafka's tool sends these to move replicas between log
directories.
"""

from __future__ import annotations

from blumfeld.metadata.decision import ControllerDecision, ControllerState, Moment
from blumfeld.metadata.partitions.directories import directory_of
from blumfeld.metadata.topics.assignments import check_assignment
from blumfeld.spi.cluster import PartitionImage, TopicImage
from blumfeld.wire.errors import BrokerError, ErrorCode, message_of
from blumfeld.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from blumfeld.wire.messages.metadata_records import PartitionChangeRecord
from blumfeld.wire.schema import Message


def alter_partition_reassignments(
    state: ControllerState, request: AlterPartitionReassignmentsRequest, _moment: Moment
) -> ControllerDecision:
    """Reassign the named partitions; each has its own result.

    Errors:
    * UNKNOWN_TOPIC_OR_PARTITION
    * INVALID_REPLICA_ASSIGNMENT: the list is empty, names a broker twice or one that is not registered, or
      names other brokers than those that have the replicas
    * NO_REASSIGNMENT_IN_PROGRESS: there is nothing to cancel
    * REASSIGNMENT_IN_PROGRESS: another build of the cluster began one, and this build can't finish it
    """
    records: list[Message] = []
    responses = []
    for topic in request.topics:
        answer = ReassignableTopicResponse(name=topic.name)
        for wanted in topic.partitions:
            result = ReassignablePartitionResponse(partition_index=wanted.partition_index, error_message=None)
            try:
                record = _change(state, state.image.topics.get(topic.name), wanted)
                if record is not None:
                    records.append(record)
            except BrokerError as error:
                result.error_code = error.code
                result.error_message = error.message or message_of(error.code)
            answer.partitions.append(result)
        responses.append(answer)
    response = AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_message=None,
        responses=responses,
    )
    return ControllerDecision(records, response, atomic=False)


def _change(
    state: ControllerState, topic: TopicImage | None, wanted: ReassignablePartition
) -> PartitionChangeRecord | None:
    partition = None if topic is None else topic.partitions.get(wanted.partition_index)
    if topic is None or partition is None:
        raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    ongoing = bool(partition.adding_replicas or partition.removing_replicas)
    if wanted.replicas is None and not ongoing:
        raise BrokerError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    if wanted.replicas is None or ongoing:
        raise BrokerError(
            ErrorCode.REASSIGNMENT_IN_PROGRESS, "this build cannot finish or cancel a reassignment"
        )
    check_assignment(state.image, wanted.replicas, None)
    if set(wanted.replicas) != set(partition.replicas):
        raise BrokerError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "this build cannot move a replica to another broker"
        )
    return _reordered(topic, partition, wanted.replicas)


def _reordered(
    topic: TopicImage, partition: PartitionImage, replicas: list[int]
) -> PartitionChangeRecord | None:
    """Returns the change of order, or ``None``. The first replica becomes the preferred leader; the present
    leader stays.
    """
    if tuple(replicas) == partition.replicas:
        return None
    return PartitionChangeRecord(
        partition_id=partition.partition,
        topic_id=topic.topic_id,
        replicas=replicas,
        directories=[directory_of(partition, replica) for replica in replicas],
    )
