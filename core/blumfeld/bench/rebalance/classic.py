"""A member of a classic group: JoinGroup, SyncGroup, Heartbeat, eager with ``range`` or ``cooperative-sticky``.

It does what the Java client does where the group is concerned (KIP-429 for the cooperative one), and commits and
reads nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from blumfeld.bench.driver import DriverError
from blumfeld.bench.rebalance.assignors import cooperative_assignment, range_assignment
from blumfeld.bench.rebalance.member import FAR_NS, PATIENCE, RETRY_NS, Group, Member, answer, request
from blumfeld.client.errors import error_name
from blumfeld.wire.codec import decode, encode
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
    ConsumerProtocolSubscriptionTopicPartition,
)
from blumfeld.wire.messages.heartbeat import HeartbeatRequest
from blumfeld.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from blumfeld.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from blumfeld.wire.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from blumfeld.wire.schema import Message

JOIN_VERSION, SYNC_VERSION, HEARTBEAT_VERSION, LEAVE_VERSION = 9, 5, 4, 5
CONSUMER_VERSION = 3
"""Of the subscription and the assignment."""
PROTOCOL_TYPE = "consumer"
RANGE, COOPERATIVE = "range", "cooperative-sticky"
_ERROR = slice(9, 11)
"""Of a Heartbeat answer: correlation id, no tags, throttle time, error code."""
_OK, _IN_PROGRESS = b"\0\0", ErrorCode.REBALANCE_IN_PROGRESS.to_bytes(2, "big")


class ClassicMember(Member):
    """One member.

    :param cooperative: it keeps what it has while it rejoins
    """

    def __init__(self, group: Group, index: int, cooperative: bool) -> None:
        super().__init__(group, index)
        self._cooperative = cooperative
        self._protocol = COOPERATIVE if cooperative else RANGE
        self._member_id = ""
        self._beat = b""
        self._expects: type[Message] | None = None
        self._others: list[JoinGroupResponseMember] = []

    @property
    def is_leader(self) -> bool:
        """It computes the assignment."""
        return self._member_id != "" and self._member_id == self.group.leader

    def begin(self, now_ns: int) -> bytes:
        """JoinGroup without an id."""
        return self._join(now_ns)

    def due(self, now_ns: int) -> bytes:
        """A heartbeat, or JoinGroup again, or what a leader has computed."""
        if self.slow:
            self.slow = False
            return self._sync(self._assign(self._others))
        if not self.idle:
            return self._join(now_ns)
        self.heard_ns = now_ns
        self.wake_ns = FAR_NS
        return self._beat

    def answered(self, frame: bytes, now_ns: int) -> bytes | None:
        """See :class:`Member`."""
        if self._expects is JoinGroupResponse:
            return self._joined(answer(JoinGroupResponse, frame, JOIN_VERSION), now_ns)
        if self._expects is SyncGroupResponse:
            return self._synced(answer(SyncGroupResponse, frame, SYNC_VERSION), now_ns)
        error = frame[_ERROR]
        if error == _OK:
            self.wake_ns = self.heard_ns + self.group.heartbeat_interval_ms * 1_000_000
            return None
        if error == _IN_PROGRESS:
            return self._join(now_ns)
        return self._failed(int.from_bytes(error, "big", signed=True), now_ns)

    def leave(self) -> bytes:
        """LeaveGroup."""
        members = [MemberIdentity(member_id=self._member_id, reason="the consumer is being closed")]
        return request(LeaveGroupRequest(group_id=self.group.group_id, members=members), LEAVE_VERSION)

    def _join(self, now_ns: int) -> bytes:
        if not self._cooperative:
            self.stop_owning(now_ns)
        self.idle = False
        self.group.told_ns = self.heard_ns = now_ns
        self.wake_ns = FAR_NS
        self._expects = JoinGroupResponse
        group = self.group
        protocol = JoinGroupRequestProtocol(name=self._protocol, metadata=self._subscription())
        message = JoinGroupRequest(
            group_id=group.group_id,
            session_timeout_ms=group.session_timeout_ms,
            rebalance_timeout_ms=group.rebalance_timeout_ms,
            member_id=self._member_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[protocol],
        )
        return request(message, JOIN_VERSION)

    def _subscription(self) -> bytes:
        owned = sorted(self.group.ownership.owned(self.index)) if self._cooperative else []
        mine = [ConsumerProtocolSubscriptionTopicPartition(topic=self.group.topic, partitions=owned)]
        subscription = ConsumerProtocolSubscription(
            topics=[self.group.topic], owned_partitions=mine if owned else [], generation_id=self.epoch
        )
        return CONSUMER_VERSION.to_bytes(2, "big") + encode(subscription, CONSUMER_VERSION)

    def _joined(self, found: JoinGroupResponse, now_ns: int) -> bytes | None:
        if found.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = found.member_id
            return self._join(now_ns)
        if found.error_code:
            return self._failed(found.error_code, now_ns)
        group = self.group
        self._member_id, self.epoch, group.leader = found.member_id, found.generation_id, found.leader
        group.told_ns = self.heard_ns = now_ns
        if self.is_leader:
            self.slow, self._others = True, found.members
            return None
        return self._sync([])

    def _sync(self, assignments: list[SyncGroupRequestAssignment]) -> bytes:
        self._expects = SyncGroupResponse
        message = SyncGroupRequest(
            group_id=self.group.group_id,
            generation_id=self.epoch,
            member_id=self._member_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=self._protocol,
            assignments=assignments,
        )
        return request(message, SYNC_VERSION)

    def _assign(self, members: Iterable[JoinGroupResponseMember]) -> list[SyncGroupRequestAssignment]:
        partitions = self.group.partitions
        if self._cooperative:
            owned = {member.member_id: _owned(member.metadata) for member in members}
            given = cooperative_assignment(owned, partitions)
        else:
            given = range_assignment([member.member_id for member in members], partitions)
        return [
            SyncGroupRequestAssignment(member_id=member_id, assignment=self._assignment(mine))
            for member_id, mine in given.items()
        ]

    def _assignment(self, partitions: list[int]) -> bytes:
        mine = [ConsumerProtocolAssignmentTopicPartition(topic=self.group.topic, partitions=partitions)]
        assignment = ConsumerProtocolAssignment(assigned_partitions=mine if partitions else [])
        return CONSUMER_VERSION.to_bytes(2, "big") + encode(assignment, CONSUMER_VERSION)

    def _synced(self, found: SyncGroupResponse, now_ns: int) -> bytes | None:
        if found.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            return self._join(now_ns)
        if found.error_code:
            return self._failed(found.error_code, now_ns)
        group = self.group
        revoked = group.ownership.change(now_ns, self.index, _assigned(found.assignment))
        group.told_ns = now_ns
        if revoked:
            return self._join(now_ns)  # what it gave up can be given to others now
        message = HeartbeatRequest(
            group_id=group.group_id, generation_id=self.epoch, member_id=self._member_id
        )
        self._beat = request(message, HEARTBEAT_VERSION)
        self._expects = None
        self.idle = True
        self.wake_ns = self.first_beat_ns(now_ns, group.heartbeat_interval_ms)
        return None

    def _failed(self, code: int, now_ns: int) -> bytes | None:
        """Patience, or another try: with nothing, where the group doesn't know it any more."""
        if code in PATIENCE:
            self.idle = False
            self.wake_ns = now_ns + RETRY_NS
            return None
        self.fault(code)
        if code == ErrorCode.UNKNOWN_MEMBER_ID:
            self._member_id = ""
        elif code not in (ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS):
            raise DriverError(f"a classic member was refused: {error_name(code)}")
        self.stop_owning(now_ns)
        self.epoch = -1
        return self._join(now_ns)


def _owned(metadata: bytes) -> list[int]:
    found = decode(ConsumerProtocolSubscription, metadata, CONSUMER_VERSION, 2)
    return [partition for topic in found.owned_partitions for partition in topic.partitions]


def _assigned(assignment: bytes) -> list[int]:
    if not assignment:
        return []
    found = decode(ConsumerProtocolAssignment, assignment, CONSUMER_VERSION, 2)
    return [partition for topic in found.assigned_partitions for partition in topic.partitions]
