"""``transaction.version`` is raised and lowered while transactions are open: those of either generation end rightly."""

from __future__ import annotations

import pytest

from blumfeld.spi.completion import Completion
from blumfeld.spi.internal_topics import TRANSACTIONS_TOPIC
from blumfeld.wire.batches.records import records
from blumfeld.wire.errors import ErrorCode
from tests.plugins.transactions.test_on_broker import NONE, TOPICS, Transacting

FIRST, SECOND = 11, 12
"""Versions of Produce of a client of each generation."""
END = {FIRST: 4, SECOND: 5}
LEVELS = pytest.mark.parametrize(("before", "after"), [(0, 2), (2, 0), (0, 1), (1, 2), (2, 1)])
CLIENTS = pytest.mark.parametrize("produce", [FIRST, SECOND])


def at_level(broker: Transacting, level: int) -> None:
    broker.metadata.image.features["transaction.version"] = level


def started(level: int) -> Transacting:
    broker = Transacting()
    at_level(broker, level)
    broker.runtime.advance(2_000)
    assert broker.init() == NONE
    return broker


def opened(broker: Transacting, produce: int) -> None:
    """Open a transaction. A client of the second generation leaves it to the leader to add the partition."""
    if produce == FIRST:
        assert broker.add(0) == [NONE]
    assert broker.produce(0, produce) == NONE


def last_record_version(broker: Transacting) -> int:
    *_, last = broker.log_of(TRANSACTIONS_TOPIC).batches(0)
    *_, record = records(last)
    return int.from_bytes((record.value or b"")[:2])


def restarted(broker: Transacting, level: int) -> Transacting:
    broker.stop()
    later = Transacting(storage=broker.storage, topics=False)
    at_level(later, level)
    for name, count in TOPICS:
        later.create_topic(name, count)
    later.producer_id, later.epoch, later.sequence = broker.producer_id, broker.epoch, broker.sequence
    return later


@LEVELS
@CLIENTS
@pytest.mark.parametrize("commit", [True, False])
def test_an_open_transaction_is_ended_by_its_client(
    before: int, after: int, produce: int, commit: bool
) -> None:
    """A client goes by the level that it was told last, so its requests may be of either generation."""
    broker = started(before)
    opened(broker, produce)
    at_level(broker, after)
    assert broker.end(commit, END[produce]) == NONE
    assert (broker.kinds(), broker.stable()) == ("dc" if commit else "da", 2)
    assert last_record_version(broker) == min(after, 1)
    opened(broker, produce)
    assert broker.end(True, END[produce]) == NONE
    assert (broker.kinds()[2:], broker.stable()) == ("dc", 4)


@LEVELS
@CLIENTS
def test_an_open_transaction_times_out(before: int, after: int, produce: int) -> None:
    """The marker's epoch is one that the partition takes, whichever generation its batches are of."""
    broker = started(before)
    opened(broker, produce)
    at_level(broker, after)
    broker.runtime.advance(71_000)
    assert (broker.kinds(), broker.stable()) == ("da", 2)
    assert broker.produce(0, produce) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert broker.init() == NONE
    opened(broker, produce)
    assert broker.end(True, END[produce]) == NONE
    assert broker.stable() == 4


@CLIENTS
def test_a_client_changes_its_generation_in_a_transaction(produce: int) -> None:
    broker = started(2)
    opened(broker, produce)
    other = END[FIRST] if produce == SECOND else END[SECOND]
    assert broker.end(True, other) == NONE
    assert (broker.kinds(), broker.stable()) == ("dc", 2)


@LEVELS
@CLIENTS
def test_a_decision_is_carried_out_after_the_change_and_a_restart(
    before: int, after: int, produce: int
) -> None:
    """The record may be one of version 0, which doesn't say of which generation the transaction is."""
    broker = started(before)
    opened(broker, produce)
    at_level(broker, after)
    broker.broker._write_markers = lambda request: Completion()  # type: ignore[method-assign]
    producer = broker.producer_id, broker.epoch
    assert broker.end(True, END[produce]) == NONE
    later = restarted(broker, after)
    later.runtime.advance(1_000)
    assert (later.kinds(), later.stable()) == ("dc", 2)
    later.producer_id, later.epoch = producer
    assert later.end(True, END[produce]) == NONE  # the same answer again


@LEVELS
@CLIENTS
def test_a_producer_whose_transaction_timed_out_may_go_on_at_level_2(
    before: int, after: int, produce: int
) -> None:
    """The level of the time-out decides, whatever the client's generation: only there is the abort's epoch for the
    producer too. Else it is fenced."""
    broker = started(before)
    opened(broker, produce)
    fenced = {"producer_id": broker.producer_id, "producer_epoch": broker.epoch}
    at_level(broker, after)
    broker.runtime.advance(71_000)
    assert broker.init(**fenced) == (NONE if after == 2 else ErrorCode.PRODUCER_FENCED)
