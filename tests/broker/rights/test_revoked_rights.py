"""A right that is taken away ends with the next request, also on the straight way and for a fetch that waits."""

from __future__ import annotations

import pytest

from blumfeld.broker.produce.straight import OneWritten
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.fetch import FetchResponse
from tests.broker.batches import batch, fetch, produce
from tests.broker.harness import BrokerHarness, Permissions, noting

VERSION = 12
WAIT_MS = 5_000


def revoke(permissions: Permissions) -> None:
    permissions.allows = lambda *_: False
    permissions.generation += 1


def test_a_produce_is_asked_about_once_and_goes_straight_from_then_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    permissions = Permissions(lambda *_: True)
    broker = BrokerHarness(authorizer=permissions, partitions=1)
    straight = noting(monkeypatch, OneWritten, "placed", lambda *_: None)
    for _ in range(4):
        assert broker.produced() == ErrorCode.NONE
    assert permissions.asked == [("Write", "Topic", "t")]
    assert len(straight) == 3


def test_a_straight_produce_ends_with_its_right() -> None:
    permissions = Permissions(lambda *_: True)
    broker = BrokerHarness(authorizer=permissions, partitions=1)
    assert [broker.produced(), broker.produced()] == [ErrorCode.NONE] * 2
    revoke(permissions)
    assert broker.produced() == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert broker.hosted().log.written_end_offset == 2


def test_what_one_connection_is_allowed_says_nothing_of_another() -> None:
    """The other one is known to the authorizer, too: for another topic."""
    permissions = Permissions(lambda *_: True)
    broker = BrokerHarness(authorizer=permissions, partitions=1)
    broker.create_topic("u", 1)
    assert [broker.produced(), broker.produced()] == [ErrorCode.NONE] * 2
    permissions.allows = lambda _operation, _type, name: name == "u"
    other = broker.connect()
    for topic, code in (("u", ErrorCode.NONE), ("t", ErrorCode.TOPIC_AUTHORIZATION_FAILED)):
        answer = broker.ask(produce(batch(), topic=topic), 9, connection=other)
        assert answer.responses[0].partition_responses[0].error_code == code


@pytest.mark.parametrize("wakes", ["new records", "its time"])
@pytest.mark.parametrize("replica_id", [-1, 2])
def test_a_fetch_that_waits_gives_nothing_once_its_right_is_gone(wakes: str, replica_id: int) -> None:
    permissions = Permissions(lambda *_: True)
    broker = BrokerHarness({"replica.lag.time.max.ms": 10**9}, authorizer=permissions)
    broker.create_topic("t", 1)
    broker.change_partition(replicas=(1, 2))
    request = fetch(max_wait_ms=WAIT_MS, replica_id=replica_id)
    exchange = broker.send_frame(broker.frame(request, VERSION), broker.connect())
    assert not exchange.settled
    permissions.allows = lambda operation, *_: operation == "Write"
    permissions.generation += 1
    if wakes == "new records":
        broker.produced()
    broker.runtime.advance(WAIT_MS)
    answer: FetchResponse = broker.response(exchange, request, VERSION)
    (partition,) = answer.responses[0].partitions
    assert partition.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert not bytes(partition.records)  # type: ignore[arg-type]


def test_a_right_that_stays_keeps_a_fetch_waiting() -> None:
    permissions = Permissions(lambda *_: True)
    broker = BrokerHarness(authorizer=permissions, partitions=1)
    request = fetch(max_wait_ms=WAIT_MS)
    exchange = broker.send_frame(broker.frame(request, VERSION), broker.connect())
    permissions.generation += 1
    assert broker.produced() == ErrorCode.NONE
    answer: FetchResponse = broker.response(exchange, request, VERSION)
    (partition,) = answer.responses[0].partitions
    assert (partition.error_code, bool(bytes(partition.records))) == (0, True)  # type: ignore[arg-type]
