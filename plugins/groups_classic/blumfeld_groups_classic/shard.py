"""The classic groups of one shard: a deterministic state machine without a clock (``spi.groups.GroupShard``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from blumfeld.coordinator.groups.shard import TypeCommand
from blumfeld.spi.context import RequestContext
from blumfeld.spi.groups import (
    SINCE_COMMIT,
    CommitCheck,
    Decision,
    GroupExport,
    GroupSummary,
)
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.describe_groups import DescribedGroup, DescribedGroupMember
from blumfeld.wire.messages.group_coordinator_records import GroupMetadataKey, GroupMetadataValue
from blumfeld.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from blumfeld.wire.messages.join_group import JoinGroupRequest
from blumfeld.wire.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from blumfeld.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from blumfeld.wire.schema import Message
from blumfeld_groups_classic import join, rebalance
from blumfeld_groups_classic.edit import (
    AssignmentRefused,
    Edit,
    ImportRefused,
    JoinExpired,
    ReplacementRefused,
    SessionExpired,
    SyncExpired,
)
from blumfeld_groups_classic.exchange import exported, taken
from blumfeld_groups_classic.group import Group, Member, State, replayed
from blumfeld_groups_classic.join import Joining, Limits, check_instance
from blumfeld_groups_classic.subscription import subscribed_topics

NAME = "classic"
BATCH_LEAVE_SINCE_VERSION = 3
PROTOCOL_SINCE_VERSION = 5
"""SyncGroup must name the protocol's type and name from this version on (KIP-559), though both may be null."""


class ClassicGroups:
    """All classic groups whose ids hash to this shard's partition."""

    def __init__(self, limits: Limits, new_member_id: Callable[[str], str]) -> None:
        self.groups: dict[str, Group] = {}
        self._limits = limits
        self._new_member_id = new_member_id
        self._tokens = 0

    # Replay of the log

    def replay(self, record_type: int, key: Message, value: Message | None) -> None:
        """Apply a GroupMetadata record; a tombstone ends the group."""
        assert isinstance(key, GroupMetadataKey)
        if value is None:
            self.groups.pop(key.group, None)
            return
        assert isinstance(value, GroupMetadataValue)
        self.groups[key.group] = replayed(self.groups.get(key.group), key.group, value)

    def loaded(self, now_ms: int) -> Decision:
        """Start every member's session anew. Groups that are too large now lose members; converted groups go
        on with the rebalance that is due.
        """
        edit = Edit(now_ms)
        for group in self.groups.values():
            for member in group.members.values():
                edit.session(group.group_id, member.member_id, member.session_timeout_ms)
            if len(group.members) > self._limits.members_max or (group.members and group.unled):
                rebalance.prepare(group, edit, self._limits.initial_rebalance_delay_ms)
        return edit.decision()

    # Commands

    def command(self, request: Any, context: RequestContext | None, now_ms: int) -> Decision:
        """Decide on JoinGroup, SyncGroup, Heartbeat, LeaveGroup, or on a timer.

        :raises BrokerError: the request's error
        """
        edit = Edit(now_ms)
        match request:
            case HeartbeatRequest():
                return self._heartbeat(request, edit)
            case JoinGroupRequest():
                assert context is not None
                return self._join(request, context, edit)
            case SyncGroupRequest():
                assert context is not None
                return self._sync(request, context, edit)
            case LeaveGroupRequest():
                assert context is not None
                return self._leave(request, context, edit)
            case SessionExpired():
                self._session_expired(request, edit)
            case JoinExpired():
                group = self.groups.get(request.group_id)
                if group and group.state is State.PREPARING and group.generation == request.generation:
                    rebalance.join_expired(group, edit, self._limits.initial_rebalance_delay_ms)
            case SyncExpired():
                group = self.groups.get(request.group_id)
                waits = group and group.state in (State.COMPLETING, State.STABLE)
                if group and waits and group.generation == request.generation:
                    rebalance.sync_expired(group, edit, self._limits.initial_rebalance_delay_ms)
            case ReplacementRefused():
                group = self.groups.get(request.group_id)
                if group is not None and request.member_id in group.members:
                    join.put_back(group, request, edit)
            case ImportRefused():
                group = self.groups.pop(request.group_id, None)
                for member_id in () if group is None else group.members:
                    edit.end_session(request.group_id, member_id)
            case AssignmentRefused():
                group = self.groups.get(request.group_id)
                if group and group.state is State.COMPLETING and group.generation == request.generation:
                    rebalance.prepare(group, edit, self._limits.initial_rebalance_delay_ms)
                    rebalance.maybe_complete_join(group, edit)
            case _:
                raise BrokerError(ErrorCode.UNSUPPORTED_VERSION)
        return edit.decision()

    def _join(self, request: JoinGroupRequest, context: RequestContext, edit: Edit) -> Decision:
        limits = self._limits
        if not limits.session_timeout_ms_min <= request.session_timeout_ms <= limits.session_timeout_ms_max:
            raise BrokerError(ErrorCode.INVALID_SESSION_TIMEOUT)
        group = self.groups.get(request.group_id)
        if group is None and request.member_id:
            raise BrokerError(ErrorCode.UNKNOWN_MEMBER_ID)
        known = group or Group(request.group_id)
        self._tokens += 1
        token = (request.group_id, self._tokens)
        joining = Joining(known, request, context, edit, limits, token, self._new_member_id)
        decision = joining.decide()
        self.groups[request.group_id] = known  # after decide(): a refused join must leave no group behind
        return decision

    def _sync(self, request: SyncGroupRequest, context: RequestContext, edit: Edit) -> Decision:
        nameless = None in (request.protocol_type, request.protocol_name)
        if nameless and context.api_version >= PROTOCOL_SINCE_VERSION:
            raise BrokerError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        group, member = self._member(request.group_id, request.member_id, request.group_instance_id)
        if request.generation_id != group.generation:
            raise BrokerError(ErrorCode.ILLEGAL_GENERATION)
        claims = ((request.protocol_type, group.protocol_type), (request.protocol_name, group.protocol_name))
        if any(None not in (given, ours) and given != ours for given, ours in claims):
            raise BrokerError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if group.state is State.PREPARING:
            raise BrokerError(ErrorCode.REBALANCE_IN_PROGRESS)
        edit.session(group.group_id, member.member_id, member.session_timeout_ms)
        rebalance.synced(group, member, edit)
        if group.state is State.STABLE:
            return edit.decision(_assigned(group, member.assignment))
        rebalance.refuse(member, edit, ErrorCode.REBALANCE_IN_PROGRESS)
        self._tokens += 1
        member.syncing = (request.group_id, self._tokens)
        token = member.syncing
        if member.member_id == group.leader_id:
            self._assign(group, request, edit)
        return edit.decision(token=token)

    def _assign(self, group: Group, request: SyncGroupRequest, edit: Edit) -> None:
        """Write the leader's assignment, and answer the members that wait for it. Replaying the record makes the group
        stable. If the log refuses the record, waiting members get an error and the group rebalances, as with Kafka.
        """
        edit.if_refused = AssignmentRefused(group.group_id, group.generation)
        given = {item.member_id: bytes(item.assignment) for item in request.assignments}
        edit.write(group.group_id, group.as_record(edit.now_ms, given))
        for key, member in group.members.items():
            if member.syncing is not None:
                edit.answer(member.syncing, _assigned(group, given.get(key, b"")))
                member.syncing = None
                edit.session(group.group_id, key, member.session_timeout_ms)

    def _heartbeat(self, request: HeartbeatRequest, edit: Edit) -> Decision:
        group, member = self._member(request.group_id, request.member_id, request.group_instance_id)
        if request.generation_id != group.generation:
            raise BrokerError(ErrorCode.ILLEGAL_GENERATION)
        edit.session(group.group_id, member.member_id, member.session_timeout_ms)
        preparing = group.state is State.PREPARING
        code = ErrorCode.REBALANCE_IN_PROGRESS if preparing else ErrorCode.NONE
        return edit.decision(HeartbeatResponse(error_code=code))

    def _leave(self, request: LeaveGroupRequest, context: RequestContext, edit: Edit) -> Decision:
        if context.api_version < BATCH_LEAVE_SINCE_VERSION:
            leaving = [MemberIdentity(member_id=request.member_id)]
        else:
            leaving = request.members
        group = self.groups.get(request.group_id)
        left: list[Member] = []
        answers = [
            MemberResponse(
                member_id=item.member_id,
                group_instance_id=item.group_instance_id,
                error_code=ErrorCode.UNKNOWN_MEMBER_ID
                if group is None
                else self._leaves(group, item, left, edit),
            )
            for item in leaving
        ]
        if group is not None:  # one rebalance, however many members leave
            rebalance.remove_members(group, left, edit, self._limits.initial_rebalance_delay_ms)
        if context.api_version < BATCH_LEAVE_SINCE_VERSION:
            return edit.decision(LeaveGroupResponse(error_code=answers[0].error_code))
        return edit.decision(LeaveGroupResponse(members=answers))

    def _leaves(self, group: Group, leaving: MemberIdentity, left: list[Member], edit: Edit) -> ErrorCode:
        """Check one departure. A member is added to ``left``; an id that was only given out is dropped."""
        member_id = leaving.member_id
        if leaving.group_instance_id is not None:
            holder = group.instances.get(leaving.group_instance_id)
            if holder is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if member_id and holder != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
            member_id = holder
        if group.pending.pop(member_id, None) is not None:
            edit.end_session(group.group_id, member_id)
            return ErrorCode.NONE
        member = group.members.get(member_id)
        if member is None or member in left:
            return ErrorCode.UNKNOWN_MEMBER_ID
        left.append(member)
        return ErrorCode.NONE

    def _session_expired(self, expired: SessionExpired, edit: Edit) -> None:
        group = self.groups.get(expired.group_id)
        if group is None:
            return
        if group.pending.pop(expired.member_id, None) is not None:
            rebalance.maybe_complete_join(group, edit)
            if group.state is State.EMPTY and not group.pending and not group.persisted:
                del self.groups[group.group_id]
            return
        member = group.members.get(expired.member_id)
        if member is None or member.waits:
            # The broker holds this member's request, so it cannot send heartbeats. The answer restarts its session.
            return
        rebalance.remove_members(group, [member], edit, self._limits.initial_rebalance_delay_ms)

    # Calls from other parts of the shard

    def check_commit(self, commit: CommitCheck, now_ms: int) -> Decision:
        """Check that offsets may be committed (Kafka's ``OffsetMetadataManager``).

        :raises BrokerError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS
        """
        group = self.groups[commit.group_id]
        if commit.generation < 0 and group.state is State.EMPTY:
            return Decision()
        edit = Edit(now_ms)
        if commit.generation >= 0 or commit.member_id or commit.instance_id is not None:
            _, member = self._member(group.group_id, commit.member_id, commit.instance_id)
            if commit.generation != group.generation:
                raise BrokerError(ErrorCode.ILLEGAL_GENERATION)
            edit.session(group.group_id, member.member_id, member.session_timeout_ms)
        elif not commit.transactional:
            raise BrokerError(ErrorCode.UNKNOWN_MEMBER_ID)
        if group.state is State.COMPLETING and not commit.transactional:
            raise BrokerError(ErrorCode.REBALANCE_IN_PROGRESS)
        return edit.decision()

    def check_fetch(self, group_id: str, member_id: str | None, member_epoch: int) -> None:
        """Allow every read: classic groups do not check it."""

    def check_delete_offsets(self, group_id: str) -> None:
        """Refuse deletion while the group has members of another protocol type: their subscriptions are
        unknown.

        :raises BrokerError: NON_EMPTY_GROUP
        """
        group = self.groups[group_id]
        if group.state is not State.EMPTY and group.protocol_type != "consumer":
            raise BrokerError(ErrorCode.NON_EMPTY_GROUP)

    def owns(self, group_id: str) -> bool:
        """Whether the group is on this shard."""
        return group_id in self.groups

    def is_empty(self, group_id: str) -> bool:
        """Whether the group has no members. An id that was only given out does not count as one."""
        return self.groups[group_id].state is State.EMPTY

    def offsets_idle_since(self, group_id: str) -> int | None:
        """The time since which the group has been empty; ``None`` in other states. Exception: in a stable consumer
        group offsets expire by their commit time, because the subscriptions are known.
        """
        group = self.groups[group_id]
        if group.state is State.EMPTY:
            return group.state_since_ms
        stable = group.state is State.STABLE and group.protocol_type == "consumer"
        return SINCE_COMMIT if stable else None

    def is_subscribed(self, group_id: str, topic: str) -> bool:
        """Whether a member subscribes to the topic. A subscription that cannot be read counts as all topics.

        Groups of other protocol types have no known subscriptions.
        """
        group = self.groups[group_id]
        if group.protocol_type != "consumer":
            return False
        for member in group.members.values():
            topics = subscribed_topics(member.metadata_for(group.protocol_name) or member.protocols[0][1])
            if topics is None or topic in topics:
                return True
        return False

    def delete(self, group_id: str) -> Decision:
        """Write the group's tombstone, even if no record of it is in the log yet. The group changes only when
        the tombstone is replayed, so a decision that fails leaves all requests waiting.
        """
        edit = Edit(0)
        for member in self.groups[group_id].members.values():
            rebalance.answer_all(member, edit, ErrorCode.REBALANCE_IN_PROGRESS)
        edit.write(group_id, None)
        return edit.decision()

    def summaries(self) -> Sequence[GroupSummary]:
        """Summaries of all groups on this shard."""
        return [
            GroupSummary(
                group_id=group.group_id,
                group_type=NAME,
                state=group.state.value,
                protocol_type=group.protocol_type,
            )
            for group in self.groups.values()
        ]

    def describe(self, group_id: str) -> Any:
        """The group for DescribeGroups. Members' metadata is shown only in a stable group, assignments
        always.
        """
        group = self.groups.get(group_id)
        if group is None:
            return None
        stable = group.state is State.STABLE
        return DescribedGroup(
            group_id=group_id,
            group_state=group.state.value,
            protocol_type=group.protocol_type,
            protocol_data=(group.protocol_name or "") if stable else "",
            members=[
                DescribedGroupMember(
                    member_id=member.member_id,
                    group_instance_id=member.instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    member_metadata=member.metadata_for(group.protocol_name) if stable else b"",
                    member_assignment=member.assignment,
                )
                for member in group.members.values()
            ],
        )

    def export_group(self, group_id: str) -> GroupExport:
        """The group in the neutral form that another group type can import (KIP-848, Kafka's
        ``GroupMetadataManager``).
        """
        return exported(self.groups[group_id])

    def import_group(self, group: GroupExport, now_ms: int) -> Decision:
        """Write the record that makes it a classic group in its generation, and order its members' timers.

        With ``rebalances`` members must join again at once. Otherwise the group is stable and has all
        protocols of its members, which no record has.
        """
        edit = Edit(now_ms)
        edit.if_refused = TypeCommand(NAME, ImportRefused(group.group_id))
        imported = self.groups[group.group_id] = taken(group)
        edit.write(group.group_id, imported.as_record(now_ms))
        for member in imported.members.values():
            edit.session(group.group_id, member.member_id, member.session_timeout_ms)
        if group.rebalances and imported.members:
            rebalance.prepare(imported, edit, self._limits.initial_rebalance_delay_ms)
        return edit.decision(of_type=NAME)

    def _member(self, group_id: str, member_id: str, instance_id: str | None) -> tuple[Group, Member]:
        group = self.groups.get(group_id)
        if group is None:
            raise BrokerError(ErrorCode.UNKNOWN_MEMBER_ID)
        check_instance(group, member_id, instance_id)
        member = group.members.get(member_id)
        if member is None:
            raise BrokerError(ErrorCode.UNKNOWN_MEMBER_ID)
        return group, member


def _assigned(group: Group, assignment: bytes) -> SyncGroupResponse:
    return SyncGroupResponse(
        protocol_type=group.protocol_type, protocol_name=group.protocol_name, assignment=assignment
    )
