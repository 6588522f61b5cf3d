"""Classic members of a KIP-848 group: JoinGroup, SyncGroup, Heartbeat and LeaveGroup where the broker assigns
(KIP-848).

A member's epoch is its generation. Heartbeat tells the member to join again. Its next subscription reports
the partitions that it owns, and SyncGroup returns the partitions that it may have by then. Each request is
answered at once.
"""

from __future__ import annotations

from typing import Any

import msgspec

from blumfeld.spi.context import RequestContext
from blumfeld.spi.groups import Decision
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from blumfeld.wire.messages.join_group import JoinGroupRequest
from blumfeld.wire.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from blumfeld.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from blumfeld_groups_kip848.classic.join import ClassicJoin
from blumfeld_groups_kip848.conversion.member_bytes import PROTOCOL_TYPE, assignment_bytes, version_of
from blumfeld_groups_kip848.edit import Edit
from blumfeld_groups_kip848.group import ClassicMember, ConsumerGroup, Member, MemberState
from blumfeld_groups_kip848.members.departures import fence
from blumfeld_groups_kip848.members.lookup import known_member, unknown_member
from blumfeld_groups_kip848.steps import GroupSteps

BATCH_LEAVE_SINCE_VERSION = 3
PROTOCOL_SINCE_VERSION = 5
"""First SyncGroup version that must name the protocol's type and name (KIP-559)."""


class JoinExpired(msgspec.Struct, frozen=True):
    """A timer's command: a member that was told to join again has not done so within its rebalance timeout."""

    group_id: str
    member_id: str
    epoch: int
    """The member's epoch when the timer started. The group may have been classic in between, while the timer
    ran on.
    """


class SyncExpired(msgspec.Struct, frozen=True):
    """A timer's command: a member has joined but has not sent SyncGroup within its rebalance timeout."""

    group_id: str
    member_id: str
    epoch: int
    """The member's epoch when the timer started."""


class ClassicMembers:
    """The classic APIs for a shard's KIP-848 groups, and the timers that only classic members have."""

    def __init__(self, steps: GroupSteps) -> None:
        self._steps = steps
        self._awaited: dict[tuple[str, str], int] = {}
        """(group id, member id) → epoch in which the member was told to join again and its timer started. Not
        stored in the log.
        """

    def command(self, request: Any, context: RequestContext | None, now_ms: int) -> Decision:
        """Decide on JoinGroup v0–9, SyncGroup v0–5, Heartbeat v0–4, LeaveGroup v0–5 for a group of this
        shard, or on a timer.

        JoinGroup to a group without members goes to the classic type, which silently replaces the group.

        :raises BrokerError: the request's error
        """
        group = self._steps.groups.get(request.group_id)
        if isinstance(request, JoinExpired | SyncExpired):
            return self._expired(request, group, now_ms)
        if group is None:
            raise BrokerError(ErrorCode.UNKNOWN_MEMBER_ID)
        assert context is not None
        edit = Edit(group, now_ms)
        match request:
            case HeartbeatRequest():
                return self._heartbeat(request, edit)
            case JoinGroupRequest():
                return self._join(request, context, edit)
            case SyncGroupRequest():
                return self._sync(request, context, edit)
            case LeaveGroupRequest():
                return self._leave(request, context, edit)
            case _:
                raise BrokerError(ErrorCode.UNSUPPORTED_VERSION)

    def _join(self, request: JoinGroupRequest, context: RequestContext, edit: Edit) -> Decision:
        joining = ClassicJoin(self._steps, request, context, edit)
        if not edit.group.members:
            return joining.replace_group()
        response = joining.decide()
        if not response.error_code:
            group_id, member_id = edit.group_id, response.member_id
            self._awaited.pop((group_id, member_id), None)
            edit.timer(("join", group_id, member_id), None)
            if joining.stays:
                command = SyncExpired(group_id, member_id, response.generation_id)
                edit.timer(("sync", group_id, member_id), joining.rebalance_timeout_ms, command)
        return edit.decision(response)

    def _sync(self, request: SyncGroupRequest, context: RequestContext, edit: Edit) -> Decision:
        nameless = None in (request.protocol_type, request.protocol_name)
        if nameless and context.api_version >= PROTOCOL_SINCE_VERSION:
            raise BrokerError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        member, classic = _member(edit.group, request)
        protocol, metadata = classic.protocols[0]
        claims = ((request.protocol_type, PROTOCOL_TYPE), (request.protocol_name, protocol))
        if any(given not in (None, ours) for given, ours in claims):
            raise BrokerError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        self._steps.start_session(edit, member)
        if member.epoch < edit.group.target_epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
            self._await_join(edit, member)
            return edit.decision(SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
        edit.timer(("sync", edit.group_id, member.member_id), None)
        return edit.decision(
            SyncGroupResponse(
                protocol_type=PROTOCOL_TYPE,
                protocol_name=protocol,
                assignment=assignment_bytes(member.assigned, version_of(metadata) or 0, self._steps.image()),
            )
        )

    def _heartbeat(self, request: HeartbeatRequest, edit: Edit) -> Decision:
        member, _ = _member(edit.group, request)
        self._steps.start_session(edit, member)
        self._steps.refresh(
            edit, False
        )  # a group with classic members only gets no ConsumerGroupHeartbeat that would do this
        code = ErrorCode.NONE
        if must_join(edit.group, edit.group.members[member.member_id]):
            self._await_join(edit, member)
            code = ErrorCode.REBALANCE_IN_PROGRESS
        return edit.decision(HeartbeatResponse(error_code=code))

    def _await_join(self, edit: Edit, member: Member) -> None:
        """Start the timer when the member is first told to join again. Later heartbeats do not extend it."""
        key = (edit.group_id, member.member_id)
        if self._awaited.get(key) != member.epoch:
            self._awaited[key] = member.epoch
            edit.timer(("join", *key), member.rebalance_timeout_ms, JoinExpired(*key, member.epoch))

    def _leave(self, request: LeaveGroupRequest, context: RequestContext, edit: Edit) -> Decision:
        batch = context.api_version >= BATCH_LEAVE_SINCE_VERSION
        leaving = request.members if batch else [MemberIdentity(member_id=request.member_id)]
        left: dict[str, None] = {}
        answers = []
        for item in leaving:
            code = ErrorCode.NONE
            try:
                left[_leaves(edit.group, item).member_id] = None
            except BrokerError as error:
                code = error.code
            answers.append(
                MemberResponse(
                    member_id=item.member_id, group_instance_id=item.group_instance_id, error_code=code
                )
            )
        if left:  # one rebalance, however many members leave
            fence(edit, list(left), self._steps)
        if not batch:
            return edit.decision(LeaveGroupResponse(error_code=answers[0].error_code))
        return edit.decision(LeaveGroupResponse(members=answers))

    def _expired(
        self, expired: JoinExpired | SyncExpired, group: ConsumerGroup | None, now_ms: int
    ) -> Decision:
        key = (expired.group_id, expired.member_id)
        if isinstance(expired, JoinExpired):
            if self._awaited.get(key) != expired.epoch:
                return Decision()
            del self._awaited[key]
        member = None if group is None else group.members.get(expired.member_id)
        if group is None or member is None or member.classic is None or member.epoch != expired.epoch:
            return Decision()
        edit = Edit(group, now_ms)
        fence(edit, [member.member_id], self._steps)
        return edit.decision()


def must_join(group: ConsumerGroup, member: Member) -> bool:
    """Whether a classic member must join again: it lags behind the target, it has partitions to give up, or
    the partitions that it waited for are free.
    """
    if member.epoch < group.target_epoch or member.state is MemberState.UNREVOKED_PARTITIONS:
        return True
    return member.state is MemberState.UNRELEASED_PARTITIONS and not _waits_for_others(group, member)


def _waits_for_others(group: ConsumerGroup, member: Member) -> bool:
    """Whether another member still holds a partition of this member's target."""
    return any(
        partition not in member.assigned.get(topic_id, ()) and group.owners.epoch(topic_id, partition) != -1
        for topic_id, partitions in group.targets.get(member.member_id, {}).items()
        for partition in partitions
    )


def _member(
    group: ConsumerGroup, request: HeartbeatRequest | SyncGroupRequest
) -> tuple[Member, ClassicMember]:
    """The classic member that sends this request in its current generation."""
    member = known_member(group, request.member_id, request.group_instance_id)
    if member.classic is None:
        raise unknown_member(group.group_id, member.member_id)
    if request.generation_id != member.epoch:
        raise BrokerError(ErrorCode.ILLEGAL_GENERATION)
    return member, member.classic


def _leaves(group: ConsumerGroup, leaving: MemberIdentity) -> Member:
    """The member that leaves. It may also be one that speaks ConsumerGroupHeartbeat. An operator's request
    may name only the instance.

    :raises BrokerError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID
    """
    if leaving.group_instance_id is None or leaving.member_id:
        return known_member(group, leaving.member_id, leaving.group_instance_id)
    member = group.static_member(leaving.group_instance_id)
    if member is None:
        raise unknown_member(group.group_id, "")
    return member
