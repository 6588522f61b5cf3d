"""A group of another type becomes a KIP-848 group, online (formats.md §20): at the first ConsumerGroupHeartbeat with
epoch 0, in that one decision, so that its members go on reading where they are.
"""

from __future__ import annotations

from collections.abc import Sequence

from blumfeld.spi.assignors import Assigned
from blumfeld.spi.cluster import ClusterImage
from blumfeld.spi.groups import CoordinatorRecord, GroupExport, GroupShard, MemberExport
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld_groups_kip848 import subscriptions
from blumfeld_groups_kip848.edit import Edit
from blumfeld_groups_kip848.group import ClassicMember, Member, MemberState, Owned
from blumfeld_groups_kip848.member_bytes import (
    PROTOCOL_TYPE,
    assignment_of,
    by_topic_id,
    metadata_for,
    subscription_of,
)

UPGRADES = frozenset({"upgrade", "bidirectional"})
"""Values of ``group.consumer.migration.policy`` by which a classic group may become a KIP-848 group."""


def take_over(edit: Edit, other: GroupShard, policy: str, size_max: int, image: ClusterImage) -> None:
    """Make the group of ``edit``, which is a fresh one, of what ``other`` has under its id.

    An empty group is silently replaced, whatever the policy says. Nothing is changed when it fails, or when the
    caller fails after it.

    :raises BrokerError: GROUP_ID_NOT_FOUND: it can't be one of ours, and the message says why
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
    """Write the group in Kafka's order: who its members are, its epoch (the generation), what each is to have and the
    epoch of that, what each has. All are where the last assignment of the group left them; a rebalance that was
    in flight is taken up by their joining again.

    :raises BrokerError: GROUP_ID_NOT_FOUND: what a member said or was assigned can't be read, or has user data that
        would be lost
    """
    members = [_member(member, export, image) for member in export.members]
    for member in members:
        edit.put_member(member)
    edit.put_epoch(export.generation, subscriptions.metadata_hash(edit.group, image))
    for member in members:
        edit.put_target(member.member_id, _partitions(member.assigned))
    edit.put_target_epoch(export.generation)
    for member in members:
        edit.put_assignment(member)


def settle(edit: Edit, classic: GroupShard | None) -> Sequence[CoordinatorRecord]:
    """Tombstones for one of two groups of the same id, once a log is read: a build without one of the plug-ins can't
    know of its groups, and may have made one of the other type. The group of ``edit`` goes if it has no members, else
    the other one does; its members learn that they are unknown, and join anew.
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


def _member(member: MemberExport, export: GroupExport, image: ClusterImage) -> Member:
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
    owned = by_topic_id(assignment.assigned_partitions, image)
    return Member(
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
        assigned={topic_id: dict.fromkeys(sorted(held), generation) for topic_id, held in owned.items()},
    )


def _partitions(owned: Owned) -> Assigned:
    return {topic_id: frozenset(partitions) for topic_id, partitions in owned.items()}


def _refused(group_id: str, why: str) -> BrokerError:
    text = f"Cannot upgrade classic group {group_id} to consumer group because {why}."
    return BrokerError(ErrorCode.GROUP_ID_NOT_FOUND, text)
