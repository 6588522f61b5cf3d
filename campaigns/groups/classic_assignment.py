"""What a classic leader does: read subscriptions, deal partitions evenly and stickily, write assignments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from blumfeld.wire.codec import decode, encode
from blumfeld.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
    ConsumerProtocolSubscriptionTopicPartition,
)
from campaigns.groups.member import Partition

VERSION = 3


class Subscribed(msgspec.Struct, frozen=True):
    """A member, as its subscription tells the leader."""

    topics: tuple[str, ...]
    owned: frozenset[Partition]
    generation: int

    @classmethod
    def read(cls, metadata: bytes) -> Subscribed:
        """From a JoinGroup's metadata of any version."""
        version = int.from_bytes(metadata[:2])
        read = decode(ConsumerProtocolSubscription, metadata, min(version, VERSION), 2)
        owned = frozenset((t.topic, p) for t in read.owned_partitions for p in t.partitions)
        return cls(tuple(read.topics), owned, read.generation_id)


def subscription_bytes(
    topics: Iterable[str], owned: Iterable[Partition], generation: int, rack_id: str | None
) -> bytes:
    """The metadata of a JoinGroup."""
    by_topic: dict[str, list[int]] = {}
    for topic, index in sorted(owned):
        by_topic.setdefault(topic, []).append(index)
    value = ConsumerProtocolSubscription(
        topics=list(topics),
        owned_partitions=[
            ConsumerProtocolSubscriptionTopicPartition(topic=topic, partitions=partitions)
            for topic, partitions in by_topic.items()
        ],
        generation_id=generation,
        rack_id=rack_id,
    )
    return VERSION.to_bytes(2) + encode(value, VERSION)


def assignment_bytes(partitions: Iterable[Partition]) -> bytes:
    """One member's part of a leader's SyncGroup."""
    by_topic: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        by_topic.setdefault(topic, []).append(index)
    topics = [
        ConsumerProtocolAssignmentTopicPartition(topic=topic, partitions=indexes)
        for topic, indexes in by_topic.items()
    ]
    return VERSION.to_bytes(2) + encode(ConsumerProtocolAssignment(assigned_partitions=topics), VERSION)


def partitions_of(assignment: bytes) -> list[Partition]:
    """What a SyncGroup's answer says; empty bytes are no partitions."""
    if not assignment:
        return []
    version = int.from_bytes(assignment[:2])
    read = decode(ConsumerProtocolAssignment, assignment, min(version, VERSION), 2)
    return [(topic.topic, index) for topic in read.assigned_partitions for index in topic.partitions]


def assign(
    members: Mapping[str, Subscribed], counts: Mapping[str, int], *, cooperative: bool
) -> dict[str, list[Partition]]:
    """Deal every partition to who subscribes to it and has least, owners first as far as their fair share goes.

    Cooperative: what another still owns is withheld from its new owner, until that one has given it up.
    """
    dealt: dict[str, list[Partition]] = {member_id: [] for member_id in sorted(members)}
    partitions = [(topic, index) for topic, count in sorted(counts.items()) for index in range(count)]
    owners = _owners(members)
    fair = -(-len(partitions) // len(dealt)) if dealt else 0
    left: list[Partition] = []
    for at in partitions:
        owner = owners.get(at)
        keeps = owner is not None and at[0] in members[owner].topics and len(dealt[owner]) < fair
        if keeps and owner is not None:
            dealt[owner].append(at)
        else:
            left.append(at)
    for at in left:
        able = [member_id for member_id in dealt if at[0] in members[member_id].topics]
        if able:
            dealt[min(able, key=lambda member_id: (len(dealt[member_id]), member_id))].append(at)
    _level(dealt, members)
    if not cooperative:
        return dealt
    return {
        member_id: [at for at in given if owners.get(at, member_id) == member_id]
        for member_id, given in dealt.items()
    }


def _owners(members: Mapping[str, Subscribed]) -> dict[Partition, str]:
    """Who owns what, by the newest generation that claims it."""
    owners: dict[Partition, str] = {}
    for member_id, one in sorted(members.items(), key=lambda item: (item[1].generation, item[0])):
        for at in sorted(one.owned):
            owners[at] = member_id
    return owners


def _level(dealt: dict[str, list[Partition]], members: Mapping[str, Subscribed]) -> None:
    """Move single partitions from who has most to who has least, while that evens things out."""
    while dealt:
        poorest = min(dealt, key=lambda member_id: (len(dealt[member_id]), member_id))
        richest = max(dealt, key=lambda member_id: (len(dealt[member_id]), member_id))
        movable = [at for at in dealt[richest] if at[0] in members[poorest].topics]
        if len(dealt[richest]) - len(dealt[poorest]) < 2 or not movable:
            return
        dealt[richest].remove(movable[-1])
        dealt[poorest].append(movable[-1])
