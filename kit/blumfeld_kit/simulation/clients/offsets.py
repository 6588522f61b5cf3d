"""Committed offsets of a group, as its clients commit them and ask for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from blumfeld.client.classic_group import Membership
from blumfeld.client.fetch import Place
from blumfeld.spi.storage import TopicPartition
from blumfeld.wire.errors import ErrorCode, is_retriable
from blumfeld.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from blumfeld.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from blumfeld_kit.simulation.clients.client import ClientConnection
from blumfeld_kit.simulation.clients.oracle import ViolationError

VERSION = 7


async def fetch_offsets(
    connection: ClientConnection, group: str, partitions: Iterable[TopicPartition], *, stable: bool = False
) -> dict[TopicPartition, int] | None:
    """Return the committed offsets; -1 for none. ``None``: an error says that they can't be told now.

    :param stable: refuse while a transaction has offsets pending
    :raises OSError: the coordinator is lost
    :raises ViolationError: any other error
    """
    topics: dict[str, list[int]] = {}
    for partition in partitions:
        topics.setdefault(partition.topic, []).append(partition.partition)
    request = OffsetFetchRequest(
        group_id=group,
        require_stable=stable,
        topics=[OffsetFetchRequestTopic(name=name, partition_indexes=each) for name, each in topics.items()],
    )
    answer = await connection.ask(request, VERSION, OffsetFetchResponse)
    named_partitions = [(topic.name, entry) for topic in answer.topics for entry in topic.partitions]
    for code in map(ErrorCode, (answer.error_code, *(entry.error_code for _, entry in named_partitions))):
        if code is not ErrorCode.NONE:
            if not is_retriable(code):
                raise ViolationError(f"OffsetFetch of {group}: {code.name}")
            return None
    return {
        TopicPartition(name, entry.partition_index): entry.committed_offset
        for name, entry in named_partitions
    }


def commit_request(group: str, offsets: Mapping[Place, int]) -> OffsetCommitRequest:
    """Return the request by which a group without members commits. A member puts its id and its epoch into it."""
    topics: dict[str, OffsetCommitRequestTopic] = {}
    for (name, index), offset in offsets.items():
        topic = topics.setdefault(name, OffsetCommitRequestTopic(name=name))
        topic.partitions.append(OffsetCommitRequestPartition(partition_index=index, committed_offset=offset))
    return OffsetCommitRequest(group_id=group, topics=list(topics.values()))


async def commit_offsets(
    connection: ClientConnection,
    group: str,
    offsets: Mapping[TopicPartition, int],
    membership: Membership | None = None,
) -> dict[TopicPartition, ErrorCode]:
    """Commit offsets, as a member or without one. Return each partition's outcome. :raises OSError: nobody knows it"""
    request = commit_request(group, {(at.topic, at.partition): offset for at, offset in offsets.items()})
    if membership is not None:
        request.generation_id_or_member_epoch = membership.generation
        request.member_id = membership.member_id
    answer = await connection.ask(request, VERSION, OffsetCommitResponse)
    return {
        TopicPartition(topic.name, partition.partition_index): ErrorCode(partition.error_code)
        for topic in answer.topics
        for partition in topic.partitions
    }
