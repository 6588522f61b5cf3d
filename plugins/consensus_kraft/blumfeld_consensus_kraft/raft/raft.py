"""The state machine of one replica of the metadata log: an input and the time in, effects out (KIP-595, 631, 853, 996).

* An epoch has one leader at most: a voter votes once an epoch, and its vote is on its device before it is told.
* Replicas pull. A voter's fetch offset says what it has flushed. Committed is what a majority has flushed, once
  a record of the leader's own epoch is among it.
* A replica asks by pre-votes first whether it would win. So a replica that lost its links disturbs no leader.
* Whoever the leader is, it steps down if no majority fetches from it.
* No request moves the epoch of a replica that hears its leader. It asks the voter that claims a later epoch, and
  believes the answer. Where no leader is heard, a request moves the epoch by ``EPOCH_LEAP_MAX`` at most.

Unlike Kafka's, a follower whose leader's port refuses connections doesn't wait (:meth:`Raft.leader_refused`), nor does
a voter that starts where no voter knows a leader.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from blumfeld.log.quorum_state import EPOCH_MAX, WAY_ON
from blumfeld.spi.leader_epochs import EpochEnd
from blumfeld.wire.errors import ErrorCode
from blumfeld_consensus_kraft.raft import effects
from blumfeld_consensus_kraft.raft.checks import EPOCH_COUNTS, begin_error, end_error, fetch_error, vote_error
from blumfeld_consensus_kraft.raft.divergence import truncation_point, with_way_back
from blumfeld_consensus_kraft.raft.due_requests import Sender, due, is_flushed
from blumfeld_consensus_kraft.raft.leadership import Leadership
from blumfeld_consensus_kraft.raft.log_view import LogView
from blumfeld_consensus_kraft.raft.messages import (
    NO_LEADER,
    BeginEpoch,
    EndEpoch,
    EpochAnswer,
    FetchAnswer,
    FetchRequest,
    Request,
    VoteAnswer,
    VoteRequest,
)
from blumfeld_consensus_kraft.raft.pauses import Pauses
from blumfeld_consensus_kraft.raft.roles import (
    FOREVER_MS,
    Ballot,
    Candidate,
    Follower,
    Leader,
    Prospective,
    Resigned,
    Role,
    Unattached,
    lacks_leader,
)
from blumfeld_consensus_kraft.raft.settings import BrokenQuorumError, Settings, Stored
from blumfeld_consensus_kraft.raft.vote_rules import grants, hears_leader
from blumfeld_consensus_kraft.raft.voters import ReplicaKey, VoterHistory, VoterSet


class Raft:
    """One replica. Each input returns its effects in the order in which they must happen.

    :param stored: as it was persisted last
    :param random_below: a random number from 0 up to its argument
    :param bootstrap: nodes that an observer may ask for the leader, beside the voters (ids below -1)
    :param may_vote: false on a node without the controller's role
    """

    def __init__(
        self,
        me: ReplicaKey,
        history: VoterHistory,
        log: LogView,
        settings: Settings,
        stored: Stored,
        random_below: Callable[[float], float],
        *,
        bootstrap: Sequence[int] = (),
        may_vote: bool = True,
    ) -> None:
        self.me = me
        self.history = history
        self.epoch = max(stored.epoch, log.last_epoch)
        self.voted = stored.voted if stored.epoch == self.epoch else None
        self._led = stored.epoch if stored.leader_id == me.id else -1
        # If the log has an epoch that the file lacks, nobody knows whether this replica voted in it.
        self._may_not_vote_in = self.epoch if stored.epoch < self.epoch else self._led
        self.leader_id = NO_LEADER
        self.heard: tuple[int, float] | None = None
        """The last leader, if this replica fetched from it, and when it answered last; ``None`` if it led itself."""
        self.high_watermark, self._told_high_watermark = log.start_offset, -1
        self._log = log
        self._settings = settings
        self._random_below = random_below
        self._pauses = Pauses(settings, random_below)
        self._bootstrap = tuple(bootstrap)
        self._may_vote = may_vote
        self._persisted = stored
        self._out: list[effects.Effect] = []
        self._ask_next_at = 0.0
        """The time from which on another voter may be asked whether it leads: requests may come at any rate."""
        self.role: Role = Unattached(FOREVER_MS)

    @property
    def voters(self) -> VoterSet:
        """The voter set that counts."""
        return self.history.latest.voters

    @property
    def is_voter(self) -> bool:
        """Whether this replica stands for election: a voter, or one whose removal isn't committed yet."""
        return self._may_vote and self.history.needs(self.me, self.high_watermark)

    @property
    def is_alone(self) -> bool:
        """Whether this replica is the whole quorum, so that it needs no one's vote."""
        return self._may_vote and self.voters.ids == (self.me.id,) and self.me in self.voters

    @property
    def leadership(self) -> Leadership | None:
        """The leader's side, while this replica leads."""
        return self.role.leadership if isinstance(self.role, Leader) else None

    @property
    def next_deadline_ms(self) -> float:
        """The time at which :meth:`tick` has something to do next."""
        role = self.role
        if isinstance(role, Leader) and self.is_alone:
            return FOREVER_MS
        if isinstance(role, Unattached) and not (self._others() and is_flushed(self._log)):
            return role.deadline_ms
        return role.next_ms

    # Inputs: time and the node itself

    def start(self, now_ms: float) -> list[effects.Effect]:
        """Begin. The only voter leads at once; another one looks for a leader first."""
        if self.is_alone:
            self._stand(now_ms)
        else:
            self._become_unattached(self.epoch, now_ms, unasked=set(self.voters.ids) - {self.me.id})
        return self._effects(now_ms)

    def tick(self, now_ms: float) -> list[effects.Effect]:
        """Do what is due."""
        role = self.role
        if isinstance(role, Leader):
            if role.leadership.quorum_is_lost(now_ms):
                self._resign(role.leadership, now_ms)
        elif now_ms < role.deadline_ms:
            pass
        elif isinstance(role, Prospective):
            self._give_up(role, now_ms)
        elif isinstance(role, Resigned) and not self.is_alone:
            self._become_unattached(self.epoch, now_ms)
        elif self.is_alone:
            self._stand(now_ms)
        elif self.is_voter:
            self._become_prospective(now_ms)
        else:
            self._become_unattached(self.epoch, now_ms)
        return self._effects(now_ms)

    def resign(self, now_ms: float) -> list[effects.Effect]:
        """Hand over to the voter with the most records, if this replica leads."""
        if isinstance(self.role, Leader):
            self._resign(self.role.leadership, now_ms)
        return self._effects(now_ms)

    def log_changed(self, now_ms: float) -> list[effects.Effect]:
        """The log's ends have moved: something was flushed, cut, or replaced by a snapshot."""
        role = self.role
        self._raise_high_watermark(self._log.start_offset, tell=False)
        if isinstance(role, Leader):
            self._commit(role.leadership, now_ms)
        elif isinstance(role, Follower) and is_flushed(self._log):
            if role.waits_for_log:
                role.waits_for_log = False
                role.fetch_at = now_ms
            self._raise_high_watermark(min(role.leader_high_watermark, self._log.flushed_end_offset))
        return self._effects(now_ms)

    def voters_changed(
        self, offset: int, voters: VoterSet, kraft_version: int, now_ms: float
    ) -> list[effects.Effect]:
        """The log has another voter set at ``offset``; it counts from now on, committed or not (KIP-853)."""
        self.history.add(offset, voters, kraft_version)
        role = self.role
        if isinstance(role, Leader):
            role.leadership.set_voters(voters, now_ms)
            self._commit(role.leadership, now_ms)
        elif isinstance(role, Prospective | Candidate):
            role.ballot.set_voters(voters)
        elif isinstance(role, Unattached) and self.is_voter:
            role.deadline_ms = min(role.deadline_ms, now_ms + self._pauses.election_ms())
        return self._effects(now_ms)

    def leader_refused(self, now_ms: float) -> list[effects.Effect]:
        """The leader's process is gone: the connection to it was lost, and its port refuses another one.

        A voter becomes prospective after a few milliseconds at random. That is safe if the leader lives: other voters,
        which hear it, refuse their pre-votes. An observer asks the voters for another leader.
        """
        role = self.role
        if isinstance(role, Follower) and self.is_voter:
            role.has_fetched = False
            role.deadline_ms = min(role.deadline_ms, now_ms + self._pauses.refused_ms())
        elif isinstance(role, Follower):
            self._become_unattached(self.epoch, now_ms)
        return self._effects(now_ms)

    def leader_is_there(self, epoch: int, now_ms: float) -> list[effects.Effect]:
        """A chunk of a snapshot came from the leader of ``epoch``."""
        if isinstance(self.role, Follower) and epoch == self.epoch:
            self.role.deadline_ms = now_ms + self._settings.fetch_timeout_ms
        return self._effects(now_ms)

    def download_failed(self, epoch: int, now_ms: float) -> list[effects.Effect]:
        """A snapshot could not be had from the leader of ``epoch``: ask again where to begin."""
        if isinstance(self.role, Follower) and epoch == self.epoch:
            self.role.waits_for_log = False
            self.role.fetch_at = now_ms + self._settings.retry_backoff_ms
        return self._effects(now_ms)

    # Inputs: requests

    def vote(self, request: VoteRequest, now_ms: float) -> list[effects.Effect]:
        """Answer a vote or a pre-vote.

        A pre-vote begins no epoch, so its epoch is never taken over. A replica that was a candidate alone finds back
        to the others all the same: their leader tells it of its epoch, and learns the later one from the answer.
        """
        error = vote_error(request, self.epoch, self.me)
        granted = False
        if error in EPOCH_COUNTS and not request.pre_vote and not hears_leader(self.role):
            self._observe(request.epoch, NO_LEADER, now_ms)
        if error is ErrorCode.NONE:
            is_free = self.leader_id == NO_LEADER and self._may_not_vote_in != self.epoch
            granted = grants(request, self.role, self._log, self.voted, is_free=is_free)
            if granted and not request.pre_vote:
                self.voted = request.candidate
                self._persist()
        self._out.append(effects.Reply(VoteAnswer(error, self.epoch, self.leader_id, granted)))
        return self._effects(now_ms)

    def begin_epoch(self, request: BeginEpoch, now_ms: float) -> list[effects.Effect]:
        """The sender says that it leads."""
        error = begin_error(request, self.epoch, self.me)
        if error in EPOCH_COUNTS and request.epoch > self.epoch and hears_leader(self.role):
            error = ErrorCode.UNKNOWN_LEADER_EPOCH
            self._ask_whether_it_leads(request.leader_id, now_ms)
        elif error in EPOCH_COUNTS:
            self._observe(request.epoch, self._voter_or_none(request.leader_id), now_ms)
        self._out.append(effects.Reply(EpochAnswer(error, self.epoch, self.leader_id)))
        return self._effects(now_ms)

    def end_epoch(self, request: EndEpoch, now_ms: float) -> list[effects.Effect]:
        """The leader resigned. The first of its successors tries at once; each other one pauses longer."""
        error = end_error(request, self.epoch, self.me)
        if error is ErrorCode.NONE and request.epoch > self.epoch and hears_leader(self.role):
            error = ErrorCode.UNKNOWN_LEADER_EPOCH
        if error is ErrorCode.NONE:
            self._observe(request.epoch, self._voter_or_none(request.leader_id), now_ms)
            role = self.role
            if isinstance(role, Follower) and role.leader_id == request.leader_id and self.is_voter:
                role.has_fetched = False
                role.fetch_at = FOREVER_MS
                role.deadline_ms = now_ms + self._pauses.successor_ms(request.place_of(self.me))
        self._out.append(effects.Reply(EpochAnswer(error, self.epoch, self.leader_id)))
        return self._effects(now_ms)

    def fetch(self, request: FetchRequest, now_ms: float) -> list[effects.Effect]:
        """Answer a replica's fetch, which says what it has flushed."""
        answer = self.fetch_answer(request)
        role = self.role
        if not isinstance(role, Leader) or answer.error is not ErrorCode.NONE:
            self._out.append(effects.Reply(answer))
        elif answer.diverging is not None or answer.snapshot is not None:
            role.leadership.heard(request.replica, now_ms)
            self._out.append(effects.Reply(answer))
        else:
            role.leadership.fetched(request.replica, request.offset, self._log.end_offset, now_ms)
            self._commit(role.leadership, now_ms)
            self._out.append(effects.ReadAndReply(request, self.fetch_answer(request)))
        return self._effects(now_ms)

    def fetch_answer(self, request: FetchRequest) -> FetchAnswer:
        """Returns the answer to a fetch as of now, without records."""
        error = fetch_error(request, self.epoch)
        if error is not ErrorCode.NONE or not isinstance(self.role, Leader):
            return FetchAnswer(error or ErrorCode.NOT_LEADER_OR_FOLLOWER, self.epoch, self.leader_id)
        answer = FetchAnswer(ErrorCode.NONE, self.epoch, self.me.id, self.role.leadership.high_watermark)
        return with_way_back(self._log, request, answer)

    def took_snapshot(self, replica: ReplicaKey, now_ms: float) -> list[effects.Effect]:
        """A replica took a part of a snapshot from this node: for the check of the quorum it counts as a fetch."""
        if isinstance(self.role, Leader):
            self.role.leadership.heard(replica, now_ms)
        return self._effects(now_ms)

    # Inputs: answers

    def answered(
        self, node_id: int, request: Request, answer: VoteAnswer | EpochAnswer | FetchAnswer, now_ms: float
    ) -> list[effects.Effect]:
        """A request was answered."""
        if isinstance(request, VoteRequest) and isinstance(answer, VoteAnswer):
            self._vote_answered(node_id, request, answer, now_ms)
        elif isinstance(request, FetchRequest) and isinstance(answer, FetchAnswer):
            self._fetch_answered(node_id, request, answer, now_ms)
        else:
            if isinstance(self.role, Resigned) and isinstance(request, EndEpoch):
                self.role.unacknowledged.discard(node_id)
            self._learn(node_id, answer, now_ms)
        return self._effects(now_ms)

    def send_failed(self, node_id: int, request: Request, now_ms: float) -> list[effects.Effect]:
        """A request got no answer: the connection failed, or the time was over."""
        role = self.role
        again_ms = now_ms + self._settings.retry_backoff_ms
        if isinstance(request, VoteRequest):
            if (election := self._election_of(request)) is not None:
                election.ballot.failed(node_id, again_ms)
                self._count(election, now_ms)
        elif isinstance(request, FetchRequest) and request.epoch == self.epoch:
            if isinstance(role, Follower) and role.leader_id != node_id:
                return self._effects(now_ms)
            if isinstance(role, Unattached | Follower):
                role.fetching = False
                role.fetch_at = again_ms
            self._knows_no_leader(node_id, now_ms)
        return self._effects(now_ms)

    def _vote_answered(self, node_id: int, request: VoteRequest, answer: VoteAnswer, now_ms: float) -> None:
        if self._learn(node_id, answer, now_ms):
            return
        if (election := self._election_of(request)) is not None:
            election.ballot.count(node_id, answer.granted and answer.error is ErrorCode.NONE)
            self._count(election, now_ms)

    def _election_of(self, request: VoteRequest) -> Prospective | Candidate | None:
        """The election in which a request asked, if it goes on."""
        role = self.role
        if request.epoch != self.epoch or not isinstance(role, Prospective | Candidate):
            return None
        return role if request.pre_vote == isinstance(role, Prospective) else None

    def _count(self, role: Prospective | Candidate, now_ms: float) -> None:
        """Another vote is known: is the election over?"""
        if isinstance(role, Prospective):
            if role.ballot.is_won:
                self._stand(now_ms)
            elif role.ballot.is_lost:
                self._give_up(role, now_ms)
        elif role.ballot.is_won:
            self._become_leader(role, now_ms)
        elif role.ballot.is_lost and not role.lost:
            role.lost = True
            role.deadline_ms = min(role.deadline_ms, now_ms + self._pauses.backoff_ms())

    def _fetch_answered(
        self, node_id: int, request: FetchRequest, answer: FetchAnswer, now_ms: float
    ) -> None:
        role = self.role
        if self._learn(node_id, answer, now_ms) or request.epoch != self.epoch:
            return
        if isinstance(role, Unattached):
            role.fetching = False
            role.fetch_at = now_ms + self._settings.retry_backoff_ms
            if answer.leader_id < 0:
                self._knows_no_leader(node_id, now_ms)
            return
        if not isinstance(role, Follower) or role.leader_id != node_id or not role.takes_answers:
            return
        role.fetching = False
        role.fetch_at = now_ms
        if answer.error is not ErrorCode.NONE or answer.epoch != self.epoch:
            role.fetch_at = now_ms + self._settings.retry_backoff_ms
            return
        role.deadline_ms = now_ms + self._settings.fetch_timeout_ms
        role.has_fetched = True
        self.heard = (node_id, now_ms)
        self._pauses.losses = 0
        if (request.offset, request.last_epoch) != (self._log.end_offset, self._log.last_epoch):
            return  # an earlier fetch, from before this log changed
        if answer.diverging is not None:
            self._truncate(role, answer.diverging)
        elif answer.snapshot is not None:
            role.waits_for_log = True
            self._out.append(effects.Download(node_id, self.epoch, answer.snapshot))
        else:
            role.leader_high_watermark = answer.high_watermark
            if answer.records is not None:
                role.waits_for_log = True
                self._out.append(effects.Append(answer.records))
            else:
                self._raise_high_watermark(min(answer.high_watermark, self._log.flushed_end_offset))

    def _knows_no_leader(self, node_id: int, now_ms: float) -> None:
        """Another voter knows no leader, or can't be reached. If all of them do, a start needn't wait for a leader."""
        role = self.role
        if isinstance(role, Unattached) and node_id in role.unasked:
            role.unasked.discard(node_id)
            if not role.unasked and self.is_voter:
                role.deadline_ms = min(role.deadline_ms, now_ms + self._pauses.first_ms())

    def _truncate(self, role: Follower, diverging: EpochEnd) -> None:
        end = truncation_point(self._log, diverging, self.high_watermark, (self.epoch, role.leader_id))
        role.waits_for_log = True
        self._out.append(effects.Truncate(end))

    # Moving between roles

    def _observe(self, epoch: int, leader_id: int, now_ms: float) -> bool:
        """Another replica knows this epoch and leader; whether it changed this one's role."""
        if epoch < self.epoch:
            return False
        leader_id = NO_LEADER if leader_id == self.me.id else leader_id
        if epoch == self.epoch and (leader_id < 0 or not lacks_leader(self.role)):
            return False
        if leader_id >= 0:
            self._become_follower(epoch, leader_id, now_ms)
        else:
            self._become_unattached(epoch, now_ms)
        return True

    def _learn(self, node_id: int, answer: VoteAnswer | EpochAnswer | FetchAnswer, now_ms: float) -> bool:
        """A replica that was asked tells its epoch and leader; whether that changed this one's role.

        A voter that says it leads itself is believed against what a request told: BeginQuorumEpoch may have named
        another leader of the same epoch.
        """
        misled = isinstance(self.role, Follower | Prospective) and self.leader_id not in (NO_LEADER, node_id)
        if misled and (answer.epoch, answer.leader_id) == (self.epoch, node_id):
            self._become_follower(self.epoch, node_id, now_ms)
            return True
        return self._observe(answer.epoch, answer.leader_id, now_ms)

    def _voter_or_none(self, leader_id: int) -> int:
        """A leader that a request names, if it is a voter. Another one is not followed, but looked for at the voters:
        it may be a new voter, or nobody.
        """
        return leader_id if leader_id in self.voters.voters else NO_LEADER

    def _ask_whether_it_leads(self, node_id: int, now_ms: float) -> None:
        """Ask a voter that is said to lead a later epoch. A pre-vote changes nothing there, and is answered with the
        epoch and its leader.
        """
        if node_id in self.voters.voters and self._ask_next_at <= now_ms:
            self._ask_next_at = now_ms + self._settings.retry_backoff_ms
            question = self._sender().vote(node_id, pre_vote=True)
            self._out.append(effects.Send(node_id, question))

    def _become(self, role: Role, epoch: int, leader_id: int, voted: ReplicaKey | None) -> None:
        if isinstance(self.role, Leader):
            self.heard = None
            self._out.append(effects.StopLeading(self.epoch))
        known = (self.epoch, self.leader_id)
        self.role, self.epoch, self.leader_id, self.voted = role, epoch, leader_id, voted
        self._persist()
        if known != (epoch, leader_id):
            self._out.append(effects.LeaderIs(epoch, leader_id))

    def _persist(self) -> None:
        # A leader has voted for itself. As in Kafka, the file says only that it leads, also when it leads no more.
        led = self._led == self.epoch
        state = Stored(self.epoch, self.me.id if led else self.leader_id, None if led else self.voted)
        if state != self._persisted:
            self._persisted = state
            self._out.append(effects.Persist(state.epoch, state.leader_id, state.voted))

    def _become_unattached(
        self, epoch: int, now_ms: float, *, pause_ms: float | None = None, unasked: set[int] | None = None
    ) -> None:
        pause_ms = self._pauses.election_ms() if pause_ms is None else pause_ms
        deadline_ms = now_ms + pause_ms if self.is_voter else FOREVER_MS
        voter_index = int(self._random_below(len(self._others()) or 1))
        role = Unattached(deadline_ms, fetch_at=now_ms, voter_index=voter_index, unasked=unasked or set())
        self._become(role, epoch, NO_LEADER, self.voted if epoch == self.epoch else None)

    def _become_follower(self, epoch: int, leader_id: int, now_ms: float) -> Follower:
        role = Follower(leader_id, now_ms + self._settings.fetch_timeout_ms, fetch_at=now_ms)
        role.waits_for_log = not is_flushed(self._log)
        self._become(role, epoch, leader_id, self.voted if epoch == self.epoch else None)
        return role

    def _become_prospective(self, now_ms: float) -> None:
        last = self.role.leader_id if isinstance(self.role, Follower) else NO_LEADER
        role = Prospective(Ballot(self.me, self.voters), now_ms + self._pauses.election_ms(), last)
        self._become(role, self.epoch, last, self.voted)
        if role.ballot.is_won:
            self._stand(now_ms)

    def _give_up(self, role: Prospective, now_ms: float) -> None:
        """Lost, or nobody answers: back to the leader that the others may still hear. If it doesn't answer, this
        replica asks again after a short pause: by then they may have lost it, too.
        """
        pause_ms = self._pauses.backoff_ms()
        self._pauses.losses += 1
        if role.last_leader_id == NO_LEADER:
            self._become_unattached(self.epoch, now_ms, pause_ms=pause_ms)
            return
        follower = self._become_follower(self.epoch, role.last_leader_id, now_ms)
        follower.deadline_ms = now_ms + pause_ms

    def _stand(self, now_ms: float) -> None:
        """Begin an epoch as a candidate, with this replica's own vote."""
        if self.epoch >= EPOCH_MAX:
            raise BrokenQuorumError(
                f"epoch {self.epoch} is the last one that there is, so nobody can be elected. Unless the metadata log "
                f"has records of it, {WAY_ON}"
            )
        role = Candidate(Ballot(self.me, self.voters), now_ms + self._pauses.election_ms())
        self._pauses.losses += 1
        self._become(role, self.epoch + 1, NO_LEADER, self.me)
        if role.ballot.is_won:
            self._become_leader(role, now_ms)

    def _become_leader(self, candidate: Candidate, now_ms: float) -> None:
        leadership = Leadership(self.me, self.voters, self._settings, self._log.end_offset, now_ms)
        self._pauses.losses, self._led = 0, self.epoch
        granting = tuple(self.voters.key_of(voter_id) for voter_id in sorted(candidate.ballot.granted))
        self._become(Leader(leadership), self.epoch, self.me.id, self.voted)
        self._out.append(effects.Lead(self.epoch, granting))

    def _resign(self, leadership: Leadership, now_ms: float) -> None:
        successors = leadership.successors()
        pause_ms = self._settings.election_timeout_ms if self.is_alone else self._pauses.election_ms()
        if not self.is_voter:  # removed: it stands no more, and looks for the next leader soon
            pause_ms = self._settings.retry_backoff_ms
        role = Resigned(now_ms + pause_ms, successors, {key.id for key in successors}, tell_at=now_ms)
        self._become(role, self.epoch, NO_LEADER, self.voted)

    # The high watermark

    def _commit(self, leadership: Leadership, now_ms: float) -> None:
        if leadership.moved_high_watermark(self._log.flushed_end_offset):
            self._raise_high_watermark(leadership.high_watermark)
            if self.me not in self.voters and self.history.latest.offset < leadership.high_watermark:
                self._resign(
                    leadership, now_ms
                )  # it committed its own removal, which the others needed it for

    def _raise_high_watermark(self, offset: int, *, tell: bool = True) -> None:
        self.high_watermark = max(self.high_watermark, offset)
        if tell and offset > self._told_high_watermark:
            self._told_high_watermark = offset
            self._out.append(effects.Commit(offset))

    # Requests that are due

    def _effects(self, now_ms: float) -> list[effects.Effect]:
        sends = due(self.role, self._sender(), now_ms)
        self._out += [effects.Send(node_id, request) for node_id, request in sends]
        out, self._out = self._out, []
        return out

    def _sender(self) -> Sender:
        tell_again_ms = self._settings.fetch_timeout_ms / 2
        return Sender(
            self.me, self.epoch, self.voters, self._others(), self._log, self.high_watermark, tell_again_ms
        )

    def _others(self) -> list[int]:
        return [*(voter_id for voter_id in self.voters.ids if voter_id != self.me.id), *self._bootstrap]
