"""CreatePartitions: more partitions for a topic. Pure."""

from __future__ import annotations

from collections import Counter

from blumfeld.metadata.decision import ControllerDecision, ControllerState, Moment
from blumfeld.metadata.partitions.placement import check_assignment, new_partition, place
from blumfeld.metadata.topics.creation import NEW_PARTITIONS_MAX
from blumfeld.spi.cluster import TopicImage
from blumfeld.wire.errors import BrokerError, ErrorCode, message_of
from blumfeld.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from blumfeld.wire.schema import Message


def create_partitions(
    state: ControllerState, request: CreatePartitionsRequest, _moment: Moment
) -> ControllerDecision:
    """Grow each topic to the requested total number of partitions.

    Errors: UNKNOWN_TOPIC_OR_PARTITION, INVALID_PARTITIONS (no increase), INVALID_REPLICA_ASSIGNMENT,
    INVALID_REPLICATION_FACTOR, INVALID_REQUEST (a topic twice), POLICY_VIOLATION.
    """
    names = Counter(topic.name for topic in request.topics)
    records: list[Message] = []
    results: dict[str, CreatePartitionsTopicResult] = {}
    for topic in request.topics:
        result = CreatePartitionsTopicResult(name=topic.name)
        try:
            if names[topic.name] > 1:
                raise BrokerError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            records += _more(state, topic, len(records))
        except BrokerError as error:
            result.error_code = error.code
            result.error_message = error.message or message_of(error.code)
        results[topic.name] = result
    response = CreatePartitionsResponse(results=list(results.values()))
    return ControllerDecision([] if request.validate_only else records, response)


def _more(state: ControllerState, wanted: CreatePartitionsTopic, new_before: int) -> list[Message]:
    image = state.image
    topic = image.topics.get(wanted.name)
    if topic is None:
        raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    there = len(topic.partitions)
    if wanted.count == there:
        raise BrokerError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {there} partition(s).")
    if wanted.count < there:
        raise BrokerError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {wanted.name} currently has {there} partition(s); {wanted.count} would not be an increase.",
        )
    additional = wanted.count - there
    if new_before + additional > NEW_PARTITIONS_MAX:
        raise BrokerError(ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request.")
    placed = _replicas(state, topic, wanted, additional, new_before)
    return [
        new_partition(image, topic.topic_id, number, replicas)
        for number, replicas in enumerate(placed, start=there)
    ]


def _replicas(
    state: ControllerState,
    topic: TopicImage,
    wanted: CreatePartitionsTopic,
    additional: int,
    new_before: int,
) -> list[list[int]]:
    image = state.image
    factor = len(topic.partitions[0].replicas)
    if wanted.assignments is None:
        return place(image, additional, factor, image.index.count + new_before)
    if len(wanted.assignments) != additional:
        raise BrokerError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Attempted to add {additional} additional partition(s), but only {len(wanted.assignments)} "
            f"assignment(s) were specified.",
        )
    for assignment in wanted.assignments:
        check_assignment(image, assignment.broker_ids, factor)
    return [assignment.broker_ids for assignment in wanted.assignments]
