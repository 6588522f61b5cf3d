"""The state of one transactional id, and the transitions between states that the protocol allows (KIP-98, KIP-890).

Pure values, and the records of ``__transaction_state`` that tell them, in Kafka's bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import IntEnum
from functools import lru_cache
from heapq import merge
from itertools import groupby, islice
from operator import itemgetter

import msgspec

from blumfeld.spi.groups import CoordinatorRecord
from blumfeld.wire.codec import decode, encode
from blumfeld.wire.messages.transaction_coordinator_records import (
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
)

NO_PRODUCER_ID = -1
NO_EPOCH = -1
NO_TIME = -1
EPOCH_MAX = 0x7FFF
EPOCHS_EXHAUSTED_FROM = EPOCH_MAX - 1
"""From this epoch on a producer gets a new producer id. The last epoch stays free, so that the coordinator can always
fence a producer by one more."""
EPOCH_A_TRANSACTION = 2
"""First ``transaction.version`` that gives each transaction an epoch of its own (KIP-890)."""

Partition = tuple[str, int]
"""(topic, index)."""


ORDERS_KEPT = 128
"""Sets of partitions whose order is remembered. Producers mostly use the same partitions in each transaction."""
ORDER_PARTITIONS_MAX = 500
"""Partitions of a set whose order is remembered, so that all of them take a few MB at most."""


def in_order(partitions: frozenset[Partition]) -> tuple[Partition, ...]:
    """Returns the partitions, sorted. Both records of a transaction ask for it, and its markers: to sort a hundred anew
    takes ten times as long as to remember them."""
    if len(partitions) > ORDER_PARTITIONS_MAX:
        return tuple(sorted(partitions))
    return _remembered_order(partitions)


@lru_cache(ORDERS_KEPT)
def _remembered_order(partitions: frozenset[Partition]) -> tuple[Partition, ...]:
    return tuple(sorted(partitions))


def in_pieces(partitions: Iterable[Partition], size: int) -> Iterator[list[Partition]]:
    """Sort many partitions, and yield them in pieces of this size. The sort yields empty pieces on its way: so much
    work each time as a piece is."""
    left, runs = iter(partitions), []
    while run := sorted(islice(left, size)):
        runs.append(run)
        yield []
    merged = merge(*runs)
    while piece := list(islice(merged, size)):
        yield piece


def by_topic(partitions: frozenset[Partition]) -> list[tuple[str, list[int]]]:
    """Returns (topic, indexes) of each topic, sorted."""
    if len(partitions) > ORDER_PARTITIONS_MAX:
        # To compare ten thousand pairs takes five times as long as to sort their numbers.
        indexes: dict[str, list[int]] = {}
        for topic, index in partitions:
            if topic in indexes:
                indexes[topic].append(index)
            else:
                indexes[topic] = [index]
        return [(topic, sorted(indexes[topic])) for topic in sorted(indexes)]
    return [
        (topic, [index for _, index in some])
        for topic, some in groupby(in_order(partitions), key=itemgetter(0))
    ]


class State(IntEnum):
    """State of a transactional id, with the number that its records have."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def text(self) -> str:
        """The name that Kafka's tools print: ``PrepareCommit``."""
        return "".join(word.capitalize() for word in self.name.split("_"))


IDLE = frozenset((State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT))
"""States without a transaction."""
ENDING = frozenset((State.PREPARE_COMMIT, State.PREPARE_ABORT))
"""States in which the outcome is decided and the markers are being written."""

ALLOWED_BEFORE: dict[State, frozenset[State]] = {
    State.EMPTY: IDLE,
    State.ONGOING: IDLE | {State.ONGOING},
    State.PREPARE_COMMIT: frozenset((State.ONGOING,)),
    # From an idle state with transaction.version 2 only: the abort of a transaction without partitions (KIP-890).
    State.PREPARE_ABORT: IDLE | {State.ONGOING, State.PREPARE_EPOCH_FENCE},
    State.COMPLETE_COMMIT: frozenset((State.PREPARE_COMMIT,)),
    State.COMPLETE_ABORT: frozenset((State.PREPARE_ABORT,)),
    State.DEAD: IDLE,
    State.PREPARE_EPOCH_FENCE: frozenset((State.ONGOING,)),
}
"""State → the states that it may follow."""


class Transaction(msgspec.Struct, frozen=True, kw_only=True):
    """A transactional id with its producer and its transaction."""

    producer_id: int
    previous_producer_id: int = NO_PRODUCER_ID
    """The producer id before the last transition; it is the same one but for a rotation."""
    next_producer_id: int = NO_PRODUCER_ID
    """The producer id after the end of the transaction, where the epochs of this one are exhausted."""
    epoch: int
    last_epoch: int = NO_EPOCH
    """The epoch before the last one. It lets a repeated request be told from one of a fenced producer. The records do
    not hold it, so that a new coordinator doesn't know it."""
    timeout_ms: int
    state: State
    partitions: frozenset[Partition] = frozenset()
    started_ms: int = NO_TIME
    updated_ms: int = NO_TIME
    client_version: int = 0
    """The ``transaction.version`` by which the client speaks: 2 where each transaction has its own epoch."""

    @property
    def exhausted(self) -> bool:
        """Whether the producer id has no epoch left for another transaction."""
        return self.epoch >= EPOCHS_EXHAUSTED_FROM

    def to(self, state: State, now_ms: int | None, **changes: object) -> Transaction:
        """Returns the transaction after a transition.

        :param now_ms: time of the transition; ``None`` leaves the time of the last one
        :raises ValueError: the protocol has no such transition
        """
        if self.state not in ALLOWED_BEFORE[state]:
            raise ValueError(f"no transition leads from {self.state.text} to {state.text}")
        if now_ms is not None:
            changes["updated_ms"] = now_ms
        return msgspec.structs.replace(self, state=state, previous_producer_id=self.producer_id, **changes)


RECORD_TYPE = 0
"""Type of the key of every record."""
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
    key = RECORD_TYPE.to_bytes(2) + encode(TransactionLogKey(transactional_id=transactional_id), 0)
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
    if int.from_bytes(item.key[:2]) != RECORD_TYPE:
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
