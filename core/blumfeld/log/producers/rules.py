"""Rules of idempotence and transactions for one producer on one partition (``ProducerAppendInfo``). Pure.

What a partition does with them, and when, is in :mod:`blumfeld.log.producers.state`.
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
from blumfeld.wire.batches.record_batch import NO_PRODUCER_EPOCH, RecordBatch
from blumfeld.wire.errors import BrokerError, ErrorCode

BATCHES_KEPT = 5
"""Kafka's: a client has at most five requests in flight, so an older batch is never retried."""
TRANSACTIONS_V2 = 2
"""``transaction.version`` from which each transaction has an epoch of its own (KIP-890)."""


def check_first(batch: RecordBatch, from_zero: bool) -> None:
    """The batch of a producer that is unknown here.

    :param from_zero: its transaction is of version 2, where every epoch begins with sequence 0
    :raises BrokerError: OUT_OF_ORDER_SEQUENCE_NUMBER
    """
    if from_zero and batch.is_transactional and batch.base_sequence != 0:
        raise BrokerError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"producer {batch.producer_id} is unknown here, and begins with {batch.base_sequence} instead of 0",
        )


def check_data(entry: ProducerEntry, batch: RecordBatch, from_client: bool) -> WrittenBatch | None:
    """The batch of a known producer: the original that it repeats, or ``None`` if it may be appended.

    :raises BrokerError: INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_TXN_STATE
    """
    if from_client:
        in_sequence = batch.base_sequence == (entry.last_sequence + 1) & SEQUENCE_MASK
        if batch.producer_epoch == entry.epoch and not in_sequence:
            for known in entry.batches:
                if known.last_sequence == batch.last_sequence and known.first_sequence == batch.base_sequence:
                    return known
    if batch.producer_epoch < entry.epoch:
        raise _fenced(batch.producer_id, batch.producer_epoch, entry.epoch)
    if from_client:
        _check_sequence(entry, batch)
    if entry.txn_first_offset >= 0 and not batch.is_transactional:
        raise BrokerError(
            ErrorCode.INVALID_TXN_STATE,
            f"producer {batch.producer_id} has a transaction open here, and the batch is no part of one",
        )
    return None


def check_marker(
    entry: ProducerEntry, producer_epoch: int, coordinator_epoch: int, transaction_version: int
) -> None:
    """A marker of a known producer.

    :raises BrokerError: INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED
    """
    # From transaction.version 2 on a marker has the next epoch; the same again is the retry of one that ended it.
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
    """The producer once the batch is in the log, with its offsets; checked or not: a log is law."""
    written = WrittenBatch(
        batch.last_sequence, batch.last_offset, batch.last_offset_delta, batch.max_timestamp
    )
    batches: tuple[WrittenBatch, ...] = (written,)
    coordinator_epoch, txn_first_offset = NO_COORDINATOR_EPOCH, NO_OFFSET
    if before is not None:
        coordinator_epoch, txn_first_offset = before.coordinator_epoch, before.txn_first_offset
        if before.epoch == batch.producer_epoch:
            batches = (*before.batches[1 - BATCHES_KEPT :], written)
    if txn_first_offset < 0 and batch.is_transactional:
        txn_first_offset = batch.base_offset
    return ProducerEntry(
        producer_id=batch.producer_id,
        epoch=batch.producer_epoch,
        batches=batches,
        last_timestamp_ms=batch.max_timestamp,
        coordinator_epoch=coordinator_epoch,
        txn_first_offset=txn_first_offset,
    )


def after_marker(batch: RecordBatch, before: ProducerEntry | None, marker: EndMarker) -> ProducerEntry:
    """The producer once the marker is in the log: nothing is open; a new epoch has no batches yet."""
    same_epoch = before is not None and before.epoch == batch.producer_epoch
    return ProducerEntry(
        producer_id=batch.producer_id,
        epoch=batch.producer_epoch,
        batches=before.batches if before is not None and same_epoch else (),
        last_timestamp_ms=batch.max_timestamp,
        coordinator_epoch=marker.coordinator_epoch,
    )


def _check_sequence(entry: ProducerEntry, batch: RecordBatch) -> None:
    if batch.producer_epoch != entry.epoch:
        expected = 0
        if entry.epoch == NO_PRODUCER_EPOCH:
            return
    else:
        expected = (entry.last_sequence + 1) & SEQUENCE_MASK
    if batch.base_sequence != expected:
        raise BrokerError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"producer {batch.producer_id} in epoch {batch.producer_epoch} sent {batch.base_sequence}, "
            f"expected was {expected}",
        )


def _fenced(producer_id: int, epoch: int, known: int) -> BrokerError:
    return BrokerError(
        ErrorCode.INVALID_PRODUCER_EPOCH,
        f"producer {producer_id} has epoch {epoch}, but {known} is known here",
    )
