"""A host of one shard: what it holds back, what it gives up, and how it begins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from blumfeld.coordinator.runtime.host import REPLAY_STEP_RECORDS, RETRY_MS, HostState, ShardHost
from blumfeld.coordinator.runtime.record_runs import RecordRun
from blumfeld.coordinator.runtime.shard_contract import TransactionalRecord, TransactionMarker
from blumfeld.spi.completion import Completion
from blumfeld.spi.context import RequestContext
from blumfeld.spi.groups import CoordinatorRecord, Decision, Producer, TimerOrder
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld_kit.fakes.loop import SimulationError
from blumfeld_kit.fakes.runtime import FakeRuntime
from tests.coordinator.fakes import FakeLog, code_of

DEFECTIVE = 666
"""A producer whose transactions can't be ended."""
LARGE = 667
"""A producer whose pending records are committed one a turn."""


def entry(text: str) -> CoordinatorRecord:
    return CoordinatorRecord(b"\x00\x01", text.encode())


class Notes:
    """A shard that remembers texts. A command is the function that decides on it."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.pending: dict[int, list[str]] = {}
        self.ending: list[str] = []
        self.begin = Decision()

    def replay(self, item: CoordinatorRecord) -> None:
        assert item.value is not None
        if item.value == b"defect":
            raise ZeroDivisionError
        self.notes.append(item.value.decode())

    def replay_run(self, run: RecordRun) -> None:
        for key, value in zip(*run, strict=True):
            self.replay(CoordinatorRecord(key, value))

    def replay_transactional(self, item: CoordinatorRecord, producer: Producer) -> None:
        assert item.value is not None
        self.pending.setdefault(producer.producer_id, []).append(item.value.decode())

    def end_transaction(self, producer_id: int, committed: bool) -> bool:
        if producer_id == DEFECTIVE:
            raise ZeroDivisionError
        if producer_id == LARGE:
            self.ending = self.pending.pop(LARGE)
            return True
        pending = self.pending.pop(producer_id, [])
        if committed:
            self.notes += pending
        return False

    def end_more(self) -> bool:
        if self.ending[0] == "defect":
            raise ZeroDivisionError
        self.notes.append(self.ending.pop(0))
        return bool(self.ending)

    def command(self, command: Any, context: RequestContext | None, now_ms: int) -> Decision:
        decided: Decision = command(self)
        return decided

    def loaded(self, now_ms: int) -> Decision:
        return self.begin


Command = Callable[[Notes], Decision]


def note(text: str) -> Command:
    return lambda _: Decision(records=[entry(text)], reply=f"noted {text}")


def read(shard: Notes) -> Decision:
    return Decision(reply=list(shard.notes))


def refuse(_: Notes) -> Decision:
    raise BrokerError(ErrorCode.ILLEGAL_GENERATION)


def set_timer(order: TimerOrder) -> Command:
    """Answer, and set a timer."""
    return lambda _: Decision(reply=1, timers=[order])


def fail(_: Notes) -> Decision:
    """A mistake of ours."""
    raise ZeroDivisionError


def park(token: str) -> Command:
    return lambda _: Decision(deferred=token)


class Stage:
    """A host with its surroundings."""

    def __init__(self, log: FakeLog | None = None, *, load: bool = True) -> None:
        self.runtime = FakeRuntime()
        self.log = log if log is not None else FakeLog(hold=True)
        self.shard = Notes()
        self.dropped: list[BaseException] = []
        self.undecided: list[BaseException] = []
        self.host = ShardHost(
            self.runtime,
            self.log,
            self.shard,
            self.dropped.append,
            undecided=lambda _, defect: self.undecided.append(defect),
            perform=self._perform,
        )
        self.effects: list[Any] = []
        if load:
            self.load()

    def load(self) -> None:
        self.host.load()

    def _perform(self, effect: Any) -> None:
        if effect.startswith("defect"):
            raise ZeroDivisionError
        self.effects.append(effect)

    def submit(self, command: Command) -> Completion[Any]:
        return self.host.submit(command, None)


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_a_reply_waits_until_its_records_are_committed(stage: Stage) -> None:
    answer = stage.submit(note("a"))
    assert stage.shard.notes == ["a"], "the next command sees it"
    assert not answer.done
    stage.log.commit()
    assert answer.result() == "noted a"


def test_a_read_waits_for_what_it_saw(stage: Stage) -> None:
    stage.submit(note("a"))
    seen = stage.submit(read)
    assert not seen.done
    stage.log.commit()
    assert seen.result() == ["a"]


def test_an_error_waits_for_what_it_saw(stage: Stage) -> None:
    stage.submit(note("a"))
    refused = stage.submit(refuse)
    assert not refused.done
    stage.log.commit()
    assert code_of(refused) is ErrorCode.ILLEGAL_GENERATION


def test_a_read_does_not_wait_for_what_came_after_it(stage: Stage) -> None:
    stage.submit(note("a"))
    seen = stage.submit(read)
    later = stage.submit(note("b"))
    stage.log.commit(1)
    assert seen.result() == ["a"]
    assert not later.done


def test_without_anything_uncommitted_answers_are_there_at_once(stage: Stage) -> None:
    assert stage.submit(read).result() == []
    assert code_of(stage.submit(refuse)) is ErrorCode.ILLEGAL_GENERATION


def test_replies_come_in_the_order_of_the_decisions(stage: Stage) -> None:
    order: list[str] = []

    def expect(name: str, command: Command) -> None:
        stage.submit(command).when_done(lambda _: order.append(name))

    for name, command in (("a", note("a")), ("read", read), ("b", note("b")), ("refuse", refuse)):
        expect(name, command)
    stage.log.commit()
    assert order == ["a", "read", "b", "refuse"]


def test_who_is_answered_may_submit_at_once(stage: Stage) -> None:
    order: list[str] = []
    first = stage.submit(note("a"))
    second = stage.submit(read)

    def again(_: Completion[Any]) -> None:
        order.append("first")
        stage.submit(read).when_done(lambda _: order.append("nested"))

    first.when_done(again)
    second.when_done(lambda _: order.append("second"))
    stage.log.commit()
    assert order == ["first", "second", "nested"]


def test_a_parked_request_is_answered_by_another_decision(stage: Stage) -> None:
    waiting = stage.submit(park("t"))
    done = stage.submit(
        lambda _: Decision(records=[entry("a")], reply="leader", answers=[("t", "follower"), ("?", "nobody")])
    )
    assert not waiting.done
    stage.log.commit()
    assert (waiting.result(), done.result()) == ("follower", "leader")


def test_a_decision_may_answer_the_very_request_that_it_parks(stage: Stage) -> None:
    assert stage.submit(lambda _: Decision(deferred="t", answers=[("t", "now")])).result() == "now"


def test_a_decision_without_reply_or_token_is_a_defect(stage: Stage) -> None:
    answer = stage.submit(lambda _: Decision())
    assert code_of(answer) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert "neither a reply nor a token" in str(stage.undecided[0])


def test_timers_come_back_as_commands() -> None:
    """A later order for the same key replaces the earlier, ``None`` cancels."""
    stage = Stage(FakeLog())
    for order in (
        TimerOrder(("x",), 100, note("early")),
        TimerOrder(("x",), 200, note("late")),
        TimerOrder(("y",), 50, note("y")),
        TimerOrder(("z",), 10, note("never")),
    ):
        stage.submit(set_timer(order))
    stage.submit(set_timer(TimerOrder(("z",), None)))
    stage.runtime.advance(199)
    assert stage.shard.notes == ["y"]
    stage.runtime.advance(1)
    assert stage.shard.notes == ["y", "late"]


def test_a_timer_whose_command_is_refused_does_no_harm(stage: Stage) -> None:
    stage.submit(set_timer(TimerOrder(("x",), 5, refuse)))
    stage.runtime.advance(10)
    assert stage.host.state is HostState.ACTIVE


@pytest.mark.parametrize("how", ["append", "commit"])
def test_a_failed_append_drops_the_shard(stage: Stage, how: str) -> None:
    """Everyone who waits gets NOT_COORDINATOR, timers are gone, and the driver is told: no partial rollback."""
    parked = stage.submit(park("t"))
    stage.submit(set_timer(TimerOrder(("x",), 5, note("timer"))))
    held = stage.submit(note("a"))
    if how == "append":
        stage.log.refuse = ErrorCode.KAFKA_STORAGE_ERROR
        assert code_of(stage.submit(note("b"))) is ErrorCode.NOT_COORDINATOR
    else:
        stage.log.fail(ErrorCode.KAFKA_STORAGE_ERROR)
    assert [code_of(parked), code_of(held)] == [ErrorCode.NOT_COORDINATOR] * 2
    assert stage.host.state is HostState.DROPPED
    assert len(stage.dropped) == 1
    assert code_of(stage.submit(read)) is ErrorCode.NOT_COORDINATOR
    stage.runtime.advance(10)
    stage.log.commit()
    assert "timer" not in stage.shard.notes


DECISION = Decision(
    records=[entry("a")],
    deferred="u",
    timers=[TimerOrder(("x",), 5, note("timer"))],
    answers=[("t", 1)],
    after_commit=["effect"],
    if_refused=note("mended"),
)


def test_what_was_decided_with_a_failed_append_is_void(stage: Stage) -> None:
    parked = stage.submit(park("t"))
    stage.log.refuse = ErrorCode.KAFKA_STORAGE_ERROR
    answer = stage.submit(lambda _: DECISION)
    assert [code_of(parked), code_of(answer)] == [ErrorCode.NOT_COORDINATOR] * 2
    stage.runtime.advance(10)
    assert stage.shard.notes == []


@pytest.mark.parametrize(
    ("refused", "answer_code"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_records_that_the_log_refuses_fail_only_their_decision(
    stage: Stage, refused: ErrorCode, answer_code: ErrorCode
) -> None:
    """Its requests get the error, its timers and effects are void, and the shard and other requests stay."""
    other, parked = stage.submit(park("other")), stage.submit(park("t"))
    stage.log.refuse = refused
    answer = stage.submit(lambda _: DECISION)
    assert [code_of(parked), code_of(answer)] == [answer_code] * 2
    assert stage.shard.notes == ["mended"]
    stage.runtime.advance(10)
    stage.log.commit()
    assert stage.shard.notes == ["mended"]
    assert stage.effects == []
    assert not other.done
    assert stage.host.state is HostState.ACTIVE


@pytest.mark.parametrize(
    ("refused", "note_of"),
    [(ErrorCode.NOT_ENOUGH_REPLICAS, "mended"), (ErrorCode.MESSAGE_TOO_LARGE, "smaller")],
)
def test_a_decision_that_is_too_large_has_a_command_of_its_own(
    stage: Stage, refused: ErrorCode, note_of: str
) -> None:
    stage.log.refuse = refused
    stage.submit(
        lambda _: Decision(
            records=[entry("a")], reply=1, if_refused=note("mended"), if_too_large=note("smaller")
        )
    )
    assert stage.shard.notes == [note_of]


def test_a_decision_may_stand_without_its_records(stage: Stage) -> None:
    stage.log.refuse = ErrorCode.NOT_ENOUGH_REPLICAS
    answer = stage.submit(
        lambda _: Decision(
            records=[entry("a")],
            reply=1,
            timers=[TimerOrder(("x",), 5, note("timer"))],
            stands_without_records=True,
        )
    )
    assert answer.result() == 1
    stage.runtime.advance(10)
    assert stage.shard.notes == ["timer"]


def test_a_timer_whose_records_are_refused_comes_again(stage: Stage) -> None:
    stage.submit(set_timer(TimerOrder(("x",), 5, note("timer"))))
    stage.log.refuse = ErrorCode.NOT_ENOUGH_REPLICAS
    stage.runtime.advance(5)
    assert stage.shard.notes == []
    stage.runtime.advance(RETRY_MS)
    assert stage.shard.notes == ["timer"]


def effect(name: str) -> Command:
    """Write the name, order an effect of that name, and answer with it."""
    return lambda _: Decision(records=[entry(name)], reply=name, after_commit=[name])


def test_an_effect_waits_for_its_commit_and_goes_before_its_reply(stage: Stage) -> None:
    """A marker that left before PrepareCommit is committed could end a transaction that is still open for a
    successor.
    """
    for name in ("a", "b"):
        stage.submit(effect(name)).when_done(lambda done: stage.effects.append(f"reply {done.result()}"))
    assert stage.effects == []
    stage.log.commit(1)
    assert stage.effects == ["a", "reply a"]
    stage.log.commit()
    assert stage.effects == ["a", "reply a", "b", "reply b"]


@pytest.mark.parametrize("end", ["fail", "stop"])
def test_a_shard_that_ends_before_the_commit_performs_nothing(stage: Stage, end: str) -> None:
    answer = stage.submit(effect("a"))
    if end == "fail":
        stage.log.fail(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    else:
        stage.host.stop()
    stage.log.commit()
    assert code_of(answer) is ErrorCode.NOT_COORDINATOR
    assert stage.effects == []


def test_a_loaded_shard_performs_what_its_log_still_orders() -> None:
    """But not before that log is committed: the former leader may not have replicated the end of it."""
    log = FakeLog([entry("a")], hold=True)
    log.ahead = Completion()
    stage = Stage(log, load=False)
    stage.shard.begin = Decision(after_commit=["a"])
    stage.load()
    assert stage.effects == []
    log.ahead.complete(None)
    assert stage.effects == ["a"]


def test_a_defect_in_an_effect_is_logged_and_costs_nothing_else(stage: Stage) -> None:
    answer = stage.submit(effect("defect in the effect"))
    stage.log.commit()
    assert answer.result() == "defect in the effect"
    assert [type(defect) for defect in stage.undecided] == [ZeroDivisionError]
    assert stage.host.state is HostState.ACTIVE


def test_stopping_refuses_who_waits_and_calls_nobody_back(stage: Stage) -> None:
    parked, held = stage.submit(park("t")), stage.submit(note("a"))
    stage.host.stop()
    assert [code_of(parked), code_of(held)] == [ErrorCode.NOT_COORDINATOR] * 2
    assert not stage.dropped
    stage.log.commit()
    stage.host.stop()


def test_a_defect_in_a_decision_costs_that_request_alone(stage: Stage) -> None:
    """Nothing was placed, so the state is what the log says. Waiting requests and the next command are served."""
    parked = stage.submit(park("t"))
    noted = stage.submit(note("a"))
    failed = stage.submit(fail)
    assert not failed.done, "it may have seen what is not committed"
    stage.log.commit()
    assert code_of(failed) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert noted.result() == "noted a"
    assert [type(defect) for defect in stage.undecided] == [ZeroDivisionError]
    stage.submit(lambda _: Decision(reply=1, answers=[("t", "served")]))
    assert parked.result() == "served"
    assert not stage.dropped


def test_a_defect_in_a_replay_drops_the_shard_and_is_not_hidden(stage: Stage) -> None:
    parked = stage.submit(park("t"))
    with pytest.raises(ZeroDivisionError):
        stage.submit(note("defect"))
    assert code_of(parked) is ErrorCode.NOT_COORDINATOR
    assert isinstance(stage.dropped[0], ZeroDivisionError)


def test_a_timers_command_that_meets_a_defect_comes_again() -> None:
    """A rebalance whose timer died would never end. The defect may depend on a state that has passed by then."""
    stage = Stage(FakeLog())
    tries: list[int] = []

    def fails_twice(shard: Notes) -> Decision:
        tries.append(1)
        return fail(shard) if len(tries) < 3 else note("at last")(shard)

    stage.submit(set_timer(TimerOrder(("x",), 5, fails_twice)))
    stage.runtime.advance(5 + 2 * RETRY_MS)
    assert stage.shard.notes == ["at last"]
    assert len(stage.undecided) == 2
    assert not stage.dropped


def test_a_short_log_is_loaded_when_load_returns() -> None:
    stage = Stage(FakeLog([entry("a"), entry("b")]), load=False)
    stage.shard.begin = Decision(records=[entry("c")], timers=[TimerOrder(("x",), 5, note("d"))])
    assert code_of(stage.submit(read)) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    stage.host.load()
    stage.runtime.advance(5)
    assert stage.shard.notes == ["a", "b", "c", "d"]


def test_a_long_log_is_loaded_in_slices() -> None:
    stage = Stage(FakeLog([entry(str(n)) for n in range(REPLAY_STEP_RECORDS * 2 + 1)]))
    assert len(stage.shard.notes) == REPLAY_STEP_RECORDS
    assert code_of(stage.submit(read)) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    stage.runtime.run_turn()
    assert len(stage.submit(read).result()) == REPLAY_STEP_RECORDS * 2 + 1


def test_a_shard_that_is_stopped_while_it_loads_stays_stopped() -> None:
    stage = Stage(FakeLog([entry(str(n)) for n in range(REPLAY_STEP_RECORDS + 1)]))
    stage.host.stop()
    stage.runtime.run_turn()
    assert stage.host.state is HostState.DROPPED
    assert len(stage.shard.notes) == REPLAY_STEP_RECORDS


def test_a_log_that_can_not_be_read_drops_the_shard() -> None:
    log = FakeLog()
    log.broken = OSError("gone")
    stage = Stage(log)
    assert stage.host.state is HostState.DROPPED
    assert stage.dropped == [log.broken]


def test_a_new_leaders_answers_wait_until_what_it_loaded_is_committed() -> None:
    """Its log may hold more than the high watermark has passed, and that may be lost with it."""
    log = FakeLog([entry("a")], hold=True)
    log.ahead = Completion()
    stage = Stage(log)
    seen, noted = stage.submit(read), stage.submit(note("b"))
    assert not seen.done
    log.ahead.complete(None)
    assert seen.result() == ["a"]
    assert not noted.done


def test_a_new_leader_that_can_not_commit_what_it_loaded_gives_up() -> None:
    log = FakeLog([entry("a")])
    log.ahead = Completion()
    stage = Stage(log)
    seen = stage.submit(read)
    log.ahead.fail(BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    assert code_of(seen) is ErrorCode.NOT_COORDINATOR


PRODUCER = Producer(7, 0)


def note_in_transaction(text: str) -> Command:
    """Write a text that counts once the producer's transaction is committed."""
    return lambda _: Decision(records=[entry(text)], reply=f"pending {text}", producer=PRODUCER)


def test_a_producers_records_are_pending_when_they_are_placed(stage: Stage) -> None:
    answer = stage.submit(note_in_transaction("a"))
    assert stage.log.items == [TransactionalRecord(PRODUCER, entry("a"))]
    assert stage.shard.pending == {7: ["a"]}
    assert stage.shard.notes == []
    assert not answer.done
    stage.log.commit()
    assert answer.result() == "pending a"


@pytest.mark.parametrize("committed", [True, False])
def test_a_marker_ends_the_transaction_where_it_was_placed(committed: bool) -> None:
    stage = Stage(FakeLog())
    stage.submit(note_in_transaction("a"))
    stage.log.end_transaction(7, committed)
    stage.log.ahead = Completion()
    stage.host.transaction_ended(7, committed)
    seen = stage.submit(read)
    assert not seen.done
    stage.log.ahead.complete(None)
    assert seen.result() == (["a"] if committed else [])


def test_a_marker_without_a_transaction_does_nothing() -> None:
    stage = Stage(FakeLog())
    stage.submit(note("a"))
    stage.host.transaction_ended(7, True)
    stage.host.transaction_ended(7, True)
    assert stage.submit(read).result() == ["a"]


class Plain:
    """A shard that holds nothing pending."""

    def __init__(self) -> None:
        notes = self._notes = Notes()
        self.replay, self.replay_run, self.loaded = notes.replay, notes.replay_run, notes.loaded

    def command(self, command: Any, context: RequestContext | None, now_ms: int) -> Decision:
        return self._notes.command(command, context, now_ms)


def test_a_shard_that_holds_nothing_pending_is_given_no_transaction() -> None:
    """Its topic takes none. A record that came there otherwise must not stop a load, and no decision can write one."""
    log = FakeLog([TransactionalRecord(PRODUCER, entry("a")), entry("b"), TransactionMarker(7, True)])
    undecided: list[BaseException] = []
    host = ShardHost(
        FakeRuntime(), log, Plain(), undecided.append, undecided=lambda _, defect: undecided.append(defect)
    )
    host.load()
    host.transaction_ended(7, True)
    assert host.submit(read, None).result() == ["b"]
    assert code_of(host.submit(note_in_transaction("c"), None)) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert (host.state, len(undecided), len(log.items)) == (HostState.ACTIVE, 1, 3)


def test_transactions_are_replayed_in_the_order_of_the_log() -> None:
    other = Producer(8, 0)
    log = FakeLog(
        [
            TransactionalRecord(PRODUCER, entry("a")),
            TransactionalRecord(other, entry("b")),
            entry("plain"),
            TransactionMarker(7, True),
            TransactionalRecord(PRODUCER, entry("c")),
            TransactionMarker(8, False),
        ]
    )
    stage = Stage(log)
    assert stage.shard.notes == ["plain", "a"]
    assert stage.shard.pending == {7: ["c"]}


def test_a_marker_that_comes_during_the_load_is_not_missed() -> None:
    log = FakeLog(
        [TransactionalRecord(PRODUCER, entry("a"))] + [entry(str(n)) for n in range(REPLAY_STEP_RECORDS)]
    )
    stage = Stage(log)
    assert stage.host.state is HostState.LOADING
    stage.host.transaction_ended(7, True)
    assert stage.shard.pending == {7: ["a"]}, (
        "the log may have it, too: only behind all that is replayed it ends"
    )
    stage.runtime.run_turn()
    assert stage.shard.notes[-1] == "a"
    assert stage.submit(read).done


def test_a_marker_that_comes_during_the_load_and_is_lost_ends_nothing() -> None:
    log = FakeLog([TransactionalRecord(PRODUCER, entry("a"))] + [entry("x")] * REPLAY_STEP_RECORDS)
    stage = Stage(log)
    log.ahead = Completion()
    stage.host.transaction_ended(7, True)
    log.ahead.fail(BrokerError(ErrorCode.KAFKA_STORAGE_ERROR))
    assert stage.host.state is HostState.DROPPED
    assert len(stage.dropped) == 1


def large(*texts: str) -> Stage:
    producer = Producer(LARGE, 0)
    return Stage(FakeLog([TransactionalRecord(producer, entry(text)) for text in texts]))


def test_the_end_of_a_large_transaction_takes_several_turns() -> None:
    stage = large("a", "b", "c")
    stage.host.transaction_ended(LARGE, True)
    seen = [list(stage.shard.notes)]
    while stage.runtime.loop._ready:  # type: ignore[attr-defined]
        stage.runtime.loop._one_turn()
        seen.append(list(stage.shard.notes))
    assert seen[:4] == [[], ["a"], ["a", "b"], ["a", "b", "c"]]


def test_a_dropped_shard_ends_no_more_of_a_large_transaction() -> None:
    stage = large("a", "b")
    stage.host.transaction_ended(LARGE, True)
    stage.host.stop()
    stage.runtime.run_turn()
    assert stage.shard.notes == []


def test_a_defect_in_a_later_turn_of_a_large_transaction_costs_the_shard() -> None:
    stage = large("a", "defect")
    stage.host.transaction_ended(LARGE, True)
    with pytest.raises(SimulationError):
        stage.runtime.run_turn()
    assert stage.host.state is HostState.DROPPED
    assert len(stage.dropped) == 1


def test_a_defect_at_the_end_of_a_transaction_costs_the_shard() -> None:
    stage = Stage(FakeLog())
    with pytest.raises(ZeroDivisionError):
        stage.host.transaction_ended(DEFECTIVE, True)
    assert stage.host.state is HostState.DROPPED
    stage.host.transaction_ended(DEFECTIVE, True)
    assert len(stage.dropped) == 1
