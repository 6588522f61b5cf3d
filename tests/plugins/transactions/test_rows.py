"""Rules of the state table of which ``test_wire_rows`` has no row, or which need more than one request."""

from __future__ import annotations

import msgspec
import pytest

from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld_transactions.commands import (
    AbortTimedOut,
    AddPartitions,
    EndTransaction,
    FetchProducerId,
    ForgetExpired,
    InitProducer,
    MarkersWritten,
    NeedsProducerId,
)
from blumfeld_transactions.shard import LOOKS_A_TURN
from blumfeld_transactions.transaction import ALLOWED_BEFORE, State, Transaction, TransactionRecord
from tests.plugins.transactions.rows import (
    EPOCH,
    FRESH,
    ID,
    LAST,
    LIMITS,
    NOW_MS,
    ONE,
    PRODUCER,
    START_MS,
    apply,
    shard_in,
)


def test_a_new_or_exhausted_producer_id_is_asked_for() -> None:
    init = InitProducer(transactional_id=ID, timeout_ms=1_000)
    for shard in (shard_in(None, 0), shard_in(State.EMPTY, 0, LAST)):
        decision = apply(shard, init)
        assert isinstance(decision.reply, NeedsProducerId)
        assert not decision.records
    end = EndTransaction(transactional_id=ID, producer_id=PRODUCER, epoch=LAST, commit=True, client_version=2)
    assert isinstance(apply(shard_in(State.ONGOING, 2, LAST), end).reply, NeedsProducerId)


@pytest.mark.parametrize("timeout_ms", [0, -1, LIMITS.timeout_ms_max + 1])
def test_a_timeout_out_of_range_is_refused(timeout_ms: int) -> None:
    with pytest.raises(BrokerError) as refused:
        apply(shard_in(None, 0), InitProducer(transactional_id=ID, timeout_ms=timeout_ms, fresh_id=FRESH))
    assert refused.value.code is ErrorCode.INVALID_TRANSACTION_TIMEOUT


def test_a_repeated_end_after_the_rotation_gets_the_new_producer_id() -> None:
    """The epochs ran out at the end of a transaction: the answer has the next id, and its repetition, too."""
    shard = shard_in(State.ONGOING, 2, LAST)
    end = EndTransaction(
        transactional_id=ID, producer_id=PRODUCER, epoch=LAST, commit=True, client_version=2, fresh_id=FRESH
    )
    assert (apply(shard, end).reply.producer_id, apply(shard_in(None, 2), ForgetExpired()).records) == (
        FRESH,
        [],
    )
    apply(shard, MarkersWritten(transactional_id=ID, producer_id=PRODUCER, epoch=LAST + 1))
    known = shard.find(ID)
    assert known is not None
    assert (known.state, known.producer_id, known.epoch) == (State.COMPLETE_COMMIT, FRESH, 0)
    again = apply(shard, end)
    assert (again.reply.producer_id, again.reply.producer_epoch, again.records) == (FRESH, 0, ())
    # A producer that was initialized with the last epoch, and lost the answer, may ask with it once more.
    init = InitProducer(transactional_id=ID, timeout_ms=1_000, expected=(PRODUCER, LAST))
    assert apply(shard, init).reply.producer_id == FRESH


def test_the_producer_may_use_its_next_id_before_the_end_is_complete() -> None:
    """EndTxn told it the next producer id. Until the markers are written it is to ask again, and is no stranger."""
    shard = shard_in(State.ONGOING, 2, LAST)
    end = EndTransaction(
        transactional_id=ID, producer_id=PRODUCER, epoch=LAST, commit=True, client_version=2, fresh_id=FRESH
    )
    apply(shard, end)
    add = AddPartitions(
        transactional_id=ID, producer_id=FRESH, epoch=0, partitions=frozenset([("t", 0)]), client_version=2
    )
    with pytest.raises(BrokerError) as refused:
        apply(shard, add)
    assert refused.value.code is ErrorCode.CONCURRENT_TRANSACTIONS
    apply(shard, MarkersWritten(transactional_id=ID, producer_id=PRODUCER, epoch=LAST + 1))
    assert apply(shard, add).reply == {("t", 0): ErrorCode.NONE}


def test_a_fence_in_the_last_epoch_rotates_the_producer_id() -> None:
    """Otherwise a producer that aborts after the timeout would be told the epoch of the fence, and no marker could end
    its next transaction."""
    shard = shard_in(State.ONGOING, 2, LAST)
    (effect,) = apply(shard, AbortTimedOut(), START_MS + 60_001).after_commit
    assert effect == FetchProducerId(transactional_id=ID, producer_id=PRODUCER, epoch=LAST)
    init = InitProducer(transactional_id=ID, timeout_ms=1_000)
    assert isinstance(apply(shard, init).reply, NeedsProducerId)
    apply(shard, msgspec.structs.replace(init, fresh_id=FRESH))
    apply(shard, MarkersWritten(transactional_id=ID, producer_id=PRODUCER, epoch=LAST + 1))
    abort = EndTransaction(
        transactional_id=ID, producer_id=PRODUCER, epoch=LAST, commit=False, client_version=2
    )
    reply = apply(shard, abort).reply
    assert (reply.error_code, reply.producer_id, reply.producer_epoch) == (0, FRESH, 0)


def test_a_fenced_producer_that_asks_late_for_a_further_epoch_aborts_nothing() -> None:
    """The open transaction is its successor's (KIP-360). Kafka aborts it, and refuses the producer afterwards."""
    shard = shard_in(State.ONGOING, 2)
    late = InitProducer(transactional_id=ID, timeout_ms=1_000, expected=(PRODUCER, EPOCH - 1))
    with pytest.raises(BrokerError) as refused:
        apply(shard, late)
    assert refused.value.code is ErrorCode.PRODUCER_FENCED
    assert shard.open == 1


def test_a_producer_whose_epoch_the_coordinator_lost_gets_on_as_in_kafka() -> None:
    shard = shard_in(State.ONGOING, 2)
    init = InitProducer(transactional_id=ID, timeout_ms=1_000, expected=(PRODUCER, EPOCH + 1))
    assert apply(shard, init).reply.error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    apply(shard, MarkersWritten(transactional_id=ID, producer_id=PRODUCER, epoch=EPOCH + 1))
    assert apply(shard, init).reply.producer_epoch == EPOCH + 2


def test_the_last_epoch_is_told_to_no_producer() -> None:
    """A fence of the first generation may end in it. A marker could not end a transaction in it (KIP-890)."""
    shard = shard_in(State.ONGOING, 0, LAST)
    apply(shard, AbortTimedOut(), START_MS + 60_001)
    apply(shard, MarkersWritten(transactional_id=ID, producer_id=PRODUCER, epoch=LAST + 1))
    abort = EndTransaction(
        transactional_id=ID, producer_id=PRODUCER, epoch=LAST, commit=False, client_version=2
    )
    with pytest.raises(BrokerError) as refused:
        apply(shard, abort)
    assert refused.value.code is ErrorCode.PRODUCER_FENCED


def test_a_producer_that_aborts_after_its_timeout_goes_on() -> None:
    """With transaction.version 2 the abort that it asks for is the one that the timeout decided, as in Kafka 4.3."""
    shard = shard_in(State.ONGOING, 2)
    apply(shard, AbortTimedOut(), START_MS + 60_001)
    end = EndTransaction(
        transactional_id=ID, producer_id=PRODUCER, epoch=EPOCH, commit=False, client_version=2
    )
    with pytest.raises(BrokerError, match="still in PrepareAbort"):
        apply(shard, end)
    apply(shard, MarkersWritten(transactional_id=ID, producer_id=PRODUCER, epoch=EPOCH + 1))
    assert apply(shard, end).reply.producer_epoch == EPOCH + 1
    with pytest.raises(BrokerError) as refused:
        apply(shard, msgspec.structs.replace(end, commit=True))
    assert refused.value.code is ErrorCode.INVALID_TXN_STATE


def test_expired_ids_are_looked_for_in_slices() -> None:
    shard = shard_in(State.EMPTY, 0)
    known = shard.find(ID)
    assert known is not None
    for number in range(LOOKS_A_TURN):
        shard.replay(TransactionRecord(b"", b"", f"tx-{number}", known))
    young = NOW_MS
    first = apply(shard, ForgetExpired(), young)
    assert (first.records, first.timers[0].delay_ms) == ([], 0)
    assert first.timers[0].command == ForgetExpired((f"tx-{LOOKS_A_TURN - 1}",))
    second = apply(shard, first.timers[0].command, START_MS + LIMITS.expiration_ms)
    assert (len(second.records), second.timers[0].delay_ms) == (1, LIMITS.forget_interval_ms)


def test_no_other_transition_is_possible() -> None:
    """A fence that came first leaves nothing to commit."""
    for state, allowed in ALLOWED_BEFORE.items():
        for before in State:
            transaction = Transaction(producer_id=1, epoch=0, timeout_ms=1, state=before)
            if before in allowed:
                assert transaction.to(state, NOW_MS).state is state
            else:
                with pytest.raises(ValueError, match=f"{before.text} to {state.text}"):
                    transaction.to(state, NOW_MS)


def test_partitions_that_a_transaction_has_already_are_not_written_again() -> None:
    shard = shard_in(State.ONGOING, 2)
    again = AddPartitions(transactional_id=ID, producer_id=PRODUCER, epoch=EPOCH, partitions=frozenset([ONE]))
    assert not apply(shard, again).records


@pytest.mark.parametrize("state", [State.EMPTY, State.ONGOING, State.COMPLETE_COMMIT, State.COMPLETE_ABORT])
def test_a_new_coordinator_leaves_other_transactions_alone(state: State) -> None:
    decision = shard_in(state, 0).loaded(NOW_MS)
    assert not decision.after_commit
    assert {order.key for order in decision.timers} == {("abort",), ("forget",)}


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("epoch", [EPOCH, EPOCH - 1])
def test_only_the_markers_of_a_prepared_transactions_epoch_complete_it(state: State, epoch: int) -> None:
    shard = shard_in(state, 2)
    apply(shard, MarkersWritten(transactional_id=ID, producer_id=PRODUCER, epoch=epoch))
    complete = {
        State.PREPARE_COMMIT: State.COMPLETE_COMMIT,
        State.PREPARE_ABORT: State.COMPLETE_ABORT,
    }
    known = shard.find(ID)
    assert known is not None
    assert known.state is (complete.get(state, state) if epoch == EPOCH else state)


def test_a_producer_that_another_one_fenced_is_no_repetition() -> None:
    """Its epoch is the one before the last, but the last one was given to another producer (KIP-360)."""
    shard = shard_in(State.EMPTY, 0)
    again = InitProducer(transactional_id=ID, timeout_ms=1_000, expected=(PRODUCER, EPOCH))
    assert apply(shard, again).reply.producer_epoch == EPOCH + 1
    assert apply(shard, again).reply.producer_epoch == EPOCH + 1
    assert apply(shard, InitProducer(transactional_id=ID, timeout_ms=1_000)).reply.producer_epoch == EPOCH + 2
    with pytest.raises(BrokerError) as refused:
        apply(shard, InitProducer(transactional_id=ID, timeout_ms=1_000, expected=(PRODUCER, EPOCH + 1)))
    assert refused.value.code is ErrorCode.PRODUCER_FENCED
