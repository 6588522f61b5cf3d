"""The voters of this node's quorum: which set counts, and how it follows the log (KIP-853).

A static quorum has the voters of ``controller.quorum.voters``. A dynamic one has those of the newest voter set in the
log or in the snapshot before it, committed or not. ``voter_requests.py`` adds and removes voters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from blumfeld.spi.completion import Completion
from blumfeld.spi.hooks import Composition, EventLog
from blumfeld.wire.batches.record_batch import RecordBatch
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.raft_records import VotersRecord
from blumfeld.wire.schema import Message
from blumfeld_consensus_kraft.active_controller import ActiveController
from blumfeld_consensus_kraft.control_records import recorded_changes
from blumfeld_consensus_kraft.quorum.endpoints import (
    own_endpoints,
    recorded_voters,
    static_voters,
    voters_record,
)
from blumfeld_consensus_kraft.quorum.own_voter import OwnVoter
from blumfeld_consensus_kraft.quorum.voter_requests import VoterChanges
from blumfeld_consensus_kraft.raft.voters import (
    DYNAMIC_KRAFT_VERSION,
    ReplicaKey,
    Voter,
    VoterHistory,
    VoterSet,
)

if TYPE_CHECKING:
    from blumfeld.wire.messages.update_raft_voter import UpdateRaftVoterRequest
    from blumfeld_consensus_kraft.quorum.driver import RaftDriver

UPDATE_TIMEOUT_MS = 5_000
VOTERS_PLACE = 2
"""Place of the voters among the records with which the first leader opens its epoch: LeaderChange, kraft.version."""


class ConfiguredVoters:
    """The voters as the configuration names them, which count until the log says others."""

    def __init__(self, composition: Composition) -> None:
        names = composition.config.list("controller.listener.names")
        self.listener = names[0] if names else "CONTROLLER"
        self._composition = composition
        self._votes = "controller" in composition.roles
        self._static = static_voters(composition.config.list("controller.quorum.voters"), self.listener)

    def is_alone(self, recorded: VotersRecord | None) -> bool:
        """Whether this node is the whole quorum.

        :param recorded: the newest voter set of the files
        """
        if not self._votes:
            return False
        if recorded is not None:
            directory_id = self._composition.local_storage.log_dirs()[0].directory_id
            own = ReplicaKey(self._composition.node_id, directory_id)
            return [ReplicaKey(voter.voter_id, voter.voter_directory_id) for voter in recorded.voters] == [
                own
            ]
        return self._static.ids in ((), (self._composition.node_id,)) and not self._composition.config.list(
            "controller.quorum.bootstrap.servers"
        )

    def first(self) -> VoterSet:
        """Returns the voters before the log says others."""
        if self._static.ids or not self.is_alone(None):
            return self._static
        own = ReplicaKey(self._composition.node_id)
        return VoterSet([Voter(own, tuple(own_endpoints(self._composition)))])


class QuorumMembership:
    """The voters that count, for one node.

    :param active: the controller, while this node leads
    """

    def __init__(
        self,
        composition: Composition,
        listener: str,
        events: EventLog,
        driver: RaftDriver,
        active: Callable[[], ActiveController | None],
    ) -> None:
        self.listener = listener
        self._driver = driver
        self._votes = "controller" in composition.roles
        self._changes = VoterChanges(composition, driver, active, events, listener)
        self._own = OwnVoter(composition, driver, events, listener, self.submit)

    # Which set counts

    def at(self, end_offset: int) -> tuple[int, VotersRecord | None]:
        """Returns ``kraft.version`` and the voters for a snapshot that ends there; none where they are static."""
        voter_history = self._history.at(end_offset)
        return voter_history.kraft_version, voters_record(
            voter_history.voters
        ) if voter_history.kraft_version else None

    @property
    def _history(self) -> VoterHistory:
        return self._driver.raft.history

    # How it follows the log

    def opening(self) -> tuple[int, VotersRecord | None]:
        """Returns ``kraft.version`` and the voters that a new leader has to write. It has to once: where the set comes
        from the formatting alone. So observers learn it, and a snapshot has it.
        """
        latest = self._history.latest
        if self._history.is_in_log or latest.kraft_version < DYNAMIC_KRAFT_VERSION:
            return 0, None
        return latest.kraft_version, voters_record(latest.voters)

    def opened(self, base_offset: int) -> None:
        """The records of :meth:`opening` are placed behind the LeaderChange at ``base_offset``."""
        latest = self._history.latest
        self._driver.voters_changed(base_offset + VOTERS_PLACE, latest.voters, latest.kraft_version)

    def fetched(self, batches: Sequence[RecordBatch]) -> None:
        """Batches of the leader are placed: a voter set among them counts from now on."""
        for batch in batches:
            if batch.is_control:
                for change in recorded_changes(batch, self._history.latest.kraft_version):
                    voters = recorded_voters(change.voters, self.listener)
                    self._driver.voters_changed(change.offset, voters, change.kraft_version)

    # How it changes

    def submit(self, command: Message, timeout_ms: float) -> Completion[Message]:
        """Add, remove or update a voter. This node leads.

        The answer has the error: see ``VoterChanges``. Fails with BrokerError: NOT_CONTROLLER.
        """
        return self._changes.submit(command, timeout_ms)

    def updated(self, request: UpdateRaftVoterRequest) -> Completion[Message]:
        """A voter tells its endpoints and versions. They come to the leader alone: no node forwards them."""
        if self._driver.raft.leadership is None:
            raise BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return self.submit(request, UPDATE_TIMEOUT_MS)

    def leader_is(self, leader_id: int) -> None:
        """Another leader: see that it knows this voter as it is. A node alone has nobody to tell."""
        if self._votes and leader_id >= 0 and not self.is_quorum:
            self._own.leader_is(leader_id)

    @property
    def is_quorum(self) -> bool:
        """Whether this node is the whole quorum now. What it has written is committed with its next epoch then."""
        return self._driver.raft.is_alone

    def stop(self) -> None:
        """Tell no leader any more."""
        self._own.stop()
