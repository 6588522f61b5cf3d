"""A classic group in neutral form, for the migration between group types (KIP-848)."""

from __future__ import annotations

from blumfeld.spi.groups import GroupExport, MemberExport
from blumfeld_groups_classic.group import Group, Member, State


def exported(group: Group) -> GroupExport:
    """The group with its members in the order in which they joined. Volatile state is left out."""
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
        rebalances=group.state in (State.PREPARING, State.COMPLETING),
    )


def taken(export: GroupExport) -> Group:
    """A stable classic group made from the neutral form. It votes on its protocol again. If it must rebalance
    at once it names no leader, so that after a failover the record shows that too.
    """
    state = State.STABLE if export.members else State.EMPTY
    group = Group(export.group_id, state, export.generation, export.protocol_type)
    for m in export.members:
        rebalance_timeout_ms = m.rebalance_timeout_ms if m.rebalance_timeout_ms >= 0 else m.session_timeout_ms
        group.add(
            Member(
                m.member_id,
                m.instance_id,
                m.client_id,
                m.client_host,
                m.session_timeout_ms,
                rebalance_timeout_ms,
                m.protocols,
                m.assignment,
            )
        )
    group.protocol_name = export.protocol_name or group.vote()
    group.leader_id = None if export.rebalances else export.leader_id or group.leader_id
    return group
