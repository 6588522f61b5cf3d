"""Finds the member that a request comes from: a known one, a new one, or a static one that replaces another
(KIP-848).
"""

from __future__ import annotations

import attrs

from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld_groups_kip848.edit import Edit
from blumfeld_groups_kip848.group import LEFT_FOR_A_WHILE, ConsumerGroup, Member
from blumfeld_groups_kip848.targets.reconciliation import Reported, is_subset
from blumfeld_groups_kip848.timers import stop_all


def check_size(group: ConsumerGroup, member_id: str, size_max: int) -> None:
    """Refuse a new member if the group is full. An existing member keeps its place.

    :raises BrokerError: GROUP_MAX_SIZE_REACHED
    """
    if len(group.members) >= size_max and member_id not in group.members:
        raise BrokerError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The consumer group has reached its maximum capacity of {size_max} members.",
        )


def known_member(group: ConsumerGroup, member_id: str, instance_id: str | None) -> Member:
    """The member that sends a request after its first one.

    :raises BrokerError: UNKNOWN_MEMBER_ID; FENCED_INSTANCE_ID: another member has the instance id by now
    """
    if instance_id is None:
        member = group.members.get(member_id)
        if member is None:
            raise unknown_member(group.group_id, member_id)
        return member
    member = group.static_member(instance_id)
    if member is None:
        raise BrokerError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if member.member_id != member_id:
        raise BrokerError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member {member.member_id}.",
        )
    return member


def joining_member(edit: Edit, member_id: str, instance_id: str | None, *, classic: bool = False) -> Member:
    """The member that joins or joins again. A new member is not written yet.

    A static member takes over its predecessor's assignment under its own member id, and nothing moves.

    :raises BrokerError: UNRELEASED_INSTANCE_ID: a member with this instance id has not left, even if it is
        this same member (as in Kafka)
    """
    group = edit.group
    holder = None if instance_id is None else group.static_member(instance_id)
    if holder is None:
        return group.members.get(member_id) or Member(member_id)
    both_new = not classic and holder.classic is None
    if both_new and holder.epoch != LEFT_FOR_A_WHILE:
        raise BrokerError(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} cannot join the group because the "
            f"instance id is owned by {holder.member_id} member.",
        )
    return holder if holder.member_id == member_id else _take_over(edit, holder, member_id)


def _take_over(edit: Edit, holder: Member, member_id: str) -> Member:
    target = edit.group.targets.get(holder.member_id, {})
    stop_all(edit, holder.member_id)
    edit.remove_member(holder.member_id)
    heir = attrs.evolve(holder, member_id=member_id, epoch=0, previous_epoch=0)
    edit.put_member(heir)
    edit.put_target(member_id, target)
    edit.put_assignment(heir)
    return edit.group.members[member_id]


def check_epoch(member: Member, epoch: int, owned: Reported | None) -> None:
    """Check the member epoch of a request. The member may lag by one epoch if it missed the answer that told
    it the new one; then it must own no more than it was assigned.

    :raises BrokerError: FENCED_MEMBER_EPOCH
    """
    if epoch in (0, member.epoch):
        return
    greater = epoch > member.epoch
    if not greater and epoch == member.previous_epoch and is_subset(owned, member.assigned):
        return
    raise BrokerError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {'greater' if greater else 'smaller'} member epoch ({epoch}) than the "
        f"one known by the group coordinator ({member.epoch}). The member must abandon all its partitions and "
        "rejoin.",
    )


def unknown_member(group_id: str, member_id: str) -> BrokerError:
    """The error UNKNOWN_MEMBER_ID for this group."""
    return BrokerError(
        ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group_id}."
    )
