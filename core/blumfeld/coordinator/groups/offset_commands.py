"""Commands on committed offsets: OffsetCommit, OffsetFetch, OffsetDelete (Kafka's ``OffsetMetadataManager``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from blumfeld.coordinator.groups.offsets import (
    RETENTION_OF_THE_BROKER,
    CommittedOffset,
    OffsetStore,
    offset_record,
    tombstone,
)
from blumfeld.coordinator.groups.pending_offsets import PendingOffsets
from blumfeld.spi.cluster import ClusterImage, TopicImage
from blumfeld.spi.context import RequestContext
from blumfeld.spi.groups import CommitCheck, CoordinatorRecord, Decision, GroupShard
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from blumfeld.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from blumfeld.wire.messages.offset_fetch import (
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)

TOPIC_IDS_SINCE_VERSION = 10
INT64_MAX = 2**63 - 1
GROUP_ID_NOT_FOUND_SINCE_VERSION = 9
"""First version of OffsetCommit with this error, for a generation of a group that doesn't exist. Earlier ones get
ILLEGAL_GENERATION."""


class OffsetCommands:
    """Decides on commands about offsets. It reads the store, the group types and the image, and writes nothing."""

    def __init__(
        self,
        store: OffsetStore,
        pending: PendingOffsets,
        owner: Callable[[str], GroupShard | None],
        simple: Callable[[str], bool],
        config: Any,
        image: Callable[[], ClusterImage],
    ) -> None:
        """:param owner: returns the group type that has a group, or ``None``
        :param simple: whether a group exists that commits offsets, or did
        """
        self._store = store
        self._pending = pending
        self._owner = owner
        self._simple = simple
        self._image = image
        # The key's name says bytes, but Kafka counts Java's characters (UTF-16 units).
        self._metadata_length_max: int = config.int("offset.metadata.max.bytes")

    def check_member(self, request: OffsetCommitRequest, context: RequestContext, now_ms: int) -> Decision:
        """Check that the member may commit. A consumer without group membership commits with a negative generation.

        :raises BrokerError: UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION, FENCED_INSTANCE_ID, REBALANCE_IN_PROGRESS,
            GROUP_ID_NOT_FOUND
        """
        owner = self._owner(request.group_id)
        generation = request.generation_id_or_member_epoch
        if owner is not None:
            commit = CommitCheck(
                group_id=request.group_id,
                member_id=request.member_id,
                instance_id=request.group_instance_id,
                generation=generation,
                version=context.api_version,
                partitions=self._existing(request, context.api_version),
            )
            return owner.check_commit(commit, now_ms)
        if generation >= 0:
            if self._simple(request.group_id):  # it has no members
                raise BrokerError(ErrorCode.UNKNOWN_MEMBER_ID)
            modern = context.api_version >= GROUP_ID_NOT_FOUND_SINCE_VERSION
            raise BrokerError(ErrorCode.GROUP_ID_NOT_FOUND if modern else ErrorCode.ILLEGAL_GENERATION)
        return Decision()

    def _existing(self, request: OffsetCommitRequest, version: int) -> list[tuple[str, int]]:
        named = [(self._topic(entry, version)[0], entry.partitions) for entry in request.topics]
        return [
            (topic.name, item.partition_index)
            for topic, partitions in named
            if topic is not None
            for item in partitions
            if item.partition_index in topic.partitions
        ]

    def commit(
        self, request: OffsetCommitRequest, version: int, now_ms: int
    ) -> tuple[list[CoordinatorRecord], OffsetCommitResponse]:
        """Returns the records for all partitions that can be committed, and the answer with a code for each."""
        expire_ms = RETENTION_OF_THE_BROKER
        if request.retention_time_ms != -1:
            # In Kafka this sum overflows for a huge retention, and the offset expires at once. Ours is kept.
            expire_ms = min(now_ms + request.retention_time_ms, INT64_MAX)
        records: list[CoordinatorRecord] = []
        response = OffsetCommitResponse()
        for entry in request.topics:
            topic, missing = self._topic(entry, version)
            answer = OffsetCommitResponseTopic(name=entry.name, topic_id=entry.topic_id)
            for partition in entry.partitions:
                code = missing or self._check_partition(topic, partition)
                if code == ErrorCode.NONE and topic is not None:
                    committed = _committed(partition, topic.topic_id, now_ms, expire_ms)
                    index = partition.partition_index
                    records.append(offset_record(request.group_id, topic.name, index, committed))
                answer.partitions.append(
                    OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=code)
                )
            response.topics.append(answer)
        return records, response

    def _topic(
        self, commit_topic: OffsetCommitRequestTopic, version: int
    ) -> tuple[TopicImage | None, ErrorCode]:
        if version >= TOPIC_IDS_SINCE_VERSION:
            topic = self._image().topic_by_id(commit_topic.topic_id)
            return topic, ErrorCode.NONE if topic else ErrorCode.UNKNOWN_TOPIC_ID
        topic = self._image().topics.get(commit_topic.name)
        return topic, ErrorCode.NONE if topic else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def _check_partition(
        self, topic: TopicImage | None, partition_commit: OffsetCommitRequestPartition
    ) -> ErrorCode:
        if topic is None or partition_commit.partition_index not in topic.partitions:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if utf16_length(partition_commit.committed_metadata or "") > self._metadata_length_max:
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        return ErrorCode.NONE

    def fetch(
        self, group_id: str, topics: Sequence[tuple[str, Sequence[int]]] | None, require_stable: bool = False
    ) -> OffsetFetchResponseGroup:
        """Returns the committed offsets of a group. Without a commit the offset is -1, which is no error.

        The caller must fill in topic ids.

        :param topics: (topic, partitions) to return; ``None`` asks for all with a committed offset
        :param require_stable: answer UNSTABLE_OFFSET_COMMIT for an offset that is pending in a transaction (KIP-447)
        """
        committed = self._store.of_group(group_id)
        unstable = frozenset(self._pending.places(group_id)) if require_stable else ()
        if topics is None:
            listed: dict[str, list[int]] = {}
            for topic, partition in committed:
                listed.setdefault(topic, []).append(partition)
            topics = list(listed.items())
        return OffsetFetchResponseGroup(
            group_id=group_id,
            topics=[
                OffsetFetchResponseTopics(
                    name=topic,
                    partitions=[
                        _unstable(p) if (topic, p) in unstable else _fetched(committed.get((topic, p)), p)
                        for p in partitions
                    ],
                )
                for topic, partitions in topics
            ],
        )

    def delete(self, request: OffsetDeleteRequest, exists: bool) -> Decision:
        """Decide to delete offsets of topics to which no active member is subscribed.

        :raises BrokerError: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP; GROUP_SUBSCRIBED_TO_TOPIC and
            UNKNOWN_TOPIC_OR_PARTITION are errors of their partitions
        """
        if not exists:
            raise BrokerError(ErrorCode.GROUP_ID_NOT_FOUND)
        owner = self._owner(request.group_id)
        if owner is not None:
            owner.check_delete_offsets(request.group_id)
        committed = self._store.of_group(request.group_id)
        records: list[CoordinatorRecord] = []
        response = OffsetDeleteResponse()
        for entry in request.topics:
            topic = self._image().topics.get(entry.name)
            read = owner is not None and owner.is_subscribed(request.group_id, entry.name)
            answer = OffsetDeleteResponseTopic(name=entry.name)
            for item in entry.partitions:
                code = ErrorCode.NONE
                if topic is None or item.partition_index not in topic.partitions:
                    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                elif read:
                    code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
                elif (entry.name, item.partition_index) in committed or self._pending.is_pending(
                    request.group_id, (entry.name, item.partition_index)
                ):
                    records.append(tombstone(request.group_id, entry.name, item.partition_index))
                answer.partitions.append(
                    OffsetDeleteResponsePartition(partition_index=item.partition_index, error_code=code)
                )
            response.topics.append(answer)
        return Decision(records=records, reply=response)

    def of_group_gone(self, group_id: str) -> list[CoordinatorRecord]:
        """Returns the records that remove all offsets of a deleted group, pending ones too."""
        committed = self._store.of_group(group_id)
        pending = [place for place in self._pending.places(group_id) if place not in committed]
        return self._store.tombstones(group_id) + [tombstone(group_id, *place) for place in pending]

    def of_topics_gone(
        self, topics: tuple[str, ...], topic_ids: tuple[bytes, ...] = ()
    ) -> list[CoordinatorRecord]:
        """Returns the records that remove the offsets of all groups for these deleted topics, pending ones too."""
        records = self._store.tombstones_of_topics(topics, topic_ids)
        for group_id, place in self._pending.places_of_topics(topics):
            if place not in self._store.of_group(group_id):
                records.append(tombstone(group_id, *place))
        return records


def utf16_length(text: str) -> int:
    """Returns Java's ``String.length``: characters outside of the basic plane count twice."""
    return len(text.encode("utf-16-be", "surrogatepass")) // 2


def _committed(
    partition_commit: OffsetCommitRequestPartition, topic_id: bytes, now_ms: int, expire_ms: int
) -> CommittedOffset:
    return CommittedOffset(
        offset=partition_commit.committed_offset,
        leader_epoch=partition_commit.committed_leader_epoch,
        metadata=partition_commit.committed_metadata or "",
        commit_timestamp_ms=now_ms,
        expire_timestamp_ms=expire_ms,
        topic_id=topic_id,
    )


def _unstable(partition: int) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=partition,
        committed_offset=-1,
        committed_leader_epoch=-1,
        metadata="",
        error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT,
    )


def _fetched(committed: CommittedOffset | None, partition: int) -> OffsetFetchResponsePartitions:
    if committed is None:
        return OffsetFetchResponsePartitions(
            partition_index=partition, committed_offset=-1, committed_leader_epoch=-1, metadata=""
        )
    return OffsetFetchResponsePartitions(
        partition_index=partition,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
    )
