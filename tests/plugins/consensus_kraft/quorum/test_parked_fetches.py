"""Fetches of the metadata log that wait: when they are answered, and with what."""

from __future__ import annotations

from typing import Any, cast

import pytest

from blumfeld.spi.completion import Completion
from blumfeld.spi.leader_epochs import EpochEnd
from blumfeld.spi.storage import LogRead, OffsetOutOfRangeError
from blumfeld.wire.errors import ErrorCode
from blumfeld_consensus_kraft.quorum.parked_fetches import FetchLimits, ParkedFetches
from blumfeld_consensus_kraft.raft.messages import FetchAnswer, FetchRequest, SnapshotId
from blumfeld_consensus_kraft.raft.voters import ReplicaKey
from blumfeld_consensus_kraft.raft_log import RaftLog
from blumfeld_kit.fakes.runtime import FakeRuntime

WAIT_MS = 500
REQUEST = FetchRequest(ReplicaKey(2), 4, 10, 3, high_watermark=8)
ANSWER = FetchAnswer(ErrorCode.NONE, 4, 1, high_watermark=8)
RECORDS = [b"records"]


class Log:
    """As much of a raft log as a waiting fetch reads."""

    def __init__(self) -> None:
        self.log = self
        self.written_end_offset = 10
        self.outcome: LogRead | Completion[LogRead] | Exception = LogRead(list(RECORDS), 7, 11)

    def read(self, offset: int, max_bytes: int) -> LogRead | Completion[LogRead]:
        assert (offset, max_bytes) == (10, 1_000)
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome


class Leader:
    """A leader whose log ends where the replica's does."""

    def __init__(self) -> None:
        self.runtime = FakeRuntime(0)
        self.log = Log()
        self.answer = ANSWER
        self.parked = ParkedFetches(self.runtime, cast(RaftLog, self.log), lambda _: self.answer)
        self.told: list[FetchAnswer] = []

    def serve(self, request: FetchRequest = REQUEST, max_wait_ms: float = WAIT_MS) -> list[FetchAnswer]:
        self.parked.serve(request, FetchLimits(max_wait_ms, 1_000), self.told.append)
        return self.told

    def wake(self) -> list[FetchAnswer]:
        self.parked.wake()
        return self.told


@pytest.fixture
def leader() -> Leader:
    return Leader()


def test_records_are_sent_at_once(leader: Leader) -> None:
    leader.log.written_end_offset = 11
    assert leader.serve() == [ANSWER._replace(records=RECORDS)]


def test_a_fetch_waits_for_records(leader: Leader) -> None:
    assert leader.serve() == []
    assert leader.wake() == []
    leader.log.written_end_offset = 11
    assert leader.wake() == [ANSWER._replace(records=RECORDS)]
    leader.runtime.advance(2 * WAIT_MS)
    assert len(leader.wake()) == 1, "it is answered once"


def test_a_fetch_waits_so_long_as_it_says(leader: Leader) -> None:
    leader.serve()
    leader.runtime.advance(WAIT_MS - 1)
    assert leader.told == []
    leader.runtime.advance(1)
    assert leader.told == [ANSWER]


def test_a_fetch_that_does_not_wait_is_answered_without_records(leader: Leader) -> None:
    assert leader.serve(max_wait_ms=0) == [ANSWER]


def test_a_replica_that_knows_less_of_what_is_committed_is_told_at_once(leader: Leader) -> None:
    """KIP-1166: it would else learn of it with the next records."""
    assert leader.serve(REQUEST._replace(high_watermark=7)) == [ANSWER]


def test_what_is_committed_meanwhile_is_told(leader: Leader) -> None:
    leader.serve()
    leader.answer = ANSWER._replace(high_watermark=9)
    assert leader.wake() == [leader.answer]


@pytest.mark.parametrize(
    "answer",
    [
        FetchAnswer(ErrorCode.NOT_LEADER_OR_FOLLOWER, 4),
        FetchAnswer(ErrorCode.FENCED_LEADER_EPOCH, 5, 3),
        ANSWER._replace(diverging=EpochEnd(2, 5)),
        ANSWER._replace(snapshot=SnapshotId(20, 4)),
    ],
    ids=["resigned", "another leader", "diverging", "snapshot"],
)
def test_news_of_another_kind_ends_the_wait_and_comes_without_records(
    leader: Leader, answer: FetchAnswer
) -> None:
    leader.serve()
    leader.answer = answer
    leader.log.written_end_offset = 11
    assert leader.wake() == [answer]


@pytest.mark.parametrize("error", [OffsetOutOfRangeError("gone"), OSError("disk")])
def test_records_that_cannot_be_read_are_asked_for_again(leader: Leader, error: Exception) -> None:
    leader.log.outcome = error
    leader.log.written_end_offset = 11
    assert leader.serve() == [ANSWER]


def test_a_read_off_the_loop_answers_when_it_is_done(leader: Leader) -> None:
    cold = leader.log.outcome = Completion[LogRead]()
    leader.log.written_end_offset = 11
    assert leader.serve() == []
    cold.complete(LogRead(list(RECORDS), 7, 11))
    assert leader.told == [ANSWER._replace(records=RECORDS)]


@pytest.mark.parametrize(
    ("error", "answer"),
    [
        (OSError("disk"), ANSWER),
        (OffsetOutOfRangeError("gone"), ANSWER),
        (IndexError("a defect"), ANSWER._replace(error=ErrorCode.UNKNOWN_SERVER_ERROR)),
    ],
)
def test_a_read_off_the_loop_that_fails_answers_without_records(
    leader: Leader, error: Exception, answer: FetchAnswer
) -> None:
    cold = leader.log.outcome = Completion[LogRead]()
    leader.log.written_end_offset = 11
    leader.serve()
    cold.fail(error)
    assert leader.told == [answer]


def test_each_waiting_fetch_has_its_own_answer(leader: Leader) -> None:
    other: list[Any] = []
    leader.serve()
    leader.parked.serve(REQUEST._replace(high_watermark=9), FetchLimits(100, 1_000), other.append)
    leader.runtime.advance(100)
    assert (leader.told, other) == ([], [ANSWER])
