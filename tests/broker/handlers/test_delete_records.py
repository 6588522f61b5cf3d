"""DeleteRecords: where a log starts is moved, and every refusal is Kafka's."""

from __future__ import annotations

import pytest

from blumfeld.spi.cluster import BrokerImage
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from tests.broker.batches import fetch
from tests.broker.harness import BrokerHarness, FakeExchange, Succeeding, failing
from tests.log.batches import data_batch

TO_HIGH_WATERMARK = -1


@pytest.fixture
def broker() -> BrokerHarness:
    harness = BrokerHarness(partitions=1)
    for _ in range(3):
        harness.produced()
    return harness


def deletion(offset: int, topic: str = "t", index: int = 0) -> DeleteRecordsRequest:
    partitions = [DeleteRecordsPartition(partition_index=index, offset=offset)]
    return DeleteRecordsRequest(
        timeout_ms=1000, topics=[DeleteRecordsTopic(name=topic, partitions=partitions)]
    )


def answered(broker: BrokerHarness, exchange: FakeExchange, version: int = 2) -> tuple[ErrorCode, int]:
    """(error, low watermark)."""
    (partition,) = broker.response(exchange, deletion(2), version).topics[0].partitions
    return ErrorCode(partition.error_code), partition.low_watermark


def delete(
    broker: BrokerHarness, offset: int, topic: str = "t", index: int = 0, version: int = 2
) -> tuple[ErrorCode, int]:
    """(error, low watermark)."""
    exchange = broker.send(deletion(offset, topic, index), version)
    return answered(broker, exchange, version)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_log_starts_where_it_was_asked_to(broker: BrokerHarness, version: int) -> None:
    assert delete(broker, 2, version=version) == (ErrorCode.NONE, 2)
    answer = broker.ask(fetch(1), 12)
    assert answer.responses[0].partitions[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert list(broker.hosted().state.epochs.entries) == [(0, 2)]


def test_minus_one_is_the_high_watermark(broker: BrokerHarness) -> None:
    assert delete(broker, TO_HIGH_WATERMARK) == (ErrorCode.NONE, 3)


def test_an_offset_below_the_start_is_no_error_and_moves_nothing(broker: BrokerHarness) -> None:
    delete(broker, 2)
    assert delete(broker, 1) == (ErrorCode.NONE, 2)
    assert delete(broker, 0) == (ErrorCode.NONE, 2)


@pytest.mark.parametrize("offset", [4, -2, 2**63 - 1])
def test_an_offset_outside_is_refused(broker: BrokerHarness, offset: int) -> None:
    assert delete(broker, offset) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)


@pytest.mark.parametrize(
    ("policy", "wanted"),
    [
        ("compact", (ErrorCode.POLICY_VIOLATION, -1)),
        ("compact,delete", (ErrorCode.NONE, 0)),
        ("", (ErrorCode.NONE, 0)),
    ],
)
def test_a_topic_that_is_only_compacted_refuses(
    broker: BrokerHarness, policy: str, wanted: tuple[ErrorCode, int]
) -> None:
    broker.create_topic("c", cleanup_policy=policy)
    assert delete(broker, 0, "c") == wanted


def test_internal_topics_refuse_and_unknown_ones_are_unknown(broker: BrokerHarness) -> None:
    assert delete(broker, 0, "__consumer_offsets") == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    broker.create_topic("__consumer_offsets")
    assert delete(broker, 0, "__consumer_offsets") == (ErrorCode.INVALID_TOPIC_EXCEPTION, -1)
    assert delete(broker, 0, "nowhere") == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    assert delete(broker, 0, index=9) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)


def test_a_log_that_fails_takes_its_partition_offline(broker: BrokerHarness) -> None:
    broker.log_of("t").advance_log_start = failing(OSError("input/output error"))  # type: ignore[method-assign]
    assert delete(broker, 1) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
    assert broker.hosted().closed == ErrorCode.KAFKA_STORAGE_ERROR


def test_an_open_transaction_below_the_start_does_not_hold_readers_below_it(broker: BrokerHarness) -> None:
    """The last stable offset is never below the log start."""
    partition = broker.hosted()
    partition.place(data_batch(0, 9, 0, 0, transactional=True), 0, Succeeding())
    broker.produced()
    assert partition.readable_ends() == (5, 3)
    delete(broker, 4)
    assert partition.readable_ends() == (5, 4)


def replicated() -> BrokerHarness:
    """A partition with a follower on broker 2, which has fetched everything."""
    harness = BrokerHarness(partitions=1)
    harness.metadata.image.brokers[2] = BrokerImage(
        broker_id=2, epoch=5, incarnation_id=b"2" * 16, endpoints=()
    )
    harness.change_partition(replicas=(1, 2))
    for _ in range(3):
        harness.produced()
    fetched(harness, 3, 0)
    return harness


def fetched(broker: BrokerHarness, offset: int, log_start_offset: int) -> None:
    assert broker.leader().follower_fetched(2, 5, offset, log_start_offset) == ErrorCode.NONE
    broker.runtime.run_turn()


def test_the_answer_waits_for_the_followers() -> None:
    broker = replicated()
    exchange = broker.send(deletion(2), 2)
    assert broker.hosted().log.log_start_offset == 2
    fetched(broker, 3, 1)
    assert not exchange.settled
    fetched(broker, 3, 2)
    assert answered(broker, exchange) == (ErrorCode.NONE, 2)
    assert broker.broker.parking.waiting == 0
    assert not broker.hosted().watchers.low_watermark


def test_a_follower_that_does_not_delete_is_waited_for_until_the_time_is_up() -> None:
    broker = replicated()
    exchange = broker.send(deletion(2), 2)
    broker.runtime.advance(1_001)
    assert answered(broker, exchange) == (ErrorCode.REQUEST_TIMED_OUT, 0)
    assert not broker.hosted().watchers.low_watermark
    fetched(broker, 3, 2)


def test_who_waits_for_followers_is_told_when_leadership_goes() -> None:
    broker = replicated()
    exchange = broker.send(deletion(2), 2)
    broker.change_partition(replicas=(1, 2), leader=-1, epoch=1, partition_epoch=2)
    broker.runtime.run_turn()
    assert answered(broker, exchange) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)


def test_a_follower_that_is_already_there_is_not_waited_for() -> None:
    broker = replicated()
    fetched(broker, 3, 2)
    assert delete(broker, 2) == (ErrorCode.NONE, 2)
