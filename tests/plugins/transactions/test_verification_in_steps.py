"""A transactional Produce over many partitions: its batches are verified together, and placed in steps."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from blumfeld.spi.steps import CHUNK_ELEMENTS
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.broker.batches import batch
from tests.broker.handlers.test_write_txn_markers import PRODUCER, end
from tests.broker.harness import FakeExchange
from tests.plugins.transactions.test_verification import Verifying

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
    return Counter(one.error_code for one in answer.responses[0].partition_responses)


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
    assert [one.is_control for one in broker.log_of("t", 0).batches(0)] == [False, True]
    assert [one.is_control for one in broker.log_of("t", last).batches(0)] == [True]
