"""What is asked once for a Produce request over many partitions: authorizer, image, memory of the waiting batches."""

from __future__ import annotations

import gc

import pytest

from blumfeld.broker.produce.pending_produce import PendingProduce
from blumfeld.broker.produce.transactional import keep
from blumfeld.spi.transport import OWNED_FRAME_BYTES
from blumfeld.wire.batches.record_batch import RecordBatch
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.broker.batches import batch
from tests.broker.fake_transactions import FakeTransactions
from tests.broker.harness import BrokerHarness, Permissions

PARTITIONS = 300


def many(count: int, *topics: str) -> ProduceRequest:
    data = [batch(producer_id=1, producer_epoch=0, base_sequence=0, transactional=True) for _ in range(count)]
    partitions = [PartitionProduceData(index=at, records=records) for at, records in enumerate(data)]
    topic_data = [TopicProduceData(name=topic, partition_data=partitions) for topic in topics]
    return ProduceRequest(transactional_id="tx", acks=-1, timeout_ms=1000, topic_data=topic_data)


def codes(broker: BrokerHarness, request: ProduceRequest) -> list[set[int]]:
    answer = broker.ask(request, 12)
    return [{one.error_code for one in topic.partition_responses} for topic in answer.responses]


def test_the_authorizer_is_asked_once_for_each_topic_and_once_for_the_transactional_id() -> None:
    authorizer = Permissions(lambda _, __, name: name != "u")
    broker = BrokerHarness(authorizer=authorizer, transactions=FakeTransactions())
    for topic in ("t", "u"):
        broker.create_topic(topic, partitions=20)
    assert codes(broker, many(20, "t", "u")) == [{0}, {ErrorCode.TOPIC_AUTHORIZATION_FAILED}]
    assert authorizer.asked == [
        ("Write", "TransactionalId", "tx"),
        ("Write", "Topic", "t"),
        ("Write", "Topic", "u"),
    ]


def test_a_request_in_slices_is_answered_alike() -> None:
    broker = BrokerHarness(transactions=FakeTransactions(), partitions=PARTITIONS)
    assert codes(broker, many(PARTITIONS, "t")) == [{0}]
    assert {broker.log_of("t", at).written_end_offset for at in range(PARTITIONS)} == {1}


@pytest.mark.parametrize("partitions", [2, PARTITIONS])
@pytest.mark.parametrize("acks", [-1, 0])
def test_an_answered_request_is_freed(partitions: int, acks: int) -> None:
    """Its answers refer to it, and are no objects that the garbage collector looks at: a cycle would stay for ever."""
    broker = BrokerHarness(transactions=FakeTransactions(), partitions=PARTITIONS)
    for refused in (False, True):
        request = many(partitions, "t", *(["nowhere"] if refused else []))
        request.acks = acks
        broker.send(request, 12)
        broker.runtime.run_turn()
    gc.collect()
    assert not [one for one in gc.get_objects() if isinstance(one, PendingProduce)]


def test_a_refused_transactional_id_refuses_every_batch() -> None:
    broker = BrokerHarness(
        authorizer=Permissions(lambda _, __, name: name != "tx"), transactions=FakeTransactions()
    )
    broker.create_topic("t", partitions=20)
    assert codes(broker, many(20, "t")) == [{ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}]


@pytest.mark.parametrize("large", [False, True])
def test_batches_that_wait_lie_in_memory_of_their_own(large: bool) -> None:
    """But for those of a large frame, which has memory of its own."""
    values = [bytes(OWNED_FRAME_BYTES if large else 1), b"second"]
    frames = [batch(value) for value in values]
    batches = [RecordBatch(memoryview(frame)) for frame in frames]
    before = [bytes(one.data) for one in batches]
    keep(batches)
    assert [bytes(one.data) for one in batches] == before
    for frame in frames:
        frame[61:] = bytes(len(frame) - 61)
    assert ([bytes(one.data) for one in batches] == before) != large
    batches[1].assign_offset(7, 3)
    assert RecordBatch(batches[1].data).base_offset == 7
