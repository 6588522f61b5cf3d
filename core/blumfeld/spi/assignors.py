"""Server-side assignors of KIP-848 groups: which member reads which partitions.

An assignor is a pure function in slices. It draws nothing from the clock or from chance, and iterates over
what it was given in its order only, so that the same spec always gives the same assignment.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Protocol, TypeAlias

import msgspec

Assigned: TypeAlias = Mapping[bytes, frozenset[int]]
"""Topic id → partitions. Topics without a partition are left out."""


class AssignableTopic(msgspec.Struct, frozen=True, kw_only=True):
    """A topic that exists and that a member of the group reads."""

    topic_id: bytes
    name: str
    partition_count: int
    racks: tuple[frozenset[str], ...] = ()
    """For each partition, the racks of its replicas. Empty if no broker says its rack."""


class AssignableMember(msgspec.Struct, frozen=True, kw_only=True):
    """A member that wants partitions."""

    member_id: str
    instance_id: str | None
    rack_id: str | None
    topics: frozenset[bytes]
    """Ids of the topics that it subscribes to: those that exist."""
    assigned: Assigned
    """Its target assignment so far, empty if it has none. May name topics that it doesn't read any more."""


class AssignmentSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The members and partitions that an assignor deals out."""

    members: Mapping[str, AssignableMember]
    """The members by their ids, in the order of the ids."""
    topics: Mapping[bytes, AssignableTopic]
    """Every topic that a member subscribes to, in the order of their names."""

    @property
    def homogeneous(self) -> bool:
        """Whether all members subscribe to the same topics."""
        subscriptions = iter(self.members.values())
        first = next(subscriptions, None)
        return first is None or all(member.topics == first.topics for member in subscriptions)


Assignment: TypeAlias = Mapping[str, Assigned]
"""Member id → what it is to read; a member that gets nothing may be left out."""


class AssignorError(Exception):
    """An assignor can't deal. The heartbeat that asked gets UNKNOWN_SERVER_ERROR with this text, as in Kafka."""


class ConsumerAssignor(Protocol):
    """Made by ``blumfeld_assignors``; ``group.consumer.assignors`` names those that a broker offers, the first
    of which is the default.
    """

    name: str
    """Name of the assignor, as a client gives it in ``group.remote.assignor``."""

    def assign(self, spec: AssignmentSpec) -> Generator[int, None, Assignment]:
        """Deal the partitions.

        Yields how many partitions it has looked at since it yielded last, at least every 1,000: other
        requests get their turn there. Returns an assignment in which each member gets partitions of topics
        that it subscribes to, and each partition has one member at most.

        :raises AssignorError: it can't
        """
        ...
