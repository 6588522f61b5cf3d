"""A producer id in its last epoch, through a broker: the next id comes with the end of a transaction (KIP-890)."""

from __future__ import annotations

from typing import cast

import msgspec
import pytest

from blumfeld.spi.groups import CoordinatorRecord
from blumfeld.wire.errors import ErrorCode
from blumfeld_transactions.shard import TransactionShard
from blumfeld_transactions.transaction import EPOCHS_EXHAUSTED_FROM, record
from tests.plugins.transactions.test_on_broker import ID, NONE, Transacting


@pytest.fixture
def broker() -> Transacting:
    """A producer in its last epoch, with an open transaction of the second generation."""
    started = Transacting()
    started.metadata.image.features["transaction.version"] = 2
    started.runtime.advance(2_000)
    assert started.init() == NONE
    transactions = started.broker.transactions
    assert transactions is not None
    host = transactions.host_of(ID)
    assert host is not None
    shard = cast("TransactionShard", host.shard)
    known = shard.find(ID)
    assert known is not None
    last = record(ID, msgspec.structs.replace(known, epoch=EPOCHS_EXHAUSTED_FROM), 2)
    shard.replay(CoordinatorRecord(last.key, last.value))
    started.epoch = EPOCHS_EXHAUSTED_FROM
    assert started.produce(0, 12) == NONE
    return started


@pytest.mark.parametrize("commit", [True, False])
def test_the_end_of_a_transaction_brings_the_next_id(broker: Transacting, commit: bool) -> None:
    former = broker.producer_id
    assert broker.end(commit, 5) == NONE
    assert (broker.producer_id != former, broker.epoch) == (True, 0)
    assert [broker.produce(0, 12), broker.end(True, 5)] == [NONE, NONE]
    assert (broker.kinds(), broker.stable()) == ("dcdc" if commit else "dadc", 4)
    assert broker.aborted() == ([] if commit else [(former, 0)])


def test_a_timeout_in_the_last_epoch_aborts_and_brings_the_next_id(broker: Transacting) -> None:
    former = broker.producer_id
    broker.runtime.advance(71_000)
    assert (broker.kinds(), broker.stable()) == ("da", 2)
    assert broker.produce(0, 12) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert broker.end(False, 5) == NONE  # the abort that the timeout decided
    assert (broker.producer_id != former, broker.epoch) == (True, 0)
    assert [broker.produce(0, 12), broker.end(True, 5)] == [NONE, NONE]
    assert (broker.kinds(), broker.stable()) == ("dadc", 4)


def test_a_second_producer_in_the_last_epoch(broker: Transacting) -> None:
    former = broker.producer_id
    assert broker.init() == ErrorCode.CONCURRENT_TRANSACTIONS
    assert broker.init() == NONE
    assert (broker.producer_id != former, broker.epoch) == (True, 1)
    assert [broker.produce(0, 12), broker.end(True, 5)] == [NONE, NONE]
    assert (broker.kinds(), broker.stable()) == ("dadc", 4)
