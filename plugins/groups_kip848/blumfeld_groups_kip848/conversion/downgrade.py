"""Online conversion of a KIP-848 group to a classic one (KIP-848). It happens in the decision in which the
last member that speaks ConsumerGroupHeartbeat leaves.
"""

from __future__ import annotations

from collections.abc import Collection

from blumfeld.spi.assignors import Assigned
from blumfeld.spi.cluster import ClusterImage
from blumfeld.spi.groups import GroupExport, GroupShard, MemberExport
from blumfeld_groups_kip848.conversion.member_bytes import (
    PROTOCOL_TYPE,
    assignment_bytes,
    metadata_for,
    version_of,
)
from blumfeld_groups_kip848.edit import Edit
from blumfeld_groups_kip848.group import ConsumerGroup, Member

DOWNGRADES = frozenset({"downgrade", "bidirectional"})
"""Values of ``group.consumer.migration.policy`` that allow a KIP-848 group to become a classic group."""


def may_convert(group: ConsumerGroup, leaving: Collection[str], policy: str, size_max: int) -> bool:
    """Whether the group becomes classic without the ``leaving`` members. Four conditions hold: at least one
    member stays, all that stay are classic members (a static member that left for a while still counts), at
    most ``size_max`` stay (``group.max.size``), and the policy allows it.
    """
    staying = [member for member_id, member in group.members.items() if member_id not in leaving]
    classic_only = all(member.classic is not None for member in staying)
    return policy in DOWNGRADES and classic_only and 0 < len(staying) <= size_max


def convert(
    edit: Edit,
    classic: GroupShard,
    image: ClusterImage,
    leaving: Collection[str] = (),
    *,
    rebalances: bool = True,
) -> None:
    """End the group of ``edit`` and make a classic group of the remaining members. Its generation is the
    group's epoch. Its timers are ordered here; the caller cancels those of the KIP-848 group. The caller may
    write nothing after this call, and nothing after it may fail.

    :param classic: the shard of groups_classic
    :param rebalances: whether members must join again at once. ``False`` where one member replaces another in
        a stable group, because then nothing moves
    """
    export = exported(edit.group, image, leaving, rebalances)
    edit.end_group()
    imported = classic.import_group(export, edit.now_ms)
    edit.records += imported.records
    edit.timers += imported.timers
    edit.if_refused = imported.if_refused


def exported(
    group: ConsumerGroup, image: ClusterImage, leaving: Collection[str] = (), rebalances: bool = True
) -> GroupExport:
    """The group without the leaving members, in neutral form. The classic side chooses protocol and leader.

    Each member is assigned what it holds, including partitions that it must give up: it reads them until it
    has joined again. Kafka exports the target instead; if that group is upgraded again early, partitions that
    a member still reads are given to another one.
    """
    staying = [member for member_id, member in group.members.items() if member_id not in leaving]
    return GroupExport(
        group_id=group.group_id,
        protocol_type=PROTOCOL_TYPE,
        protocol_name=None,
        generation=group.epoch,
        leader_id=None,
        members=tuple(_member(member, image) for member in staying),
        rebalances=rebalances,
    )


def _member(member: Member, image: ClusterImage) -> MemberExport:
    classic = member.classic
    session_timeout_ms = 0 if classic is None else classic.session_timeout_ms
    protocols = () if classic is None else classic.protocols
    version = version_of(metadata_for(protocols, None)) or 0
    return MemberExport(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        protocols=protocols,
        assignment=assignment_bytes(_held(member), version, image),
    )


def _held(member: Member) -> Assigned:
    """The member's partitions by topic id. ``assigned`` and ``revoking`` never overlap."""
    topics = {**member.assigned, **member.revoking}
    return {
        topic_id: frozenset(member.assigned.get(topic_id, ())) | frozenset(member.revoking.get(topic_id, ()))
        for topic_id in topics
    }
