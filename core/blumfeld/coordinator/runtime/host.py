"""A host for one shard: it appends what commands decide, replays it when it is placed, and holds replies until
it is committed.

docs/design.md, rule 3. A reply, also of a read or an error, waits until everything that was placed before it is
committed, for it may have seen it. If an append fails or leadership goes, the shard is dropped and its
waiters get NOT_COORDINATOR; there is no partial rollback.

A defect in a decision costs that request alone: nothing was placed and nothing was replayed, so the state is still
what the log says. A defect while records are appended or replayed drops the shard.

A producer's transactional records are replayed as pending when they are placed; the marker that ends its transaction
makes them count, or forgets them, in its place in the log.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterator
from enum import Enum
from typing import Any

from blumfeld.coordinator.runtime.counts import CoordinatorCounts
from blumfeld.coordinator.runtime.record_runs import RecordRun
from blumfeld.coordinator.runtime.shard_contract import (
    CoordinatorLog,
    LogItem,
    Shard,
    TransactionalRecord,
    TransactionMarker,
)
from blumfeld.spi.completion import Completion
from blumfeld.spi.context import RequestContext
from blumfeld.spi.groups import CoordinatorRecord, Decision, TimerOrder
from blumfeld.spi.runtime import Runtime, Timer
from blumfeld.wire.errors import BrokerError, ErrorCode

REPLAY_SLICE_RECORDS = 2_000
"""Records replayed before other work gets its turn."""
RETRY_MS = 500
"""Pause before a timer's command comes again, if its records were too large or a defect kept it from being decided
(Kafka's ``retryBackoff``)."""


class HostState(Enum):
    """Where a host is in its life."""

    LOADING = "loading"
    ACTIVE = "active"
    DROPPED = "dropped"


class ShardHost:
    """Runs one shard on one log, in one leader epoch."""

    def __init__(
        self,
        runtime: Runtime,
        log: CoordinatorLog,
        shard: Shard,
        dropped: Callable[[BaseException], None],
        loaded: Callable[[], None] = lambda: None,
        counts: CoordinatorCounts | None = None,
        undecided: Callable[[Any, Exception], None] = lambda command, defect: None,
    ) -> None:
        """``loaded`` is called when the host takes commands, ``dropped`` when it has given up by itself.
        ``undecided`` is called with a command that a defect kept the shard from deciding, to log it.
        """
        self.state = HostState.LOADING
        self.was_loaded = False
        """It has taken commands, or could have."""
        self.shard = shard
        self._runtime = runtime
        self._log = log
        self._on_dropped = dropped
        self._on_loaded = loaded
        self._on_undecided = undecided
        self._counts = CoordinatorCounts() if counts is None else counts
        self._began_ms = runtime.monotonic_ms()
        self._replaying: Iterator[LogItem | Completion[Any]] | None = None
        self.waits_for: Completion[Any] | None = None
        """Of a load: there is no use in another slice before this is done."""
        self._placed = 0
        self._committed = 0
        self._held: deque[tuple[int, Completion[Any], Any, BrokerError | None]] = deque()
        """(number of the last append that it may have seen, whom, reply, or error), in the order of the decisions."""
        self._releasing = False
        self._waiting: dict[Hashable, Completion[Any]] = {}
        self._timers: dict[tuple[str, ...], Timer] = {}
        self._ended_meanwhile: list[TransactionMarker] = []
        """Placed while the log was being replayed, perhaps behind what that gives."""

    def load_slice(self) -> bool:
        """Replay some more of the log: about as many records as a slice may have. Whether there is more to replay; if
        not, the host is active, or dropped because its log can't be read.
        """
        if self.state is not HostState.LOADING:
            return False
        self.waits_for = None
        try:
            left = REPLAY_SLICE_RECORDS
            if self._replaying is None:
                self._replaying = self._log.records()
            while left > 0:
                item = next(self._replaying, None)
                if item is None:
                    self._loaded()
                    return False
                if isinstance(item, Completion):
                    if not item.done:
                        self.waits_for = item
                        return True
                    continue
                replayed = self._replay(item)
                self._counts.records_replayed += replayed
                left -= replayed or 1
        except Exception as error:
            self._drop(error)
            if not isinstance(error, BrokerError | ValueError | OSError):
                raise
            return False
        return True

    def _replay(self, item: LogItem) -> int:
        """How many records it was."""
        if isinstance(item, RecordRun):
            self.shard.replay_run(item)
            return len(item.keys)
        if isinstance(item, CoordinatorRecord):
            self.shard.replay(item)
        elif isinstance(item, TransactionalRecord):
            self.shard.replay_transactional(item.record, item.producer)
        else:
            self.shard.end_transaction(item.producer_id, item.committed)
        return 1

    def _loaded(self) -> None:
        self.state, self.was_loaded, self._replaying = HostState.ACTIVE, True, None
        self._counts.loaded(self._runtime.monotonic_ms() - self._began_ms)
        for marker in self._ended_meanwhile:  # those that the log gave already find nothing pending
            self._replay(marker)
        self._ended_meanwhile.clear()
        self._wait_for(self._log.committed())
        self._apply(self.shard.loaded(self._runtime.now_ms()), None)
        if self.state is HostState.ACTIVE:
            self._on_loaded()

    def submit(self, command: Any, context: RequestContext | None) -> Completion[Any]:
        """Have the shard decide; completes with its reply once that is committed, or fails with its
        ``BrokerError``.
        """
        completion: Completion[Any] = Completion()
        if self.state is not HostState.ACTIVE:
            loading = self.state is HostState.LOADING
            code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if loading else ErrorCode.NOT_COORDINATOR
            completion.fail(BrokerError(code))
            return completion
        self._run(command, context, completion)
        return completion

    def transaction_ended(self, producer_id: int, committed: bool) -> None:
        """A marker was placed in the log just now: the shard ends the transaction, and what it then tells waits until
        the marker is committed. A shard that is dropped finds the marker in its log when it is rebuilt.
        """
        marker = TransactionMarker(producer_id, committed)
        if self.state is HostState.LOADING:
            self._ended_meanwhile.append(marker)
            self._log.committed().when_done(self._marker_committed)
        elif self.state is HostState.ACTIVE:
            try:
                self._replay(marker)
            except Exception as defect:
                self._drop(defect)
                raise
            self._wait_for(self._log.committed())

    def _marker_committed(self, done: Completion[None]) -> None:
        if done.error is not None:
            self._drop(done.error)  # the transaction has not ended

    @property
    def pending(self) -> int:
        """Requests that wait for an answer: for a commit, or for another decision."""
        return len(self._held) + len(self._waiting)

    def stop(self) -> None:
        """Leadership has gone: waiters get NOT_COORDINATOR, and ``dropped`` is not called."""
        if self.state is not HostState.DROPPED:
            self._end()

    def _run(self, command: Any, context: RequestContext | None, completion: Completion[Any] | None) -> bool:
        """Returns whether the command was decided on, or refused by the rules; a timer's command that was not comes
        again.
        """
        try:
            decision = self._decide(command, context, completion is not None)
        except BrokerError as error:
            self._fail(completion, error)
            return True
        except Exception as defect:
            self._on_undecided(command, defect)
            self._fail(completion, BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR))
            return False
        try:
            return self._apply(decision, completion)
        except Exception as defect:
            self._drop(defect)  # half applied: the state in memory may differ from the log
            raise

    def _decide(self, command: Any, context: RequestContext | None, is_request: bool) -> Decision:
        """Ask the shard. Whatever this raises, nothing was placed and nothing was replayed."""
        decision = self.shard.command(command, context, self._runtime.now_ms())
        if decision.producer is not None:
            self._log.check_producer(decision.producer)
        if is_request and decision.deferred is None and decision.reply is None:
            raise RuntimeError("a decision on a request has neither a reply nor a token to wait under")
        return decision

    def _fail(self, completion: Completion[Any] | None, error: BrokerError) -> None:
        """Answer a request with an error, behind all that was placed before it: the decision may have seen that."""
        if completion is not None:
            self._held.append((self._placed, completion, None, error))
            self._release()

    def _apply(self, decision: Decision, completion: Completion[Any] | None) -> bool:
        if completion is not None and decision.deferred is not None:
            self._waiting[decision.deferred] = completion
        if decision.records:
            code = self._append(decision)
            if code is not None and self.state is HostState.ACTIVE:
                self._refuse(decision, completion, code)
                return False
            if code is not None:
                if completion is not None and not completion.done:
                    completion.fail(BrokerError(code))
                return True
        for order in decision.timers:
            self._set_timer(order)
        if completion is not None and decision.deferred is None:
            self._held.append((self._placed, completion, decision.reply, None))
        for token, reply in decision.answers:
            waiting = self._waiting.pop(token, None)
            if waiting is not None:
                self._held.append((self._placed, waiting, reply, None))
        self._release()
        return True

    def _refuse(self, decision: Decision, completion: Completion[Any] | None, code: ErrorCode) -> None:
        """Nothing was placed: who waits for it is told, and the shard is as it was."""
        tokens = [token for token, _ in decision.answers]
        if decision.deferred is not None:
            tokens.append(decision.deferred)
        elif completion is not None:
            self._held.append((self._placed, completion, None, BrokerError(code)))
        for token in tokens:
            waiting = self._waiting.pop(token, None)
            if waiting is not None:
                self._held.append((self._placed, waiting, None, BrokerError(code)))
        self._release()
        if decision.if_refused is not None and self.state is HostState.ACTIVE:
            self._run(decision.if_refused, None, None)

    def _append(self, decision: Decision) -> ErrorCode | None:
        """Place and replay. Else the shard is dropped, unless a record is too large and the decision can be refused;
        and this is what the request is answered.
        """
        records, producer = decision.records, decision.producer
        try:
            committed = self._log.append(records, producer)
        except BrokerError as error:
            too_large = error.code is ErrorCode.MESSAGE_TOO_LARGE  # and will be at any coordinator
            if not (too_large and decision.refusable):
                self._drop(error)
            return ErrorCode.UNKNOWN_SERVER_ERROR if too_large else ErrorCode.NOT_COORDINATOR
        if producer is None:
            for item in records:
                self.shard.replay(item)
        else:
            for item in records:
                self.shard.replay_transactional(item, producer)
        self._counts.records_appended += len(records)
        self._wait_for(committed)
        return None if self.state is HostState.ACTIVE else ErrorCode.NOT_COORDINATOR

    def _wait_for(self, committed: Completion[None]) -> None:
        self._placed += 1
        number = self._placed
        committed.when_done(lambda done: self._when_committed(number, done))

    def _when_committed(self, number: int, done: Completion[None]) -> None:
        if self.state is not HostState.ACTIVE:
            return
        if done.error is not None:
            self._drop(done.error)
            return
        self._committed = number
        self._release()

    def _release(self) -> None:
        """Deliver what waits no longer. Who is told may submit again: his reply takes its place behind the others."""
        if self._releasing:
            return
        self._releasing = True
        held = self._held
        try:
            while held and held[0][0] <= self._committed:
                _, completion, reply, error = held.popleft()
                if error is None:
                    completion.complete(reply)
                else:
                    completion.fail(error)
        finally:
            self._releasing = False

    def _set_timer(self, order: TimerOrder) -> None:
        old = self._timers.pop(order.key, None)
        if old is not None:
            old.cancel()
        if order.delay_ms is not None:
            key, command = order.key, order.command
            self._timers[key] = self._runtime.call_later(order.delay_ms, lambda: self._fire(key, command))

    def _fire(self, key: tuple[str, ...], command: Any) -> None:
        self._timers.pop(key, None)
        if self.state is not HostState.ACTIVE:
            return
        if not self._run(command, None, None) and key not in self._timers:
            self._set_timer(TimerOrder(key, RETRY_MS, command))

    def _drop(self, error: BaseException) -> None:
        if self.state is HostState.DROPPED:
            return
        self._end()
        self._on_dropped(error)

    def _end(self) -> None:
        self.state = HostState.DROPPED
        self._replaying = None  # what it waits for is not wanted any more
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        waiters = [held[1] for held in self._held] + list(self._waiting.values())
        self._held.clear()
        self._waiting.clear()
        for completion in waiters:
            if not completion.done:
                completion.fail(BrokerError(ErrorCode.NOT_COORDINATOR))
