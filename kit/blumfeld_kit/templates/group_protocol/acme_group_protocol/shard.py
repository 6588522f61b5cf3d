"""The groups of one shard. A command reads state, and returns records and a reply; only :meth:`replay` writes state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from typing import Any

import msgspec
from blumfeld.spi.context import RequestContext
from blumfeld.spi.groups import (
    CommitCheck,
    CoordinatorRecord,
    Decision,
    GroupExport,
    GroupSummary,
    TimerOrder,
)
from blumfeld.wire.codec import encode
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.describe_groups import DescribedGroup, DescribedGroupMember
from blumfeld.wire.messages.group_coordinator_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
)
from blumfeld.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from blumfeld.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from blumfeld.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse
from blumfeld.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from blumfeld.wire.schema import Message

NAME = "acme-group-protocol"
VALUE_VERSION = 3
BATCH_LEAVE_SINCE_VERSION = 3


class SessionExpired(msgspec.Struct, frozen=True):
    """The command of a timer: the member was silent for its session timeout."""

    group_id: str
    member_id: str


class AcmeGroupProtocolShard:
    """``GroupShard``. As generated a group has one member, which reads everything; a second one is refused."""

    def __init__(self, new_member_id: Callable[[str], str]) -> None:
        self.groups: dict[str, GroupMetadataValue] = {}
        self._new_member_id = new_member_id

    # The log

    def replay(self, record_type: int, key: Message, value: Message | None) -> None:
        """Apply a record. The whole state of a group is its last record."""
        assert isinstance(key, GroupMetadataKey)
        if value is None:
            self.groups.pop(key.group, None)
        else:
            assert isinstance(value, GroupMetadataValue)
            self.groups[key.group] = value

    def loaded(self, now_ms: int) -> Decision:
        """Start every session anew: this node leads since now."""
        timers = [
            _session(group_id, member) for group_id, group in self.groups.items() for member in group.members
        ]
        return Decision(timers=timers)

    # Commands

    def command(self, request: Any, context: RequestContext | None, now_ms: int) -> Decision:
        """Decide on a request, or on a timer's command."""
        match request:
            case JoinGroupRequest():
                assert context is not None
                return self._join(request, context, now_ms)
            case SyncGroupRequest():
                return self._sync(request)
            case HeartbeatRequest():
                _, member = self._member(request.group_id, request.member_id, request.generation_id)
                return Decision(reply=HeartbeatResponse(), timers=[_session(request.group_id, member)])
            case LeaveGroupRequest():
                assert context is not None
                return self._leave(request, context, now_ms)
            case SessionExpired():
                return self._expire(request, now_ms)
            case _:
                raise BrokerError(ErrorCode.UNSUPPORTED_VERSION)

    def _join(self, request: JoinGroupRequest, context: RequestContext, now_ms: int) -> Decision:
        group = self.groups.get(request.group_id)
        reader = group.members[0].member_id if group and group.members else None
        if request.member_id and request.member_id != reader:
            raise BrokerError(ErrorCode.UNKNOWN_MEMBER_ID)
        if reader is not None and request.member_id != reader:
            raise BrokerError(ErrorCode.GROUP_MAX_SIZE_REACHED)  # WRITE HERE: let a second member in
        if not request.protocols:
            raise BrokerError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        first = request.protocols[0]
        member = MemberMetadata(
            member_id=request.member_id or self._new_member_id(context.client_id),
            client_id=context.client_id,
            client_host=context.peer_host,
            session_timeout=request.session_timeout_ms,
            rebalance_timeout=request.rebalance_timeout_ms,
            subscription=first.metadata,
        )
        joined = GroupMetadataValue(
            protocol_type=request.protocol_type,
            generation=group.generation + 1 if group else 1,
            protocol=first.name,
            leader=member.member_id,
            current_state_timestamp=now_ms,
            members=[member],
        )
        reply = JoinGroupResponse(
            generation_id=joined.generation,
            protocol_type=joined.protocol_type,
            protocol_name=joined.protocol,
            leader=member.member_id,
            member_id=member.member_id,
            members=[JoinGroupResponseMember(member_id=member.member_id, metadata=first.metadata)],
        )
        return Decision(
            records=[_record(request.group_id, joined)],
            reply=reply,
            timers=[_session(request.group_id, member)],
        )

    def _sync(self, request: SyncGroupRequest) -> Decision:
        group, member = self._member(request.group_id, request.member_id, request.generation_id)
        records = []
        if request.assignments:  # the leader's
            assigned = copy(member)
            assigned.assignment = request.assignments[0].assignment
            stable = copy(group)
            stable.members = [assigned]
            records, member = [_record(request.group_id, stable)], assigned
        reply = SyncGroupResponse(
            protocol_type=group.protocol_type,
            protocol_name=group.protocol,
            assignment=member.assignment,
        )
        return Decision(records=records, reply=reply, timers=[_session(request.group_id, member)])

    def _leave(self, request: LeaveGroupRequest, context: RequestContext, now_ms: int) -> Decision:
        batch = context.api_version >= BATCH_LEAVE_SINCE_VERSION
        leaving = [item.member_id for item in request.members] if batch else [request.member_id]
        group = self.groups.get(request.group_id)
        members = {member.member_id for member in group.members} if group else set()
        codes = [ErrorCode.NONE if item in members else ErrorCode.UNKNOWN_MEMBER_ID for item in leaving]
        records = []
        if group is not None and ErrorCode.NONE in codes:
            records = [_record(request.group_id, _emptied(group, now_ms))]
        if not batch:
            return Decision(records=records, reply=LeaveGroupResponse(error_code=codes[0]))
        answers = [
            MemberResponse(member_id=item, error_code=code) for item, code in zip(leaving, codes, strict=True)
        ]
        return Decision(records=records, reply=LeaveGroupResponse(members=answers))

    def _expire(self, expired: SessionExpired, now_ms: int) -> Decision:
        group = self.groups.get(expired.group_id)
        if group is None or all(member.member_id != expired.member_id for member in group.members):
            return Decision()
        return Decision(records=[_record(expired.group_id, _emptied(group, now_ms))])

    def _member(
        self, group_id: str, member_id: str, generation: int
    ) -> tuple[GroupMetadataValue, MemberMetadata]:
        group = self.groups.get(group_id)
        member = next((m for m in group.members if m.member_id == member_id), None) if group else None
        if group is None or member is None:
            raise BrokerError(ErrorCode.UNKNOWN_MEMBER_ID)
        if generation != group.generation:
            raise BrokerError(ErrorCode.ILLEGAL_GENERATION)
        return group, member

    # Questions of the coordinator

    def owns(self, group_id: str) -> bool:
        """Return whether the group is here."""
        return group_id in self.groups

    def is_empty(self, group_id: str) -> bool:
        """Return whether the group has no member."""
        return not self.groups[group_id].members

    def summaries(self) -> Sequence[GroupSummary]:
        """Return a line for each group."""
        return [
            GroupSummary(
                group_id=group_id,
                group_type=NAME,
                state=_state(group),
                protocol_type=group.protocol_type,
            )
            for group_id, group in self.groups.items()
        ]

    def describe(self, group_id: str) -> DescribedGroup | None:
        """Return the group for DescribeGroups."""
        group = self.groups.get(group_id)
        if group is None:
            return None
        members = [
            DescribedGroupMember(
                member_id=member.member_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.subscription,
                member_assignment=member.assignment,
            )
            for member in group.members
        ]
        return DescribedGroup(
            group_id=group_id,
            group_state=_state(group),
            protocol_type=group.protocol_type,
            protocol_data=group.protocol or "",
            members=members,
        )

    def check_commit(self, commit: CommitCheck, now_ms: int) -> Decision:
        """Let the member commit, and anybody while there is none."""
        group = self.groups[commit.group_id]
        nobody = commit.generation < 0 and not commit.member_id
        if nobody and (commit.transactional or not group.members):
            return Decision()
        _, member = self._member(commit.group_id, commit.member_id, commit.generation)
        return Decision(timers=[_session(commit.group_id, member)])

    def check_fetch(self, group_id: str, member_id: str | None, member_epoch: int) -> None:
        """Let everybody read the group's offsets."""

    def check_delete_offsets(self, group_id: str) -> None:
        """Let offsets be deleted that no member reads (:meth:`is_subscribed`)."""

    def is_subscribed(self, group_id: str, topic: str) -> bool:
        """Return whether a member may read the topic. Its subscription isn't looked into: it may read any."""
        return not self.is_empty(group_id)

    def offsets_idle_since(self, group_id: str) -> int | None:
        """Return the time since when the group is empty, or ``None``."""
        group = self.groups[group_id]
        return None if group.members else group.current_state_timestamp

    # The end

    def delete(self, group_id: str) -> Decision:
        """Return the tombstone that ends the group."""
        return Decision(records=[_record(group_id, None)])

    def export_group(self, group_id: str) -> GroupExport:
        """Refuse: as generated a group stays of this type."""
        raise BrokerError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)

    def import_group(self, group: GroupExport, now_ms: int) -> Decision:
        """Refuse, likewise."""
        raise BrokerError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)


def _record(group_id: str, group: GroupMetadataValue | None) -> CoordinatorRecord:
    key = (2).to_bytes(2) + encode(GroupMetadataKey(group=group_id), 0)
    value = None if group is None else VALUE_VERSION.to_bytes(2) + encode(group, VALUE_VERSION)
    return CoordinatorRecord(key, value)


def _session(group_id: str, member: MemberMetadata) -> TimerOrder:
    return TimerOrder(
        ("session", group_id), member.session_timeout, SessionExpired(group_id, member.member_id)
    )


def _emptied(group: GroupMetadataValue, now_ms: int) -> GroupMetadataValue:
    return GroupMetadataValue(
        protocol_type=group.protocol_type,
        generation=group.generation + 1,
        protocol=None,
        leader=None,
        current_state_timestamp=now_ms,
    )


def _state(group: GroupMetadataValue) -> str:
    return "Stable" if group.members else "Empty"
