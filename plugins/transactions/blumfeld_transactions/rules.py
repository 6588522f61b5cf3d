"""The rules of the state table: a request and a transaction give the next transaction, or an error. Pure."""

from __future__ import annotations

from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld_transactions.commands import AddPartitions, EndTransaction, InitProducer
from blumfeld_transactions.transaction import (
    ENDING,
    EPOCH_A_TRANSACTION,
    EPOCH_MAX,
    EPOCHS_EXHAUSTED_FROM,
    IDLE,
    NO_EPOCH,
    NO_PRODUCER_ID,
    NO_TIME,
    State,
    Transaction,
)


class ProducerIdNeeded(Exception):  # noqa: N818 - a turn of the decision, not an error
    """The transition needs a fresh producer id, and the command brings none."""


def _fenced(actual: object, known: object) -> BrokerError:
    return BrokerError(ErrorCode.PRODUCER_FENCED, f"the producer has {actual}, and {known} is known here")


def _invalid(current: Transaction, action: str) -> BrokerError:
    return BrokerError(
        ErrorCode.INVALID_TXN_STATE, f"a transaction in state {current.state.text} can't {action}"
    )


def _concurrent(current: Transaction) -> BrokerError:
    return BrokerError(
        ErrorCode.CONCURRENT_TRANSACTIONS, f"the last transaction is still in {current.state.text}"
    )


def initialized(current: Transaction | None, command: InitProducer, now_ms: int) -> Transaction:
    """Returns the transaction after InitProducerId of a producer whose last transaction has ended, or of a new one.

    A producer that says which epoch it has (KIP-360) gets the next one if that is the last one given. It gets the
    present one again if it has the one before, because the answer to its first request was lost.

    :raises BrokerError: PRODUCER_FENCED, CONCURRENT_TRANSACTIONS
    :raises ProducerIdNeeded: the transactional id is new, or the epochs of its producer id are exhausted
    """
    if current is None:
        if command.fresh_id == NO_PRODUCER_ID:
            raise ProducerIdNeeded
        return Transaction(
            producer_id=command.fresh_id,
            previous_producer_id=command.fresh_id,
            epoch=0,
            timeout_ms=command.timeout_ms,
            state=State.EMPTY,
            updated_ms=now_ms,
        )
    check_settled(current)
    check_expected(current, command.expected)
    expected = None if command.expected is None else command.expected[1]
    renewed = {"timeout_ms": command.timeout_ms, "partitions": frozenset(), "started_ms": NO_TIME}
    if expected is not None and expected != current.epoch:
        if expected != current.last_epoch:
            raise _fenced(f"epoch {expected}", f"epoch {current.epoch}")
        return current.to(State.EMPTY, now_ms, **renewed)
    last_epoch = NO_EPOCH if expected is None else current.epoch
    if current.exhausted:
        if command.fresh_id == NO_PRODUCER_ID:
            raise ProducerIdNeeded
        return current.to(
            State.EMPTY, now_ms, producer_id=command.fresh_id, epoch=0, last_epoch=last_epoch, **renewed
        )
    return current.to(State.EMPTY, now_ms, epoch=current.epoch + 1, last_epoch=last_epoch, **renewed)


def check_settled(current: Transaction) -> None:
    """Check that no markers are being written. This comes before the checks of the producer, because the producer may
    have a producer id already that takes effect with the end of the transaction (KIP-890).

    :raises BrokerError: CONCURRENT_TRANSACTIONS
    """
    if current.state in ENDING:
        raise _concurrent(current)


def check_expected(current: Transaction, expected: tuple[int, int] | None) -> None:
    """Check the producer id that a producer says it has: the present one, or the one before it whose epochs are
    exhausted.

    :raises BrokerError: PRODUCER_FENCED
    """
    if expected is None or expected[0] == current.producer_id:
        return
    if expected[0] != current.previous_producer_id or expected[1] < EPOCHS_EXHAUSTED_FROM:
        raise _fenced(f"producer id {expected[0]}", current.producer_id)


def check_not_fenced(current: Transaction, expected: tuple[int, int] | None) -> None:
    """Check that a producer that says which epoch it has was not fenced before it. Only such a producer's request may
    abort an open transaction: the transaction of an earlier epoch has ended, and this one is its successor's.

    An epoch that is unknown here is let through, as by Kafka: where records of the coordinator were lost, the producer
    gets a further epoch after the abort.

    :raises BrokerError: PRODUCER_FENCED
    """
    check_expected(current, expected)
    if expected is not None and expected[0] == current.producer_id and expected[1] < current.epoch:
        raise _fenced(f"epoch {expected[1]}", f"epoch {current.epoch}")


def check_producer(current: Transaction | None, producer_id: int, epoch: int) -> Transaction:
    """Returns the transaction, if the request comes from its present producer.

    :raises BrokerError: INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED
    """
    if current is None or current.producer_id != producer_id:
        known = "none" if current is None else str(current.producer_id)
        raise BrokerError(
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
            f"the request has producer id {producer_id}, the transactional id {known}",
        )
    if current.epoch != epoch:
        raise _fenced(f"epoch {epoch}", f"epoch {current.epoch}")
    return current


def extended(current: Transaction | None, command: AddPartitions, now_ms: int) -> Transaction | None:
    """Returns the transaction with more partitions; ``None`` if it has them already.

    :raises BrokerError: INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS
    """
    if current is not None:
        check_settled(current)
    current = check_producer(current, command.producer_id, command.epoch)
    if current.state is State.ONGOING and command.partitions <= current.partitions:
        return None
    return current.to(
        State.ONGOING,
        now_ms,
        partitions=current.partitions | command.partitions,
        started_ms=current.started_ms if current.state is State.ONGOING else now_ms,
        client_version=command.client_version,
    )


def verified(current: Transaction | None, command: AddPartitions) -> Transaction:
    """Returns the transaction of a producer that asks which partitions are in it.

    :raises BrokerError: as :func:`extended`
    """
    current = check_producer(current, command.producer_id, command.epoch)
    check_settled(current)
    return current


def fenced(current: Transaction, now_ms: int, version: int, fresh_id: int = NO_PRODUCER_ID) -> Transaction:
    """Returns an open transaction after the coordinator has fenced its producer, and decided to abort it.

    The state between, PrepareEpochFence, is never written. With ``transaction.version`` 2 the abort is one of the
    producer's own: a producer that asks for the abort itself is told the next epoch, and may go on.

    :param version: the cluster's ``transaction.version``
    :raises ProducerIdNeeded: each transaction has its own epoch, and this producer id has none left
    """
    fence = current.to(State.PREPARE_EPOCH_FENCE, None, epoch=min(current.epoch + 1, EPOCH_MAX))
    if version < EPOCH_A_TRANSACTION:
        return fence.to(
            State.PREPARE_ABORT,
            now_ms,
            last_epoch=NO_EPOCH,
            next_producer_id=NO_PRODUCER_ID,
            client_version=0,
        )
    if current.exhausted and fresh_id == NO_PRODUCER_ID:
        raise ProducerIdNeeded
    return fence.to(
        State.PREPARE_ABORT,
        now_ms,
        last_epoch=current.epoch,
        next_producer_id=fresh_id if current.exhausted else NO_PRODUCER_ID,
        client_version=version,
    )


def ended(current: Transaction | None, command: EndTransaction, now_ms: int) -> Transaction | None:
    """Returns the transaction after EndTxn; ``None`` if it has ended so already, and the request is a repeated one.

    :raises BrokerError: INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS, INVALID_TXN_STATE
    :raises ProducerIdNeeded: each transaction has its own epoch, and this producer id has none left
    """
    if command.client_version >= EPOCH_A_TRANSACTION:
        return _ended_v2(current, command, now_ms)
    current = check_producer(current, command.producer_id, command.epoch)
    check_settled(current)
    if current.state is State.ONGOING:
        state = State.PREPARE_COMMIT if command.commit else State.PREPARE_ABORT
        return current.to(state, now_ms, next_producer_id=NO_PRODUCER_ID, client_version=0)
    _check_ended_before(current, command)
    return None


def _check_ended_before(current: Transaction, command: EndTransaction) -> None:
    """Check that the decision of a transaction that has ended is the one that is asked for.

    :raises BrokerError: INVALID_TXN_STATE
    """
    if current.state is not (State.COMPLETE_COMMIT if command.commit else State.COMPLETE_ABORT):
        raise _invalid(current, "be committed" if command.commit else "be aborted")


def _ended_v2(current: Transaction | None, command: EndTransaction, now_ms: int) -> Transaction | None:
    if current is None:
        raise BrokerError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, "the transactional id is unknown")
    check_settled(current)
    rotated = (
        current.previous_producer_id == command.producer_id
        and command.epoch == EPOCHS_EXHAUSTED_FROM
        and current.epoch == 0
    )
    if current.producer_id != command.producer_id and not rotated:
        raise BrokerError(
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
            f"the request has producer id {command.producer_id}, the transactional id {current.producer_id}",
        )
    ended_before = current.state in (State.COMPLETE_COMMIT, State.COMPLETE_ABORT)
    repeated = ended_before and (rotated or _bumped(current, command))
    if not repeated and command.epoch != current.epoch:
        raise _fenced(f"epoch {command.epoch}", f"epoch {current.epoch}")
    if repeated:
        _check_ended_before(current, command)
        return None
    if current.state is not State.ONGOING and command.commit:
        raise _invalid(current, "be committed")
    next_id = command.fresh_id if current.exhausted else NO_PRODUCER_ID
    if current.exhausted and next_id == NO_PRODUCER_ID:
        raise ProducerIdNeeded
    if current.epoch == EPOCH_MAX and command.commit:
        raise _invalid(current, "be committed: its epochs are exhausted")
    return current.to(
        State.PREPARE_COMMIT if command.commit else State.PREPARE_ABORT,
        now_ms,
        epoch=min(current.epoch + 1, EPOCH_MAX),
        last_epoch=current.epoch,
        next_producer_id=next_id,
        started_ms=current.started_ms if current.state is State.ONGOING else now_ms,
        client_version=command.client_version,
    )


def _bumped(current: Transaction, command: EndTransaction) -> bool:
    """Whether the end of the producer's transaction gave the present epoch. The last epoch is only for fences: it is
    told to no producer, because a marker could not end a transaction in it."""
    return command.epoch + 1 == current.epoch < EPOCH_MAX


def completed(current: Transaction, now_ms: int) -> Transaction:
    """Returns a transaction whose markers are all written. A producer id without epochs gives way to the next one."""
    commit = current.state is State.PREPARE_COMMIT
    rotates = current.client_version >= EPOCH_A_TRANSACTION and current.next_producer_id != NO_PRODUCER_ID
    return current.to(
        State.COMPLETE_COMMIT if commit else State.COMPLETE_ABORT,
        now_ms,
        producer_id=current.next_producer_id if rotates else current.producer_id,
        epoch=0 if rotates else current.epoch,
        next_producer_id=NO_PRODUCER_ID,
        partitions=frozenset(),
    )


def timed_out(current: Transaction, now_ms: int) -> bool:
    """Whether the transaction is open for longer than its producer's timeout."""
    return current.state is State.ONGOING and current.started_ms + current.timeout_ms < now_ms


def expired(current: Transaction, now_ms: int, expiration_ms: int) -> bool:
    """Whether nothing used the transactional id for so long, and it has no transaction."""
    return current.state in IDLE and current.updated_ms <= now_ms - expiration_ms
