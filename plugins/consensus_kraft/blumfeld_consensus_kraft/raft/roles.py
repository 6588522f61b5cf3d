"""The roles of a replica in an epoch (KIP-595, KIP-996). Values; :mod:`raft` moves between them.

An observer, which has no vote, is Unattached or a Follower.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from blumfeld_consensus_kraft.raft.leadership import Leadership
from blumfeld_consensus_kraft.raft.messages import NO_LEADER
from blumfeld_consensus_kraft.raft.voters import ReplicaKey, VoterSet

FOREVER_MS = float("inf")


class Unattached(msgspec.Struct):
    """Knows the epoch, and does not follow anyone in it."""

    deadline_ms: float
    """A voter becomes prospective then; an observer asks another node."""
    fetch_at: float = 0.0
    """An observer looks for the leader then."""
    fetching: bool = False
    voter_index: int = 0
    unasked: set[int] = msgspec.field(default_factory=set)
    """After a start of a voter: the other voters that may know a leader. Once the last one is found to know none, or
    not to be there, the deadline comes soon: nobody's silence needs to be waited out. A leader that lives, and that
    this voter reaches, would have told of itself."""

    @property
    def next_ms(self) -> float:
        """The time at which something is due."""
        return self.deadline_ms if self.fetching else min(self.deadline_ms, self.fetch_at)


class Ballot(msgspec.Struct):
    """The votes of one election."""

    me: ReplicaKey
    voters: VoterSet
    granted: set[int] = msgspec.field(default_factory=set)
    rejected: set[int] = msgspec.field(default_factory=set)
    pending: set[int] = msgspec.field(default_factory=set)
    """Requests without an answer so far."""
    ask_at: dict[int, float] = msgspec.field(default_factory=dict)
    """Voter → the time at which it is asked again, if its answer got lost."""
    unreached: set[int] = msgspec.field(default_factory=set)
    """Voters whose last request got no answer. They grant nothing until they answer one."""

    def __post_init__(self) -> None:
        if self.me in self.voters:
            self.granted.add(self.me.id)

    def set_voters(self, voters: VoterSet) -> None:
        """Another set counts from now on. An answer of a voter that is another replica now counts no more."""
        same = {
            voter_id for voter_id in voters.ids if voters.key_of(voter_id) == self.voters.key_of(voter_id)
        }
        self.voters = voters
        self.granted &= same
        self.rejected &= same
        self.unreached &= same

    def count(self, voter_id: int, granted: bool) -> None:
        """Count an answer of a voter."""
        self.pending.discard(voter_id)
        self.unreached.discard(voter_id)
        if voter_id in self.voters.voters:
            (self.granted if granted else self.rejected).add(voter_id)

    def failed(self, voter_id: int, again_ms: float) -> None:
        """A request got no answer; the voter is asked again at ``again_ms``."""
        self.pending.discard(voter_id)
        self.ask_at[voter_id] = again_ms
        if voter_id in self.voters.voters:
            self.unreached.add(voter_id)

    @property
    def is_won(self) -> bool:
        """Whether a majority granted."""
        return len(self.granted) >= self.voters.majority

    @property
    def is_lost(self) -> bool:
        """Whether a voter refused, and those that may still grant are no majority.

        A voter that can't be reached may not. When two voters of three stand at once after the third one's death, each
        has its own vote: the dead one must not keep both of them waiting. Without any refusal nothing is lost: a
        majority is not there yet, and is asked until it is.
        """
        may_grant = len(self.voters.ids) - len(self.rejected | self.unreached)
        return bool(self.rejected) and may_grant < self.voters.majority

    def to_ask(self, now_ms: float) -> list[int]:
        """Returns the voters to ask now."""
        answered = self.granted | self.rejected | self.pending
        due = [
            voter_id
            for voter_id in self.voters.ids
            if voter_id not in answered and self.ask_at.get(voter_id, now_ms) <= now_ms
        ]
        return [voter_id for voter_id in due if voter_id != self.me.id]

    @property
    def next_ask_ms(self) -> float:
        """The time at which a voter is due to be asked again; infinity if none is."""
        answered = self.granted | self.rejected | self.pending
        return min(
            (at for voter_id, at in self.ask_at.items() if voter_id not in answered), default=float("inf")
        )


class Prospective(msgspec.Struct):
    """Asks whether it would win, without a new epoch, so that it disturbs no leader that lives."""

    ballot: Ballot
    deadline_ms: float
    last_leader_id: int = NO_LEADER
    """Followed again if the others still hear it."""

    @property
    def next_ms(self) -> float:
        """The time at which something is due."""
        return min(self.deadline_ms, self.ballot.next_ask_ms)


class Candidate(msgspec.Struct):
    """Stands for election in an epoch of its own; it has voted for itself."""

    ballot: Ballot
    deadline_ms: float
    lost: bool = False
    """It lost and waits for its deadline, a pause at random, before it tries again."""

    @property
    def next_ms(self) -> float:
        """The time at which something is due."""
        return min(self.deadline_ms, self.ballot.next_ask_ms)


class Follower(msgspec.Struct):
    """Fetches from the leader of the epoch."""

    leader_id: int
    deadline_ms: float
    has_fetched: bool = False
    """Whether the leader answered it: then it takes no part in pre-votes."""
    fetch_at: float = 0.0
    fetching: bool = False
    waits_for_log: bool = False
    """An append, truncation or download isn't finished: the next fetch depends on it."""
    leader_high_watermark: int = -1

    @property
    def takes_answers(self) -> bool:
        """Whether an answer to its fetch counts. None does after its leader resigned: an answer that the leader sent
        before would put off the election, and come on another connection than the resignation."""
        return not self.waits_for_log and self.fetch_at < FOREVER_MS

    @property
    def next_ms(self) -> float:
        """The time at which something is due."""
        waits = self.fetching or self.waits_for_log
        return self.deadline_ms if waits else min(self.deadline_ms, self.fetch_at)


class Leader(msgspec.Struct):
    """Leads the epoch."""

    leadership: Leadership

    @property
    def next_ms(self) -> float:
        """The time at which something is due."""
        return min(self.leadership.check_quorum_at, self.leadership.begin_at)


class Resigned(msgspec.Struct):
    """Led the epoch, and tells the voters that it doesn't any more."""

    deadline_ms: float
    successors: tuple[ReplicaKey, ...]
    unacknowledged: set[int]
    tell_at: float

    @property
    def next_ms(self) -> float:
        """The time at which something is due."""
        return min(self.deadline_ms, self.tell_at) if self.unacknowledged else self.deadline_ms


Role: TypeAlias = Unattached | Prospective | Candidate | Follower | Leader | Resigned


def lacks_leader(role: Role) -> bool:
    """Whether a replica in this role follows the leader of its epoch as soon as it is told of one."""
    if isinstance(role, Prospective):
        return role.last_leader_id == NO_LEADER
    return isinstance(role, Unattached | Candidate)
