"""The verification of a transactional batch, while the coordinator's answer is away."""

from __future__ import annotations

import gc
from collections import Counter
from itertools import pairwise

import pytest

from blumfeld.broker.produce.transactional import Check
from blumfeld.broker.replicas.rules.record_rules import LOOK_BYTES_MAX
from blumfeld.spi.completion import Completion
from blumfeld.spi.internal_topics import OFFSETS_TOPIC
from blumfeld.spi.steps import CHUNK_ELEMENTS
from blumfeld.spi.transactions import Outcomes
from blumfeld.wire.batches.record_batch import RecordBatch
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from blumfeld_groups_classic import ClassicGroupProtocol
from tests.broker.batches import batch, produce
from tests.broker.fake_transactions import FakeTransactions
from tests.broker.handlers.test_write_txn_markers import PRODUCER, end, txn_request
from tests.broker.harness import BrokerHarness, FakeExchange

IN_IT = {("t", 0): ErrorCode.NONE}


class Verifying(BrokerHarness):
    """A broker with a topic ``t`` whose coordinator answers when the test says so."""

    def __init__(self) -> None:
        self.coordinator = FakeTransactions()
        self.held: list[Completion[Outcomes]] = []
        self.coordinator.held = self.held
        super().__init__(transactions=self.coordinator)
        self.create_topic("t")

    def begin_produce(self, sequence: int, version: int = 11, epoch: int = 0) -> FakeExchange:
        data = batch(producer_id=PRODUCER, producer_epoch=epoch, base_sequence=sequence, transactional=True)
        return self.send(produce(data, transactional_id="tx"), version)

    def code(self, exchange: FakeExchange, version: int = 11) -> ErrorCode:
        response = self.response(exchange, produce(None), version)
        return ErrorCode(response.responses[0].partition_responses[0].error_code)

    def settle(self, outcomes: Outcomes | BrokerError) -> None:
        answer = self.held.pop(0)
        if isinstance(outcomes, BrokerError):
            answer.fail(outcomes)
        else:
            answer.complete(outcomes)
        self.runtime.run_turn()


def test_a_batch_waits_for_the_answer_and_the_open_transaction_needs_none() -> None:
    broker = Verifying()
    waiting = broker.begin_produce(0)
    assert (waiting.settled, list(broker.log_of("t").batches(0))) == (False, [])
    assert not waiting.next_may_start
    broker.settle(IN_IT)
    assert broker.code(waiting) == ErrorCode.NONE
    assert broker.code(broker.begin_produce(1)) == ErrorCode.NONE
    assert len(broker.coordinator.asked) == 1


def test_the_second_batch_of_a_producer_does_not_begin_the_partition_in_place_of_the_first() -> None:
    """The first was refused and may be repeated, so the second may be, too. Kafka answers OUT_OF_ORDER_SEQUENCE_NUMBER,
    and takes both in their order.
    """
    broker = Verifying()
    first, second = broker.begin_produce(0), broker.begin_produce(1)
    broker.settle(BrokerError(ErrorCode.NOT_COORDINATOR))
    broker.settle(IN_IT)
    assert broker.code(first) == ErrorCode.NOT_ENOUGH_REPLICAS
    assert broker.code(second) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    again = broker.begin_produce(0)
    broker.settle(IN_IT)
    assert broker.code(again) == ErrorCode.NONE
    assert broker.code(broker.begin_produce(1)) == ErrorCode.NONE


def test_a_producer_of_a_later_epoch_begins_with_its_own_first_sequence() -> None:
    broker = Verifying()
    first = broker.begin_produce(0)
    broker.settle(BrokerError(ErrorCode.NOT_COORDINATOR))
    assert broker.code(first) == ErrorCode.NOT_ENOUGH_REPLICAS
    later = broker.begin_produce(7, epoch=1)
    broker.settle(IN_IT)
    assert broker.code(later) == ErrorCode.NONE


def test_the_frame_may_be_overwritten_meanwhile() -> None:
    broker = Verifying()
    data = batch(b"kept", producer_id=PRODUCER, producer_epoch=0, base_sequence=0, transactional=True)
    frame = broker.frame(produce(data, transactional_id="tx"), 11)
    broker.send_frame(frame)
    frame[:] = bytes(len(frame))
    broker.settle(IN_IT)
    (written,) = broker.log_of("t").batches(0)
    assert b"kept" in bytes(written.records_data)


def test_an_answered_batch_is_freed_without_the_garbage_collector() -> None:
    """A collection holds the loop for 25 ms and more where thousands of batches wait for it."""
    broker = Verifying()
    gc.collect()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        waiting = broker.begin_produce(0, 12)
        broker.settle(BrokerError(ErrorCode.CONCURRENT_TRANSACTIONS))
        broker.runtime.advance(2)
        broker.settle(IN_IT)
        assert broker.code(waiting, 12) == ErrorCode.NONE
        gc.collect()
        left = [item for item in gc.garbage if isinstance(item, (RecordBatch, Check))]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
    assert left == []


def test_a_marker_between_question_and_answer_refuses_the_batch() -> None:
    """The answer speaks of a transaction that has ended."""
    broker = Verifying()
    waiting = broker.begin_produce(0)
    broker.ask(end(False, ("t", 0)), 1)
    broker.settle(IN_IT)
    assert broker.code(waiting) == ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize("opens", [True, False])
def test_a_marker_while_a_worker_looks_into_the_batch_refuses_it(opens: bool) -> None:
    """The batch was verified, or its transaction was open here, before its records were given to the worker thread."""
    broker = Verifying()
    broker.create_topic("compacted", cleanup_policy="compact")
    at = "compacted", 0

    def begin(value: bytes, sequence: int) -> FakeExchange:
        data = batch(
            value, producer_id=PRODUCER, producer_epoch=0, base_sequence=sequence, transactional=True
        )
        return broker.begin(broker.frame(produce(data, topic=at[0], transactional_id="tx"), 11))

    if not opens:
        begin(b"small", 0)
        broker.settle({at: ErrorCode.NONE})
    large = begin(bytes(LOOK_BYTES_MAX + 1), 0 if opens else 1)
    if opens:
        broker.held.pop().complete({at: ErrorCode.NONE})
    broker.ask(end(False, at), 1)
    broker.settle({at: ErrorCode.TRANSACTION_ABORTABLE})
    assert broker.code(large) == ErrorCode.TRANSACTION_ABORTABLE
    assert [log_batch.is_control for log_batch in broker.log_of(at[0]).batches(0)] == (
        [True] if opens else [False, True]
    )


def begin_next_before_the_marker(broker: Verifying) -> FakeExchange:
    """Produce in a transaction of version 2, and in the next one while the marker of the first is on its way."""
    first = broker.begin_produce(0, 12)
    broker.settle(IN_IT)
    assert broker.code(first, 12) == ErrorCode.NONE
    return broker.begin_produce(0, 12, epoch=1)


def marker(broker: Verifying, epoch: int) -> None:
    request = end(True, ("t", 0))
    request.markers[0].producer_epoch = epoch
    request.markers[0].transaction_version = 2
    broker.ask(request, 2)


@pytest.mark.parametrize("refused_first", [True, False])
@pytest.mark.parametrize("writings", [1, 2])
def test_the_marker_of_the_last_transaction_does_not_refuse_the_first_batch_of_the_next(
    refused_first: bool, writings: int
) -> None:
    """It begins the epoch of the next transaction. kgo's TestTxnEtl found it with three nodes. A coordinator that comes
    after a failover writes it once more."""
    broker = Verifying()
    first = broker.begin_produce(0, 12)
    broker.settle(IN_IT)
    assert broker.code(first, 12) == ErrorCode.NONE
    if writings == 2:
        marker(broker, 1)
    waiting = broker.begin_produce(0, 12, epoch=1)
    if refused_first:
        broker.settle(BrokerError(ErrorCode.CONCURRENT_TRANSACTIONS))
    marker(broker, 1)
    broker.runtime.advance(20)
    broker.settle(IN_IT)
    assert not waiting.settled, "only the coordinator knows which transaction the marker has ended"
    broker.settle(IN_IT)
    assert broker.code(waiting, 12) == ErrorCode.NONE


def test_the_marker_of_the_batchs_own_transaction_refuses_it() -> None:
    """That one has the epoch after, in transactions of version 2."""
    broker = Verifying()
    waiting = begin_next_before_the_marker(broker)
    marker(broker, 1)
    marker(broker, 2)
    broker.settle(IN_IT)
    assert broker.code(waiting, 12) == ErrorCode.INVALID_PRODUCER_EPOCH


@pytest.mark.parametrize("epoch_has_begun", [True, False])
def test_after_a_marker_of_the_batchs_epoch_the_coordinator_is_asked_again(epoch_has_begun: bool) -> None:
    """A client that adds by Produce and ends by an old EndTxn has one epoch in all its transactions."""
    broker = Verifying()
    if epoch_has_begun:
        marker(broker, 0)
    waiting = broker.begin_produce(0, 12)
    broker.ask(end(False, ("t", 0)), 1)
    broker.settle(IN_IT)
    broker.settle(BrokerError(ErrorCode.PRODUCER_FENCED))
    assert broker.code(waiting, 12) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert all(log_batch.is_control for log_batch in broker.log_of("t").batches(0))


@pytest.mark.parametrize(
    ("code", "version", "answer_code"),
    [
        (ErrorCode.PRODUCER_FENCED, 11, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, 11, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (ErrorCode.TRANSACTION_ABORTABLE, 11, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.TRANSACTION_ABORTABLE, 10, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 11, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 11, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, 12, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.NOT_COORDINATOR, 11, ErrorCode.NOT_ENOUGH_REPLICAS),
    ],
)
def test_errors_are_those_that_a_producer_knows(
    code: ErrorCode, version: int, answer_code: ErrorCode
) -> None:
    broker = Verifying()
    waiting = broker.begin_produce(0, version)
    broker.settle(BrokerError(code))
    assert broker.code(waiting, version) == answer_code


def test_adding_is_tried_again_while_the_last_transaction_is_completed() -> None:
    """With longer and longer pauses, for 100 ms. Then the client is told, and tries again by itself."""
    broker = Verifying()
    waiting = broker.begin_produce(0, 12)
    for pause_ms in (2, 4, 8, 16, 32, 38):
        broker.settle(BrokerError(ErrorCode.CONCURRENT_TRANSACTIONS))
        assert not waiting.settled
        broker.runtime.advance(pause_ms - 1)
        assert not broker.held
        broker.runtime.advance(1)
    broker.settle(BrokerError(ErrorCode.CONCURRENT_TRANSACTIONS))
    assert broker.code(waiting, 12) == ErrorCode.CONCURRENT_TRANSACTIONS
    assert all(question.add for question in broker.coordinator.asked)


class VerifyingOffsets(Verifying):
    """The same for the groups' partition."""

    def __init__(self) -> None:
        self.coordinator = FakeTransactions()
        self.held = []
        self.coordinator.held = self.held
        BrokerHarness.__init__(self, group_protocols=[ClassicGroupProtocol()], transactions=self.coordinator)
        self.create_topic("t")
        self.create_topic(OFFSETS_TOPIC)

    def begin_commit(self, version: int) -> FakeExchange:
        return self.send(txn_request(7), version)

    def outcome(self, exchange: FakeExchange, version: int) -> ErrorCode:
        response = self.response(exchange, txn_request(7), version)
        return ErrorCode(response.topics[0].partitions[0].error_code)

    @property
    def written(self) -> list[bool]:
        """Returns whether each batch in the groups' partition is a marker."""
        return [batch.is_control for batch in self.log_of(OFFSETS_TOPIC).batches(0)]


GROUPS_PARTITION = {(OFFSETS_TOPIC, 0): ErrorCode.NONE}


@pytest.mark.parametrize("version", [3, 4])
def test_a_marker_between_question_and_answer_refuses_the_offset(version: int) -> None:
    """Nothing would end what it begins: the group's offset would be unstable for ever."""
    broker = VerifyingOffsets()
    waiting = broker.begin_commit(version)
    broker.ask(end(False), 1)
    broker.settle(GROUPS_PARTITION)
    assert broker.outcome(waiting, version) == ErrorCode.INVALID_TXN_STATE
    assert broker.written == [True]


@pytest.mark.parametrize(
    ("epoch", "code"), [(0, ErrorCode.NONE), (1, ErrorCode.INVALID_PRODUCER_EPOCH)], ids=["last", "own"]
)
def test_the_marker_of_the_last_transaction_may_come_after_the_next_ones_offset(
    epoch: int, code: ErrorCode
) -> None:
    """In version 2 it begins the next transaction's epoch. The marker of the next one has the epoch after."""
    broker = VerifyingOffsets()
    waiting = broker.begin_commit(5)
    request = end(True)
    request.markers[0].producer_epoch = epoch
    request.markers[0].transaction_version = 2
    broker.ask(request, 2)
    while broker.held:
        broker.settle(GROUPS_PARTITION)
    assert broker.outcome(waiting, 5) == code
    assert len(broker.coordinator.asked) == 2 - epoch


def test_a_marker_that_is_written_once_more_does_not_refuse_the_next_ones_offset() -> None:
    """A coordinator that comes after a failover writes the last transaction's marker once more."""
    broker = VerifyingOffsets()
    request = end(True)
    request.markers[0].transaction_version = 2
    broker.ask(request, 2)
    waiting = broker.begin_commit(5)
    broker.ask(request, 2)
    broker.settle(GROUPS_PARTITION)
    broker.settle(GROUPS_PARTITION)
    assert broker.outcome(waiting, 5) == ErrorCode.NONE


def test_an_open_transaction_of_the_group_is_verified_once() -> None:
    """Until its marker, and for its epoch alone."""
    broker = VerifyingOffsets()
    waiting = broker.begin_commit(4)
    broker.settle(GROUPS_PARTITION)
    assert broker.outcome(waiting, 4) == ErrorCode.NONE
    assert broker.outcome(broker.begin_commit(4), 4) == ErrorCode.NONE
    assert (broker.written, len(broker.coordinator.asked)) == ([False, False], 1)
    broker.ask(end(True), 1)
    again = broker.begin_commit(4)
    assert not again.settled
    broker.settle({(OFFSETS_TOPIC, 0): ErrorCode.TRANSACTION_ABORTABLE})
    assert broker.outcome(again, 4) == ErrorCode.TRANSACTION_ABORTABLE


def test_an_answer_without_the_partition_is_no_consent() -> None:
    broker = VerifyingOffsets()
    waiting = broker.begin_commit(4)
    broker.settle({})
    assert broker.outcome(waiting, 4) == ErrorCode.UNKNOWN_SERVER_ERROR


# A request with many batches


MANY = 5 * CHUNK_ELEMENTS


def request() -> ProduceRequest:
    data = batch(producer_id=PRODUCER, producer_epoch=0, base_sequence=0, transactional=True)
    partitions = [PartitionProduceData(index=index, records=bytearray(data)) for index in range(MANY)]
    return ProduceRequest(
        transactional_id="tx",
        acks=1,
        timeout_ms=1_000,
        topic_data=[TopicProduceData(name="t", partition_data=partitions)],
    )


@pytest.fixture
def broker() -> Verifying:
    started = Verifying()
    started.metadata.delete_topic("t")
    started.runtime.run_turn()
    started.create_topic("t", MANY)
    return started


def answered_by_the_coordinator(broker: Verifying) -> FakeExchange:
    exchange = broker.send(request(), 11)
    assert len(broker.coordinator.asked) == 1
    broker.held.pop().complete({("t", index): ErrorCode.NONE for index in range(MANY)})
    return exchange


def written(broker: Verifying) -> int:
    return sum(broker.log_of("t", index).written_end_offset for index in range(MANY))


def codes(broker: Verifying, exchange: FakeExchange) -> Counter[int]:
    answer = broker.response(exchange, request(), 11)
    return Counter(partition.error_code for partition in answer.responses[0].partition_responses)


def test_verified_batches_are_placed_in_steps(broker: Verifying) -> None:
    """10,000 batches held the loop for 160 ms."""
    exchange = answered_by_the_coordinator(broker)
    turns = [0]
    while broker.runtime.loop._ready:  # type: ignore[attr-defined]
        broker.runtime.loop._one_turn()
        turns.append(written(broker))
    assert max(after - before for before, after in pairwise(turns)) == CHUNK_ELEMENTS
    assert exchange.next_may_start
    assert codes(broker, exchange) == {ErrorCode.NONE: MANY}


def test_the_next_request_starts_when_the_last_batch_is_placed(broker: Verifying) -> None:
    """It would overtake what is not placed yet."""
    exchange = answered_by_the_coordinator(broker)
    while not exchange.next_may_start:
        broker.runtime.loop._one_turn()
    assert all(broker.log_of("t", index).placed_end_offset == 1 for index in range(MANY))
    broker.runtime.run_turn()


def test_a_marker_between_two_steps_refuses_its_partitions_batch(broker: Verifying) -> None:
    """The timeout of the transaction may strike while its batches are being placed."""
    exchange = answered_by_the_coordinator(broker)
    while not written(broker):
        broker.runtime.loop._one_turn()
    last = MANY - 1
    broker.begin(broker.frame(end(False, ("t", 0), ("t", last)), 1))
    broker.runtime.run_turn()
    assert codes(broker, exchange) == {ErrorCode.NONE: MANY - 1, ErrorCode.INVALID_TXN_STATE: 1}
    assert [log_batch.is_control for log_batch in broker.log_of("t", 0).batches(0)] == [False, True]
    assert [log_batch.is_control for log_batch in broker.log_of("t", last).batches(0)] == [True]
