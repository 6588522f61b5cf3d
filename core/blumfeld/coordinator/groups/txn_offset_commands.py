"""TxnOffsetCommit: offsets that a producer commits in its transaction (KIP-98, KIP-447)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from blumfeld.coordinator.groups.offset_commands import utf16_length
from blumfeld.coordinator.groups.offsets import RETENTION_OF_THE_BROKER, CommittedOffset, offset_record
from blumfeld.spi.cluster import ClusterImage, TopicImage
from blumfeld.spi.groups import CommitCheck, CoordinatorRecord, Decision, GroupShard, Producer
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)


class TxnOffsetCommands:
    """Decides on commits in transactions. Writes nothing."""

    def __init__(
        self,
        owner: Callable[[str], GroupShard | None],
        simple: Callable[[str], bool],
        config: Any,
        image: Callable[[], ClusterImage],
    ) -> None:
        """:param owner: returns the group type that has a group, or ``None``
        :param simple: whether a group exists that has offsets and no type
        """
        self._owner = owner
        self._simple = simple
        self._image = image
        self._metadata_length_max: int = config.int("offset.metadata.max.bytes")

    def commit(self, request: TxnOffsetCommitRequest, version: int, now_ms: int) -> Decision:
        """Decide on one batch of the producer, with a record for each partition that can be committed.

        The answer has a code for each partition. The commit doesn't prolong the member's session.

        :raises BrokerError: the error of the whole request: ILLEGAL_GENERATION (also for a wrong epoch of a KIP-848
            member, and for a group that doesn't exist), UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID,
            INVALID_PRODUCER_ID_MAPPING, INVALID_PRODUCER_EPOCH
        """
        if request.producer_id < 0:
            raise BrokerError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        if request.producer_epoch < 0:
            raise BrokerError(ErrorCode.INVALID_PRODUCER_EPOCH)
        self._check_member(request, version, now_ms)
        records: list[CoordinatorRecord] = []
        response = TxnOffsetCommitResponse()
        for entry in request.topics:
            topic = self._image().topics.get(entry.name)
            answer = TxnOffsetCommitResponseTopic(name=entry.name)
            for item in entry.partitions:
                code = self._check_partition(topic, item)
                if code is ErrorCode.NONE and topic is not None:
                    records.append(_record(request.group_id, topic, item, now_ms))
                answer.partitions.append(
                    TxnOffsetCommitResponsePartition(partition_index=item.partition_index, error_code=code)
                )
            response.topics.append(answer)
        producer = Producer(request.producer_id, request.producer_epoch)
        return Decision(records=records, reply=response, producer=producer if records else None)

    def _check_member(self, request: TxnOffsetCommitRequest, version: int, now_ms: int) -> None:
        """Check that the committing member is in the group.

        A request before v3, or from a producer without a consumer, names no member and no generation. It may commit.
        """
        owner = self._owner(request.group_id)
        if owner is None:
            if request.generation_id >= 0:
                simple = self._simple(request.group_id)
                raise BrokerError(ErrorCode.UNKNOWN_MEMBER_ID if simple else ErrorCode.ILLEGAL_GENERATION)
            return
        commit = CommitCheck(
            group_id=request.group_id,
            member_id=request.member_id,
            instance_id=request.group_instance_id,
            generation=request.generation_id,
            version=version,
            partitions=self._existing(request.topics),
            transactional=True,
        )
        try:
            owner.check_commit(commit, now_ms)
        except BrokerError as error:
            # Clients don't expect this code for TxnOffsetCommit.
            if error.code is ErrorCode.STALE_MEMBER_EPOCH:
                raise BrokerError(ErrorCode.ILLEGAL_GENERATION, error.message) from error
            raise

    def _existing(self, topics: list[TxnOffsetCommitRequestTopic]) -> list[tuple[str, int]]:
        known = self._image().topics
        return [
            (entry.name, item.partition_index)
            for entry in topics
            if entry.name in known
            for item in entry.partitions
            if item.partition_index in known[entry.name].partitions
        ]

    def _check_partition(
        self, topic: TopicImage | None, partition_commit: TxnOffsetCommitRequestPartition
    ) -> ErrorCode:
        if topic is None or partition_commit.partition_index not in topic.partitions:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if utf16_length(partition_commit.committed_metadata or "") > self._metadata_length_max:
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        return ErrorCode.NONE


def _record(
    group_id: str, topic: TopicImage, partition_commit: TxnOffsetCommitRequestPartition, now_ms: int
) -> CoordinatorRecord:
    committed = CommittedOffset(
        offset=partition_commit.committed_offset,
        leader_epoch=partition_commit.committed_leader_epoch,
        metadata=partition_commit.committed_metadata or "",
        commit_timestamp_ms=now_ms,
        expire_timestamp_ms=RETENTION_OF_THE_BROKER,
        topic_id=topic.topic_id,
    )
    return offset_record(group_id, topic.name, partition_commit.partition_index, committed)
