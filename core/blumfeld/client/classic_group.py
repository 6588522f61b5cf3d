"""A member of a classic group: its requests, the consumer protocol inside them, and what it does after an error.

The caller decides when to send each request, because callers differ: a client, a bench with a thousand
members, a model that loses messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum, auto
from typing import Self

import msgspec

from blumfeld.client.errors import COORDINATOR_MOVES
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
RANGE, COOPERATIVE = "range", "cooperative-sticky"
NO_MEMBER_ID = ""
NO_GENERATION = -1


class Next(Enum):
    """The next step of a member after an answer."""

    GO_ON, JOIN, RETRY = auto(), auto(), auto()
    START_ANEW = auto()
    """It is no member any more, and what it owns may be another's. It gives that up and joins."""
    FAIL = auto()
    """The application gets the error."""


_AFTER: dict[int, Next] = {
    ErrorCode.NONE: Next.GO_ON,
    ErrorCode.REBALANCE_IN_PROGRESS: Next.JOIN,
    ErrorCode.UNKNOWN_MEMBER_ID: Next.START_ANEW,
    ErrorCode.ILLEGAL_GENERATION: Next.START_ANEW,
}


class Membership(msgspec.Struct, kw_only=True):
    """One member as its coordinator knows it, and the requests that it sends."""

    group_id: str
    protocol: str
    """The assignor: :data:`RANGE`, :data:`COOPERATIVE`."""
    session_timeout_ms: int
    rebalance_timeout_ms: int
    instance_id: str | None = None
    """Static membership (KIP-345)."""
    member_id: str = NO_MEMBER_ID
    generation: int = NO_GENERATION
    version: int = CONSUMER_VERSION
    """The version of its subscription and of the assignments that it makes."""

    def join(
        self, topics: Iterable[str], owned: Iterable[Place] = (), rack_id: str | None = None
    ) -> JoinGroupRequest:
        """Return the request to join, or to join again. The answer may be MEMBER_ID_REQUIRED with an id to join by
        (KIP-394).

        :param owned: its partitions, of which only a cooperative member tells (KIP-429)
        """
        owned = owned if self.protocol == COOPERATIVE else ()
        subscription = subscription_bytes(topics, owned, self.generation, rack_id, version=self.version)
        return JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=self.session_timeout_ms,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type=CONSUMER,
            protocols=[JoinGroupRequestProtocol(name=self.protocol, metadata=subscription)],
        )

    def sync(self, dealt: Mapping[str, Iterable[Place]], protocol: str | None = None) -> SyncGroupRequest:
        """Return the request for this generation's assignment.

        :param dealt: partitions by member id; only the leader has any
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
                SyncGroupRequestAssignment(
                    member_id=member_id, assignment=assignment_bytes(partitions, version=self.version)
                )
                for member_id, partitions in dealt.items()
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

    def heard(self, code: int) -> Next:
        """Take the error code of an answer. A member that starts anew keeps its id only after ILLEGAL_GENERATION."""
        after = Next.RETRY if code in COORDINATOR_MOVES else _AFTER.get(code, Next.FAIL)
        if after is Next.START_ANEW:
            self.generation = NO_GENERATION
        if code == ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = NO_MEMBER_ID
        return after


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
