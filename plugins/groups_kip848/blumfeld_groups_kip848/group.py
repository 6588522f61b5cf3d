"""A KIP-848 group and its members, as replayed from the log.

Members and their assignments are immutable values: a change replaces them. So a draft of a group
(:meth:`ConsumerGroup.draft`) costs a few shallow copies and shares the rest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from enum import Enum, IntEnum
from typing import TypeAlias

import attrs

from blumfeld.spi.assignors import Assigned

Owned: TypeAlias = Mapping[bytes, Mapping[int, int]]
"""Topic id → partition → the member epoch in which it was assigned. Topics without a partition are left out.
"""

LEFT = -1
LEFT_FOR_A_WHILE = -2
"""Member epochs of departed members. A static member that intends to come back leaves with -2."""


class MemberState(IntEnum):
    """A member's progress from its assignment to its target, with the numbers of the log."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    """The member must give up partitions before it moves to the next epoch."""
    UNRELEASED_PARTITIONS = 2
    """The member is in the target's epoch, but other members still hold partitions of its target."""


class GroupState(Enum):
    """Group states, with the names that ConsumerGroupDescribe shows."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


@attrs.frozen
class ClassicMember:
    """The classic-protocol part of a member in a group that is being migrated."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    """(name, ConsumerProtocolSubscription bytes), in the member's order of preference."""


@attrs.frozen
class Member:
    """One member of the group."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    subscribed_topics: tuple[str, ...] = ()
    """Topic names, sorted."""
    subscribed_regex: str = ""
    """A regular expression in RE2 syntax; "" means none."""
    server_assignor: str | None = None
    classic: ClassicMember | None = None
    """``None`` for a member that sends ConsumerGroupHeartbeat."""
    epoch: int = 0
    previous_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: Owned = attrs.field(factory=dict)
    revoking: Owned = attrs.field(factory=dict)
    """Partitions that the member must give up but still holds. No other member may get them yet."""

    @property
    def subscription(self) -> tuple[tuple[str, ...], str]:
        """The subscription as (topic names, expression)."""
        return self.subscribed_topics, self.subscribed_regex

    def is_reconciled(self, target_epoch: int) -> bool:
        """Whether the member has reached the target of this epoch."""
        return self.state is MemberState.STABLE and self.epoch == target_epoch


@attrs.frozen
class ResolvedRegex:
    """The topics that a regular expression matched when it was last resolved."""

    topics: tuple[str, ...]
    """Topic names, sorted."""
    image_version: int
    resolved_at_ms: int


class PartitionOwners:
    """The member epoch that holds each partition. A draft writes to a layer of its own and leaves its base
    unchanged.
    """

    __slots__ = ("_base", "_epochs")

    def __init__(self, base: PartitionOwners | None = None) -> None:
        self._epochs: dict[tuple[bytes, int], int] = {}
        self._base = base

    def epoch(self, topic_id: bytes, partition: int) -> int:
        """The epoch of the member that holds the partition; -1 if no member holds it."""
        epoch = self._epochs.get((topic_id, partition))
        if epoch is not None:
            return epoch
        return -1 if self._base is None else self._base.epoch(topic_id, partition)

    def take(self, owned: Owned, epoch: int) -> None:
        """Record that a member of this epoch now holds these partitions."""
        for topic_id, partitions in owned.items():
            for partition in partitions:
                self._epochs[topic_id, partition] = epoch

    def release(self, owned: Owned, epoch: int) -> None:
        """Record that a member of this epoch gives these partitions up. A partition that another member has
        taken since stays with that member.
        """
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
    """Group epoch. It goes up when members, subscriptions or the metadata of subscribed topics change."""
    metadata_hash: int = 0
    """Hash of the subscribed topics' metadata when ``epoch`` last went up."""
    target_epoch: int = 0
    """The group epoch that ``targets`` were computed for."""
    target_time_ms: int = 0
    """Time when the targets were computed; 0 in records of older brokers."""
    members: dict[str, Member] = attrs.field(factory=dict)
    """Members by id, in the order in which they joined."""
    instances: dict[str, str] = attrs.field(factory=dict)
    """Static members: instance id → member id."""
    subscriptions: Counter[tuple[tuple[str, ...], str]] = attrs.field(factory=Counter)
    """(topic names, expression) → number of members with this subscription. A thousand members mostly share
    one.
    """
    targets: dict[str, Assigned] = attrs.field(factory=dict)
    """Target assignments by member id."""
    owners: PartitionOwners = attrs.field(factory=PartitionOwners)
    regexes: dict[str, ResolvedRegex] = attrs.field(factory=dict)

    def draft(self) -> ConsumerGroup:
        """Returns a copy that a decision may write to. This group stays as it is."""
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
        """The state that the group shows to clients."""
        if not self.members:
            return GroupState.EMPTY
        if self.epoch > self.target_epoch:
            return GroupState.ASSIGNING
        if all(member.is_reconciled(self.target_epoch) for member in self.members.values()):
            return GroupState.STABLE
        return GroupState.RECONCILING

    def static_member(self, instance_id: str) -> Member | None:
        """The member that has this instance id now, if any."""
        member_id = self.instances.get(instance_id)
        return None if member_id is None else self.members.get(member_id)
