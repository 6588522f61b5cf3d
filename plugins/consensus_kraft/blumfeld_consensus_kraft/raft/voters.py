"""The voters of the quorum: replica keys, voter sets, and which set counts at which offset of the log (KIP-853)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from blumfeld.spi.cluster import Endpoint

DYNAMIC_KRAFT_VERSION = 1
"""The first ``kraft.version`` whose voters stand in the log."""
NO_DIRECTORY = bytes(16)
"""The directory id of a voter is unknown: static voters (``kraft.version`` 0) have none."""


class ReplicaKey(NamedTuple):
    """A replica of the metadata log: a node with one disk. A node that lost its disk is another replica."""

    id: int
    directory_id: bytes = NO_DIRECTORY

    def matches(self, other: ReplicaKey) -> bool:
        """Whether this key names ``other``. A key without a directory names each disk of its node, so a static voter is
        its node id. A key with a directory names that disk alone: a node that doesn't say its directory isn't it.
        """
        return self.id == other.id and self.directory_id in (NO_DIRECTORY, other.directory_id)


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
        self._voters = {voter.key.id: voter for voter in sorted(voters, key=lambda entry: entry.key.id)}

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
        return f"VoterSet({', '.join(str(voter_id) for voter_id in self._voters)})"

    def key_of(self, node_id: int) -> ReplicaKey:
        """Returns the key of a voter; of another node, a key without a directory."""
        voter = self._voters.get(node_id)
        return ReplicaKey(node_id) if voter is None else voter.key

    def with_voter(self, voter: Voter) -> VoterSet:
        """Returns the set with this voter, in place of a voter with the same id."""
        return VoterSet([*(other for other in self._voters.values() if other.key.id != voter.key.id), voter])

    def without(self, node_id: int) -> VoterSet:
        """Returns the set without the voter of this id."""
        return VoterSet(other for other in self._voters.values() if other.key.id != node_id)


class VoterChange(NamedTuple):
    """From this offset of the log on, this set counts."""

    offset: int
    voters: VoterSet
    kraft_version: int


class VoterHistory:
    """The voter set that counts: the newest in the log, committed or not (KIP-853).

    :param static: the set before the log's first: ``controller.quorum.voters``, or an empty one
    """

    def __init__(self, static: VoterSet, changes: Iterable[VoterChange] = ()) -> None:
        self._first = VoterChange(-1, static, 0)
        self._changes = list(changes)

    @property
    def latest(self) -> VoterChange:
        """The newest change."""
        return self._changes[-1] if self._changes else self._first

    def needs(self, key: ReplicaKey, high_watermark: int) -> bool:
        """Whether a replica is a voter of the newest set; or of the one before, if the newest may not be committed.

        Of two voters one may hold the record that removes it alone. Then the other one can't be elected, since its log
        is behind, and nobody but the removed one can (Ongaro's thesis, 4.2.2). Kafka's quorum stands still there.
        """
        latest = self.latest
        if key in latest.voters or latest.offset < high_watermark:
            return key in latest.voters
        before = self._changes[-2] if len(self._changes) > 1 else self._first
        return key in before.voters

    @property
    def is_in_log(self) -> bool:
        """Whether the log itself has a voter set, or a snapshot of it; not only the checkpoint of the formatting."""
        return self.latest.offset >= 0

    def add(self, offset: int, voters: VoterSet, kraft_version: int) -> None:
        """The log has a new set at ``offset``."""
        self._changes.append(VoterChange(offset, voters, kraft_version))

    def truncate(self, end_offset: int) -> None:
        """The log lost what was at ``end_offset`` and behind it."""
        while self._changes and self._changes[-1].offset >= end_offset:
            self._changes.pop()

    def at(self, end_offset: int) -> VoterChange:
        """Returns the set that counts for a log which ends at ``end_offset``: a snapshot contains it."""
        latest = self._first
        for change in self._changes:
            if change.offset < end_offset:
                latest = change
        return latest
