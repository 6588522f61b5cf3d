"""One transactional id in a state of its life, and commands to its shard. ``wire_rows`` has the whole state table."""

from __future__ import annotations

from typing import Any

from blumfeld.spi.groups import Decision
from blumfeld_transactions.shard import Limits, TransactionShard
from blumfeld_transactions.transaction import Partition, State, Transaction, TransactionRecord

ID = "tx"
PRODUCER, FRESH = 1000, 2000
EPOCH = 5
LAST = 32766
"""From this epoch on the producer id is exhausted."""
LIMITS = Limits(
    timeout_ms_max=900_000, abort_interval_ms=10_000, expiration_ms=604_800_000, forget_interval_ms=3_600_000
)
ONE: Partition = ("t", 0)
START_MS = 1_000
NOW_MS = 50_000
"""Within the timeout of the transaction, which began at ``START_MS``."""


def shard_in(state: State | None, version: int, epoch: int = EPOCH) -> TransactionShard:
    """A shard with one transactional id in this state; ``None``: without it."""
    shard = TransactionShard(LIMITS, lambda: version)
    if state is not None:
        has = state in (State.ONGOING, State.PREPARE_COMMIT, State.PREPARE_ABORT)
        transaction = Transaction(
            producer_id=PRODUCER,
            previous_producer_id=PRODUCER,
            epoch=epoch,
            last_epoch=epoch - 1,
            timeout_ms=60_000,
            state=state,
            partitions=frozenset([ONE]) if has else frozenset(),
            started_ms=START_MS if state is not State.EMPTY else -1,
            updated_ms=START_MS,
            client_version=version,
        )
        shard.replay(TransactionRecord(b"\x00\x00\x00\x02tx", b"", ID, transaction))
    return shard


def apply(shard: TransactionShard, command: Any, now_ms: int = NOW_MS) -> Decision:
    """Decide and replay, as the host does."""
    decision = shard.command(command, None, now_ms)
    for item in decision.records:
        shard.replay(item)
    return decision
