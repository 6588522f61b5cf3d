"""Checks of offset commits and reads against the group's members (Kafka's ``OffsetMetadataManager``)."""

from __future__ import annotations

from collections.abc import Callable

from blumfeld.spi.cluster import ClusterImage
from blumfeld.spi.groups import CommitCheck
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld_groups_kip848.group import ConsumerGroup, Member
from blumfeld_groups_kip848.members.lookup import unknown_member

MEMBER_EPOCH_SINCE_VERSION = 9
"""First OffsetCommit version that may carry a member epoch."""


def check_commit(group: ConsumerGroup, commit: CommitCheck, image: Callable[[], ClusterImage]) -> None:
    """Check that these offsets may be committed. A member with an older epoch may commit only for partitions
    that it has held since that epoch or longer.

    :raises BrokerError: UNKNOWN_MEMBER_ID, UNSUPPORTED_VERSION, STALE_MEMBER_EPOCH; for classic members
        ILLEGAL_GENERATION
    """
    if commit.generation < 0 and not group.members:
        return
    anonymous = commit.generation < 0 and not commit.member_id and commit.instance_id is None
    if commit.transactional and anonymous:
        return
    member = group.members.get(commit.member_id)
    if member is None:
        raise unknown_member(group.group_id, commit.member_id)
    speaks_classic = member.classic is not None
    if not (commit.transactional or speaks_classic or commit.version >= MEMBER_EPOCH_SINCE_VERSION):
        raise BrokerError(
            ErrorCode.UNSUPPORTED_VERSION,
            "OffsetCommit version 9 or above must be used by members using the modern group protocol",
        )
    if commit.generation == member.epoch:
        return
    if commit.generation > member.epoch:
        raise _stale(member, commit.generation)
    topics = image().topics
    for name, partition in commit.partitions:
        topic = topics.get(name)
        since = None if topic is None else _held_since(member, topic.topic_id, partition)
        if since is None or commit.generation < since:
            raise _stale(member, commit.generation)


def _held_since(member: Member, topic_id: bytes, partition: int) -> int | None:
    """The epoch in which the member got a partition that it holds, or must still give up; ``None`` if it does
    not hold it.
    """
    since = member.assigned.get(topic_id, {}).get(partition)
    return member.revoking.get(topic_id, {}).get(partition) if since is None else since


def check_fetch(group: ConsumerGroup, member_id: str | None, member_epoch: int) -> None:
    """Check that a member may read the group's offsets. A request that names no member may always read.

    :raises BrokerError: UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH; for classic members ILLEGAL_GENERATION
    """
    if member_id is None and member_epoch < 0:
        return
    member = group.members.get(member_id or "")
    if member is None:
        raise unknown_member(group.group_id, member_id or "")
    if member_epoch != member.epoch:
        raise _stale(member, member_epoch)


def _stale(member: Member, epoch: int) -> BrokerError:
    if member.classic is not None:
        return BrokerError(
            ErrorCode.ILLEGAL_GENERATION,
            f"The received generation id {epoch} does not match the expected member epoch {member.epoch}.",
        )
    return BrokerError(
        ErrorCode.STALE_MEMBER_EPOCH,
        f"The received member epoch {epoch} does not match the expected member epoch {member.epoch}.",
    )
