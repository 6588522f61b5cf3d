"""The values that a replica is made with."""

from __future__ import annotations

import msgspec

from blumfeld_consensus_kraft.raft.messages import NO_LEADER
from blumfeld_consensus_kraft.raft.voters import ReplicaKey


class BrokenQuorumError(Exception):
    """This replica would have to give up committed records: its log, or the leader's, is not what it was."""


class Settings(msgspec.Struct, frozen=True):
    """``controller.quorum.*``: Kafka's keys and defaults, but for the last one."""

    election_timeout_ms: int = 1_000
    election_backoff_max_ms: int = 1_000
    fetch_timeout_ms: int = 2_000
    retry_backoff_ms: int = 20
    refused_jitter_ms: int = 30
    """The longest pause between a leader's port that refuses and a pre-vote."""


class Stored(msgspec.Struct, frozen=True):
    """The content of ``quorum-state``."""

    epoch: int = 0
    leader_id: int = NO_LEADER
    voted: ReplicaKey | None = None
