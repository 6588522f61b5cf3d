"""One replica under test: a log that a test writes as digits, inputs with a time, and the effects that come of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from blumfeld.wire.errors import ErrorCode
from blumfeld_consensus_kraft.raft import effects
from blumfeld_consensus_kraft.raft.messages import (
    NO_LEADER,
    BeginEpoch,
    EndEpoch,
    FetchAnswer,
    FetchRequest,
    Request,
    SnapshotId,
    VoteAnswer,
    VoteRequest,
)
from blumfeld_consensus_kraft.raft.raft import Raft
from blumfeld_consensus_kraft.raft.roles import Candidate, Leader, Prospective
from blumfeld_consensus_kraft.raft.settings import Settings, Stored
from blumfeld_consensus_kraft.raft.voters import ReplicaKey, Voter, VoterHistory, VoterSet
from tests.plugins.consensus_kraft.raft.model_log import Entry, ModelLog

SETTINGS = Settings()
ME = ReplicaKey(1)
E = TypeVar("E", bound=effects.Effect)


def voters_of(*ids: int) -> VoterSet:
    """Static voters: node ids without directories."""
    return VoterSet(Voter(ReplicaKey(voter_id)) for voter_id in ids)


VOTERS = voters_of(1, 2, 3)


def log_of(epochs: str, *, snapshot: SnapshotId | None = None, unflushed: int = 0) -> ModelLog:
    """A log with one record for each digit, which is the record's epoch.

    :param snapshot: the log begins behind it
    :param unflushed: so many records at the end are not on the device
    """
    log = ModelLog()
    if snapshot is not None:
        log.install(snapshot)
    log.append([Entry(int(digit), f"{digit}") for digit in epochs])
    log.flushed_end_offset = log.end_offset - unflushed
    return log


class Replica:
    """A started replica, node 1 of the voters 1, 2 and 3 unless a test says otherwise.

    :param log: epochs of its records, a digit each; or a log
    :param stored: what ``quorum-state`` holds; without it, the last epoch of the log
    :param draw: each random number is this part of its limit
    """

    def __init__(
        self,
        log: str | ModelLog = "",
        *,
        stored: Stored | None = None,
        me: ReplicaKey = ME,
        voters: VoterSet = VOTERS,
        may_vote: bool = True,
        bootstrap: Iterable[int] = (),
        draw: float = 0.5,
    ) -> None:
        self.log = log_of(log) if isinstance(log, str) else log
        self.draw = draw
        self.raft = Raft(
            me,
            VoterHistory(voters),
            self.log,
            SETTINGS,
            stored or Stored(self.log.last_epoch),
            lambda below: below * self.draw,
            bootstrap=tuple(bootstrap),
            may_vote=may_vote,
        )
        self.out = self.raft.start(0.0)

    # Roles

    def following(self, leader_id: int, epoch: int, now_ms: float = 0.0) -> Replica:
        """The same replica, after a leader told of itself."""
        self.out = self.raft.begin_epoch(BeginEpoch(epoch, leader_id, self.raft.me), now_ms)
        return self

    def prospective(self, now_ms: float = 5_000.0) -> Replica:
        """The same replica, after its deadline without a leader."""
        self.out = self.raft.tick(now_ms)
        assert isinstance(self.raft.role, Prospective)
        return self

    def candidate(self, now_ms: float = 5_000.0) -> Replica:
        """The same replica, after a majority granted its pre-votes."""
        self.prospective(now_ms)
        self._all_grant(now_ms, until=Candidate)
        return self

    def leading(self, now_ms: float = 5_000.0, *, flushed: bool = True) -> Replica:
        """The same replica as leader of the next epoch, with its LeaderChange in the log."""
        self.candidate(now_ms)
        self._all_grant(now_ms, until=Leader)
        out = self.out
        self.append(1, now_ms, flushed=flushed)
        self.out = out
        return self

    def _all_grant(self, now_ms: float, until: type) -> None:
        for node_id, request in sent(self.out):
            if not isinstance(self.raft.role, until):
                answer = VoteAnswer(ErrorCode.NONE, self.raft.epoch, NO_LEADER, granted=True)
                self.out = self.raft.answered(node_id, request, answer, now_ms)
        assert isinstance(self.raft.role, until)

    # Inputs

    def append(self, count: int, now_ms: float, *, flushed: bool = True) -> list[effects.Effect]:
        """Write so many records of the present epoch, as the leader."""
        self.log.append([Entry(self.raft.epoch, "record") for _ in range(count)])
        if flushed:
            self.log.flush()
        self.out = self.raft.log_changed(now_ms)
        return self.out

    def vote(
        self,
        epoch: int,
        last: tuple[int, int],
        *,
        candidate: ReplicaKey | int = 2,
        voter: ReplicaKey | None = None,
        pre: bool = False,
        now_ms: float = 5_000.0,
    ) -> VoteAnswer:
        """Ask for its vote.

        :param last: epoch of the candidate's last record, and the end of the candidate's log
        """
        key = candidate if isinstance(candidate, ReplicaKey) else ReplicaKey(candidate)
        request = VoteRequest(epoch, key, voter or self.raft.me, *last, pre)
        self.out = self.raft.vote(request, now_ms)
        (answer,) = replies(self.out)
        assert isinstance(answer, VoteAnswer)
        return answer

    def fetched_by(
        self,
        replica: ReplicaKey | int,
        offset: int,
        last_epoch: int,
        now_ms: float = 5_000.0,
        epoch: int = -1,
    ) -> FetchAnswer:
        """Let another replica fetch.

        :param epoch: the present one if it is -1
        """
        key = replica if isinstance(replica, ReplicaKey) else ReplicaKey(replica)
        request = FetchRequest(key, self.raft.epoch if epoch == -1 else epoch, offset, last_epoch)
        self.out = self.raft.fetch(request, now_ms)
        (answer,) = replies(self.out)
        assert isinstance(answer, FetchAnswer)
        return answer

    def hears(self, answer: FetchAnswer, now_ms: float) -> list[effects.Effect]:
        """Let the leader answer its open fetch."""
        ((node_id, request),) = sent(self.out)
        assert isinstance(request, FetchRequest)
        self.out = self.raft.answered(node_id, request, answer, now_ms)
        return self.out

    def told_of_the_end(
        self, successors: Iterable[ReplicaKey | int], now_ms: float, *, epoch: int = -1, leader_id: int = 2
    ) -> list[effects.Effect]:
        """Let its leader resign."""
        keys = tuple(
            successor if isinstance(successor, ReplicaKey) else ReplicaKey(successor)
            for successor in successors
        )
        request = EndEpoch(self.raft.epoch if epoch == -1 else epoch, leader_id, keys)
        self.out = self.raft.end_epoch(request, now_ms)
        return self.out

    @property
    def deadline_ms(self) -> float:
        """When it gives up waiting for whatever its role waits for."""
        role = self.raft.role
        assert not isinstance(role, Leader)
        return role.deadline_ms


def sent(out: Iterable[effects.Effect]) -> list[tuple[int, Request]]:
    return [(effect.node_id, effect.request) for effect in out if isinstance(effect, effects.Send)]


def replies(out: Iterable[effects.Effect]) -> list[object]:
    return [effect.answer for effect in out if isinstance(effect, effects.Reply | effects.ReadAndReply)]


def only(out: Iterable[effects.Effect], kind: type[E]) -> E:
    (effect,) = (candidate for candidate in out if isinstance(candidate, kind))
    return effect


def kinds(out: Iterable[effects.Effect]) -> list[type]:
    return [type(effect) for effect in out]
