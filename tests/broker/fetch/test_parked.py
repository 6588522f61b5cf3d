"""Parked fetches: an oracle that reads everything at each wake must agree, and few reads are made."""

from __future__ import annotations

from typing import Any, cast

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from blumfeld.broker.replicas.partition import Partition
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from tests.broker.batches import batch, fetch, produce
from tests.broker.harness import BrokerHarness, FakeExchange, noting
from tests.everyday import examples

VERSION = 12
ONE = len(batch())
WAIT_MS = 5_000
REPLICAS = (1, 2, 3)


def fill(broker: BrokerHarness, partition: int = 0, *values: bytes) -> None:
    broker.ask(produce(batch(*values), partition=partition), 9)


def replicated(partitions: int = 1) -> BrokerHarness:
    broker = BrokerHarness({"replica.lag.time.max.ms": 10**9})  # the controller here alters no ISR
    broker.create_topic("t", partitions)
    for index in range(partitions):
        broker.change_partition(index=index, replicas=REPLICAS)
    broker.runtime.run_turn()
    return broker


def sent(broker: BrokerHarness, request: FetchRequest) -> FakeExchange:
    """The request, on a connection of its own."""
    return broker.send_frame(broker.frame(request, VERSION), broker.connect())


def parts_of(
    broker: BrokerHarness, exchange: FakeExchange, request: FetchRequest
) -> dict[int, tuple[Any, ...]]:
    """Everything that an answer says of each partition, but for the leader's hint."""
    answer: FetchResponse = broker.response(exchange, request, VERSION)
    return {
        p.partition_index: (
            p.error_code,
            bytes(cast("memoryview", p.records)),
            p.high_watermark,
            p.last_stable_offset,
            p.log_start_offset,
            (p.diverging_epoch.epoch, p.diverging_epoch.end_offset),
        )
        for topic in answer.responses
        for p in topic.partitions
    }


class Waiting:
    """A parked fetch, and the same one without a wait: the oracle."""

    def __init__(self, broker: BrokerHarness, request: FetchRequest) -> None:
        self.broker = broker
        self.request = request
        self.deadline_ms = broker.runtime.monotonic_ms() + WAIT_MS
        self.exchange = sent(broker, request)

    def agrees(self) -> bool:
        """Check against a full read now; returns whether the fetch is answered."""
        self.request.max_wait_ms = 0
        probe = sent(self.broker, self.request)
        now = parts_of(self.broker, probe, self.request)
        errors = any(code or parting != (-1, -1) for code, *_, parting in now.values())
        readable_bytes = self.readable_bytes(now)
        over = self.broker.runtime.monotonic_ms() >= self.deadline_ms
        due = errors or over or readable_bytes >= min(self.request.min_bytes, self.request.max_bytes)
        assert self.exchange.settled == due, (errors, over, readable_bytes, self.request)
        if due:
            assert parts_of(self.broker, self.exchange, self.request) == now
        return due

    def readable_bytes(self, now: dict[int, tuple[Any, ...]]) -> int:
        """The bytes of the answer, and for each partition whose first batch was too large for it what was left."""
        given = readable = 0
        for asked in self.request.topics[0].partitions:
            _, records, high_watermark, stable, *_ = now[asked.partition]
            end = stable if self.request.isolation_level else high_watermark
            if self.request.replica_id >= 0:
                end = self.broker.log_of("t", asked.partition).written_end_offset
            if given and not records and asked.fetch_offset < end:
                readable += min(self.request.max_bytes - given, asked.partition_max_bytes)
            given += len(records)
            readable += len(records)
        return readable


class ParkedFetches(RuleBasedStateMachine):
    """Two partitions with three replicas. Each step is a turn, and each parked fetch is compared after it."""

    @initialize()
    def start(self) -> None:
        self.broker = replicated(2)
        self.waiting: list[Waiting] = []
        self.epochs = [0, 0]

    def end(self, partition: int) -> int:
        return self.broker.log_of("t", partition).written_end_offset

    @rule(partition=st.integers(0, 1), count=st.integers(1, 3), size=st.sampled_from([1, 200]))
    def write(self, partition: int, count: int, size: int) -> None:
        frames = [
            self.broker.frame(produce(batch(bytes(size)), partition=partition), 9) for _ in range(count)
        ]
        for frame in frames:
            self.broker.begin(frame, self.broker.connect())
        self.broker.runtime.run_turn()

    @rule(partition=st.integers(0, 1), replica=st.integers(2, 3), behind=st.integers(0, 2))
    def follow(self, partition: int, replica: int, behind: int) -> None:
        offset = max(self.end(partition) - behind, self.broker.log_of("t", partition).log_start_offset)
        request = fetch(offset, partitions=(partition,), replica_id=replica)
        sent(self.broker, request)

    @rule(
        replica=st.sampled_from([-1, -1, -1, 3]),
        behind=st.tuples(st.integers(0, 3), st.integers(0, 3)),
        min_bytes=st.sampled_from([0, 1, 2, ONE, 3 * ONE, 1000, 100_000]),
        bytes_max=st.sampled_from([1 << 20, 1 << 20, 2 * ONE, 1]),
        committed=st.integers(0, 1),
        epochs=st.booleans(),
    )
    def park(
        self,
        replica: int,
        behind: tuple[int, int],
        min_bytes: int,
        bytes_max: int,
        committed: int,
        epochs: bool,
    ) -> None:
        partitions = [
            FetchPartition(
                partition=index,
                fetch_offset=max(self.end(index) - behind[index], 0),
                partition_max_bytes=bytes_max,
                current_leader_epoch=self.epochs[index] if epochs else -1,
                last_fetched_epoch=self.broker.hosted("t", index).state.epochs.latest_epoch if epochs else -1,
            )
            for index in range(2)
        ]
        request = FetchRequest(
            replica_id=replica,
            max_wait_ms=WAIT_MS,
            min_bytes=min_bytes,
            isolation_level=committed,
            topics=[FetchTopic(topic="t", partitions=partitions)],
        )
        self.waiting.append(Waiting(self.broker, request))

    def show(self, partition: int, **changes: Any) -> None:
        """The image has the partition's epoch, and these changes."""
        epoch = self.epochs[partition]
        self.broker.change_partition(
            index=partition, replicas=REPLICAS, epoch=epoch, partition_epoch=epoch + 1, **changes
        )
        self.broker.runtime.run_turn()

    @rule(partition=st.integers(0, 1))
    def new_epoch(self, partition: int) -> None:
        self.epochs[partition] += 1
        self.show(partition)

    @rule(partition=st.integers(0, 1))
    def shrink_isr(self, partition: int) -> None:
        self.show(partition, isr=(1,))

    @rule(partition=st.integers(0, 1))
    def resign(self, partition: int) -> None:
        """Another leads for a turn, and this node again after it."""
        for leader in (-1, 1):
            self.epochs[partition] += 1
            self.show(partition, leader=leader)
            if leader < 0:
                self.agree()

    @rule(partition=st.integers(0, 1))
    def delete_records(self, partition: int) -> None:
        hosted = self.broker.hosted("t", partition)
        hosted.advance_log_start(hosted.high_watermark)
        self.broker.runtime.run_turn()

    @precondition(lambda self: self.waiting)
    @rule()
    def wait(self) -> None:
        self.broker.runtime.advance(WAIT_MS / 3)

    @invariant()
    def agree(self) -> None:
        self.waiting = [waiting for waiting in self.waiting if not waiting.agrees()]
        assert self.broker.broker.parking.waiting == len(self.waiting)

    def teardown(self) -> None:
        if hasattr(self, "broker"):
            self.broker.stop()


TestParkedFetches = ParkedFetches.TestCase
TestParkedFetches.settings = settings(max_examples=examples(120), stateful_step_count=25, deadline=None)


# What wakes


def test_a_follower_is_told_the_newest_high_watermark() -> None:
    """It isn't woken when only the high watermark moves, but learns of it with its answer."""
    broker = replicated()
    fill(broker)
    request = fetch(1, max_wait_ms=WAIT_MS, replica_id=2)
    follower = sent(broker, request)
    broker.ask(fetch(1, replica_id=3), VERSION)
    assert not follower.settled
    broker.runtime.advance(WAIT_MS + 1)
    assert parts_of(broker, follower, request)[0][2] == 1


def test_a_follower_acknowledges_once_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = replicated()
    leader = broker.leader()
    fetched = noting(
        monkeypatch, type(leader), "follower_fetched", lambda leader, replica, epoch, offset, *_: int(offset)
    )
    request = fetch(0, max_wait_ms=WAIT_MS, replica_id=2, min_bytes=3 * ONE)
    follower = sent(broker, request)
    for _ in range(3):
        assert not follower.settled
        fill(broker)
    assert follower.settled
    assert fetched == [0]
    request = fetch(3, max_wait_ms=WAIT_MS, replica_id=2)
    follower = sent(broker, request)
    broker.runtime.advance(WAIT_MS + 1)
    assert follower.settled
    assert fetched == [0, 3]


def test_a_topic_of_the_same_name_takes_the_place_of_the_old_one() -> None:
    broker = BrokerHarness(partitions=1)
    waiting = broker.send(fetch(0, max_wait_ms=WAIT_MS), VERSION)
    broker.metadata.delete_topic("t")
    broker.metadata.create_topic("t")
    broker.runtime.run_turn()
    fill(broker)
    assert waiting.settled


# What is read


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Partitions that were read, in order."""
    return noting(monkeypatch, Partition, "read", lambda partition, *_: int(partition.partition.partition))


def test_only_the_answer_reads_and_only_what_has_bytes(reads: list[int]) -> None:
    """One fetch of 10,000 partitions made each produce of others 40 ms slower."""
    broker = BrokerHarness(partitions=100)
    request = fetch(0, partitions=tuple(range(100)), max_wait_ms=WAIT_MS, min_bytes=12 * ONE)
    waiting = broker.begin(broker.frame(request, VERSION))
    for partition in range(11):
        fill(broker, partition)
    assert (waiting.settled, reads) == (False, [])
    fill(broker, 11)
    assert waiting.settled
    assert reads == list(range(12))


def test_a_parked_fetch_leaves_nothing_behind() -> None:
    broker = BrokerHarness(partitions=2)
    for _ in range(3):
        waiting = broker.send(fetch(0, partitions=(0, 1), max_wait_ms=WAIT_MS, min_bytes=ONE + 1), VERSION)
        broker.runtime.advance(WAIT_MS + 1)
        assert waiting.settled
    for index in range(2):
        partition = broker.hosted("t", index)
        assert not partition.watchers.committed_end
        assert not partition.watchers.log_end
    assert broker.broker.parking.waiting == 0


def test_a_defect_in_a_parked_fetch_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the other parked fetches of the partition are still told."""
    broker = BrokerHarness(partitions=1)
    request = fetch(0, max_wait_ms=WAIT_MS)
    broken, other = (sent(broker, request) for _ in range(2))
    read = Partition.read
    calls: list[int] = []

    def defective(self: Partition, *where: Any) -> Any:
        calls.append(1)
        if len(calls) == 1:
            raise ZeroDivisionError
        return read(self, *where)

    monkeypatch.setattr(Partition, "read", defective)
    fill(broker)
    assert parts_of(broker, broken, request)[0][0] == ErrorCode.UNKNOWN_SERVER_ERROR
    assert parts_of(broker, other, request)[0][0] == 0
    assert broker.broker.parking.waiting == 0


def test_consumers_that_are_told_together_share_a_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """But not with the next turn, and not if they ask for something else."""
    broker = BrokerHarness(partitions=1)
    made = noting(monkeypatch, broker.log_of("t"), "read", lambda offset, *_: int(offset))
    for end in range(3):
        requests = [fetch(end, max_wait_ms=WAIT_MS) for _ in range(4)]
        requests.append(fetch(end, max_wait_ms=WAIT_MS, partition_bytes_max=ONE))
        waiting = [sent(broker, request) for request in requests]
        fill(broker)
        answers = [parts_of(broker, *pair)[0] for pair in zip(waiting, requests, strict=True)]
        assert answers == [answers[0]] * 5
        assert len(answers[0][1]) == ONE
        broker.ask(fetch(end, partition_bytes_max=ONE), VERSION)
    assert made == [0, 0, 0, 1, 1, 1, 2, 2, 2]


def test_a_deleted_topic_is_not_found_in_a_session() -> None:
    """A session keeps the look-up of a partition only as long as nothing has changed."""
    broker = BrokerHarness(partitions=1)
    first: FetchResponse = broker.ask(fetch(0, session_epoch=0), VERSION)
    again = FetchRequest(session_id=first.session_id, session_epoch=1, min_bytes=1)
    assert broker.ask(again, VERSION).responses == []
    broker.hosted().fail(OSError("gone"))
    again.session_epoch = 2
    answer: FetchResponse = broker.ask(again, VERSION)
    assert answer.responses[0].partitions[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    broker.metadata.delete_topic("t")
    again.session_epoch = 3
    answer = broker.ask(again, VERSION)
    assert answer.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
