"""A controller sees to it that the voter set has it, as it is (KIP-853).

* A voter whose endpoints or versions are not those of the set tells the leader: UpdateRaftVoter.
* With ``controller.quorum.auto.join.enable``, a controller that is no voter asks to become one. If the set has its node
  with another disk, the one that it lost, it asks for that voter's removal first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from blumfeld.spi.cluster import Endpoint
from blumfeld.spi.completion import Completion
from blumfeld.spi.hooks import Composition, EventLog
from blumfeld.spi.runtime import Timer
from blumfeld.wire.errors import ErrorCode, known_code
from blumfeld.wire.messages import add_raft_voter as add
from blumfeld.wire.messages import update_raft_voter as update
from blumfeld.wire.messages.remove_raft_voter import RemoveRaftVoterRequest
from blumfeld.wire.schema import Message
from blumfeld_consensus_kraft.quorum.driver import RaftDriver
from blumfeld_consensus_kraft.quorum.endpoints import own_endpoints
from blumfeld_consensus_kraft.raft.roles import Follower
from blumfeld_consensus_kraft.raft.voters import DYNAMIC_KRAFT_VERSION, Voter

KRAFT_VERSIONS = (0, DYNAMIC_KRAFT_VERSION)


class OwnVoter:
    """Looks at the voter set when there is a new leader, and each ``controller.quorum.fetch.timeout.ms`` after.

    :param submit: decides, where this node leads
    """

    def __init__(
        self,
        composition: Composition,
        driver: RaftDriver,
        events: EventLog,
        listener: str,
        submit: Callable[[Message, float], Completion[Message]],
    ) -> None:
        config = composition.config
        self._composition = composition
        self._driver = driver
        self._events = events
        self._listener = listener
        self._submit = submit
        self._joins = config.bool("controller.quorum.auto.join.enable")
        self._period_ms = config.int("controller.quorum.fetch.timeout.ms")
        self._timeout_ms = config.int("controller.quorum.request.timeout.ms")
        self._timer: Timer | None = None
        self._asked_about: Voter | None = None
        self._told_about: Voter | None = None
        """The wrong entry of the set that the leader of this epoch has promised to change. Any later wrong one is a new
        object: somebody else asked for it."""

    def leader_is(self, leader_id: int) -> None:
        """Look soon: the leader must have committed a record first."""
        self._told_about = None
        self.stop()
        if leader_id >= 0:
            self._timer = self._composition.runtime.call_later(self._period_ms, self._look)

    def stop(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = self._composition.runtime.call_later(self._period_ms, self._look)
        request = self._due()
        if request is None:
            return
        raft = self._driver.raft
        if raft.leadership is not None:
            answer = self._submit(request, self._timeout_ms)
        else:
            channel = self._composition.peers.channel(
                raft.leader_id, self._listener, "quorum-voter", self._driver.endpoints
            )
            answer = channel.send(request, self._timeout_ms)
        answer.when_done(lambda done: self._answered(request, raft.epoch, done))

    def _due(self) -> Message | None:
        """Returns the request that the leader must get now."""
        raft = self._driver.raft
        latest = raft.history.latest
        if latest.kraft_version < DYNAMIC_KRAFT_VERSION or raft.leader_id < 0:
            return None
        endpoints = own_endpoints(self._composition)
        if not endpoints or not all(endpoint.port for endpoint in endpoints):
            return None
        known = latest.voters.voters.get(raft.me.id)
        if known is not None and known.key == raft.me:
            own = Voter(raft.me, known.endpoints, *KRAFT_VERSIONS)
            same = set(known.endpoints) == set(endpoints) and known == own
            if same or known is self._told_about:
                return None
            self._asked_about = known
            return self._update(endpoints)
        follows = isinstance(raft.role, Follower) and raft.role.has_fetched
        if not self._joins or not follows:
            return None
        cluster_id = self._composition.cluster_id
        if known is not None:
            return RemoveRaftVoterRequest(
                cluster_id=cluster_id, voter_id=known.key.id, voter_directory_id=known.key.directory_id
            )
        return add.AddRaftVoterRequest(
            cluster_id=cluster_id,
            timeout_ms=self._timeout_ms,
            voter_id=raft.me.id,
            voter_directory_id=raft.me.directory_id,
            listeners=[
                add.Listener(name=endpoint.listener, host=endpoint.host, port=endpoint.port)
                for endpoint in endpoints
            ],
            ack_when_committed=False,
        )

    def _update(self, endpoints: Sequence[Endpoint]) -> Message:
        raft = self._driver.raft
        low, high = KRAFT_VERSIONS
        return update.UpdateRaftVoterRequest(
            cluster_id=self._composition.cluster_id,
            current_leader_epoch=raft.epoch,
            voter_id=raft.me.id,
            voter_directory_id=raft.me.directory_id,
            listeners=[
                update.Listener(name=endpoint.listener, host=endpoint.host, port=endpoint.port)
                for endpoint in endpoints
            ],
            kraft_version_feature=update.KRaftVersionFeature(
                min_supported_version=low, max_supported_version=high
            ),
        )

    def _answered(self, request: Message, epoch: int, done: Completion[Message]) -> None:
        error: object = done.error
        if done.error is None:
            answer = done.result()
            code = known_code(getattr(answer, "error_code", 0))
            if code is ErrorCode.NONE:
                if isinstance(request, update.UpdateRaftVoterRequest) and epoch == self._driver.raft.epoch:
                    self._told_about = self._asked_about
                return
            error = f"{code.name}: {getattr(answer, 'error_message', '') or ''}"
        self._events.info(
            "the quorum's leader does not take this controller as a voter yet",
            request=type(request).__name__,
            error=str(error) or type(error).__name__,
        )
