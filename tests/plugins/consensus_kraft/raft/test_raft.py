"""How a replica moves between its roles, and in which order it asks for what comes of it."""

from __future__ import annotations

import pytest

from blumfeld.log.quorum_state import EPOCH_MAX
from blumfeld.wire.errors import ErrorCode
from blumfeld_consensus_kraft.raft import effects
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
from blumfeld_consensus_kraft.raft.roles import Candidate, Follower, Leader, Prospective, Resigned, Unattached
from blumfeld_consensus_kraft.raft.settings import BrokenQuorumError, Stored
from blumfeld_consensus_kraft.raft.voters import ReplicaKey
from tests.plugins.consensus_kraft.raft.one_replica import (
    ME,
    SETTINGS,
    Replica,
    kinds,
    log_of,
    only,
    sent,
    voters_of,
)

NOW_MS = 5_000.0
ELECTION_MS = SETTINGS.election_timeout_ms * 1.5
"""With draws in the middle."""
FOREVER_MS = float("inf")


def answered(
    replica: Replica, node_id: int, request: Request, *, granted: bool, now_ms: float = NOW_MS
) -> list[effects.Effect]:
    """Let a voter answer a vote in the candidate's epoch, without a leader."""
    assert isinstance(request, VoteRequest)
    answer = VoteAnswer(ErrorCode.NONE, request.epoch, -1, granted)
    return replica.raft.answered(node_id, request, answer, now_ms)


def test_a_voter_whose_records_are_not_flushed_is_not_woken_to_look_for_the_leader() -> None:
    """It may not fetch yet, so it would be woken again and again."""
    replica = Replica(log_of("112", unflushed=1))
    assert replica.raft.next_deadline_ms == ELECTION_MS
    replica.log.flush()
    assert len(sent(replica.raft.log_changed(1.0))) == 1


# Pre-votes


def test_pauses_between_refused_pre_votes_get_longer_until_the_leader_answers() -> None:
    """A leader that the others hear may refuse only this voter, and for long."""
    replica = Replica("112").following(3, epoch=4)
    now_ms, pauses = 1_000.0, []
    for _ in range(7):
        replica.raft.leader_refused(now_ms)
        pauses.append(replica.deadline_ms - now_ms)
        now_ms = replica.deadline_ms
        for node_id, request in sent(replica.raft.tick(now_ms)):
            answered(replica, node_id, request, granted=False, now_ms=now_ms)
    assert pauses == [15, 25, 50, 100, 200, 400, 500]
    replica.out = [effects.Send(3, FetchRequest(ME, 4, 3, 2, 0))]
    replica.hears(FetchAnswer(ErrorCode.NONE, 4, 3, 0), now_ms)
    replica.raft.leader_refused(now_ms)
    assert replica.deadline_ms == now_ms + 15


def test_a_pre_vote_beside_a_dead_leader_that_is_refused_is_asked_for_again_soon() -> None:
    """The other voter hasn't noticed the death yet."""
    replica = Replica("112").following(3, epoch=4).prospective()
    (second, third) = sent(replica.out)
    replica.raft.send_failed(*third, NOW_MS)
    answered(replica, *second, granted=False)
    assert isinstance(replica.raft.role, Follower)
    assert replica.deadline_ms == NOW_MS + 25


def test_a_candidate_that_has_one_vote_of_two_beside_a_dead_voter_tries_again_soon() -> None:
    """Both survivors stood at once, and each voted for itself."""
    replica = Replica("112").following(3, epoch=4).candidate()
    (second, third) = sent(replica.out)
    answered(replica, *second, granted=False)
    replica.raft.send_failed(*third, NOW_MS)
    assert replica.deadline_ms == NOW_MS + 50, "half of 100 ms: it lost once"
    replica.raft.tick(replica.deadline_ms)
    assert isinstance(replica.raft.role, Prospective)


def test_voters_that_cannot_be_reached_are_asked_until_they_can() -> None:
    """The first one of a quorum that starts again must not pause when the second one comes."""
    replica = Replica("112").prospective()
    for node_id, request in sent(replica.out):
        replica.raft.send_failed(node_id, request, NOW_MS)
    assert isinstance(replica.raft.role, Prospective)
    assert [receiver for receiver, _ in sent(replica.raft.tick(NOW_MS + SETTINGS.retry_backoff_ms))] == [2, 3]


# Elections


def test_a_pre_vote_is_no_vote() -> None:
    replica = Replica("112").prospective()
    (first, second) = sent(replica.out)
    answered(replica, *first, granted=True)
    answered(replica, *second, granted=True)
    assert isinstance(replica.raft.role, Candidate)


def test_a_vote_that_comes_late_is_no_pre_vote() -> None:
    """The candidate lost, and asks for pre-votes in the same epoch. It would stand again on a vote that it has."""
    replica = Replica("112").candidate()
    votes = sent(replica.out)
    replica.prospective(NOW_MS + ELECTION_MS)
    answered(replica, *votes[0], granted=True)
    assert isinstance(replica.raft.role, Prospective)
    assert replica.raft.epoch == 3


def test_a_vote_of_an_older_election_does_not_count() -> None:
    replica = Replica("112").candidate()
    old = sent(replica.out)
    replica.candidate(NOW_MS + ELECTION_MS)
    assert replica.raft.epoch == 4
    (node_id, request) = old[0]
    replica.raft.answered(node_id, request, VoteAnswer(ErrorCode.NONE, 4, -1, granted=True), NOW_MS)
    assert isinstance(replica.raft.role, Candidate)


def test_the_pause_after_a_lost_election_is_drawn_once() -> None:
    replica = Replica("112").candidate()
    votes = sent(replica.out)
    for node_id, request in votes:
        answered(replica, node_id, request, granted=False)
    replica.draw = 0.1
    answered(replica, *votes[0], granted=False)
    assert replica.deadline_ms == NOW_MS + 50


# Followers and leaders


def test_a_later_epoch_ends_a_leadership_before_anything_else() -> None:
    """A voter that was a candidate alone finds back so: the leader tells it of its epoch, and learns the later one."""
    replica = Replica("112").leading()
    out = replica.raft.answered(
        3, BeginEpoch(3, 1, ReplicaKey(3)), EpochAnswer(ErrorCode.FENCED_LEADER_EPOCH, 9), NOW_MS
    )
    assert out[0] == effects.StopLeading(3)
    assert kinds(out)[1:] == [effects.Persist, effects.LeaderIs, effects.Send]
    assert replica.raft.epoch == 9


# Requests that claim a later epoch


def hearing(leads: bool) -> Replica:
    """A replica in epoch 3 that leads, or that its leader, node 3, has answered."""
    if leads:
        return Replica("112").leading()
    replica = Replica("112").following(3, epoch=3)
    replica.hears(FetchAnswer(ErrorCode.NONE, 3, 3, 0), 10.0)
    return replica


@pytest.mark.parametrize("leads", [True, False])
def test_a_replica_that_hears_its_leader_asks_the_voter_that_claims_a_later_epoch(leads: bool) -> None:
    replica = hearing(leads)
    role = replica.raft.role
    replica.following(2, epoch=4, now_ms=NOW_MS)
    assert only(replica.out, effects.Reply).answer == EpochAnswer(
        ErrorCode.UNKNOWN_LEADER_EPOCH, 3, replica.raft.leader_id
    )
    assert replica.raft.role is role
    ((node_id, question),) = sent(replica.out)
    assert isinstance(question, VoteRequest)
    assert (node_id, question.epoch, question.pre_vote) == (2, 3, True)
    answer = VoteAnswer(ErrorCode.FENCED_LEADER_EPOCH, 4, 2)
    replica.raft.answered(node_id, question, answer, NOW_MS)
    assert isinstance(replica.raft.role, Follower)
    assert (replica.raft.epoch, replica.raft.leader_id) == (4, 2)


def test_claims_in_a_row_bring_one_question() -> None:
    """Their sender may send as many as it likes."""
    replica = hearing(leads=True)
    question_counts = [len(sent(replica.following(2, epoch=4 + n, now_ms=NOW_MS + n).out)) for n in range(3)]
    assert question_counts == [1, 0, 0]
    again_ms = NOW_MS + SETTINGS.retry_backoff_ms
    assert len(sent(replica.following(2, epoch=4, now_ms=again_ms).out)) == 1


def test_a_node_that_is_no_voter_is_not_asked() -> None:
    assert sent(hearing(leads=True).following(9, epoch=4, now_ms=NOW_MS).out) == []


@pytest.mark.parametrize("leads", [True, False])
def test_the_end_of_a_later_epoch_moves_no_replica_that_hears_its_leader(leads: bool) -> None:
    replica = hearing(leads)
    role = replica.raft.role
    replica.told_of_the_end([1], NOW_MS, epoch=4, leader_id=2)
    answer = only(replica.out, effects.Reply).answer
    assert answer == EpochAnswer(ErrorCode.UNKNOWN_LEADER_EPOCH, 3, replica.raft.leader_id)
    assert replica.raft.role is role


def test_the_real_leader_of_an_epoch_is_believed_against_a_claim_that_came_first() -> None:
    """A request named node 2. The pre-vote that follows its silence finds node 3, which says that it leads."""
    replica = Replica("112").following(2, epoch=3).prospective()
    (node_id, request) = next(pair for pair in sent(replica.out) if pair[0] == 3)
    replica.raft.answered(node_id, request, VoteAnswer(ErrorCode.NONE, 3, 3), NOW_MS)
    assert isinstance(replica.raft.role, Follower)
    assert replica.raft.leader_id == 3


def test_a_voter_that_names_another_leader_is_not_believed_against_a_claim() -> None:
    replica = Replica("112").following(2, epoch=3).prospective()
    (node_id, request) = next(pair for pair in sent(replica.out) if pair[0] == 3)
    replica.raft.answered(node_id, request, VoteAnswer(ErrorCode.NONE, 3, 1), NOW_MS)
    assert isinstance(replica.raft.role, Prospective)


def test_a_leader_that_is_no_voter_is_looked_for_and_not_followed() -> None:
    """It may be a new voter, which the others know; or nobody, and a fetch timeout would be lost."""
    replica = Replica("112").following(9, epoch=3)
    assert isinstance(replica.raft.role, Unattached)
    assert (replica.raft.epoch, replica.raft.leader_id) == (3, -1)
    replica.told_of_the_end([1], NOW_MS, epoch=4, leader_id=9)
    assert (replica.raft.epoch, replica.raft.leader_id) == (4, -1)


def test_nobody_stands_behind_the_last_epoch() -> None:
    replica = Replica("112", stored=Stored(EPOCH_MAX))
    with pytest.raises(BrokenQuorumError, match="2147483646 is the last one"):
        replica.candidate()


def test_a_new_leader_is_on_the_device_before_it_is_asked_for_records() -> None:
    replica = Replica("112").following(3, epoch=4)
    assert kinds(replica.out) == [effects.Persist, effects.LeaderIs, effects.Reply, effects.Send]
    assert only(replica.out, effects.Persist) == effects.Persist(4, 3, None)


def test_an_epoch_has_one_leader_for_a_follower() -> None:
    replica = Replica("112").following(3, epoch=4).following(2, epoch=4)
    assert replica.raft.leader_id == 3


def test_a_replica_that_is_called_the_leader_does_not_follow_itself() -> None:
    """It led the epoch before it started again."""
    replica = Replica("112", stored=Stored(3, 1))
    ((node_id, request),) = sent(replica.out)
    assert isinstance(request, FetchRequest)
    replica.raft.answered(node_id, request, FetchAnswer(ErrorCode.NOT_LEADER_OR_FOLLOWER, 3, 1), 1.0)
    assert isinstance(replica.raft.role, Unattached)


def test_a_replica_knows_when_it_heard_of_the_last_leader() -> None:
    replica = Replica("112").following(3, epoch=4)
    assert replica.raft.heard is None
    replica.hears(FetchAnswer(ErrorCode.NONE, 4, 3, 0), 1_200.0)
    replica.leading(5_000.0)
    assert replica.raft.heard == (3, 1_200.0)
    replica.raft.resign(6_000.0)
    assert replica.raft.heard is None, "the last leader is this replica itself"


# The end of an epoch


@pytest.mark.parametrize(
    ("successors", "pause_ms"),
    [([3, 1], 50 + 25), ([3, 4, 1], 100 + 25), ([3], 50 + 25), ([3, 4], 100 + 25), ([], 0)],
    ids=["second", "third", "not among one", "not among two", "the leader named none"],
)
def test_another_successor_pauses_by_its_place(successors: list[int], pause_ms: float) -> None:
    replica = Replica("112", voters=voters_of(1, 2, 3, 4)).following(2, epoch=4)
    replica.told_of_the_end(successors, NOW_MS)
    assert replica.deadline_ms == NOW_MS + pause_ms


def test_an_answer_that_the_leader_sent_before_it_resigned_puts_off_no_election() -> None:
    """It comes on another connection, and may be the later one."""
    replica = Replica("112").following(2, epoch=4)
    ((node_id, request),) = sent(replica.out)
    replica.told_of_the_end([3, 1], NOW_MS)
    assert isinstance(request, FetchRequest)
    answer = FetchAnswer(ErrorCode.NONE, 4, 2, 0)
    assert replica.raft.answered(node_id, request, answer, NOW_MS + 1) == []
    assert replica.deadline_ms == NOW_MS + 75
    assert replica.vote(4, (2, 3), pre=True).granted


def test_the_end_of_another_leaders_epoch_changes_nothing() -> None:
    replica = Replica("112").following(3, epoch=4)
    deadline_ms = replica.deadline_ms
    replica.told_of_the_end([1], 1.0, leader_id=2)
    assert replica.deadline_ms == deadline_ms


def test_a_leader_that_resigns_tells_until_it_is_heard() -> None:
    replica = Replica("112").leading()
    replica.fetched_by(3, 4, 3)
    end = EndEpoch(3, 1, (ReplicaKey(3), ReplicaKey(2)))
    assert sent(replica.raft.resign(NOW_MS)) == [(2, end), (3, end)]
    replica.raft.answered(2, end, EpochAnswer(ErrorCode.NONE, 3, 1), NOW_MS + 1)
    again_ms = NOW_MS + SETTINGS.fetch_timeout_ms / 2
    assert replica.raft.next_deadline_ms == again_ms
    assert sent(replica.raft.tick(again_ms)) == [(3, end)]


# Observers


OBSERVER = ReplicaKey(7, b"7" * 16)


def observer(**more: object) -> Replica:
    return Replica("112", me=OBSERVER, **more)  # type: ignore[arg-type]


def test_an_observer_asks_one_voter_after_the_other_for_the_leader() -> None:
    replica = observer()
    node_ids = []
    for now_ms in (0.0, 1_000.0, 2_000.0):
        ((node_id, request),) = sent(replica.out)
        assert isinstance(request, FetchRequest)
        node_ids.append(node_id)
        answer = FetchAnswer(ErrorCode.NOT_LEADER_OR_FOLLOWER, 2, -1)
        replica.raft.answered(node_id, request, answer, now_ms)
        replica.out = replica.raft.tick(now_ms + SETTINGS.retry_backoff_ms)
    assert sorted(node_ids) == [1, 2, 3]


def test_an_observer_never_stands() -> None:
    replica = observer()
    assert replica.deadline_ms == FOREVER_MS
    replica.following(3, epoch=5)
    replica.raft.tick(SETTINGS.fetch_timeout_ms)
    assert isinstance(replica.raft.role, Unattached)
    assert replica.deadline_ms == FOREVER_MS


def test_an_observer_stays_one_when_another_node_becomes_a_voter() -> None:
    replica = observer()
    replica.raft.voters_changed(3, voters_of(1, 2, 3, 4), 1, 0.0)
    assert replica.deadline_ms == FOREVER_MS


def test_an_observer_whose_leader_is_refused_asks_the_voters() -> None:
    replica = observer().following(3, epoch=5)
    assert len(sent(replica.raft.leader_refused(NOW_MS))) == 1
    assert isinstance(replica.raft.role, Unattached)


def test_an_observer_does_not_stand_when_an_epoch_ends() -> None:
    replica = observer().following(2, epoch=5)
    deadline_ms = replica.deadline_ms
    replica.told_of_the_end([OBSERVER], 1.0)
    assert replica.deadline_ms == deadline_ms


def test_an_only_voter_that_resigned_leads_again_after_the_election_timeout() -> None:
    replica = Replica("112", voters=voters_of(1))
    replica.raft.resign(NOW_MS)
    replica.raft.tick(NOW_MS + SETTINGS.election_timeout_ms - 1)
    assert isinstance(replica.raft.role, Resigned)
    replica.raft.tick(NOW_MS + SETTINGS.election_timeout_ms)
    assert isinstance(replica.raft.role, Leader)
    assert replica.raft.epoch == 4


def test_an_observer_that_knows_no_other_node_asks_none() -> None:
    replica = observer(voters=voters_of())
    assert sent(replica.out) == []
    assert sent(replica.raft.tick(NOW_MS)) == []
