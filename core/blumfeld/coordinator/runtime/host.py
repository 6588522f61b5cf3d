"""Hosts one shard: appends the records that commands decide on, replays them at once, and holds replies until commit.

docs/design.md, rule 3. These rules keep clients from seeing state that is lost later:

* A reply waits until everything that was placed before it is committed, because the decision may depend on it. This
  holds for replies to reads, and for errors, too.
* If an append fails or the leadership ends, the shard is dropped, and waiting requests get NOT_COORDINATOR. There is no
  partial rollback: the shard is rebuilt from the log.
* If the log refuses records before any is placed (too large, too few replicas in sync), nothing was replayed, so the
  shard stays. Only the requests of that decision fail.
* An effect beyond the shard waits for the commit like a reply, and a dropped shard performs none. Otherwise a marker
  could end a transaction whose decision is lost.
* A defect while a command is decided fails only that request. Nothing was placed or replayed by then, so the state
  still agrees with the log. A defect during append or replay drops the shard.
* A producer's transactional records are replayed as pending when they are placed. The marker that ends the transaction
  is replayed in log order, and commits or forgets them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from enum import Enum
from typing import Any

from blumfeld.coordinator.runtime.counts import CoordinatorCounts
from blumfeld.coordinator.runtime.record_runs import RecordRun
from blumfeld.coordinator.runtime.shard_contract import (
    CoordinatorLog,
    LogItem,
    PendingShard,
    Shard,
    TransactionalRecord,
    TransactionMarker,
)
from blumfeld.spi.completion import Completion, Steps
from blumfeld.spi.context import RequestContext
from blumfeld.spi.groups import CoordinatorRecord, Decision, TimerOrder
from blumfeld.spi.runtime import Runtime, Timer
from blumfeld.spi.scheduler import Lane, Work
from blumfeld.wire.errors import BrokerError, ErrorCode

REPLAY_STEP_RECORDS = 200
"""Records of one step of a replay."""
RETRY_MS = 500
"""Pause before a timer's command is tried again whose records were refused, or that met a defect (Kafka's
``retryBackoff``)."""
_REFUSALS = {
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}
"""Error of an append that placed nothing, though this node leads → the error for clients, as Kafka maps it. Another
coordinator would refuse a record that is too large, so the client must not be sent to look for one."""


class _Effect:
    """Stands in the queue of replies for an effect that waits for the commit."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


class HostState(Enum):
    """State of a host: replaying its log, taking commands, or given up."""

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
        perform: Callable[[Any], None] | None = None,
    ) -> None:
        """:param dropped: called with the error when the host has given up by itself
        :param loaded: called when the host begins to take commands
        :param undecided: called with a command or an effect and the defect that it met, for the log
        :param perform: called with each effect of a decision after the commit; ``None`` if the shard has no effects
        """
        self.state = HostState.LOADING
        self.was_loaded = False
        """Whether the host has ever been active."""
        self.shard = shard
        self._pending_shard = shard if isinstance(shard, PendingShard) else None
        self._runtime = runtime
        self._log = log
        self._on_dropped = dropped
        self._on_loaded = loaded
        self._on_undecided = undecided
        self._perform = perform
        self.epoch = log.epoch
        """The leader epoch that the shard lives in."""
        self._counts = CoordinatorCounts() if counts is None else counts
        self._began_ms = runtime.monotonic_ms()
        self._loading: Work | None = None
        self._ending: Work | None = None
        """Takes in the rest of large transactions that have ended."""
        self._placed = 0
        self._committed = 0
        self._held: deque[tuple[int, Completion[Any] | _Effect, Any, BrokerError | None]] = deque()
        """(number of the last append before the decision, waiting request or effect, reply, error), in the order of
        decisions."""
        self._releasing = False
        self._waiting: dict[Hashable, Completion[Any]] = {}
        self._timers: dict[tuple[str, ...], Timer] = {}
        self._ended_meanwhile: list[TransactionMarker] = []
        """Markers that were placed during the load. The replay may or may not have reached them."""

    def load(self) -> None:
        """Replay the log: at once if it is short and no other is being replayed, otherwise in later turns.

        Then the host is active, or dropped because its log can't be read.
        """
        if self.state is HostState.LOADING:
            self._loading = self._runtime.scheduler.run(Lane.LOADING, self._load())

    def _load(self) -> Steps[None]:
        left = REPLAY_STEP_RECORDS
        try:
            for item in self._log.records():
                if isinstance(item, Completion):
                    yield item
                    continue
                replayed = self._replay(item)
                self._counts.records_replayed += replayed
                left -= replayed or 1
                if left <= 0:
                    left = REPLAY_STEP_RECORDS
                    yield None
            self._loaded()
        except Exception as error:
            self._drop(error)
            if not isinstance(error, BrokerError | ValueError | OSError):
                raise

    def _replay(self, item: LogItem) -> int:
        """Replay one item. Returns its number of records."""
        if isinstance(item, RecordRun):
            self.shard.replay_run(item)
            return len(item.keys)
        if isinstance(item, CoordinatorRecord):
            self.shard.replay(item)
        elif self._pending_shard is not None:
            self._replay_pending(self._pending_shard, item)
        return 1

    def _replay_pending(self, shard: PendingShard, item: TransactionalRecord | TransactionMarker) -> None:
        if isinstance(item, TransactionalRecord):
            shard.replay_transactional(item.record, item.producer)
        elif shard.end_transaction(item.producer_id, item.committed) and (
            self._ending is None or self._ending.done
        ):
            steps = self._end_more(shard)
            self._ending = self._runtime.scheduler.run(Lane.COORDINATORS, steps, at_once=False)

    def _end_more(self, shard: PendingShard) -> Steps[None]:
        try:
            while shard.end_more():
                yield None
        except Exception as defect:
            self._drop(defect)
            raise

    def _loaded(self) -> None:
        self.state, self.was_loaded = HostState.ACTIVE, True
        self._counts.loaded(self._runtime.monotonic_ms() - self._began_ms)
        # Replaying a marker twice is harmless: the second time nothing is pending.
        for marker in self._ended_meanwhile:
            self._replay(marker)
        self._ended_meanwhile.clear()
        self._wait_for(self._log.committed())
        self._apply(self.shard.loaded(self._runtime.now_ms()), None)
        if self.state is HostState.ACTIVE:
            self._on_loaded()

    def submit(self, command: Any, context: RequestContext | None) -> Completion[Any]:
        """Have the shard decide. Completes with its reply after the commit, or fails with its ``BrokerError``.

        Fails with COORDINATOR_LOAD_IN_PROGRESS during the load, and NOT_COORDINATOR after the host was dropped.
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
        """End a producer's transaction in the shard: its marker was placed in the log in this turn.

        Later replies wait until the marker is committed. A dropped shard finds the marker in the log when it is
        rebuilt.
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
            # The marker is lost, but the load may have replayed it: rebuild from the log.
            self._drop(done.error)

    @property
    def pending(self) -> int:
        """Number of requests that wait for a commit or for another decision, and of effects that wait for a commit."""
        return len(self._held) + len(self._waiting)

    def stop(self) -> None:
        """Stop because the leadership ended. Waiting requests get NOT_COORDINATOR, and ``dropped`` is not called."""
        if self.state is not HostState.DROPPED:
            self._end()

    def _run(self, command: Any, context: RequestContext | None, completion: Completion[Any] | None) -> bool:
        """Run a command. Returns False if a defect or a refused append stopped it: then a timer tries again."""
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
        """Ask the shard for its decision. If this raises, nothing was placed or replayed, and the shard can stay."""
        decision = self.shard.command(command, context, self._runtime.now_ms())
        if decision.producer is not None:
            self._log.check_producer(decision.producer)
        if is_request and decision.deferred is None and decision.reply is None:
            raise RuntimeError("a decision on a request has neither a reply nor a token to wait under")
        if decision.producer is not None and self._pending_shard is None:
            raise RuntimeError("a decision writes in a transaction, and this shard holds nothing pending")
        if decision.after_commit and self._perform is None:
            raise RuntimeError("a decision orders an effect, and this coordinator performs none")
        return decision

    def _fail(self, completion: Completion[Any] | None, error: BrokerError) -> None:
        """Answer a request with an error, after everything placed before it is committed: the error may depend on
        it."""
        if completion is not None:
            # Its traceback leads to the frames that hold the completion: only the garbage collector would free them.
            self._held.append((self._placed, completion, None, error.with_traceback(None)))
            self._release()

    def _apply(self, decision: Decision, completion: Completion[Any] | None) -> bool:
        if completion is not None and decision.deferred is not None:
            self._waiting[decision.deferred] = completion
        if decision.records:
            code = self._append(decision)
            if code is not None and self.state is HostState.ACTIVE:
                self._counts.writes_refused += 1
                if not decision.stands_without_records:
                    self._refuse(decision, completion, code)
                    return False
            elif code is not None:
                if completion is not None and not completion.done:
                    completion.fail(BrokerError(code))
                return True
        for order in decision.timers:
            self._set_timer(order)
        for effect in decision.after_commit:
            self._held.append((self._placed, _Effect(effect), None, None))
        if completion is not None and decision.deferred is None:
            self._held.append((self._placed, completion, decision.reply, None))
        for token, reply in decision.answers:
            waiting = self._waiting.pop(token, None)
            if waiting is not None:
                self._held.append((self._placed, waiting, reply, None))
        self._release()
        return True

    def _refuse(self, decision: Decision, completion: Completion[Any] | None, code: ErrorCode) -> None:
        """Fail the requests of a decision whose records were not placed. The shard is unchanged."""
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
        is_too_large = code is _REFUSALS[ErrorCode.MESSAGE_TOO_LARGE] and decision.if_too_large is not None
        then = decision.if_too_large if is_too_large else decision.if_refused
        if then is not None and self.state is HostState.ACTIVE:
            self._run(then, None, None)

    def _append(self, decision: Decision) -> ErrorCode | None:
        """Place the records and replay them. Returns ``None``, or the error for the request. The shard is dropped,
        unless the log refused the records before it placed any.
        """
        records, producer = decision.records, decision.producer
        try:
            committed = self._log.append(records, producer)
        except BrokerError as error:
            refused = _REFUSALS.get(error.code)
            if refused is not None:
                return refused
            self._drop(error)
            return ErrorCode.NOT_COORDINATOR
        for item in records:
            self._replay(item if producer is None else TransactionalRecord(producer, item))
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
        """Deliver the replies that are due. A receiver may submit another command from its callback; the flag keeps
        that command's reply behind the others."""
        if self._releasing:
            return
        self._releasing = True
        held = self._held
        try:
            while held and held[0][0] <= self._committed:
                _, completion, reply, error = held.popleft()
                if isinstance(completion, _Effect):
                    self._perform_now(completion.value)
                elif error is None:
                    completion.complete(reply)
                else:
                    completion.fail(error)
        finally:
            self._releasing = False

    def _perform_now(self, effect: Any) -> None:
        """Perform one effect. A defect in it is logged: what it was ordered by is committed, so the shard is right."""
        assert self._perform is not None
        try:
            self._perform(effect)
        except Exception as defect:
            self._on_undecided(effect, defect)

    def _set_timer(self, order: TimerOrder) -> None:
        old = self._timers.pop(order.key, None)
        if old is not None:
            old.cancel()
        key, command = order.key, order.command
        if order.delay_ms == 0:
            steps = self._fire_in_turn(key, command)
            self._timers[key] = self._runtime.scheduler.run(Lane.COORDINATORS, steps, at_once=False)
        elif order.delay_ms is not None:
            self._timers[key] = self._runtime.call_later(order.delay_ms, lambda: self._fire(key, command))

    def _fire_in_turn(self, key: tuple[str, ...], command: Any) -> Steps[None]:
        self._fire(key, command)
        yield from ()

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
        for work in (self._loading, self._ending):
            if work is not None:
                work.cancel()  # gives back the file regions of a pending read
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        held = [held[1] for held in self._held if not isinstance(held[1], _Effect)]
        waiters = held + list(self._waiting.values())
        self._held.clear()
        self._waiting.clear()
        for completion in waiters:
            if not completion.done:
                completion.fail(BrokerError(ErrorCode.NOT_COORDINATOR))
