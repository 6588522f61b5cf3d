"""The state table as text: each request in each state, with the answer, the record and the effects.

``python -m tests.plugins.transactions.rows 0`` prints the rows for transaction.version 0, which lie in tests/traces.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import msgspec

from blumfeld.spi.groups import Decision
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.end_txn import EndTxnResponse
from blumfeld.wire.messages.init_producer_id import InitProducerIdResponse
from blumfeld_transactions.commands import (
    AbortExhausted,
    AbortTimedOut,
    AddPartitions,
    EndTransaction,
    FetchProducerId,
    ForgetExpired,
    InitProducer,
    MarkersWritten,
    NeedsProducerId,
    WriteMarkers,
)
from blumfeld_transactions.shard import Limits, TransactionShard
from blumfeld_transactions.transaction import Partition, State, Transaction, TransactionRecord

ID = "tx"
PRODUCER, FORMER, FRESH = 1000, 900, 2000
EPOCH = 5
LAST = 32766
"""From this epoch on the producer id is exhausted."""
LIMITS = Limits(
    timeout_ms_max=900_000, abort_interval_ms=10_000, expiration_ms=604_800_000, forget_interval_ms=3_600_000
)
ONE: Partition = ("t", 0)
OTHER: Partition = ("t", 1)
START_MS = 1_000
NOW_MS = 50_000
"""Within the timeout of the transaction, which began at ``START_MS``."""
LATE_MS = 70_000
"""After it."""
STATES = (
    State.EMPTY,
    State.ONGOING,
    State.PREPARE_COMMIT,
    State.PREPARE_ABORT,
    State.COMPLETE_COMMIT,
    State.COMPLETE_ABORT,
)


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


def requests(version: int, epoch: int) -> Iterator[tuple[str, Any]]:
    """Every request with each relation of its epoch to the known one."""

    def init(expected: tuple[int, int] | None) -> InitProducer:
        return InitProducer(transactional_id=ID, timeout_ms=60_000, expected=expected, fresh_id=FRESH)

    yield "init", init(None)
    yield "init, has the epoch", init((PRODUCER, epoch))
    yield "init, has the epoch before", init((PRODUCER, epoch - 1))
    yield "init, has an older epoch", init((PRODUCER, epoch - 2))
    yield "init, has another producer id", init((FORMER, epoch))
    whole: Any = {"transactional_id": ID, "producer_id": PRODUCER, "epoch": epoch, "client_version": version}
    add = AddPartitions(partitions=frozenset([ONE]), **whole)
    replace = msgspec.structs.replace
    yield "add t-0", add
    yield "add t-0 t-1", replace(add, partitions=frozenset([ONE, OTHER]))
    yield "add t-0, epoch before", replace(add, epoch=epoch - 1)
    yield "add t-0, other producer id", replace(add, producer_id=FORMER)
    yield "verify t-0 t-1", replace(add, partitions=frozenset([ONE, OTHER]), verify_only=True)
    for commit, verb in ((True, "commit"), (False, "abort")):
        end = EndTransaction(commit=commit, fresh_id=FRESH, **whole)
        yield verb, end
        yield f"{verb}, epoch before", replace(end, epoch=epoch - 1)
        yield f"{verb}, epoch after", replace(end, epoch=epoch + 1)
        yield f"{verb}, other producer id", replace(end, producer_id=FORMER)
    yield "markers written", MarkersWritten(transactional_id=ID, producer_id=PRODUCER, epoch=epoch)
    yield (
        "markers written, epoch before",
        MarkersWritten(transactional_id=ID, producer_id=PRODUCER, epoch=epoch - 1),
    )
    yield "timeout passed", AbortTimedOut()
    exhausted = AbortExhausted(transactional_id=ID, producer_id=PRODUCER, epoch=epoch, fresh_id=FRESH)
    yield "timeout passed, id fetched", exhausted
    yield "expiration passed", ForgetExpired()


def rows(version: int) -> Iterator[str]:
    """The lines of the table."""
    yield f"# The state table of a transactional id, transaction.version {version}: each request in each state."
    yield "# Written by tests/plugins/transactions/rows.py, read by a person, compared with Apache Kafka's rules."
    for state, epoch in [(None, EPOCH), *((one, EPOCH) for one in STATES), *((one, LAST) for one in STATES)]:
        yield ""
        at = "unknown" if state is None else f"{state.text}, producer id {PRODUCER}, epoch {epoch}"
        yield f"{at}{', exhausted' if epoch == LAST else ''}:"
        for name, command in requests(version, epoch):
            yield f"  {name:<30} {outcome(shard_in(state, version, epoch), command)}"


def outcome(shard: TransactionShard, command: Any) -> str:
    """What a command leads to, in a line."""
    late: dict[type, int] = {
        AbortTimedOut: LATE_MS,
        AbortExhausted: LATE_MS,
        ForgetExpired: START_MS + LIMITS.expiration_ms,
    }
    try:
        decision = apply(shard, command, late.get(type(command), NOW_MS))
    except BrokerError as error:
        return error.code.name
    parts = [_reply(decision.reply)] if decision.reply is not None else []
    for item in decision.records:
        assert isinstance(item, TransactionRecord)
        parts.append("forgotten" if item.after is None else _state(item.after))
    parts += [_effect(effect) for effect in decision.after_commit]
    return "; ".join(parts) or "nothing"


def _reply(reply: Any) -> str:
    match reply:
        case InitProducerIdResponse():
            code = ErrorCode(reply.error_code)
            return code.name if code else f"NONE id={reply.producer_id} epoch={reply.producer_epoch}"
        case EndTxnResponse():
            has = f" id={reply.producer_id} epoch={reply.producer_epoch}" if reply.producer_id >= 0 else ""
            return f"{ErrorCode(reply.error_code).name}{has}"
        case NeedsProducerId():
            return "needs a producer id"
        case dict():
            return " ".join(f"{at[0]}-{at[1]}={code.name}" for at, code in sorted(reply.items()))
        case _:
            return "NONE"


def _state(after: Transaction) -> str:
    text = f"→ {after.state.text} id={after.producer_id} epoch={after.epoch}"
    if after.next_producer_id >= 0:
        text += f" next={after.next_producer_id}"
    names = [f"{topic}-{index}" for topic, index in sorted(after.partitions)]
    return f"{text} [{' '.join(names)}]" if names else text


def _effect(effect: WriteMarkers | FetchProducerId) -> str:
    if isinstance(effect, FetchProducerId):
        return "fetches a producer id"
    names = " ".join(f"{topic}-{index}" for topic, index in sorted(effect.partitions)) or "nothing"
    return f"markers {'COMMIT' if effect.commit else 'ABORT'} epoch={effect.epoch} to {names}"


if __name__ == "__main__":
    print("\n".join(rows(int(sys.argv[1]))))
