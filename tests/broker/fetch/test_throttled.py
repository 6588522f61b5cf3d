"""Fetches from a throttled leader (KIP-73): only followers outside of the ISR wait for the quota."""

from __future__ import annotations

from typing import Any, cast

import pytest

from blumfeld.broker.replicas.partition import Partition
from blumfeld.wire.messages.fetch import FetchRequest, FetchResponse
from tests.broker.batches import batch, fetch, produce
from tests.broker.harness import BrokerHarness, FakeExchange, noting

VERSION = 12
ONE = len(batch())
RATE = ONE
MEMBER, OUTSIDE = 2, 3
WAIT_MS = 5_000


def throttled(partitions: int = 1) -> BrokerHarness:
    """Returns a broker that leads, with partition 0 throttled to one batch a second."""
    broker = BrokerHarness({"replica.lag.time.max.ms": 10**9, "leader.replication.throttled.rate": RATE})
    broker.create_topic("t", partitions, **{"leader.replication.throttled.replicas": "0:1"})
    for index in range(partitions):
        broker.change_partition(index=index, replicas=(1, MEMBER, OUTSIDE), isr=(1, MEMBER))
    broker.runtime.run_turn()
    return broker


def fill(broker: BrokerHarness, count: int, partition: int = 0) -> None:
    for _ in range(count):
        broker.ask(produce(batch(), partition=partition), 9)


def sizes(answer: FetchResponse) -> dict[int, int]:
    return {
        p.partition_index: len(bytes(cast("Any", p.records))) for t in answer.responses for p in t.partitions
    }


def size(broker: BrokerHarness, request: FetchRequest) -> int:
    """The bytes of the first partition."""
    return sizes(broker.ask(request, VERSION))[0]


def test_a_follower_outside_of_the_isr_waits_for_the_quota() -> None:
    broker = throttled()
    fill(broker, 6)
    assert size(broker, fetch(0, replica_id=OUTSIDE, partition_bytes_max=3 * ONE)) == 3 * ONE
    refused = broker.ask(fetch(3, replica_id=OUTSIDE), VERSION).responses[0].partitions[0]
    assert (bytes(refused.records), refused.error_code) == (b"", 0)
    assert refused.log_start_offset == 0, "it learns the leader's offsets all the same"
    broker.runtime.advance(2_900)
    assert size(broker, fetch(3, replica_id=OUTSIDE)) == 0
    broker.runtime.advance(200)
    assert size(broker, fetch(3, replica_id=OUTSIDE)) == 3 * ONE


def test_members_of_the_isr_and_consumers_do_not_wait_and_members_count() -> None:
    broker = throttled()
    fill(broker, 6)
    for _ in range(3):
        assert size(broker, fetch(0, replica_id=MEMBER)) == 6 * ONE
    assert size(broker, fetch(0, replica_id=OUTSIDE)) == 0, "what a member copies counts, as in Kafka"
    broker.ask(fetch(6, replica_id=MEMBER), VERSION)
    broker.runtime.advance(12_000)
    for _ in range(3):
        assert size(broker, fetch(0)) == 6 * ONE
    assert size(broker, fetch(0, replica_id=OUTSIDE)) == 6 * ONE, "what a consumer reads doesn't count"


def test_a_partition_that_is_not_throttled_does_not_wait() -> None:
    broker = throttled(2)
    fill(broker, 3)
    fill(broker, 3, partition=1)
    both = fetch(0, partitions=(0, 1), replica_id=OUTSIDE)
    assert sizes(broker.ask(both, VERSION)) == {0: 3 * ONE, 1: 3 * ONE}
    assert sizes(broker.ask(both, VERSION)) == {0: 0, 1: 3 * ONE}


def park(broker: BrokerHarness, request: FetchRequest) -> FakeExchange:
    exchange = broker.send_frame(broker.frame(request, VERSION), broker.connect())
    assert not exchange.settled
    return exchange


@pytest.mark.parametrize("min_bytes", [1, 2 * ONE])
def test_a_parked_fetch_is_not_read_again_for_throttled_bytes(
    monkeypatch: pytest.MonkeyPatch, min_bytes: int
) -> None:
    broker = throttled(2)
    fill(broker, 3)
    broker.ask(fetch(0, replica_id=OUTSIDE), VERSION)
    reads = noting(monkeypatch, Partition, "read", lambda partition, *_: partition)
    request = fetch(3, partitions=(0,), replica_id=OUTSIDE, max_wait_ms=WAIT_MS, min_bytes=min_bytes)
    waiting = park(broker, request)
    for _ in range(2):
        fill(broker, 1)
        assert not waiting.settled
    assert reads == []
    broker.runtime.advance(WAIT_MS + 1)
    assert waiting.settled
    assert sizes(cast("FetchResponse", broker.response(waiting, request, VERSION))) == {0: 2 * ONE}


def test_a_parked_fetch_wakes_for_the_bytes_of_another_partition() -> None:
    broker = throttled(2)
    fill(broker, 3)
    fill(broker, 3, partition=1)
    broker.ask(fetch(0, replica_id=OUTSIDE), VERSION)
    request = fetch(3, partitions=(0, 1), replica_id=OUTSIDE, max_wait_ms=WAIT_MS)
    waiting = park(broker, request)
    fill(broker, 1)
    assert not waiting.settled
    fill(broker, 1, partition=1)
    assert waiting.settled
    assert sizes(cast("FetchResponse", broker.response(waiting, request, VERSION))) == {0: 0, 1: ONE}
