"""Online conversion of another type's group to a KIP-848 group (KIP-848). It happens in the decision on the
first ConsumerGroupHeartbeat with epoch 0, and members keep the partitions that they read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import attrs

from blumfeld.spi.assignors import Assigned
from blumfeld.spi.cluster import ClusterImage
from blumfeld.spi.groups import CoordinatorRecord, GroupExport, GroupShard, MemberExport
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld_groups_kip848.conversion.member_bytes import (
    PROTOCOL_TYPE,
    assignment_of,
    by_topic_id,
    metadata_for,
    subscription_of,
)
from blumfeld_groups_kip848.edit import Edit
from blumfeld_groups_kip848.group import ClassicMember, Member, MemberState, Owned
from blumfeld_groups_kip848.targets import subscriptions

Claim: TypeAlias = tuple[int, Assigned]
UPGRADES = frozenset({"upgrade", "bidirectional"})
"""Values of ``group.consumer.migration.policy`` that allow a classic group to become a KIP-848 group."""


def take_over(edit: Edit, other: GroupShard, policy: str, size_max: int, image: ClusterImage) -> None:
    """Fill the new group of ``edit`` from the group of the same id that ``other`` has.

    An empty group is replaced without conversion, whatever the policy says. Nothing changes if this call
    fails, or if the caller fails after it.

    :raises BrokerError: GROUP_ID_NOT_FOUND: the group cannot be converted; the message gives the reason
    """
    group_id = edit.group_id
    empty, export = other.is_empty(group_id), other.export_group(group_id)
    if not empty:
        _check(export, policy, size_max)
    ended = other.delete(group_id)
    edit.records += ended.records
    edit.answers += ended.answers
    if not empty:
        convert(edit, export, image)


def convert(edit: Edit, export: GroupExport, image: ClusterImage) -> None:
    """Write the converted group in Kafka's order: members' metadata, the group epoch (the old generation),
    targets and their epoch, current assignments.

    Targets and assignments are those of the last completed rebalance. A rebalance that was in flight goes on
    when members join again. A cooperative member keeps partitions that it must give up until it has joined
    again without them (Kafka gives them away at once).

    :raises BrokerError: GROUP_ID_NOT_FOUND: a member's subscription or assignment cannot be read, or has user
        data that would be lost
    """
    members = _with_what_is_held([_read(member, export, image) for member in export.members])
    for member in members:
        edit.put_member(member)
    edit.put_epoch(export.generation, subscriptions.metadata_hash(edit.group, image))
    for member in members:
        edit.put_target(member.member_id, _partitions(member.assigned))
    # No target was computed here, so a new member must not wait for the assignment interval to end.
    edit.put_target_epoch(export.generation, time_ms=0)
    for member in members:
        edit.put_assignment(member)
    edit.unsettled = export.rebalances or _is_missing_some(members, image)


def settle(edit: Edit, classic: GroupShard | None) -> Sequence[CoordinatorRecord]:
    """Returns tombstones for one of two groups with the same id, after the log is loaded. A build without one
    of the plug-ins does not see its groups and can create a second one. The group of ``edit`` ends if it has
    no members, otherwise the other group ends; members of the ended group get UNKNOWN_MEMBER_ID and join
    again.
    """
    if classic is None or not classic.owns(edit.group_id):
        return ()
    if edit.group.members:
        return classic.delete(edit.group_id).records
    edit.end_group()
    return edit.records


def _check(export: GroupExport, policy: str, size_max: int) -> None:
    if policy not in UPGRADES:
        raise _refused(export.group_id, "online upgrade is disabled")
    if export.protocol_type != PROTOCOL_TYPE:
        raise _refused(export.group_id, "the group does not use the consumer embedded protocol")
    if len(export.members) > size_max:
        raise _refused(export.group_id, "the group size exceeds the consumer group maximum size")


def _read(member: MemberExport, export: GroupExport, image: ClusterImage) -> tuple[Member, Claim]:
    """The member, and the partitions that it reported at its last join with the generation of that report."""
    subscription = subscription_of(metadata_for(member.protocols, export.protocol_name))
    assignment = assignment_of(member.assignment)
    if subscription is None or assignment is None:
        raise _refused(export.group_id, "the embedded consumer protocol is malformed")
    if assignment.user_data:
        raise _refused(
            export.group_id,
            "an unsupported custom assignor is in use. Please refer to the documentation or switch to a default "
            "assignor before re-attempting the upgrade",
        )
    generation = export.generation
    imported = Member(
        member.member_id,
        member.instance_id,
        subscription.rack_id,
        member.client_id,
        member.client_host,
        member.rebalance_timeout_ms,
        subscribed_topics=tuple(sorted(set(subscription.topics))),
        classic=ClassicMember(member.session_timeout_ms, member.protocols),
        epoch=generation,
        previous_epoch=generation,
        state=MemberState.STABLE,
        assigned=_since(by_topic_id(assignment.assigned_partitions, image), generation),
    )
    return imported, (subscription.generation_id, by_topic_id(subscription.owned_partitions, image))


def _with_what_is_held(members: list[tuple[Member, Claim]]) -> list[Member]:
    """Members with the partitions that they claim and that are assigned to no member. The newest claim wins."""
    taken = {
        (topic_id, partition)
        for member, _ in members
        for topic_id, partitions in member.assigned.items()
        for partition in partitions
    }
    held: dict[str, Member] = {}
    for member, (_, owned) in sorted(members, key=lambda item: -item[1][0]):
        assigned = {topic_id: dict(partitions) for topic_id, partitions in member.assigned.items()}
        for topic_id, partitions in owned.items():
            free = sorted(partition for partition in partitions if (topic_id, partition) not in taken)
            taken.update((topic_id, partition) for partition in free)
            if free:
                assigned.setdefault(topic_id, {}).update(dict.fromkeys(free, member.epoch))
        held[member.member_id] = attrs.evolve(member, assigned=assigned)
    return [held[member.member_id] for member, _ in members]


def _is_missing_some(members: Sequence[Member], image: ClusterImage) -> bool:
    """Whether some subscribed partition is assigned to no member: a topic has grown since the leader
    assigned.
    """
    names = {name for member in members for name in member.subscribed_topics if name in image.topics}
    count = sum(len(partitions) for member in members for partitions in member.assigned.values())
    return count < sum(len(image.topics[name].partitions) for name in names)


def _since(owned: Assigned, epoch: int) -> Owned:
    return {topic_id: dict.fromkeys(sorted(partitions), epoch) for topic_id, partitions in owned.items()}


def _partitions(owned: Owned) -> Assigned:
    return {topic_id: frozenset(partitions) for topic_id, partitions in owned.items()}


def _refused(group_id: str, why: str) -> BrokerError:
    text = f"Cannot upgrade classic group {group_id} to consumer group because {why}."
    return BrokerError(ErrorCode.GROUP_ID_NOT_FOUND, text)
