"""A classic group and its members.

Only ``replay`` writes the fields that come from the log. A rebalance in flight (joined members, waiting
requests, the state between two generations) is in no record, and Kafka keeps it in memory too. Fields of that
kind are marked *volatile* below. Commands change them. They are lost with the shard; members then join again.
"""

from __future__ import annotations

from collections.abc import Hashable
from enum import Enum

import attrs

from blumfeld.spi.groups import SINCE_COMMIT
from blumfeld.wire.messages.group_coordinator_records import GroupMetadataValue, MemberMetadata

Token = Hashable
"""Identifies a waiting request."""


class State(Enum):
    """States of Kafka's ``ClassicGroupState``, with the names that DescribeGroups shows."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


@attrs.define
class Member:
    """One member of a group."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    """(name, metadata) in the member's order of preference."""
    assignment: bytes = b""
    joining: Token | None = None
    """Volatile: its JoinGroup that waits for other members."""
    syncing: Token | None = None
    """Volatile: its SyncGroup that waits for the leader's."""
    is_new: bool = False
    """Volatile: it has not been in any generation yet."""
    must_sync: bool = False
    """Volatile: it knows this generation but has not asked for its assignment yet."""

    @property
    def waits(self) -> bool:
        """Whether the broker holds a request of the member, so that it cannot send heartbeats. A new member
        may give up, so it does not count.
        """
        return (self.joining is not None and not self.is_new) or self.syncing is not None

    def metadata_for(self, protocol: str | None) -> bytes:
        """The member's metadata for a protocol; empty if it does not support the protocol."""
        return next((data for name, data in self.protocols if name == protocol), b"")


@attrs.define
class Group:
    """One classic group on this shard."""

    group_id: str
    state: State = State.EMPTY
    generation: int = 0
    protocol_type: str = ""
    protocol_name: str | None = None
    leader_id: str | None = None
    members: dict[str, Member] = attrs.field(factory=dict)
    """Members by id, in the order in which they joined. The first is the leader."""
    instances: dict[str, str] = attrs.field(factory=dict)
    """Static members: instance id → member id (KIP-345)."""
    state_since_ms: int = SINCE_COMMIT
    """Time when the group entered the state that its record shows; ``SINCE_COMMIT`` for old records, which do
    not say it.
    """
    persisted: bool = False
    """Whether the log has a record of the group."""
    unled: bool = False
    """Whether its record names no leader: the group was converted from another type and has not rebalanced
    since.
    """
    pending: dict[str, int] = attrs.field(factory=dict)
    """Volatile: member id → session timeout (ms), for ids given out by KIP-394 that have not joined yet."""
    delaying: bool = False
    """Volatile: whether the first rebalance of an empty group waits for more members."""
    delay_left_ms: int = 0
    """Volatile: time that the delay may still be extended by, after the current one."""
    arrived: bool = False
    """Volatile: whether a member joined during the current delay."""
    _candidates: frozenset[str] | None = attrs.field(default=None, init=False, eq=False, repr=False)
    """Cache of the protocols that all members support; ``None`` if not computed. Every join asks for it, and
    a rebalance has many joins.
    """

    def add(self, member: Member) -> None:
        """Add a member. The first one becomes leader and sets the group's protocol type."""
        names = frozenset(name for name, _ in member.protocols)
        if not self.members:
            self._candidates = names
        elif self._candidates is not None:
            self._candidates &= names
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.instances[member.instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id

    def remove(self, member_id: str) -> Member | None:
        """Remove a member. If it was the leader, the next in order becomes leader."""
        member = self.members.pop(member_id, None)
        if member is None:
            return None
        self._candidates = None
        if member.instance_id is not None and self.instances.get(member.instance_id) == member_id:
            del self.instances[member.instance_id]
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        return member

    def supports(self, protocols: tuple[tuple[str, bytes], ...]) -> bool:
        """Whether every member supports at least one of these protocols."""
        if not self.members:
            return bool(protocols)
        if self._candidates is None:
            named = (frozenset(name for name, _ in member.protocols) for member in self.members.values())
            self._candidates = frozenset.intersection(*named)
        return any(name in self._candidates for name, _ in protocols)

    def set_protocols(self, member: Member, protocols: tuple[tuple[str, bytes], ...]) -> None:
        """Change the protocols that a member supports."""
        if [name for name, _ in member.protocols] != [name for name, _ in protocols]:
            self._candidates = None
        member.protocols = protocols

    def vote(self) -> str | None:
        """Choose the protocol: each member votes for its first among those that all support. The one voted
        for first wins a draw.
        """
        votes: dict[str, int] = {}
        members = list(self.members.values())
        if not members:
            return None
        for name, _ in members[0].protocols:
            if all(_has(member, name) for member in members):
                votes[name] = 0
        for member in members:
            choice = next((name for name, _ in member.protocols if name in votes), None)
            if choice is not None:
                votes[choice] += 1
        return max(votes, key=lambda name: votes[name]) if votes else None

    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of any member."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def all_joined(self) -> bool:
        """Whether every member has joined the next generation and no new id is still expected to join."""
        # Searched from the end: members mostly return in order, so the last one is missing until all are
        # back.
        return not self.pending and all(m.joining is not None for m in reversed(self.members.values()))

    def as_record(self, now_ms: int, assignments: dict[str, bytes] | None = None) -> GroupMetadataValue:
        """The record's value for this group; ``assignments`` replace the members' own."""
        return GroupMetadataValue(
            protocol_type=self.protocol_type,
            generation=self.generation,
            protocol=self.protocol_name,
            leader=self.leader_id,
            current_state_timestamp=now_ms,
            members=[
                MemberMetadata(
                    member_id=member.member_id,
                    group_instance_id=member.instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    rebalance_timeout=member.rebalance_timeout_ms,
                    session_timeout=member.session_timeout_ms,
                    subscription=member.metadata_for(self.protocol_name),
                    assignment=member.assignment if assignments is None else assignments.get(key, b""),
                )
                for key, member in self.members.items()
            ],
        )


def _has(member: Member, protocol: str) -> bool:
    return any(name == protocol for name, _ in member.protocols)


def replayed(group: Group | None, group_id: str, value: GroupMetadataValue) -> Group:
    """The group as a record describes it. An existing group keeps its volatile state and that of members that
    stay: only the record of a converted group is written during a join phase.
    """
    group = group if group is not None else Group(group_id)
    before, group.members, group.instances = group.members, {}, {}
    group.persisted = True
    group.unled = value.leader is None
    group.generation = value.generation
    group.protocol_type = value.protocol_type
    group.protocol_name = value.protocol
    group.leader_id = value.leader
    group.state_since_ms = value.current_state_timestamp
    for item in value.members:
        member = _member_of(item, value.protocol or "")
        known = before.get(item.member_id)
        if known is not None:  # the record has the member's metadata for one protocol only
            volatile = (known.joining, known.syncing, known.is_new, known.must_sync)
            member.joining, member.syncing, member.is_new, member.must_sync = volatile
            member.protocols = known.protocols
        group.add(member)
    if not group.members:
        group.state = State.EMPTY
    elif group.state is not State.PREPARING:
        group.state = State.STABLE
    return group


def _member_of(item: MemberMetadata, protocol: str) -> Member:
    # Version 0 of the record has no rebalance timeout; the session timeout stands in.
    rebalance_timeout_ms = item.rebalance_timeout if item.rebalance_timeout >= 0 else item.session_timeout
    return Member(
        item.member_id,
        item.group_instance_id,
        item.client_id,
        item.client_host,
        item.session_timeout,
        rebalance_timeout_ms,
        ((protocol, bytes(item.subscription)),),
        bytes(item.assignment),
    )
