"""Answers of the group APIs with one error for a whole request, topic or group. Pure."""

from __future__ import annotations

from blumfeld.wire.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from blumfeld.wire.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from blumfeld.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from blumfeld.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from blumfeld.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from blumfeld.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from blumfeld.wire.schema import Message


def dead(group: str, code: int) -> DescribedGroup:
    """Returns the answer for a group that can't be described."""
    return DescribedGroup(group_id=group, error_code=code)


def commit_error(request: OffsetCommitRequest, code: int, _message: str | None) -> Message:
    """Every partition that was asked has the error."""
    return OffsetCommitResponse(topics=[commit_refused(topic, code) for topic in request.topics])


def commit_refused(topic: OffsetCommitRequestTopic, code: int) -> OffsetCommitResponseTopic:
    """Every partition of the topic has the error."""
    return OffsetCommitResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetCommitResponsePartition(partition_index=p.partition_index, error_code=code)
            for p in topic.partitions
        ],
    )


def txn_commit_error(request: TxnOffsetCommitRequest, code: int, _message: str | None) -> Message:
    """Every partition that was asked has the error."""
    return TxnOffsetCommitResponse(topics=[txn_commit_refused(topic, code) for topic in request.topics])


def txn_commit_refused(topic: TxnOffsetCommitRequestTopic, code: int) -> TxnOffsetCommitResponseTopic:
    """Every partition of the topic has the error."""
    return TxnOffsetCommitResponseTopic(
        name=topic.name,
        partitions=[
            TxnOffsetCommitResponsePartition(partition_index=p.partition_index, error_code=code)
            for p in topic.partitions
        ],
    )


def offset_delete_refused(topic: OffsetDeleteRequestTopic, code: int) -> OffsetDeleteResponseTopic:
    """Every partition of the topic has the error."""
    return OffsetDeleteResponseTopic(
        name=topic.name,
        partitions=[
            OffsetDeleteResponsePartition(partition_index=p.partition_index, error_code=code)
            for p in topic.partitions
        ],
    )


def describe_error(request: DescribeGroupsRequest, code: int, _message: str | None) -> Message:
    """Every group that was asked has the error."""
    return DescribeGroupsResponse(groups=[dead(group, code) for group in request.groups])


def list_error(_request: ListGroupsRequest, code: int, _message: str | None) -> Message:
    """The answer as a whole has the error."""
    return ListGroupsResponse(error_code=code)


def delete_error(request: DeleteGroupsRequest, code: int, _message: str | None) -> Message:
    """Every group that was asked has the error."""
    results = [DeletableGroupResult(group_id=group, error_code=code) for group in request.groups_names]
    return DeleteGroupsResponse(results=results)


def offset_delete_error(_request: OffsetDeleteRequest, code: int, _message: str | None) -> Message:
    """The answer as a whole has the error."""
    return OffsetDeleteResponse(error_code=code)
