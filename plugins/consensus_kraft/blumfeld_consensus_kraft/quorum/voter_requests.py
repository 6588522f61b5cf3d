"""AddRaftVoter, RemoveRaftVoter and UpdateRaftVoter, at the leader of the quorum (KIP-853).

A voter set counts from the moment at which the leader appends it, and is answered when the new set has committed it.
A leader that removes itself leads until then, without a vote of its own, and resigns.
"""

from __future__ import annotations

from collections.abc import Callable

from blumfeld.spi.cluster import Endpoint
from blumfeld.spi.completion import Completion
from blumfeld.spi.hooks import Composition, EventLog
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from blumfeld.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from blumfeld.wire.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from blumfeld.wire.messages.update_raft_voter import (
    CurrentLeader,
    UpdateRaftVoterRequest,
    UpdateRaftVoterResponse,
)
from blumfeld.wire.schema import Message
from blumfeld_consensus_kraft.active_controller import ActiveController
from blumfeld_consensus_kraft.control_records import voters_batch
from blumfeld_consensus_kraft.publisher import Reply
from blumfeld_consensus_kraft.quorum.driver import RaftDriver
from blumfeld_consensus_kraft.quorum.endpoints import voters_record
from blumfeld_consensus_kraft.raft.voter_changes import (
    Refusal,
    refused,
    with_added,
    with_removed,
    with_updated,
)
from blumfeld_consensus_kraft.raft.voters import ReplicaKey, Voter, VoterChange, VoterSet

KRAFT_VERSION_FEATURE = "kraft.version"
CLIENT_NAME = "blumfeld"
LISTENERS_MAX = 100
"""More of one voter are refused: no request may hold the loop, and all of them would go into the log."""
Decide = Callable[[VoterChange], VoterSet | Refusal]


class VoterChanges:
    """Changes the voters while this node leads. One change at a time.

    Errors in the answers: INCONSISTENT_CLUSTER_ID; those of ``raft.voter_changes``; REQUEST_TIMED_OUT: an earlier
    change isn't finished, or the new voter can't be reached, or it has not fetched the log to its end. NOT_CONTROLLER
    fails the request where this node stops leading: the change may be committed still.
    """

    def __init__(
        self,
        composition: Composition,
        driver: RaftDriver,
        active: Callable[[], ActiveController | None],
        events: EventLog,
        listener: str,
    ) -> None:
        self._composition = composition
        self._runtime = composition.runtime
        self._driver = driver
        self._active = active
        self._events = events
        self._listener = listener
        self._probed: Voter | None = None
        """The new voter that is being asked for its versions."""
        self._request_timeout_ms = composition.config.int("controller.quorum.request.timeout.ms")

    def endpoint(self, node_id: int, listener: str) -> Endpoint | None:
        """As ``Endpoints.endpoint``: of the voter that is being added."""
        if self._probed is None or self._probed.key.id != node_id:
            return None
        return next((endpoint for endpoint in self._probed.endpoints if endpoint.listener == listener), None)

    def submit(self, command: Message, timeout_ms: float) -> Completion[Message]:
        """Decide on a request."""
        answered: Completion[Message] = Completion()
        reply = Reply(answered, wait_image=False)
        listeners = [] if isinstance(command, RemoveRaftVoterRequest) else getattr(command, "listeners", [])
        if len(listeners) > LISTENERS_MAX:
            text = f"a voter names {len(listeners)} listeners; {LISTENERS_MAX} are allowed"
            answered.complete(self._answered(command, Refusal(ErrorCode.INVALID_REQUEST, text)))
        elif isinstance(command, AddRaftVoterRequest):
            self._add(command, reply)
        elif isinstance(command, RemoveRaftVoterRequest):
            key = ReplicaKey(command.voter_id, command.voter_directory_id)
            self._change(command, reply, lambda latest: with_removed(latest, key))
        else:
            assert isinstance(command, UpdateRaftVoterRequest)
            self._update(command, reply)
        if not answered.done:
            reply.timer = self._runtime.call_later(timeout_ms, reply.expire)
        return answered

    # The three changes

    def _add(self, command: AddRaftVoterRequest, reply: Reply) -> None:
        """Ask the new voter for its versions first: whether it can be reached, and knows the ``kraft.version``."""
        latest = self._driver.raft.history.latest
        endpoints = tuple(
            Endpoint(listener.name, listener.host, listener.port) for listener in command.listeners
        )
        key = ReplicaKey(command.voter_id, command.voter_directory_id)
        voter = Voter(key, endpoints, latest.kraft_version, latest.kraft_version)
        refusal = self._refusal(command.cluster_id)
        if refusal is None:
            outcome = with_added(latest, voter, self._listener)
            refusal = outcome if isinstance(outcome, Refusal) else None
        if refusal is not None:
            reply.completion.complete(_answer(command, refusal))
            return
        self._probed = voter
        channel = self._composition.peers.channel(key.id, self._listener, "quorum-probe", self)
        question = ApiVersionsRequest(client_software_name=CLIENT_NAME, client_software_version="1")
        probing = channel.send(question, self._request_timeout_ms)

        def probed(done: Completion[Message]) -> None:
            self._probed = None
            channel.close()
            if not reply.completion.done:
                self._probe_ended(command, voter, reply, done)

        probing.when_done(probed)

    def _probe_ended(
        self, command: AddRaftVoterRequest, voter: Voter, reply: Reply, done: Completion[Message]
    ) -> None:
        answer = None if done.error is not None else done.result()
        if not isinstance(answer, ApiVersionsResponse) or answer.error_code:
            problem = done.error or "an error"
            text = f"the new voter {voter.key.id} can't be asked for its versions: {problem or type(problem).__name__}"
            reply.answer(_answer(command, Refusal(ErrorCode.REQUEST_TIMED_OUT, text)))
            return
        ranges = {
            feature.name: (feature.min_version, feature.max_version) for feature in answer.supported_features
        }
        low, high = ranges.get(KRAFT_VERSION_FEATURE, (0, 0))
        known = Voter(voter.key, voter.endpoints, low, high)

        def decide(latest: VoterChange) -> VoterSet | Refusal:
            leadership = self._driver.raft.leadership
            if leadership is None or not leadership.is_caught_up(voter.key, self._runtime.monotonic_ms()):
                return Refusal(
                    ErrorCode.REQUEST_TIMED_OUT,
                    f"node {voter.key.id} has not fetched the metadata log to its end within the last hour, on this "
                    "disk: start it, and try again when it has",
                )
            return with_added(latest, known, self._listener)

        self._change(command, reply, decide, at_once=not command.ack_when_committed)

    def _update(self, command: UpdateRaftVoterRequest, reply: Reply) -> None:
        """A voter tells where it is reached, and which versions it knows. It is answered at once, as by Kafka."""
        raft = self._driver.raft
        if command.current_leader_epoch != raft.epoch and self._is_of_this_cluster(command.cluster_id):
            is_old = command.current_leader_epoch < raft.epoch
            error = ErrorCode.FENCED_LEADER_EPOCH if is_old else ErrorCode.UNKNOWN_LEADER_EPOCH
            reply.completion.complete(self._with_leader(Refusal(error, "")))
            return
        voter = Voter(
            ReplicaKey(command.voter_id, command.voter_directory_id),
            tuple(Endpoint(listener.name, listener.host, listener.port) for listener in command.listeners),
            command.kraft_version_feature.min_supported_version,
            command.kraft_version_feature.max_supported_version,
        )
        self._change(command, reply, lambda latest: with_updated(latest, voter, self._listener), at_once=True)

    # One change

    def _is_of_this_cluster(self, cluster_id: str | None) -> bool:
        return cluster_id in (None, self._composition.cluster_id)

    def _refusal(self, cluster_id: str | None) -> Refusal | None:
        if not self._is_of_this_cluster(cluster_id):
            return Refusal(ErrorCode.INCONSISTENT_CLUSTER_ID, "this is another cluster")
        if self._probed is not None:
            text = f"node {self._probed.key.id} is being added: try again"
            return Refusal(ErrorCode.REQUEST_TIMED_OUT, text)
        raft = self._driver.raft
        if raft.leadership is None:
            return Refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this node leads the quorum no longer")
        return refused(raft.history.latest, raft.leadership.high_watermark)

    def _change(self, command: Message, reply: Reply, decide: Decide, *, at_once: bool = False) -> None:
        """Decide when no large decision is being placed, and append the set."""
        active = self._active()
        if active is None:
            reply.fail(BrokerError(ErrorCode.NOT_CONTROLLER))
        else:
            active.in_turn(lambda: self._append(active, command, reply, decide, at_once), reply)

    def _append(
        self, active: ActiveController, command: Message, reply: Reply, decide: Decide, at_once: bool
    ) -> None:
        latest = self._driver.raft.history.latest
        cluster_id = getattr(command, "cluster_id", None)
        outcome = self._refusal(cluster_id) or decide(latest)
        if isinstance(outcome, Refusal):
            reply.answer(self._answered(command, outcome))
            return
        record = voters_record(outcome)
        epoch = self._driver.raft.epoch
        batch = voters_batch(record, epoch=epoch, timestamp_ms=self._runtime.now_ms())
        offset = active.place_control(batch)
        if offset is None:
            reply.fail(BrokerError(ErrorCode.NOT_CONTROLLER, "the metadata log failed"))
            return
        response = self._answered(command, None)
        if at_once:
            reply.answer(response)
        else:
            active.answer_when_committed(reply, response)
        self._events.info("the voters of the metadata quorum change", voters=list(outcome.ids), offset=offset)
        self._driver.voters_changed(offset, outcome, latest.kraft_version)

    def _answered(self, command: Message, refusal: Refusal | None) -> Message:
        if isinstance(command, UpdateRaftVoterRequest):
            return self._with_leader(refusal)
        return _answer(command, refusal)

    def _with_leader(self, refusal: Refusal | None) -> UpdateRaftVoterResponse:
        raft = self._driver.raft
        leader = next(iter(self._driver.leader_node(raft.leader_id)), None)
        known = CurrentLeader(leader_id=raft.leader_id, leader_epoch=raft.epoch)
        if leader is not None:
            known.host, known.port = leader[1], leader[2]
        error = ErrorCode.NONE if refusal is None else refusal.error
        return UpdateRaftVoterResponse(error_code=error, current_leader=known)


def _answer(command: Message, refusal: Refusal | None) -> Message:
    made = AddRaftVoterResponse() if isinstance(command, AddRaftVoterRequest) else RemoveRaftVoterResponse()
    made.error_message = None if refusal is None else refusal.message
    made.error_code = ErrorCode.NONE if refusal is None else refusal.error
    return made
