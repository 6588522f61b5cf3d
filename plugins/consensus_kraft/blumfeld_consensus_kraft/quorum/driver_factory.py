"""Makes a node's replica of the metadata log from its configuration and its files."""

from __future__ import annotations

from functools import partial

from blumfeld.spi.hooks import Composition, EventLog
from blumfeld_consensus_kraft.quorum.driver import RaftDriver, ReplicaOwner
from blumfeld_consensus_kraft.quorum.endpoints import (
    QuorumEndpoints,
    bootstrap_servers,
    own_endpoints,
    recorded_voters,
)
from blumfeld_consensus_kraft.quorum.membership import ConfiguredVoters
from blumfeld_consensus_kraft.quorum.wire_form import FetchSettings
from blumfeld_consensus_kraft.quorum_state_file import QuorumStateFile
from blumfeld_consensus_kraft.raft.raft import Raft
from blumfeld_consensus_kraft.raft.settings import Settings, Stored
from blumfeld_consensus_kraft.raft.voters import ReplicaKey, VoterChange, VoterHistory
from blumfeld_consensus_kraft.raft_log import RaftLog
from blumfeld_consensus_kraft.stored_state import Loaded

FETCH_WAIT_MS = 500
"""The longest a leader keeps a fetch of metadata that has no news: Kafka's ``fetchMaxWaitMs`` of raft."""


def made_driver(
    composition: Composition,
    loaded: Loaded,
    log: RaftLog,
    owner: ReplicaOwner,
    configured: ConfiguredVoters,
    events: EventLog,
    *,
    elect_when_refused: bool,
) -> RaftDriver:
    """Returns the replica, with the epoch and the vote that it must remember. It sends nothing before its start.

    :raises MalformedFile: ``quorum-state`` can't be read
    """
    config, runtime, listener = composition.config, composition.runtime, configured.listener
    servers = bootstrap_servers(config.list("controller.quorum.bootstrap.servers"), listener)
    state_file = QuorumStateFile(runtime, log.log.aux)
    state = state_file.state
    voted = None if state.voted_id < 0 else ReplicaKey(state.voted_id, state.voted_directory_id)
    changes = [
        VoterChange(change.offset, recorded_voters(change.voters, listener), change.kraft_version)
        for change in loaded.voter_changes
    ]
    raft = Raft(
        ReplicaKey(composition.node_id, log.log.directory_id),
        VoterHistory(configured.first(), changes),
        log,
        Settings(
            election_timeout_ms=config.int("controller.quorum.election.timeout.ms"),
            election_backoff_max_ms=config.int("controller.quorum.election.backoff.max.ms"),
            fetch_timeout_ms=config.int("controller.quorum.fetch.timeout.ms"),
            retry_backoff_ms=config.int("controller.quorum.retry.backoff.ms"),
        ),
        Stored(max(state.leader_epoch, 0), state.leader_id, voted),
        lambda below: runtime.random.random() * below,
        bootstrap=tuple(servers),
        may_vote="controller" in composition.roles,
    )
    return RaftDriver(
        runtime,
        raft,
        log,
        owner,
        events,
        state_file=state_file,
        peers=lambda: composition.peers,
        endpoints=QuorumEndpoints(servers),
        listener=listener,
        own_endpoints=partial(own_endpoints, composition),
        elect_when_refused=elect_when_refused,
        fetch=FetchSettings(
            composition.cluster_id, FETCH_WAIT_MS, config.int("controller.quorum.fetch.max.bytes")
        ),
        request_timeout_ms=config.int("controller.quorum.request.timeout.ms"),
    )
