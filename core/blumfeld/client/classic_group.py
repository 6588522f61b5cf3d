"""The requests of a classic consumer group member, with the consumer protocol inside them.

The caller decides when to send each request, because callers differ: a client, a bench with a thousand
members, a model that loses messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Self

import msgspec

from blumfeld.client.fetch import Place
from blumfeld.wire.codec import decode, encode
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
    ConsumerProtocolSubscriptionTopicPartition,
)
from blumfeld.wire.messages.heartbeat import HeartbeatRequest
from blumfeld.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from blumfeld.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from blumfeld.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

CONSUMER = "consumer"
"""The protocol type of consumers."""
CONSUMER_VERSION = 3
"""The newest version of subscriptions and assignments (KIP-881)."""
NO_MEMBER_ID = ""
NO_GENERATION = -1


class Membership(msgspec.Struct, kw_only=True):
    """One member as its coordinator knows it, and the requests that it sends."""

    group_id: str
    protocol: str
    """The assignor: ``range``, ``cooperative-sticky``."""
    session_timeout_ms: int
    rebalance_timeout_ms: int
    instance_id: str | None = None
    """Static membership (KIP-345)."""
    member_id: str = NO_MEMBER_ID
    generation: int = NO_GENERATION

    def join(self, subscription: bytes) -> JoinGroupRequest:
        """Return the request to join, or to join again. The answer may be MEMBER_ID_REQUIRED with an id to join by
        (KIP-394).
        """
        return JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=self.session_timeout_ms,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type=CONSUMER,
            protocols=[JoinGroupRequestProtocol(name=self.protocol, metadata=subscription)],
        )

    def sync(self, assignments: Mapping[str, bytes], protocol: str | None = None) -> SyncGroupRequest:
        """Return the request for this generation's assignment.

        :param assignments: by member id; only the leader has any
        :param protocol: the protocol that the group chose; the member's own if it is None
        """
        return SyncGroupRequest(
            group_id=self.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type=CONSUMER,
            protocol_name=self.protocol if protocol is None else protocol,
            assignments=[
                SyncGroupRequestAssignment(member_id=member_id, assignment=assignment)
                for member_id, assignment in assignments.items()
            ],
        )

    def heartbeat(self) -> HeartbeatRequest:
        """Return the request that says that the member is alive."""
        return HeartbeatRequest(
            group_id=self.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
        )

    def leave(self, reason: str | None = None) -> LeaveGroupRequest:
        """Return the request to leave, with a reason for people (KIP-800)."""
        return LeaveGroupRequest(
            group_id=self.group_id, members=[MemberIdentity(member_id=self.member_id, reason=reason)]
        )

    def lost(self, code: int) -> bool:
        """Take the error of an answer. Return whether it ends the membership: the member then joins as a new one, with
        its id only after ILLEGAL_GENERATION.
        """
        if code == ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = NO_MEMBER_ID
        elif code != ErrorCode.ILLEGAL_GENERATION:
            return False
        self.generation = NO_GENERATION
        return True


class Subscription(msgspec.Struct, frozen=True):
    """A member, as its subscription tells the leader."""

    topics: tuple[str, ...]
    owned: frozenset[Place]
    generation: int

    @classmethod
    def read(cls, metadata: bytes) -> Self:
        """Read the subscription from a JoinGroup's metadata of any version."""
        version = int.from_bytes(metadata[:2], "big")
        read = decode(ConsumerProtocolSubscription, metadata, min(version, CONSUMER_VERSION), 2)
        owned = frozenset((each.topic, index) for each in read.owned_partitions for index in each.partitions)
        return cls(tuple(read.topics), owned, read.generation_id)


def subscription_bytes(
    topics: Iterable[str],
    owned: Iterable[Place] = (),
    generation: int = NO_GENERATION,
    rack_id: str | None = None,
    *,
    version: int = CONSUMER_VERSION,
) -> bytes:
    """Return the metadata of a JoinGroup."""
    value = ConsumerProtocolSubscription(
        topics=list(topics),
        owned_partitions=[
            ConsumerProtocolSubscriptionTopicPartition(topic=topic, partitions=partitions)
            for topic, partitions in _by_topic(owned).items()
        ],
        generation_id=generation,
        rack_id=rack_id,
    )
    return version.to_bytes(2, "big") + encode(value, version)


def assignment_bytes(partitions: Iterable[Place], *, version: int = CONSUMER_VERSION) -> bytes:
    """Return one member's part of a leader's SyncGroup."""
    topics = [
        ConsumerProtocolAssignmentTopicPartition(topic=topic, partitions=indexes)
        for topic, indexes in _by_topic(partitions).items()
    ]
    return version.to_bytes(2, "big") + encode(
        ConsumerProtocolAssignment(assigned_partitions=topics), version
    )


def partitions_of(assignment: bytes) -> list[Place]:
    """Return the partitions in a SyncGroup's answer; empty bytes are none."""
    if not assignment:
        return []
    version = int.from_bytes(assignment[:2], "big")
    read = decode(ConsumerProtocolAssignment, assignment, min(version, CONSUMER_VERSION), 2)
    return [(each.topic, index) for each in read.assigned_partitions for index in each.partitions]


def _by_topic(partitions: Iterable[Place]) -> dict[str, list[int]]:
    numbers: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        numbers.setdefault(topic, []).append(index)
    return numbers
