"""acks=all: each waiter is told once, in order, by its commit or at its deadline."""

from __future__ import annotations

from typing import cast

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from blumfeld.broker.replicas.waiting_appends import ACKS_ALL, WaitingAppends
from blumfeld.broker.waiting.deadlines import WaitCounts
from blumfeld.spi.replication import LeaderReplica
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse
from blumfeld_kit.fakes.runtime import FakeRuntime
from tests.broker.batches import batch, fetch, produce
from tests.broker.harness import BrokerHarness
from tests.everyday import examples


class Leader:
    """Commits what the test says."""

    high_watermark = 0

    def check_committed(self, end_offset: int) -> ErrorCode | None:
        return ErrorCode.NONE if end_offset <= self.high_watermark else None


class Waiter:
    """Notes what it is told."""

    def __init__(self, name: int, commit_wait_ms: float | None, told: list[tuple[int, ErrorCode]]) -> None:
        self.name = name
        self.commit_wait_ms = commit_wait_ms
        self._told = told

    def appended(self, code: ErrorCode) -> None:
        self._told.append((self.name, code))


class Appends(RuleBasedStateMachine):
    """Against a list that is searched at each step."""

    @initialize()
    def start(self) -> None:
        self.runtime = FakeRuntime()
        self.counts = WaitCounts()
        self.told: list[tuple[int, ErrorCode]] = []
        self.expected: list[tuple[int, ErrorCode]] = []
        self.appends = WaitingAppends(self.runtime, self.counts, lambda: None)
        self.leader = Leader()
        self.model: list[tuple[int, int, float]] = []
        self.end = 0
        self.names = 0

    @rule(
        waits=st.lists(st.sampled_from([None, 0.0, 10.0, 10.0, 35.0, -5.0]), max_size=4), held=st.booleans()
    )
    def turn(self, waits: list[float | None], held: bool) -> None:
        """``held``: the write of this turn waits for a sync; it ends at once here, after the deadlines were given."""
        waiters = []
        for wait_ms in waits:
            self.end += 1
            self.names += 1
            waiters.append(Waiter(self.names, wait_ms, self.told))
            limit = float("inf") if wait_ms is None else self.runtime.monotonic_ms() + max(wait_ms, 0)
            self.model.append((self.names, self.end, limit))
        if held:
            self.appends.limit(waiters)
        first = self.end - len(waiters) + 1
        placed = [(end, ACKS_ALL, waiter) for end, waiter in enumerate(waiters, first)]
        assert self.appends.written(placed, self.end, False) == []
        self.appends.outlive_the_turn()

    @rule(behind=st.integers(0, 3))
    def commit(self, behind: int) -> None:
        self.leader.high_watermark = max(self.leader.high_watermark, self.end - behind)
        self.appends.answer(cast("LeaderReplica", self.leader), self.end)
        done = [one for one in self.model if one[1] <= self.leader.high_watermark]
        self.expected += [(name, ErrorCode.NONE) for name, *_ in done]
        self.model = [one for one in self.model if one not in done]

    @rule(passed_ms=st.sampled_from([1, 5, 20]))
    def wait(self, passed_ms: int) -> None:
        self.runtime.advance(passed_ms)
        now_ms = self.runtime.monotonic_ms()
        over = sorted((limit, name) for name, _, limit in self.model if limit <= now_ms)
        self.expected += [(name, ErrorCode.REQUEST_TIMED_OUT) for _, name in over]
        self.model = [one for one in self.model if one[2] > now_ms]

    @rule()
    def fail(self) -> None:
        self.appends.fail(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self.expected += [(name, ErrorCode.NOT_LEADER_OR_FOLLOWER) for name, *_ in self.model]
        self.model = []

    @invariant()
    def agree(self) -> None:
        if hasattr(self, "model"):
            assert sorted(self.told) == sorted(self.expected)
            assert self.counts.waiting == sum(limit != float("inf") for *_, limit in self.model)


TestAppends = Appends.TestCase
TestAppends.settings = settings(max_examples=examples(100), stateful_step_count=20, deadline=None)


# Requests


def replicated(partitions: int) -> BrokerHarness:
    broker = BrokerHarness(partitions=partitions)
    for index in range(partitions):
        broker.change_partition(index=index, replicas=(1, 2))
    return broker


def to_all(partitions: int, timeout_ms: int) -> ProduceRequest:
    request = produce(batch(), acks=-1, timeout_ms=timeout_ms)
    data = [PartitionProduceData(index=index, records=batch()) for index in range(partitions)]
    request.topic_data[0].partition_data = data
    return request


def codes(broker: BrokerHarness, exchange: object, request: ProduceRequest) -> list[ErrorCode]:
    answer: ProduceResponse = broker.response(exchange, request, 9)  # type: ignore[arg-type]
    return [ErrorCode(one.error_code) for one in answer.responses[0].partition_responses]


def test_several_partitions_are_answered_when_each_is_committed_or_timed_out() -> None:
    broker = replicated(3)
    request = to_all(3, timeout_ms=500)
    exchange = broker.send(request, 9)
    broker.ask(fetch(1, partitions=(0, 2), replica_id=2), 12)
    broker.runtime.advance(499)
    assert not exchange.settled
    broker.runtime.advance(1)
    none, late = ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT
    assert codes(broker, exchange, request) == [none, late, none]
    broker.ask(fetch(1, partitions=(1,), replica_id=2), 12)  # committed later: nothing is told twice
    assert broker.broker.parking.counts.waiting == 0


def test_requests_wait_in_no_purgatory_and_are_counted() -> None:
    broker = replicated(1)
    exchanges = [broker.send(produce(batch(), acks=-1, timeout_ms=1000 + n), 9) for n in range(5)]
    parking = broker.broker.parking
    assert (len(parking.purgatory), parking.waiting, parking.counts.waiting) == (0, 0, 5)
    broker.ask(fetch(3, replica_id=2), 12)
    assert [exchange.settled for exchange in exchanges] == [True, True, True, False, False]
    assert (parking.counts.waiting, parking.counts.completed_total) == (2, 3)
    broker.runtime.advance(1_010)
    assert all(exchange.settled for exchange in exchanges)
    assert (parking.counts.waiting, parking.counts.expired_total) == (0, 2)


def test_what_is_committed_in_its_turn_needs_no_deadline() -> None:
    broker = BrokerHarness(partitions=1)
    assert broker.send(produce(batch(), acks=-1, timeout_ms=0), 9).settled
    counts = broker.broker.parking.counts
    assert (counts.waiting, counts.completed_total, counts.expired_total) == (0, 0, 0)


def test_a_stop_answers_what_waits_for_its_commit() -> None:
    broker = replicated(1)
    request = produce(batch(), acks=-1, timeout_ms=60_000)
    exchange = broker.send(request, 9)
    broker.stop()
    assert codes(broker, exchange, request) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_a_write_that_waits_for_a_sync_does_not_stop_the_clock() -> None:
    broker = replicated(1)
    broker.log_of("t").hold_writes = True
    request = produce(batch(), acks=-1, timeout_ms=300)
    exchange = broker.send(request, 9)
    broker.runtime.advance(301)
    assert codes(broker, exchange, request) == [ErrorCode.REQUEST_TIMED_OUT]
    broker.log_of("t").let_write()
    broker.ask(fetch(1, replica_id=2), 12)
    assert broker.broker.parking.counts.waiting == 0
