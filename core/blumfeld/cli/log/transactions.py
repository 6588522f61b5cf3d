"""The records of ``__transaction_state`` in words."""

from __future__ import annotations

from blumfeld.wire.codec import decode
from blumfeld.wire.messages.transaction_coordinator_records import TransactionLogKey, TransactionLogValue

STATES = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
)
"""Names of the numbers that the records have, as Kafka's tools print them."""
KEY_TYPE = 0


def transactional_id(key: bytes | memoryview) -> str:
    """Returns the transactional id that a record's key names.

    :raises DecodeError: the key has another form
    :raises ValueError: the key is of a later type
    """
    if int.from_bytes(key[:2]) != KEY_TYPE:
        raise ValueError("a key of a later type")
    return decode(TransactionLogKey, key, 0, 2).transactional_id


def transaction(value: bytes | memoryview) -> str:
    """Returns what a record's value says: state, producer, partitions, and what else isn't as usual.

    :raises DecodeError: the value has another form
    """
    version = int.from_bytes(value[:2])
    said = decode(TransactionLogValue, value, version, 2)
    status = said.transaction_status
    words = [
        STATES[status] if 0 <= status < len(STATES) else f"state {status}",
        f"producer {said.producer_id}/{said.producer_epoch}",
    ]
    if said.previous_producer_id not in (-1, said.producer_id):
        words.append(f"before {said.previous_producer_id}")
    if said.next_producer_id >= 0:
        words.append(f"next {said.next_producer_id}")
    words.append(f"timeout {said.transaction_timeout_ms} ms")
    if said.client_transaction_version:
        words.append(f"client transaction version {said.client_transaction_version}")
    partitions = [
        f"{topic.topic}-{index}"
        for topic in said.transaction_partitions or ()
        for index in topic.partition_ids
    ]
    return ", ".join(words) + (f": {' '.join(partitions)}" if partitions else "")
