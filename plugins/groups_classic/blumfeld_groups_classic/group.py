"""A classic group and its members.

Only ``replay`` writes the state that the log holds. A rebalance in flight (which members have joined, which wait, the
state between two generations) is in no record; Kafka keeps it in memory, too. Those fields are called *volatile* below.
Commands change them, and they are lost with the shard. Then members join again.
"""

from __future__ import annotations

from collections.abc import Hashable
from enum import Enum

import attrs

from blumfeld.spi.groups import SINCE_COMMIT
from blumfeld.wire.messages.group_coordinator_records import GroupMetadataValue, MemberMetadata

Token = Hashable
"""Under which a parked request waits."""


class State(Enum):
    """States of Kafka's ``ClassicGroupState``, by the names that DescribeGroups shows."""

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
    """(name, metadata) in the order of the member's preference."""
    assignment: bytes = b""
    joining: Token | None = None
    """Volatile: its JoinGroup that waits for the others."""
    syncing: Token | None = None
    """Volatile: its SyncGroup that waits for the leader's."""
    is_new: bool = False
    """Volatile: it has not been in a generation yet."""
    must_sync: bool = False
    """Volatile: it has been told of this generation, and has not asked for its assignment yet."""

    @property
    def waits(self) -> bool:
        """Whether it waits for an answer of ours, so that it can't send heartbeats. A new member may give up."""
        return (self.joining is not None and not self.is_new) or self.syncing is not None

    def metadata_for(self, protocol: str | None) -> bytes:
        """Returns the metadata that it sent for a protocol; empty if it doesn't support the protocol."""
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
    """In the order in which they joined: the first is leader."""
    instances: dict[str, str] = attrs.field(factory=dict)
    """Static members: instance id → member id (KIP-345)."""
    state_since_ms: int = SINCE_COMMIT
    """When it came into the state that its record tells of; unknown of old records."""
    persisted: bool = False
    """Whether the log has a record of it."""
    unled: bool = False
    """Its record names no leader: it was another type's, and has not rebalanced since."""
    pending: dict[str, int] = attrs.field(factory=dict)
    """Volatile: ids given out by KIP-394 that have not joined with them yet → session timeout, ms."""
    delaying: bool = False
    """Volatile: the first rebalance of an empty group waits for more members."""
    delay_left_ms: int = 0
    """Volatile: how long that may go on, after the delay that runs."""
    arrived: bool = False
    """Volatile: a member came during the delay that runs."""
    _candidates: frozenset[str] | None = attrs.field(default=None, init=False, eq=False, repr=False)
    """Protocols that all members support, if that is known: asked for with each join, of which a rebalance has many."""

    def add(self, member: Member) -> None:
        """A member joins; the first one leads, and gives the group its protocol type."""
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
        """A member goes; if it led, the next in line leads."""
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
        """Whether one of these protocols is supported by every member."""
        if not self.members:
            return bool(protocols)
        if self._candidates is None:
            named = (frozenset(name for name, _ in member.protocols) for member in self.members.values())
            self._candidates = frozenset.intersection(*named)
        return any(name in self._candidates for name, _ in protocols)

    def set_protocols(self, member: Member, protocols: tuple[tuple[str, bytes], ...]) -> None:
        """A member of this group supports these from now on."""
        if [name for name, _ in member.protocols] != [name for name, _ in protocols]:
            self._candidates = None
        member.protocols = protocols

    def vote(self) -> str | None:
        """The protocol: each member votes for its first among those that all support. The earliest named wins a
        draw.
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
        """The longest that any member wants to be waited for."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def all_joined(self) -> bool:
        """Whether every member has joined the next generation, and no other is about to join."""
        # From the end: members mostly come back in order, and then the last is still out until all are in.
        return not self.pending and all(m.joining is not None for m in reversed(self.members.values()))

    def as_record(self, now_ms: int, assignments: dict[str, bytes] | None = None) -> GroupMetadataValue:
        """The value that keeps it; ``assignments`` in place of the members' own."""
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
    """The group as a record says it is. One that is here keeps what is volatile of it and of members that stay: only
    the record of a group that was handed over is written while members are to join.
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
        if known is not None:  # the record has its metadata for one protocol only
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
    # Version 0 of the record has no rebalance timeout: the session's served as one.
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
