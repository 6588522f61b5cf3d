"""A KIP-848 group and its members, as the log says they are (KIP-848).

Members and their assignments are values: a change replaces them. So a draft of a group
(:meth:`ConsumerGroup.draft`) costs a few shallow copies, and shares the rest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from enum import Enum, IntEnum
from typing import TypeAlias

import attrs

from blumfeld.spi.assignors import Assigned

Owned: TypeAlias = Mapping[bytes, Mapping[int, int]]
"""Topic id → partition → the member epoch in which it was assigned. Topics without a partition are left out."""

LEFT = -1
LEFT_FOR_A_WHILE = -2
"""Member epochs of who has gone; a static member that comes back leaves by the second."""


class MemberState(IntEnum):
    """Where a member is between its assignment and its target, by the numbers of the log."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    """It must give up partitions before it goes to the next epoch."""
    UNRELEASED_PARTITIONS = 2
    """It is in the target's epoch, and others hold partitions of its target still."""


class GroupState(Enum):
    """By the names that ConsumerGroupDescribe shows."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


@attrs.frozen
class ClassicMember:
    """What makes a member one of the classic protocol, in a group that is being migrated."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    """(name, ConsumerProtocolSubscription) in the order of its preference."""


@attrs.frozen
class Member:
    """One member."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    subscribed_topics: tuple[str, ...] = ()
    """Names, sorted."""
    subscribed_regex: str = ""
    """RE2 syntax; "" is none."""
    server_assignor: str | None = None
    classic: ClassicMember | None = None
    """``None`` of a member that sends ConsumerGroupHeartbeat."""
    epoch: int = 0
    previous_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: Owned = attrs.field(factory=dict)
    revoking: Owned = attrs.field(factory=dict)
    """What it is to give up and holds still: nobody else may have it yet."""

    @property
    def subscription(self) -> tuple[tuple[str, ...], str]:
        """(topic names, expression)."""
        return self.subscribed_topics, self.subscribed_regex

    def is_reconciled(self, target_epoch: int) -> bool:
        """Whether it has what the target of this epoch says."""
        return self.state is MemberState.STABLE and self.epoch == target_epoch


@attrs.frozen
class ResolvedRegex:
    """The topics that a regular expression stood for."""

    topics: tuple[str, ...]
    """Names, sorted."""
    image_version: int
    resolved_at_ms: int


class PartitionOwners:
    """Which member epoch holds each partition. A draft writes over its base and leaves that alone."""

    __slots__ = ("_base", "_epochs")

    def __init__(self, base: PartitionOwners | None = None) -> None:
        self._epochs: dict[tuple[bytes, int], int] = {}
        self._base = base

    def epoch(self, topic_id: bytes, partition: int) -> int:
        """The epoch of the member that holds it, -1 if nobody does."""
        epoch = self._epochs.get((topic_id, partition))
        if epoch is not None:
            return epoch
        return -1 if self._base is None else self._base.epoch(topic_id, partition)

    def take(self, owned: Owned, epoch: int) -> None:
        """A member of this epoch holds these from now on."""
        for topic_id, partitions in owned.items():
            for partition in partitions:
                self._epochs[topic_id, partition] = epoch

    def release(self, owned: Owned, epoch: int) -> None:
        """A member of this epoch gives these up; what another holds by now stays that one's."""
        for topic_id, partitions in owned.items():
            for partition in partitions:
                if self.epoch(topic_id, partition) != epoch:
                    continue
                if self._base is None:
                    del self._epochs[topic_id, partition]
                else:
                    self._epochs[topic_id, partition] = -1


@attrs.define
class ConsumerGroup:
    """One group on this shard. Only ``replay`` writes it."""

    group_id: str
    epoch: int = 0
    """Goes up when membership, subscriptions or what is known of their topics change."""
    metadata_hash: int = 0
    """Of the topics that are subscribed to, as they were when ``epoch`` went up."""
    target_epoch: int = 0
    """The epoch that ``targets`` were computed for."""
    target_time_ms: int = 0
    """When they were; 0 in records of older brokers."""
    members: dict[str, Member] = attrs.field(factory=dict)
    """In the order in which they joined."""
    instances: dict[str, str] = attrs.field(factory=dict)
    """Static members: instance id → member id."""
    subscriptions: Counter[tuple[tuple[str, ...], str]] = attrs.field(factory=Counter)
    """(topic names, expression) → members that have just these: what a thousand members read is mostly one thing."""
    targets: dict[str, Assigned] = attrs.field(factory=dict)
    """By member id."""
    owners: PartitionOwners = attrs.field(factory=PartitionOwners)
    regexes: dict[str, ResolvedRegex] = attrs.field(factory=dict)

    def draft(self) -> ConsumerGroup:
        """A copy that may be written while a decision is made; this group stays as it is."""
        return attrs.evolve(
            self,
            members=dict(self.members),
            instances=dict(self.instances),
            subscriptions=Counter(self.subscriptions),
            targets=dict(self.targets),
            owners=PartitionOwners(self.owners),
            regexes=dict(self.regexes),
        )

    @property
    def state(self) -> GroupState:
        """What it shows itself as."""
        if not self.members:
            return GroupState.EMPTY
        if self.epoch > self.target_epoch:
            return GroupState.ASSIGNING
        if all(member.is_reconciled(self.target_epoch) for member in self.members.values()):
            return GroupState.STABLE
        return GroupState.RECONCILING

    def static_member(self, instance_id: str) -> Member | None:
        """Who has this instance id now."""
        member_id = self.instances.get(instance_id)
        return None if member_id is None else self.members.get(member_id)
