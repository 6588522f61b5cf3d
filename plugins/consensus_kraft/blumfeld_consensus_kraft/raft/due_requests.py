"""The requests that a role has to send by now. Pure; a role notes what it has sent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from blumfeld_consensus_kraft.raft.log_view import LogView
from blumfeld_consensus_kraft.raft.messages import BeginEpoch, EndEpoch, FetchRequest, Request, VoteRequest
from blumfeld_consensus_kraft.raft.roles import (
    Candidate,
    Follower,
    Leader,
    Prospective,
    Resigned,
    Role,
    Unattached,
)
from blumfeld_consensus_kraft.raft.voters import ReplicaKey, VoterSet


class Sender(NamedTuple):
    """The replica that sends, as it is now."""

    me: ReplicaKey
    epoch: int
    voters: VoterSet
    others: Sequence[int]
    """The other voters, and the bootstrap servers."""
    log: LogView
    high_watermark: int
    tell_again_ms: float

    def vote(self, voter_id: int, *, pre_vote: bool) -> VoteRequest:
        """A vote or pre-vote for this replica."""
        voter = self.voters.key_of(voter_id)
        return VoteRequest(self.epoch, self.me, voter, self.log.last_epoch, self.log.end_offset, pre_vote)

    def fetch(self) -> FetchRequest:
        """A fetch behind the end of the log."""
        return FetchRequest(
            self.me, self.epoch, self.log.end_offset, self.log.last_epoch, self.high_watermark
        )


def is_flushed(log: LogView) -> bool:
    """Whether a replica may fetch: to fetch from an offset promises that all below is on the device."""
    return log.flushed_end_offset == log.end_offset


def due(role: Role, sender: Sender, now_ms: float) -> Iterator[tuple[int, Request]]:
    """Yields node ids and requests."""
    if isinstance(role, Prospective | Candidate):
        for voter_id in role.ballot.to_ask(now_ms):
            role.ballot.pending.add(voter_id)
            yield voter_id, sender.vote(voter_id, pre_vote=isinstance(role, Prospective))
    elif isinstance(role, Follower):
        if not role.fetching and not role.waits_for_log and role.fetch_at <= now_ms:
            role.fetching = True
            yield role.leader_id, sender.fetch()
    elif isinstance(role, Unattached):
        if sender.others and is_flushed(sender.log) and not role.fetching and role.fetch_at <= now_ms:
            role.fetching = True
            role.voter_index += 1
            yield sender.others[role.voter_index % len(sender.others)], sender.fetch()
    elif isinstance(role, Leader):
        if role.leadership.begin_at <= now_ms:
            for voter_id in role.leadership.silent_voters(now_ms):
                yield voter_id, BeginEpoch(sender.epoch, sender.me.id, sender.voters.key_of(voter_id))
    else:
        yield from _farewells(role, sender, now_ms)


def _farewells(role: Resigned, sender: Sender, now_ms: float) -> Iterator[tuple[int, Request]]:
    if role.unacknowledged and role.tell_at <= now_ms:
        role.tell_at = now_ms + sender.tell_again_ms
        for voter_id in sorted(role.unacknowledged):
            yield voter_id, EndEpoch(sender.epoch, sender.me.id, role.successors)
