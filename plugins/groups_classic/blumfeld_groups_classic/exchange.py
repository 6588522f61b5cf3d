"""A classic group as a neutral value, for the migration between group types (formats.md §20)."""

from __future__ import annotations

from blumfeld.spi.groups import GroupExport, MemberExport
from blumfeld.wire.messages.group_coordinator_records import GroupMetadataValue, MemberMetadata
from blumfeld_groups_classic.group import Group


def exported(group: Group) -> GroupExport:
    """The group with its members, in the order in which they joined. What is volatile stays behind."""
    return GroupExport(
        group_id=group.group_id,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        generation=group.generation,
        leader_id=group.leader_id,
        members=tuple(
            MemberExport(
                member_id=m.member_id,
                instance_id=m.instance_id,
                client_id=m.client_id,
                client_host=m.client_host,
                session_timeout_ms=m.session_timeout_ms,
                rebalance_timeout_ms=m.rebalance_timeout_ms,
                protocols=m.protocols,
                assignment=m.assignment,
            )
            for m in group.members.values()
        ),
    )


def imported(group: GroupExport, now_ms: int) -> GroupMetadataValue:
    """The record that makes it a classic group, stable in its generation."""
    return GroupMetadataValue(
        protocol_type=group.protocol_type,
        generation=group.generation,
        protocol=group.protocol_name,
        leader=group.leader_id,
        current_state_timestamp=now_ms,
        members=[
            MemberMetadata(
                member_id=m.member_id,
                group_instance_id=m.instance_id,
                client_id=m.client_id,
                client_host=m.client_host,
                rebalance_timeout=m.rebalance_timeout_ms,
                session_timeout=m.session_timeout_ms,
                subscription=next((d for n, d in m.protocols if n == group.protocol_name), b""),
                assignment=m.assignment,
            )
            for m in group.members
        ],
    )
