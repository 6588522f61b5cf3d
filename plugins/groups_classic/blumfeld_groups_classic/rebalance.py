"""The phases of a rebalance: prepare, wait for joins, begin the generation, wait for the leader's assignment."""

from __future__ import annotations

from collections.abc import Sequence

from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from blumfeld.wire.messages.sync_group import SyncGroupResponse
from blumfeld_groups_classic.edit import Edit
from blumfeld_groups_classic.group import Group, Member, State


def prepare(group: Group, edit: Edit, initial_delay_ms: int) -> None:
    """Begin a rebalance. Members that wait for an assignment get an error, and all members must join again."""
    if group.state is State.COMPLETING:
        answer_syncs(group, edit, ErrorCode.REBALANCE_IN_PROGRESS)
    if group.state is not State.EMPTY:
        edit.end_sync_timer(group.group_id)
    timeout_ms = group.rebalance_timeout_ms()
    group.delaying = group.state is State.EMPTY and initial_delay_ms > 0
    group.state = State.PREPARING
    if group.delaying:
        delay_ms = min(initial_delay_ms, timeout_ms)
        group.delay_left_ms = max(0, timeout_ms - delay_ms)
        group.arrived = False
        edit.join_timer(group.group_id, group.generation, delay_ms)
    else:
        edit.join_timer(group.group_id, group.generation, timeout_ms)


def maybe_complete_join(group: Group, edit: Edit) -> None:
    """End the join phase early if all members have joined."""
    if group.state is State.PREPARING and not group.delaying and group.all_joined():
        complete_join(group, edit)


def join_expired(group: Group, edit: Edit, initial_delay_ms: int) -> None:
    """The join phase's timer has fired. A group's first join phase goes on while members arrive."""
    if group.delaying and group.arrived and group.delay_left_ms > 0:
        delay_ms = min(initial_delay_ms, group.delay_left_ms)
        group.delay_left_ms -= delay_ms
        group.arrived = False
        edit.join_timer(group.group_id, group.generation, delay_ms)
        return
    group.delaying = False
    complete_join(group, edit)


def complete_join(group: Group, edit: Edit) -> None:
    """Begin the next generation with the joined members. Dynamic members that did not join are removed;
    static ones stay.
    """
    group.delaying = False
    absent = [m for m in group.members.values() if m.joining is None and m.instance_id is None]
    for member in absent:
        group.remove(member.member_id)
        edit.end_session(group.group_id, member.member_id)
    joined = [m for m in group.members.values() if m.joining is not None]
    if group.members and not joined:  # only static members are left and none has joined: go on waiting
        edit.join_timer(group.group_id, group.generation, group.rebalance_timeout_ms())
        return
    if joined and group.members[group.leader_id or joined[0].member_id].joining is None:
        group.leader_id = joined[0].member_id
    edit.end_join_timer(group.group_id)
    group.generation += 1
    if not group.members:
        become_empty(group, edit)
        return
    group.protocol_name = group.vote()
    group.state = State.COMPLETING
    for member in group.members.values():
        if member.joining is not None:
            edit.answer(member.joining, join_response(group, member))
        member.joining, member.is_new, member.must_sync = None, False, True
        edit.session(group.group_id, member.member_id, member.session_timeout_ms)
    edit.sync_timer(group.group_id, group.generation, group.rebalance_timeout_ms())


def become_empty(group: Group, edit: Edit) -> None:
    """Empty the group after its last member has left; it keeps its generation.

    The group is empty in memory even if the log refuses the record, as in Kafka. A later coordinator loads
    the members from the log, and their sessions expire.
    """
    group.state = State.EMPTY
    group.protocol_name = None
    group.leader_id = None
    edit.write(group.group_id, group.as_record(edit.now_ms))
    edit.stands_without_records = True


def remove_members(group: Group, members: Sequence[Member], edit: Edit, initial_delay_ms: int) -> None:
    """Remove members that leave or have expired. Their waiting requests get an error, and the other members
    go on.
    """
    for member in members:
        group.remove(member.member_id)
        edit.end_session(group.group_id, member.member_id)
        refuse(member, edit, ErrorCode.UNKNOWN_MEMBER_ID)
    if members and group.state in (State.STABLE, State.COMPLETING):
        prepare(group, edit, initial_delay_ms)
    maybe_complete_join(group, edit)


def synced(group: Group, member: Member, edit: Edit) -> None:
    """Note that the member has asked for its assignment. When all have, the sync timer stops."""
    if member.must_sync:
        member.must_sync = False
        # Searched from the end: answers went out in order, so the SyncGroup requests arrive in that order.
        if not any(other.must_sync for other in reversed(group.members.values())):
            edit.end_sync_timer(group.group_id)


def sync_expired(group: Group, edit: Edit, initial_delay_ms: int) -> None:
    """Remove the members that have not asked for their assignment in time, even if the others have theirs."""
    late = [member for member in group.members.values() if member.must_sync]
    if late:
        remove_members(group, late, edit, initial_delay_ms)


def refuse(member: Member, edit: Edit, code: ErrorCode) -> None:
    """Answer the member's waiting requests with an error."""
    answer_all(member, edit, code)
    member.joining = member.syncing = None


def answer_all(member: Member, edit: Edit, code: ErrorCode) -> None:
    """Answer the member's waiting requests with an error. UNKNOWN_MEMBER_ID comes without a member id."""
    if member.joining is not None:
        member_id = "" if code == ErrorCode.UNKNOWN_MEMBER_ID else member.member_id
        edit.answer(member.joining, JoinGroupResponse(error_code=code, member_id=member_id))
    if member.syncing is not None:
        edit.answer(member.syncing, SyncGroupResponse(error_code=code))


def answer_syncs(group: Group, edit: Edit, code: ErrorCode) -> None:
    """Answer all waiting SyncGroup requests with an error."""
    for member in group.members.values():
        if member.syncing is not None:
            edit.answer(member.syncing, SyncGroupResponse(error_code=code))
            member.syncing = None
            edit.session(group.group_id, member.member_id, member.session_timeout_ms)


def join_response(group: Group, member: Member) -> JoinGroupResponse:
    """The member's JoinGroup response. The leader's also lists all members' metadata for the chosen protocol."""
    leads = member.member_id == group.leader_id
    return JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name or "",
        leader=group.leader_id or "",
        member_id=member.member_id,
        members=members_of(group) if leads else [],
    )


def members_of(group: Group) -> list[JoinGroupResponseMember]:
    """Every member with its metadata for the chosen protocol."""
    return [
        JoinGroupResponseMember(
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            metadata=member.metadata_for(group.protocol_name),
        )
        for member in group.members.values()
    ]
