"""The shard: all transactional ids of one partition of ``__transaction_state``. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from blumfeld.coordinator.runtime.record_runs import RecordRun
from blumfeld.spi.context import RequestContext
from blumfeld.spi.groups import CoordinatorRecord, Decision, TimerOrder
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.end_txn import EndTxnResponse
from blumfeld.wire.messages.init_producer_id import InitProducerIdResponse
from blumfeld_transactions import rules
from blumfeld_transactions.commands import (
    AbortExhausted,
    AbortsTooLarge,
    AbortTimedOut,
    AddPartitions,
    DescribeOne,
    EndTransaction,
    FetchProducerId,
    ForgetExpired,
    InitProducer,
    ListIds,
    ListSome,
    MarkersWritten,
    NeedsProducerId,
    ResumeMarkers,
    TellCannotAbort,
    WriteMarkers,
)
from blumfeld_transactions.transaction import (
    ENDING,
    EPOCH_A_TRANSACTION,
    NO_PRODUCER_ID,
    State,
    Transaction,
    read_record,
    record,
)

ABORTS_A_TURN = 500
"""Transactions that one decision aborts or forgets, or asks a producer id for. The rest waits for the next turn of the
loop."""
PARTITIONS_A_TURN = 2_000
"""Partitions of the transactions that one decision aborts, or orders markers for: some milliseconds. A transaction with
more has a decision of its own."""
LOOKS_A_TURN = 20_000
"""Transactional ids that one decision looks at for their timeout or expiration: a few milliseconds."""


class Limits(NamedTuple):
    """The configuration of the shard."""

    timeout_ms_max: int
    abort_interval_ms: int
    expiration_ms: int
    forget_interval_ms: int


class TransactionShard:
    """Implements ``Shard``: commands decide, and only :meth:`replay` writes state.

    A decision is replayed when its record is placed, so the next command sees it. Kafka answers
    CONCURRENT_TRANSACTIONS until the record is committed; here the reply waits for the commit instead.
    """

    def __init__(self, limits: Limits, version: Callable[[], int]) -> None:
        """:param version: returns the cluster's ``transaction.version`` as of now"""
        self._limits = limits
        self._version = version
        self._transactions: dict[str, Transaction] = {}
        self._open: dict[str, int] = {}
        """Transactional ids with an open transaction, and when it began. So timeouts and gauges look at no other id."""
        self._ending: dict[str, None] = {}
        """Transactional ids whose markers are being written. So a load looks at no other id."""

    # Replay

    def replay(self, item: CoordinatorRecord) -> None:
        """Take over what the record says. A record of a type that is unknown here changes nothing."""
        read = read_record(item)
        if read is None:
            return
        transactional_id, after = read
        if after is None:
            self._transactions.pop(transactional_id, None)
        else:
            self._transactions[transactional_id] = after
        state = State.EMPTY if after is None else after.state
        if after is not None and state is State.ONGOING:
            self._open[transactional_id] = after.started_ms
        else:
            self._open.pop(transactional_id, None)
        if state in ENDING:
            self._ending[transactional_id] = None
        else:
            self._ending.pop(transactional_id, None)

    def replay_run(self, run: RecordRun) -> None:
        """Replay many records in order."""
        for key, value in zip(run.keys, run.values, strict=True):
            self.replay(CoordinatorRecord(key, value))

    def loaded(self, now_ms: int) -> Decision:
        """Returns the timers, and the markers of every transaction whose outcome was decided by a coordinator before
        this one: many of them turn by turn."""
        decision = self._resume(tuple(self._ending))
        decision.timers = [*decision.timers, self._abort_timer(), self._forget_timer()]
        return decision

    def _resume(self, ids: tuple[str, ...]) -> Decision:
        effects: list[WriteMarkers] = []
        partitions = looked = 0
        for transactional_id in ids[:ABORTS_A_TURN]:
            if partitions >= PARTITIONS_A_TURN:
                break
            looked += 1
            current = self._transactions.get(transactional_id)
            if current is not None and current.state in ENDING:
                effects.append(_markers(transactional_id, current))
                partitions += len(current.partitions)
        left = ids[looked:]
        timers = [TimerOrder(("resume",), 0, ResumeMarkers(left))] if left else []
        return Decision(after_commit=effects, timers=timers)

    def _abort_timer(self, left: tuple[str, ...] = (), at_most: int | None = None) -> TimerOrder:
        if left:
            return TimerOrder(("abort",), 0, AbortTimedOut(left, at_most))
        return TimerOrder(("abort",), self._limits.abort_interval_ms, AbortTimedOut())

    def _forget_timer(self, left: tuple[str, ...] = ()) -> TimerOrder:
        if left:
            return TimerOrder(("forget",), 0, ForgetExpired(left))
        return TimerOrder(("forget",), self._limits.forget_interval_ms, ForgetExpired())

    # For readers

    def find(self, transactional_id: str) -> Transaction | None:
        """Returns the transaction of a transactional id."""
        return self._transactions.get(transactional_id)

    @property
    def ids(self) -> int:
        """Number of transactional ids."""
        return len(self._transactions)

    @property
    def open(self) -> int:
        """Number of open transactions."""
        return len(self._open)

    @property
    def oldest_started_ms(self) -> int | None:
        """Time at which the oldest open transaction began; ``None`` without one."""
        return min(self._open.values(), default=None)

    # Decisions

    def command(self, command: Any, context: RequestContext | None, now_ms: int) -> Decision:
        """Decide on a command of :mod:`blumfeld_transactions.commands`.

        :raises BrokerError: the request's error
        """
        try:
            match command:
                case InitProducer():
                    return self._init(command, now_ms)
                case AddPartitions():
                    return self._add(command, now_ms)
                case EndTransaction():
                    return self._end(command, now_ms)
                case MarkersWritten():
                    return self._complete(command, now_ms)
                case DescribeOne():
                    return Decision(reply=self._described(command.transactional_id))
                case ListIds():
                    return Decision(reply=tuple(self._transactions))
                case ListSome():
                    return Decision(reply=self._listed(command, now_ms))
                case ResumeMarkers():
                    return self._resume(command.left)
                case AbortTimedOut():
                    return self._abort_timed_out(command, now_ms)
                case AbortsTooLarge():
                    return self._abort_by_halves(command)
                case AbortExhausted():
                    return self._abort_exhausted(command, now_ms)
                case ForgetExpired():
                    return self._forget_expired(command, now_ms)
        except rules.ProducerIdNeeded:
            return Decision(reply=NeedsProducerId())
        raise TypeError(f"no command of this shard: {type(command).__name__}")

    def _record(self, transactional_id: str, after: Transaction | None) -> CoordinatorRecord:
        return record(transactional_id, after, self._version())

    def _init(self, command: InitProducer, now_ms: int) -> Decision:
        if not 0 < command.timeout_ms <= self._limits.timeout_ms_max:
            raise BrokerError(
                ErrorCode.INVALID_TRANSACTION_TIMEOUT,
                f"the timeout is {command.timeout_ms} ms; allowed: 1 to {self._limits.timeout_ms_max} "
                "(transaction.max.timeout.ms)",
            )
        current = self._transactions.get(command.transactional_id)
        if current is not None and current.state is State.ONGOING:
            rules.check_not_fenced(current, command.expected)
            decision = self._fence(command.transactional_id, current, now_ms, command.fresh_id)
            # The client asks again until the abort is complete, and then gets the next epoch.
            decision.reply = InitProducerIdResponse(
                error_code=ErrorCode.CONCURRENT_TRANSACTIONS, producer_id=-1, producer_epoch=-1
            )
            return decision
        after = rules.initialized(current, command, now_ms)
        return Decision(
            records=[self._record(command.transactional_id, after)],
            reply=InitProducerIdResponse(producer_id=after.producer_id, producer_epoch=after.epoch),
        )

    def _fence(
        self, transactional_id: str, current: Transaction, now_ms: int, fresh_id: int = NO_PRODUCER_ID
    ) -> Decision:
        after = rules.fenced(current, now_ms, self._version(), fresh_id)
        return Decision(
            records=[self._record(transactional_id, after)], after_commit=[_markers(transactional_id, after)]
        )

    def _add(self, command: AddPartitions, now_ms: int) -> Decision:
        current = self._transactions.get(command.transactional_id)
        if command.verify_only:
            partitions = rules.verified(current, command).partitions
            outcomes = dict.fromkeys(command.partitions, ErrorCode.NONE)
            outcomes.update(dict.fromkeys(command.partitions - partitions, ErrorCode.TRANSACTION_ABORTABLE))
            return Decision(reply=outcomes)
        after = rules.extended(current, command, now_ms)
        added = dict.fromkeys(command.partitions, ErrorCode.NONE)
        if after is None:
            return Decision(reply=added)
        return Decision(records=[self._record(command.transactional_id, after)], reply=added)

    def _end(self, command: EndTransaction, now_ms: int) -> Decision:
        current = self._transactions.get(command.transactional_id)
        after = rules.ended(current, command, now_ms)
        own_epoch = command.client_version >= EPOCH_A_TRANSACTION
        if after is None:
            assert current is not None
            return Decision(reply=_end_response(current, own_epoch))
        return Decision(
            records=[self._record(command.transactional_id, after)],
            after_commit=[_markers(command.transactional_id, after)],
            reply=_end_response(after, own_epoch),
        )

    def _complete(self, command: MarkersWritten, now_ms: int) -> Decision:
        """Complete a transaction. A second report changes nothing, and neither does one of an earlier transaction."""
        current = self._transactions.get(command.transactional_id)
        known = current is not None and (current.producer_id, current.epoch) == (
            command.producer_id,
            command.epoch,
        )
        if current is None or not known or current.state not in ENDING:
            return Decision(reply=True)
        after = rules.completed(current, now_ms)
        return Decision(records=[self._record(command.transactional_id, after)], reply=True)

    def _described(self, transactional_id: str) -> Transaction:
        transaction = self._transactions.get(transactional_id)
        if transaction is None:
            raise BrokerError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        return transaction

    def _listed(self, command: ListSome, now_ms: int) -> list[tuple[str, Transaction]]:
        since_ms = now_ms - command.open_longer_than_ms if command.open_longer_than_ms >= 0 else None
        known = self._transactions
        return [
            (transactional_id, transaction)
            for transactional_id in command.transactional_ids
            if (transaction := known.get(transactional_id)) is not None
            and (command.states is None or transaction.state in command.states)
            and (not command.producer_ids or transaction.producer_id in command.producer_ids)
            and (since_ms is None or transaction.started_ms < since_ms)
        ]

    def _abort_timed_out(self, command: AbortTimedOut, now_ms: int) -> Decision:
        ids = tuple(self._open) if command.left is None else command.left
        records: list[CoordinatorRecord] = []
        effects: list[WriteMarkers | FetchProducerId] = []
        room = ABORTS_A_TURN if command.at_most is None else command.at_most
        tried: list[str] = []
        partitions = looked = 0
        for transactional_id in ids[:LOOKS_A_TURN]:
            if len(tried) == room or partitions >= PARTITIONS_A_TURN:
                break
            looked += 1
            current = self._transactions.get(transactional_id)
            if current is None or not rules.timed_out(current, now_ms):
                continue
            tried.append(transactional_id)
            partitions += len(current.partitions)
            try:
                decision = self._fence(transactional_id, current, now_ms)
            except rules.ProducerIdNeeded:
                effects.append(
                    FetchProducerId(
                        transactional_id=transactional_id,
                        producer_id=current.producer_id,
                        epoch=current.epoch,
                    )
                )
                continue
            records += decision.records
            effects += decision.after_commit
        left = ids[looked:]
        return Decision(
            records=records,
            after_commit=effects,
            timers=[self._abort_timer(left)],
            if_too_large=AbortsTooLarge(tuple(tried), left),
        )

    def _abort_by_halves(self, command: AbortsTooLarge) -> Decision:
        ids, left = command.transactional_ids, command.left
        if len(ids) > 1:
            return Decision(timers=[self._abort_timer(ids + (left or ()), len(ids) // 2)])
        current = self._transactions[ids[0]]
        tell = TellCannotAbort(transactional_id=ids[0], partitions=len(current.partitions))
        return Decision(after_commit=[tell], timers=[] if left is None else [self._abort_timer(left)])

    def _abort_exhausted(self, command: AbortExhausted, now_ms: int) -> Decision:
        current = self._transactions.get(command.transactional_id)
        if (
            current is None
            or (current.producer_id, current.epoch) != (command.producer_id, command.epoch)
            or not rules.timed_out(current, now_ms)
        ):
            return Decision(reply=True)
        decision = self._fence(command.transactional_id, current, now_ms, command.fresh_id)
        decision.reply = True
        decision.if_too_large = AbortsTooLarge((command.transactional_id,), None)
        return decision

    def _forget_expired(self, command: ForgetExpired, now_ms: int) -> Decision:
        ids = tuple(self._transactions) if command.left is None else command.left
        records: list[CoordinatorRecord] = []
        looked = 0
        for transactional_id in ids[:LOOKS_A_TURN]:
            looked += 1
            known = self._transactions.get(transactional_id)
            if known is not None and rules.expired(known, now_ms, self._limits.expiration_ms):
                records.append(self._record(transactional_id, None))
                if len(records) == ABORTS_A_TURN:
                    break
        left = ids[looked:]
        return Decision(records=records, timers=[self._forget_timer(left)])


def _markers(transactional_id: str, after: Transaction) -> WriteMarkers:
    return WriteMarkers(
        transactional_id=transactional_id,
        producer_id=after.producer_id,
        epoch=after.epoch,
        commit=after.state is State.PREPARE_COMMIT,
        partitions=after.partitions,
        client_version=after.client_version,
    )


def _end_response(after: Transaction, own_epoch: bool) -> EndTxnResponse:
    """The answer to EndTxn. From v5 on it has the producer id and epoch of the next transaction (KIP-890)."""
    if not own_epoch:
        return EndTxnResponse()
    if after.next_producer_id >= 0:
        return EndTxnResponse(producer_id=after.next_producer_id, producer_epoch=0)
    return EndTxnResponse(producer_id=after.producer_id, producer_epoch=after.epoch)
