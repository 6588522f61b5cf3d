"""The commands of the shard: requests in their neutral form, timers, and the outcome of markers."""

from __future__ import annotations

from collections.abc import Sequence, Set

import msgspec

from blumfeld_transactions.transaction import NO_PRODUCER_ID, Partition, State


class InitProducer(msgspec.Struct, frozen=True, kw_only=True):
    """InitProducerId with a transactional id. The reply is ``InitProducerIdResponse`` or :class:`NeedsProducerId`."""

    transactional_id: str
    timeout_ms: int
    expected: tuple[int, int] | None = None
    """(producer id, epoch) that the producer has, from v3 on (KIP-360)."""
    fresh_id: int = NO_PRODUCER_ID
    """A producer id from the controller, if the decision asked for one before."""


class AddPartitions(msgspec.Struct, frozen=True, kw_only=True):
    """AddPartitionsToTxn of one transaction, and AddOffsetsToTxn. The reply is a mapping partition → ``ErrorCode``."""

    transactional_id: str
    producer_id: int
    epoch: int
    partitions: frozenset[Partition]
    verify_only: bool = False
    """Add nothing; say which partitions are in the transaction (KIP-890)."""
    client_version: int = 0
    """2 where a partition's leader adds it, with the first batch of a transaction."""


class EndTransaction(msgspec.Struct, frozen=True, kw_only=True):
    """EndTxn. The reply is ``EndTxnResponse`` or :class:`NeedsProducerId`."""

    transactional_id: str
    producer_id: int
    epoch: int
    commit: bool
    client_version: int = 0
    """2 from v5 of the request on: each transaction has its own epoch."""
    fresh_id: int = NO_PRODUCER_ID
    """A producer id from the controller, if the decision asked for one before."""


class MarkersWritten(msgspec.Struct, frozen=True, kw_only=True):
    """All markers of a transaction are written, or need not be. The reply is True."""

    transactional_id: str
    producer_id: int
    epoch: int


class DescribeOne(msgspec.Struct, frozen=True, kw_only=True):
    """A question of DescribeTransactions. The reply is the ``Transaction``."""

    transactional_id: str


class ListIds(msgspec.Struct, frozen=True):
    """The first question of ListTransactions. The reply is a tuple of the shard's transactional ids."""


class ListSome(msgspec.Struct, frozen=True, kw_only=True):
    """The second question: some of these ids. The reply is a list of (transactional id, ``Transaction``)."""

    transactional_ids: Sequence[str]
    """Those that the shard doesn't know any more are left out."""
    states: frozenset[State] | None = None
    """Only those in these states; ``None`` for all."""
    producer_ids: Set[int] = frozenset()
    """Only those of these producers; empty for all."""
    open_longer_than_ms: int = -1
    """Only those that began earlier than so long ago (KIP-994); -1 for all."""


class ResumeMarkers(msgspec.Struct, frozen=True):
    """Write the markers of transactions that a coordinator before this one decided on, where they aren't written
    yet."""

    left: tuple[str, ...]
    """Ids that no turn looked at yet."""


class AbortTimedOut(msgspec.Struct, frozen=True):
    """A timer's command: abort every transaction that is open longer than its timeout."""

    left: tuple[str, ...] | None = None
    """Ids that an earlier turn did not look at; ``None`` begins with all that are open. So one look at all of them asks
    for at most one producer id for each."""
    at_most: int | None = None
    """Transactions to abort in this turn; ``None``: as many as a turn may."""


class AbortsTooLarge(msgspec.Struct, frozen=True):
    """The log refused the aborts of these ids, because the record of one is larger than it takes. They are tried by
    halves, until the one is found that can't be aborted."""

    transactional_ids: tuple[str, ...]
    left: tuple[str, ...] | None
    """Ids to look at after these; ``None``: these were no timer's."""


class AbortExhausted(msgspec.Struct, frozen=True, kw_only=True):
    """Abort a transaction that is open longer than its timeout, and whose producer id has no epoch left (KIP-890). The
    reply is True; in another state, or for another producer, it changes nothing."""

    transactional_id: str
    producer_id: int
    epoch: int
    fresh_id: int


class ForgetExpired(msgspec.Struct, frozen=True):
    """A timer's command: forget the transactional ids that nothing used for ``transactional.id.expiration.ms``."""

    left: tuple[str, ...] | None = None
    """Ids that an earlier turn did not look at; ``None`` begins with all."""


class NeedsProducerId(msgspec.Struct, frozen=True):
    """In place of a reply: the command is to come again with a fresh producer id. Nothing was decided."""


class FetchProducerId(msgspec.Struct, frozen=True, kw_only=True):
    """The effect of a timeout that needs a fresh producer id: get one, and come again with :class:`AbortExhausted`."""

    transactional_id: str
    producer_id: int
    epoch: int


class TellCannotAbort(msgspec.Struct, frozen=True, kw_only=True):
    """The effect of a timeout whose record the log doesn't take: tell the operator."""

    transactional_id: str
    partitions: int


class WriteMarkers(msgspec.Struct, frozen=True, kw_only=True):
    """The effect of a decision to commit or to abort: write a marker in each partition of the transaction."""

    transactional_id: str
    producer_id: int
    epoch: int
    commit: bool
    partitions: frozenset[Partition]
    client_version: int
