"""The voters of the quorum: replica keys, voter sets, and which set counts at which offset of the log (KIP-853)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from blumfeld.spi.cluster import Endpoint

NO_DIRECTORY = bytes(16)
"""The directory id of a voter is unknown: static voters (``kraft.version`` 0) have none."""


class ReplicaKey(NamedTuple):
    """A replica of the metadata log: a node with one disk. A node that lost its disk is another replica."""

    id: int
    directory_id: bytes = NO_DIRECTORY

    def matches(self, other: ReplicaKey) -> bool:
        """Whether both are the same replica, as far as is known: an unknown directory matches each one."""
        if self.id != other.id:
            return False
        return (
            NO_DIRECTORY in (self.directory_id, other.directory_id) or self.directory_id == other.directory_id
        )


class Voter(msgspec.Struct, frozen=True):
    """One voter of a set."""

    key: ReplicaKey
    endpoints: tuple[Endpoint, ...] = ()
    kraft_version_min: int = 0
    kraft_version_max: int = 1


class VoterSet:
    """The voters that elect a leader and commit records. Immutable."""

    __slots__ = ("_voters",)

    def __init__(self, voters: Iterable[Voter] = ()) -> None:
        self._voters = {voter.key.id: voter for voter in sorted(voters, key=lambda one: one.key.id)}

    @property
    def voters(self) -> Mapping[int, Voter]:
        """The voters by node id, in the order of the ids."""
        return self._voters

    @property
    def ids(self) -> tuple[int, ...]:
        """The node ids in order."""
        return tuple(self._voters)

    @property
    def majority(self) -> int:
        """The number of voters that makes a majority."""
        return len(self._voters) // 2 + 1

    def __contains__(self, key: ReplicaKey) -> bool:
        voter = self._voters.get(key.id)
        return voter is not None and voter.key.matches(key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VoterSet) and self._voters == other._voters

    def __hash__(self) -> int:
        return hash(tuple(self._voters.values()))

    def __repr__(self) -> str:
        return f"VoterSet({', '.join(str(one) for one in self._voters)})"

    def key_of(self, node_id: int) -> ReplicaKey:
        """Returns the key of a voter; of another node, a key without a directory."""
        voter = self._voters.get(node_id)
        return ReplicaKey(node_id) if voter is None else voter.key

    def with_voter(self, voter: Voter) -> VoterSet:
        """Returns the set with this voter, in place of a voter with the same id."""
        return VoterSet([*(one for one in self._voters.values() if one.key.id != voter.key.id), voter])

    def without(self, node_id: int) -> VoterSet:
        """Returns the set without the voter of this id."""
        return VoterSet(one for one in self._voters.values() if one.key.id != node_id)


class VoterChange(NamedTuple):
    """From this offset of the log on, this set counts."""

    offset: int
    voters: VoterSet
    kraft_version: int


class VoterHistory:
    """Which voter set counts: the newest in the log, committed or not (KIP-853).

    :param static: the set before the log's first: ``controller.quorum.voters``, or an empty one
    """

    def __init__(self, static: VoterSet, changes: Iterable[VoterChange] = ()) -> None:
        self._first = VoterChange(-1, static, 0)
        self._changes = list(changes)

    @property
    def latest(self) -> VoterChange:
        """The newest change."""
        return self._changes[-1] if self._changes else self._first

    def add(self, offset: int, voters: VoterSet, kraft_version: int) -> None:
        """The log has a new set at ``offset``."""
        self._changes.append(VoterChange(offset, voters, kraft_version))

    def truncate(self, end_offset: int) -> None:
        """The log lost what was at ``end_offset`` and behind it."""
        while self._changes and self._changes[-1].offset >= end_offset:
            self._changes.pop()

    def forget_before(self, offset: int) -> None:
        """Drop the sets that a later one replaced at or below ``offset``."""
        below = [change for change in self._changes if change.offset <= offset]
        if len(below) > 1:
            self._changes = self._changes[len(below) - 1 :]

    def at(self, end_offset: int) -> VoterChange:
        """Returns the set that counts for a log which ends at ``end_offset``: a snapshot contains it."""
        found = self._first
        for change in self._changes:
            if change.offset < end_offset:
                found = change
        return found
