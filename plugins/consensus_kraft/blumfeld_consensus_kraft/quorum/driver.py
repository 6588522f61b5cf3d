"""Runs a replica's state machine: its effects in order, its requests over channels, its timers.

``quorum-state`` is written off the loop. Effects behind a Persist wait for it, and so do the effects of later inputs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from blumfeld.log.quorum_state import NO_ID, NOBODY, QuorumState
from blumfeld.spi.cluster import Endpoint
from blumfeld.spi.completion import Completion
from blumfeld.spi.hooks import EventLog
from blumfeld.spi.peers import PeerClient
from blumfeld.spi.repeated_events import RepeatedEvents
from blumfeld.spi.runtime import Runtime, Timer
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.fetch import FetchRequest as WireFetch
from blumfeld.wire.schema import Message
from blumfeld_consensus_kraft.quorum.endpoints import QuorumEndpoints, recorded_voters
from blumfeld_consensus_kraft.quorum.parked_fetches import FetchLimits, ParkedFetches
from blumfeld_consensus_kraft.quorum.wire_form import (
    FetchSettings,
    answer_from_wire,
    answer_to_wire,
    from_wire,
    nodes_of,
    to_wire,
)
from blumfeld_consensus_kraft.quorum_state_file import QuorumStateFile
from blumfeld_consensus_kraft.raft import effects
from blumfeld_consensus_kraft.raft.checks import leaps
from blumfeld_consensus_kraft.raft.messages import (
    BeginEpoch,
    EndEpoch,
    EpochAnswer,
    FetchAnswer,
    FetchRequest,
    Request,
    VoteAnswer,
    VoteRequest,
)
from blumfeld_consensus_kraft.raft.raft import Raft
from blumfeld_consensus_kraft.raft.settings import BrokenQuorumError
from blumfeld_consensus_kraft.raft.voters import ReplicaKey, VoterSet
from blumfeld_consensus_kraft.raft_log import RaftLog
from blumfeld_consensus_kraft.stored_state import Loaded

PERSIST_RETRY_MS = 1_000
REFUSED_RETRY_MS = 1_000
"""Pause after an answer with an error for the whole request: another cluster, no common version."""
Reply = Callable[[Any], None]


class ReplicaOwner(Protocol):
    """The node's replica, as its driver sees it: one method for each effect that the driver doesn't carry out itself.
    None may raise where it doesn't say so. The driver's tests have one that takes note of the order.
    """

    def lead(self, epoch: int, granting: tuple[int, ...]) -> None:
        """This replica leads. The next record must be the LeaderChange of the epoch."""
        ...

    def stop_leading(self) -> None:
        """This replica leads no longer."""
        ...

    def leader_is(self, epoch: int, leader_id: int) -> None:
        """The epoch or its leader changed; -1: none is known."""
        ...

    def fetched(self, records: memoryview, epoch: int) -> None:
        """Append batches of the leader.

        :raises Exception: they can't be appended; nothing was
        """
        ...

    def cut(self, end_offset: int) -> None:
        """Cut the log; then call ``log_changed``, or hold the replica until that is made good."""
        ...

    def download(self, effect: effects.Download) -> None:
        """Fetch a snapshot."""
        ...

    def committed(self, high_watermark: int) -> None:
        """The high watermark moved."""
        ...

    def not_persisted(self, error: OSError) -> None:
        """``quorum-state`` can't be written now; the driver tries again."""
        ...

    def broken(self, error: BrokenQuorumError) -> None:
        """This replica can't go on."""
        ...


class RaftDriver:
    """One replica's state machine at work."""

    def __init__(
        self,
        runtime: Runtime,
        raft: Raft,
        log: RaftLog,
        owner: ReplicaOwner,
        events: EventLog,
        *,
        state_file: QuorumStateFile,
        peers: Callable[[], PeerClient],
        endpoints: QuorumEndpoints,
        listener: str,
        own_endpoints: Callable[[], list[Endpoint]],
        fetch: FetchSettings,
        request_timeout_ms: int,
        elect_when_refused: bool = True,
    ) -> None:
        self.raft = raft
        self.endpoints = endpoints
        self.parked = ParkedFetches(runtime, log, raft.fetch_answer)
        self._runtime = runtime
        self._log = log
        self._owner = owner
        self._events = events
        self._repeated = RepeatedEvents(runtime)
        self._peers = peers
        self._listener = listener
        self._own_endpoints = own_endpoints
        self._fetch = fetch
        self._request_timeout_ms = request_timeout_ms
        self._elect_when_refused = elect_when_refused
        self._state_file = state_file
        self._queue: deque[tuple[effects.Effect, Reply | None, FetchLimits | None]] = deque()
        self._persisting = False
        self._cannot_persist = False
        """The last try to write ``quorum-state`` has failed."""
        self._told_leader = (-1, -1)
        """(epoch, leader) as the owner was told last."""
        self._held = False
        self._deferred: list[Callable[[float], list[effects.Effect]]] = []
        """Steps to take when the replica goes on."""
        self._running = False
        self._timer: Timer | None = None
        self._stopped = False
        endpoints.set_voters(raft.voters)

    # Inputs

    def start(self) -> None:
        """Begin."""
        self._step(self.raft.start)

    def stop(self) -> None:
        """Take no input any more."""
        self._stopped = True
        self._queue.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def hold(self) -> None:
        """Take no step, and refuse requests, until :meth:`go_on`: nobody knows what the log holds."""
        self._held = True

    def go_on(self) -> None:
        """Do what was put off. The log is as it says again."""
        self._held = False
        self._run()
        deferred, self._deferred = self._deferred, []
        for step in deferred:
            self._step(step)

    def resign(self) -> None:
        """Hand over, if this replica leads."""
        self._step(self.raft.resign)

    def log_written(self) -> None:
        """Records were written: fetches that wait get them. Others flush them while this replica does."""
        self.parked.wake()

    def log_changed(self) -> None:
        """Something was flushed, cut, or replaced by a snapshot."""
        self._step(self.raft.log_changed)

    def leader_is_there(self, epoch: int) -> None:
        """A chunk of a snapshot came."""
        self._step(lambda now_ms: self.raft.leader_is_there(epoch, now_ms))

    def took_snapshot(self, replica: ReplicaKey) -> None:
        """A replica took a part of a snapshot from this node."""
        self._step(lambda now_ms: self.raft.took_snapshot(replica, now_ms))

    def download_failed(self, epoch: int) -> None:
        """A snapshot can't be had."""
        self._step(lambda now_ms: self.raft.download_failed(epoch, now_ms))

    def handle(
        self, message: Message, peer_host: str, version: int, listener: str = ""
    ) -> Completion[Message]:
        """Answer a request of another replica. A request whose epoch leaps is logged with the address of its sender.

        :param version: the request's, which the answer has, too
        :param listener: the one by which the request came

        Fails with BrokerError: INCONSISTENT_CLUSTER_ID, INVALID_REQUEST, NOT_LEADER_OR_FOLLOWER while stopping.
        """
        answered: Completion[Message] = Completion()
        cluster_id = getattr(message, "cluster_id", None)
        if cluster_id is not None and cluster_id != self._fetch.cluster_id:
            raise BrokerError(ErrorCode.INCONSISTENT_CLUSTER_ID)
        if self._stopped:
            raise BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        request = from_wire(message, self.raft.me.id)
        if not isinstance(request, FetchRequest) and leaps(request.epoch, self.raft.epoch):
            self._log_leap(request, peer_host)

        def reply(answer: VoteAnswer | EpochAnswer | FetchAnswer | BrokerError) -> None:
            if answered.done:
                return
            if isinstance(answer, BrokerError):
                answered.fail(answer)
                return
            nodes = self.leader_node(answer.leader_id, listener)
            answered.complete(answer_to_wire(answer, message, nodes, version))

        limits = None
        if isinstance(message, WireFetch):
            limits = FetchLimits(message.max_wait_ms, max(message.max_bytes, 1))
        self._step(lambda now_ms: _handled(self.raft, request, now_ms), reply, limits)
        return answered

    def _log_leap(self, request: Request, peer_host: str) -> None:
        self._repeated.say(
            self._events.warning,
            "a request whose epoch is too far ahead is refused",
            peer_host,
            request=type(request).__name__,
            peer=peer_host,
            epoch=request.epoch,
            own_epoch=self.raft.epoch,
        )

    def leader_node(self, leader_id: int, listener: str = "") -> list[tuple[int, str, int]]:
        """The leader as (node id, host, port), where it is known.

        :param listener: the one by which the other node asks. It dials the leader by the same, so that is what it is
            told, if the leader has it
        """
        endpoints: Sequence[Endpoint] = self._own_endpoints()
        if leader_id != self.raft.me.id:
            voter = self.endpoints.voters.voters.get(leader_id)
            known = self.endpoints.endpoint(leader_id, self._listener)
            endpoints = voter.endpoints if voter is not None else [known] if known is not None else []
        of_listener = [endpoint for endpoint in endpoints if endpoint.listener == listener]
        return [(leader_id, endpoint.host, endpoint.port) for endpoint in (of_listener or endpoints)[:1]]

    def replaced_by_snapshot(self, loaded: Loaded) -> None:
        """The log goes on behind a snapshot, whose voter set counts. Call ``log_changed`` next."""
        self.raft.history.truncate(0)
        if loaded.voters is not None:
            voters = recorded_voters(loaded.voters, self._listener)
            offset = self._log.start_offset - 1
            self.voters_changed(offset, voters, loaded.kraft_version)

    def voters_changed(self, offset: int, voters: VoterSet, kraft_version: int) -> None:
        """The log has another voter set at ``offset``."""
        self._step(lambda now_ms: self.raft.voters_changed(offset, voters, kraft_version, now_ms))

    def log_was_cut(self, end_offset: int) -> None:
        """The log lost what was at ``end_offset`` and behind it: a voter set among it counts no more."""
        self.raft.history.truncate(end_offset)
        self.endpoints.set_voters(self.raft.voters)

    # Effects

    def _step(
        self,
        step: Callable[[float], list[effects.Effect]],
        reply: Reply | None = None,
        limits: FetchLimits | None = None,
    ) -> None:
        if self._stopped:
            return
        if self._held:
            if reply is None:
                self._deferred.append(step)
            else:
                reply(BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, "the metadata log is being opened again"))
            return
        try:
            out = step(self._runtime.monotonic_ms())
        except BrokenQuorumError as error:
            self._owner.broken(error)
            return
        if self.endpoints.voters is not self.raft.voters:
            self.endpoints.set_voters(self.raft.voters)
        self._queue.extend((effect, reply, limits) for effect in out)
        self._run()
        if self._cannot_persist:
            self._go_on_unwritten()

    def _run(self) -> None:
        if self._running:
            return
        self._running = True
        try:
            while self._queue and not (self._persisting or self._held or self._stopped):
                self._execute(*self._queue.popleft())
        finally:
            self._running = False
        self._plan()

    def _plan(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due_ms = self.raft.next_deadline_ms
        if due_ms != float("inf") and not self._held and not self._stopped:
            delay_ms = max(due_ms - self._runtime.monotonic_ms(), 0.0)
            self._timer = self._runtime.call_later(delay_ms, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._step(self.raft.tick)

    def _execute(self, effect: effects.Effect, reply: Reply | None, limits: FetchLimits | None) -> None:
        owner = self._owner
        if isinstance(effect, effects.Send):
            self._send(effect.node_id, effect.request)
        elif isinstance(effect, effects.Reply):
            if reply is not None:
                reply(effect.answer)
        elif isinstance(effect, effects.ReadAndReply):
            if reply is not None and limits is not None:
                self.parked.serve(effect.request, limits, reply)
        elif isinstance(effect, effects.Commit):
            owner.committed(effect.high_watermark)
            self.parked.wake()
        elif isinstance(effect, effects.Append):
            self._append(effect)
        elif isinstance(effect, effects.Persist):
            self._persist(effect)
        elif isinstance(effect, effects.Lead):
            owner.lead(effect.epoch, tuple(key.id for key in effect.granting))
        elif isinstance(effect, effects.StopLeading):
            owner.stop_leading()
            self.parked.wake()
        elif isinstance(effect, effects.LeaderIs):
            self._tell_leader(effect.epoch, effect.leader_id)
        elif isinstance(effect, effects.Truncate):
            owner.cut(effect.end_offset)
        else:
            owner.download(effect)

    def _tell_leader(self, epoch: int, leader_id: int) -> None:
        # What was told ahead of a write is newer than what waited for it.
        if (epoch, leader_id) != self._told_leader and epoch >= self._told_leader[0]:
            self._told_leader = (epoch, leader_id)
            self._owner.leader_is(epoch, leader_id)

    def _append(self, effect: effects.Append) -> None:
        try:
            self._owner.fetched(effect.records, self.raft.epoch)
        except Exception as error:
            self._events.error("the leader's metadata can't be appended", error=str(error))
            self.download_failed(self.raft.epoch)

    def _persist(self, effect: effects.Persist) -> None:
        version = 0 if self.raft.history.latest.kraft_version == 0 else 1
        voted = effect.voted
        state = QuorumState(
            leader_id=effect.leader_id if effect.leader_id >= 0 else NOBODY,
            leader_epoch=effect.epoch,
            voted_id=NOBODY if voted is None else voted.id,
            voted_directory_id=NO_ID if voted is None or version == 0 else voted.directory_id,
            current_voters=self.raft.voters.ids if version == 0 else (),
            data_version=version,
        )
        self._persisting = True
        self._write_state(state)

    def _write_state(self, state: QuorumState) -> None:
        """Write until it succeeds. Nothing leaves this replica meanwhile."""
        if not self._stopped:
            self._state_file.persist(state).when_done(lambda done: self._persisted(state, done))

    def _persisted(self, state: QuorumState, done: Completion[None]) -> None:
        self._cannot_persist = isinstance(done.error, OSError)
        if isinstance(done.error, OSError):
            self._owner.not_persisted(done.error)
            self._go_on_unwritten()
            self._runtime.call_later(PERSIST_RETRY_MS, lambda: self._write_state(state))
            return
        self._persisting = False
        self._run()

    def _go_on_unwritten(self) -> None:
        """Do what needs no promise while ``quorum-state`` can't be written.

        The owner is told which node leads: the node's broker needs its controller, to give its leaderships away. Each
        request that waits is refused: the sender's next one on that connection says that it leads.
        """
        self._tell_leader(self.raft.epoch, self.raft.leader_id)
        waiting, self._queue = self._queue, deque()
        for effect, reply, limits in waiting:
            if isinstance(effect, effects.Reply | effects.ReadAndReply) and reply is not None:
                reply(BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, "the vote of this voter can't be written"))
            else:
                self._queue.append((effect, reply, limits))

    # Requests to others

    def _send(self, node_id: int, request: Request) -> None:
        purpose = "quorum-fetch" if isinstance(request, FetchRequest) else "quorum-vote"
        channel = self._peers().channel(node_id, self._listener, purpose, self.endpoints)
        message = to_wire(request, self._fetch, self._own_endpoints())
        answer = channel.send(message, self._request_timeout_ms)
        answer.when_done(lambda done: self._answered(node_id, request, done))

    def _answered(self, node_id: int, request: Request, done: Completion[Message]) -> None:
        if self._stopped:
            return
        refused = self._elect_when_refused and isinstance(done.error, ConnectionRefusedError)
        if refused and node_id == self.raft.leader_id:
            self._step(self.raft.leader_refused)
        if done.error is None:
            try:
                message = done.result()
                answer = answer_from_wire(message)
                self.endpoints.told(nodes_of(message), self._listener)
            except BrokerError as error:
                self._events.warning(
                    "a voter refuses this node",
                    voter=node_id,
                    request=type(request).__name__,
                    error=str(error),
                )
                again = lambda: self._failed(node_id, request)  # noqa: E731
                self._runtime.call_later(REFUSED_RETRY_MS, again)
                return
            self._step(lambda now_ms: self.raft.answered(node_id, request, answer, now_ms))
            return
        self._failed(node_id, request)

    def _failed(self, node_id: int, request: Request) -> None:
        self._step(lambda now_ms: self.raft.send_failed(node_id, request, now_ms))


def _handled(raft: Raft, request: Request, now_ms: float) -> list[effects.Effect]:
    if isinstance(request, FetchRequest):
        return raft.fetch(request, now_ms)
    if isinstance(request, VoteRequest):
        return raft.vote(request, now_ms)
    if isinstance(request, BeginEpoch):
        return raft.begin_epoch(request, now_ms)
    assert isinstance(request, EndEpoch)
    return raft.end_epoch(request, now_ms)
