"""Rules of idempotence and transactions for one producer on one partition (``ProducerAppendInfo``). Pure.

:mod:`blumfeld.log.producers.state` applies them to a partition.
"""

from __future__ import annotations

from blumfeld.log.producers.end_marker import EndMarker
from blumfeld.log.producers.snapshot import (
    NO_COORDINATOR_EPOCH,
    NO_OFFSET,
    SEQUENCE_MASK,
    ProducerEntry,
    WrittenBatch,
)
from blumfeld.wire.batches.record_batch import NO_PRODUCER_EPOCH, NO_SEQUENCE, TRANSACTIONAL_BIT, RecordBatch
from blumfeld.wire.errors import BrokerError, ErrorCode

BATCHES_KEPT = 5
"""Kafka's number: a client has at most five requests in flight, so it never retries an older batch."""
_OLDER_KEPT = BATCHES_KEPT - 1
TRANSACTIONS_V2 = 2
"""First ``transaction.version`` that gives each transaction its own epoch (KIP-890)."""


def check_first(batch: RecordBatch, from_zero: bool) -> None:
    """Check the first batch of a producer that the partition doesn't know.

    :param from_zero: the transaction is of version 2, where every epoch begins with sequence 0
    :raises BrokerError: OUT_OF_ORDER_SEQUENCE_NUMBER
    """
    if from_zero and batch.is_transactional and batch.base_sequence != 0:
        raise BrokerError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"producer {batch.producer_id} is unknown to this partition and begins with sequence "
            f"{batch.base_sequence} instead of 0",
        )


def check_data(entry: ProducerEntry, batch: RecordBatch, from_client: bool) -> WrittenBatch | None:
    """Check a batch of a known producer. Returns the original batch if this is a retry of it, else ``None``.

    :raises BrokerError: INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_TXN_STATE
    """
    if from_client:
        in_sequence = batch.base_sequence == expected_sequence(entry, batch)
        if not in_sequence and batch.producer_epoch == entry.epoch:
            for known in entry.batches:
                if known.last_sequence == batch.last_sequence and known.first_sequence == batch.base_sequence:
                    return known
    if batch.producer_epoch < entry.epoch:
        raise _fenced(batch.producer_id, batch.producer_epoch, entry.epoch)
    if from_client and not in_sequence:
        raise BrokerError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"producer {batch.producer_id} in epoch {batch.producer_epoch} sent sequence {batch.base_sequence}, "
            f"expected {expected_sequence(entry, batch)}",
        )
    if entry.txn_first_offset >= 0 and not batch.attributes & TRANSACTIONAL_BIT:
        raise BrokerError(
            ErrorCode.INVALID_TXN_STATE,
            f"producer {batch.producer_id} has a transaction open in this partition, "
            "but the batch is not transactional",
        )
    return None


def check_marker(
    entry: ProducerEntry, producer_epoch: int, coordinator_epoch: int, transaction_version: int
) -> None:
    """Check a marker for a known producer.

    :raises BrokerError: INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED
    """
    # From transaction.version 2 on a marker has the next epoch. The same epoch is accepted only without an
    # open transaction, as the retry of the marker that ended it.
    stale = producer_epoch < entry.epoch
    if transaction_version >= TRANSACTIONS_V2 and producer_epoch == entry.epoch:
        stale = entry.txn_first_offset >= 0
    if stale:
        raise _fenced(entry.producer_id, producer_epoch, entry.epoch)
    if coordinator_epoch < entry.coordinator_epoch:
        raise BrokerError(
            ErrorCode.TRANSACTION_COORDINATOR_FENCED,
            f"coordinator epoch {coordinator_epoch} is below {entry.coordinator_epoch}",
        )


def after_data(batch: RecordBatch, before: ProducerEntry | None) -> ProducerEntry:
    """Returns the producer's entry after a batch that is in the log. It isn't checked: what the log holds is
    valid.
    """
    delta, sequence, epoch = batch.last_offset_delta, batch.base_sequence, batch.producer_epoch
    base_offset, timestamp_ms = batch.base_offset, batch.max_timestamp
    if sequence != NO_SEQUENCE:
        sequence = (sequence + delta) & SEQUENCE_MASK
    batches: tuple[WrittenBatch, ...] = (WrittenBatch(sequence, base_offset + delta, delta, timestamp_ms),)
    coordinator_epoch, txn_first_offset = NO_COORDINATOR_EPOCH, NO_OFFSET
    if before is not None:
        coordinator_epoch, txn_first_offset = before.coordinator_epoch, before.txn_first_offset
        if before.epoch == epoch and before.batches:
            batches = before.batches[-_OLDER_KEPT:] + batches
    if txn_first_offset < 0 and batch.attributes & TRANSACTIONAL_BIT:
        txn_first_offset = base_offset
    return ProducerEntry(
        producer_id=batch.producer_id,
        epoch=epoch,
        batches=batches,
        last_timestamp_ms=timestamp_ms,
        coordinator_epoch=coordinator_epoch,
        txn_first_offset=txn_first_offset,
    )


def after_marker(batch: RecordBatch, before: ProducerEntry | None, marker: EndMarker) -> ProducerEntry:
    """Returns the producer's entry after a marker that is in the log: no open transaction, and no batches if
    the epoch is new.
    """
    same_epoch = before is not None and before.epoch == batch.producer_epoch
    return ProducerEntry(
        producer_id=batch.producer_id,
        epoch=batch.producer_epoch,
        batches=before.batches if before is not None and same_epoch else (),
        last_timestamp_ms=batch.max_timestamp,
        coordinator_epoch=marker.coordinator_epoch,
    )


def after_emptied_marker(batch: RecordBatch, before: ProducerEntry | None) -> ProducerEntry:
    """Returns the producer's entry after a control batch whose record the cleaner has removed. Nothing of its
    transaction is left in the log, so it ends none. Its header still has the epoch that fences.
    """
    if before is not None and before.epoch >= batch.producer_epoch:
        return before
    return ProducerEntry(
        producer_id=batch.producer_id,
        epoch=batch.producer_epoch,
        batches=(),
        last_timestamp_ms=batch.max_timestamp,
        coordinator_epoch=NO_COORDINATOR_EPOCH if before is None else before.coordinator_epoch,
        txn_first_offset=NO_OFFSET if before is None else before.txn_first_offset,
    )


def expected_sequence(entry: ProducerEntry, batch: RecordBatch) -> int:
    """Returns the sequence number with which a known producer's batch must begin: the next one, or 0 in a new epoch."""
    if batch.producer_epoch == entry.epoch:
        return (entry.batches[-1].last_sequence + 1) & SEQUENCE_MASK if entry.batches else 0
    return 0 if entry.epoch != NO_PRODUCER_EPOCH else batch.base_sequence


def _fenced(producer_id: int, epoch: int, known: int) -> BrokerError:
    return BrokerError(
        ErrorCode.INVALID_PRODUCER_EPOCH,
        f"producer {producer_id} has epoch {epoch}, but this partition knows epoch {known}",
    )
