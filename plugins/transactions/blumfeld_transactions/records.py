"""The records of ``__transaction_state`` in Kafka's bytes."""

from __future__ import annotations

from blumfeld.spi.groups import CoordinatorRecord
from blumfeld.wire.codec import decode, encode
from blumfeld.wire.messages.transaction_coordinator_records import (
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
)
from blumfeld_transactions.transaction import State, Transaction, by_topic

KEY_TYPE = 0
FLEXIBLE_FROM = 1
"""First ``transaction.version`` whose records are flexible, and tell the previous and the next producer id."""


class TransactionRecord(CoordinatorRecord, frozen=True):
    """A record that this coordinator made, with what it says. So its replay decodes nothing, and keeps the last epoch,
    for which the bytes have no place."""

    transactional_id: str
    after: Transaction | None
    """``None`` forgets the transactional id."""


def record(transactional_id: str, after: Transaction | None, transaction_version: int) -> TransactionRecord:
    """Returns the record of a transition.

    :param after: ``None`` makes the tombstone of a transactional id that expired
    :param transaction_version: the finalized level of the cluster: 0 writes version 0 of the value
    """
    key = KEY_TYPE.to_bytes(2) + encode(TransactionLogKey(transactional_id=transactional_id), 0)
    value = None if after is None else _value(after, min(transaction_version, FLEXIBLE_FROM))
    return TransactionRecord(key, value, transactional_id, after)


def _value(after: Transaction, version: int) -> bytes:
    value = TransactionLogValue(
        producer_id=after.producer_id,
        producer_epoch=after.epoch,
        transaction_timeout_ms=after.timeout_ms,
        transaction_status=after.state,
        transaction_partitions=None
        if after.state is State.EMPTY
        else [
            PartitionsSchema(topic=name, partition_ids=indexes)
            for name, indexes in by_topic(after.partitions)
        ],
        transaction_last_update_timestamp_ms=after.updated_ms,
        transaction_start_timestamp_ms=after.started_ms,
    )
    if version >= FLEXIBLE_FROM:
        value.previous_producer_id = after.previous_producer_id
        value.next_producer_id = after.next_producer_id
        value.client_transaction_version = after.client_version
    return version.to_bytes(2) + encode(value, version)


def read_record(item: CoordinatorRecord) -> tuple[str, Transaction | None] | None:
    """Returns (transactional id, transaction) of a record, ``None`` as its transaction for a tombstone.

    ``None`` for a key of another type, which a later version of Kafka may write: it stays in the log.

    :raises DecodeError: the bytes don't fit their type and version
    :raises ValueError: the number of the state is unknown
    """
    if isinstance(item, TransactionRecord):
        return item.transactional_id, item.after
    if int.from_bytes(item.key[:2]) != KEY_TYPE:
        return None
    transactional_id = decode(TransactionLogKey, item.key, 0, 2).transactional_id
    if item.value is None:
        return transactional_id, None
    value = decode(TransactionLogValue, item.value, int.from_bytes(item.value[:2]), 2)
    partitions = (
        (topic.topic, index) for topic in value.transaction_partitions or () for index in topic.partition_ids
    )
    return transactional_id, Transaction(
        producer_id=value.producer_id,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        epoch=value.producer_epoch,
        timeout_ms=value.transaction_timeout_ms,
        state=State(value.transaction_status),
        partitions=frozenset(partitions),
        started_ms=value.transaction_start_timestamp_ms,
        updated_ms=value.transaction_last_update_timestamp_ms,
        client_version=value.client_transaction_version,
    )
