"""ListOffsets of a log whose older records lie in a remote store. The answers are Kafka 4.3.1's."""

from __future__ import annotations

import pytest

from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from blumfeld_kit.fakes.runtime import EPOCH_MS
from tests.broker.harness import FakeExchange
from tests.broker.replicas.tiered import TIERED, TieredBroker

EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING = -2, -3, -4, -5, -6


@pytest.fixture
def broker() -> TieredBroker:
    return TieredBroker(TIERED)


def request(timestamp: int, timeout_ms: int) -> ListOffsetsRequest:
    partition = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    return ListOffsetsRequest(
        timeout_ms=timeout_ms, topics=[ListOffsetsTopic(name="t", partitions=[partition])]
    )


def begun(broker: TieredBroker, timestamp: int, timeout_ms: int = 0) -> FakeExchange:
    return broker.send(request(timestamp, timeout_ms), 11)


def answer(broker: TieredBroker, exchange: FakeExchange) -> ListOffsetsPartitionResponse:
    response = broker.response(exchange, request(0, 0), 11)
    found: ListOffsetsPartitionResponse = response.topics[0].partitions[0]
    return found


def look_up(broker: TieredBroker, timestamp: int) -> tuple[int, int, int]:
    exchange = begun(broker, timestamp)
    broker.runtime.advance(20)
    found = answer(broker, exchange)
    assert found.error_code == 0
    return found.offset, found.timestamp, found.leader_epoch


def test_an_empty_log_has_no_copies_and_nothing_to_copy(broker: TieredBroker) -> None:
    assert look_up(broker, EARLIEST_LOCAL) == (0, -1, 0)
    assert look_up(broker, LATEST_TIERED) == look_up(broker, EARLIEST_PENDING) == (-1, -1, -1)


def test_before_the_first_copy_everything_waits_for_it(broker: TieredBroker) -> None:
    broker.append(6)
    assert look_up(broker, LATEST_TIERED) == (-1, -1, -1)
    assert look_up(broker, EARLIEST_PENDING) == look_up(broker, EARLIEST_LOCAL) == (0, -1, 0)


def test_the_ends_of_what_is_local_and_of_what_is_copied(broker: TieredBroker) -> None:
    broker.append(8)
    broker.moved_away(4)
    copied = broker.log_now.copied_end_offset
    assert 4 < copied < 8
    assert look_up(broker, EARLIEST) == (0, -1, 0)
    assert look_up(broker, EARLIEST_LOCAL) == (4, -1, 0)
    assert look_up(broker, LATEST_TIERED) == (copied - 1, -1, 0)
    assert look_up(broker, EARLIEST_PENDING) == (copied, -1, 0)


def test_a_leader_that_does_not_know_the_copies_yet_says_nothing_of_what_waits(broker: TieredBroker) -> None:
    broker.append(8)
    broker.moved_away(4)
    broker.log_now.remote.clear()
    assert look_up(broker, LATEST_TIERED) == look_up(broker, EARLIEST_PENDING) == (-1, -1, -1)


def test_times_are_looked_up_in_the_store_too(broker: TieredBroker) -> None:
    for number in range(8):
        broker.append(timestamp=EPOCH_MS + (100 if number == 1 else number))
    broker.moved_away(4)
    assert look_up(broker, EPOCH_MS)[0] == 0
    assert look_up(broker, EPOCH_MS + 2) == (1, EPOCH_MS + 100, 0)
    assert look_up(broker, MAX_TIMESTAMP) == (1, EPOCH_MS + 100, 0)
    assert broker.broker.parking.waiting == 0


@pytest.mark.parametrize(("timeout_ms", "waits_ms"), [(0, 30_000), (200, 200)])
def test_a_look_up_that_takes_too_long_ends(broker: TieredBroker, timeout_ms: int, waits_ms: int) -> None:
    broker.append(8)
    broker.moved_away(4)
    broker.store.hangs = True
    broker.tiering.wait_ms = 1e6
    exchange = begun(broker, EPOCH_MS, timeout_ms)
    broker.runtime.advance(waits_ms - 2)
    assert not exchange.settled
    broker.runtime.advance(4)
    assert answer(broker, exchange).error_code == ErrorCode.REQUEST_TIMED_OUT
    broker.runtime.advance(2e6)


def test_a_store_that_fails_costs_the_look_up_alone(broker: TieredBroker) -> None:
    broker.append(8)
    broker.moved_away(4)
    broker.store.fails = True
    exchange = begun(broker, EPOCH_MS)
    broker.runtime.advance(20)
    assert answer(broker, exchange).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert broker.hosted().closed is None
