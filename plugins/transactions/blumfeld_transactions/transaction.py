"""The state of one transactional id, and the transitions between states that the protocol allows (KIP-98, KIP-890).

Pure values. :mod:`blumfeld_transactions.records` gives their bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import IntEnum
from functools import lru_cache
from heapq import merge
from itertools import groupby, islice
from operator import itemgetter

import msgspec

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
