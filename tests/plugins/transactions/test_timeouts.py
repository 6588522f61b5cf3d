"""Timeouts of many transactions, of those that need a producer id, and of those whose record the log doesn't take."""

from __future__ import annotations

from typing import Any, cast

import pytest
from msgspec.structs import replace

from blumfeld.coordinator.runtime.host import ShardHost
from blumfeld.spi.cluster import TOPIC_RESOURCE, ImageDelta
from blumfeld.spi.completion import Completion
from blumfeld.spi.internal_topics import TRANSACTIONS_TOPIC
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.end_txn import EndTxnRequest
from blumfeld_kit.fakes.runtime import FakeRuntime
from blumfeld_transactions.commands import AbortExhausted, AbortTimedOut, FetchProducerId
from blumfeld_transactions.shard import ABORTS_A_TURN, LOOKS_A_TURN, PARTITIONS_A_TURN, TransactionShard
from blumfeld_transactions.timeouts import TimeoutEffects
from blumfeld_transactions.transaction import State, Transaction, TransactionRecord, record
from tests.plugins.transactions.rows import EPOCH, FRESH, ID, LAST, PRODUCER, START_MS, apply, shard_in
from tests.plugins.transactions.test_on_broker import ID as TAKEN
from tests.plugins.transactions.test_on_broker import Transacting

LATE_MS = START_MS + 60_001


def open_many(count: int, epoch: int = EPOCH) -> TransactionShard:
    shard = shard_in(State.ONGOING, 2, epoch)
    known = shard.find(ID)
    assert known is not None
    for number in range(count - 1):
        shard.replay(TransactionRecord(b"", b"", f"tx-{number}", known))
    return shard


def turns(shard: TransactionShard) -> list[list[Any]]:
    """Look at timeouts until the next look is that of the interval. Returns the effects of each turn."""
    command: Any = AbortTimedOut()
    effects = []
    for _ in range(10):
        decision = apply(shard, command, LATE_MS)
        effects.append(list(decision.after_commit))
        (order,) = decision.timers
        if order.delay_ms:
            return effects
        command = order.command
    raise AssertionError("no turn was the last")


def test_many_timeouts_take_several_turns() -> None:
    shard = open_many(ABORTS_A_TURN + 1)
    assert [len(turn) for turn in turns(shard)] == [ABORTS_A_TURN, 1]
    assert not shard.open


def large(state: State, count: int = 4) -> TransactionShard:
    """A shard with transactions of which two have more partitions than a turn takes."""
    shard = open_many(1)
    known = shard.find(ID)
    assert known is not None
    partitions = frozenset(("large", index) for index in range(PARTITIONS_A_TURN * 3 // 4))
    for number in range(count):
        changed = replace(known, state=state, partitions=partitions)
        shard.replay(TransactionRecord(b"", b"", f"tx-{number}", changed))
    return shard


def test_timeouts_of_large_transactions_take_several_turns() -> None:
    assert [len(turn) for turn in turns(large(State.ONGOING))] == [3, 2]


def test_a_load_orders_the_markers_of_large_transactions_turn_by_turn() -> None:
    """The markers of all transactions that a failed coordinator had decided on were ordered in one turn."""
    shard = large(State.PREPARE_COMMIT, 5)
    decision = shard.loaded(START_MS)
    ordered = [[effect.transactional_id for effect in decision.after_commit]]
    while decision.timers[0].key == ("resume",):
        assert decision.timers[0].delay_ms == 0
        decision = apply(shard, decision.timers[0].command, START_MS)
        ordered.append([effect.transactional_id for effect in decision.after_commit])
        if not decision.timers:
            break
    assert ordered == [["tx-0", "tx-1"], ["tx-2", "tx-3"], ["tx-4"]]


def test_a_load_orders_no_markers_of_a_transaction_that_is_complete_meanwhile() -> None:
    shard = large(State.PREPARE_COMMIT, 3)
    command = shard.loaded(START_MS).timers[0].command
    known = shard.find("tx-2")
    assert known is not None
    shard.replay(TransactionRecord(b"", b"", "tx-2", replace(known, state=State.COMPLETE_COMMIT)))
    assert apply(shard, command, START_MS).after_commit == []


def test_timeouts_are_looked_for_in_slices() -> None:
    shard = open_many(LOOKS_A_TURN + 1)
    first = apply(shard, AbortTimedOut(), START_MS)
    assert (first.after_commit, first.timers[0].delay_ms) == ([], 0)
    assert first.timers[0].command.left == (f"tx-{LOOKS_A_TURN - 1}",)


def test_a_look_at_timeouts_asks_once_for_each_producer_id() -> None:
    """With more exhausted producers than one turn takes, each turn asked again for all."""
    shard = open_many(2 * ABORTS_A_TURN + 1, LAST)
    effects_by_turn = turns(shard)
    assert [len(turn) for turn in effects_by_turn] == [ABORTS_A_TURN, ABORTS_A_TURN, 1]
    ids = [effect.transactional_id for turn in effects_by_turn for effect in turn]
    assert len(set(ids)) == len(ids) == 2 * ABORTS_A_TURN + 1


@pytest.mark.parametrize(
    ("state", "producer_id", "now_ms"),
    [
        (State.ONGOING, FRESH, LATE_MS),
        (State.ONGOING, PRODUCER, START_MS),
        (State.COMPLETE_ABORT, PRODUCER, LATE_MS),
    ],
    ids=["of another producer", "in time", "complete meanwhile"],
)
def test_a_producer_id_that_is_needed_no_more_changes_nothing(
    state: State, producer_id: int, now_ms: int
) -> None:
    shard = shard_in(state, 2, LAST)
    before = shard.find(ID)
    came = AbortExhausted(transactional_id=ID, producer_id=producer_id, epoch=LAST, fresh_id=77)
    decision = apply(shard, came, now_ms)
    assert (decision.reply, list(decision.records), shard.find(ID)) == (True, [], before)


class Around:
    """Surroundings whose controller answers when the test says so."""

    def __init__(self) -> None:
        self.coordinator = self
        self.wanted: list[Completion[int]] = []
        self.told: list[AbortExhausted] = []

    def new_producer_id(self) -> Completion[int]:
        self.wanted.append(Completion())
        return self.wanted[-1]

    def submit_in_epoch(self, _partition: int, _epoch: int, command: AbortExhausted) -> Completion[Any]:
        self.told.append(command)
        return Completion.of(True)


def test_a_producer_id_that_is_under_way_is_not_asked_for_again() -> None:
    around = Around()
    effects = TimeoutEffects(FakeRuntime(), cast("Any", None), cast("Any", around))
    effect = FetchProducerId(transactional_id=ID, producer_id=1, epoch=LAST)
    effects.perform(0, 3, effect)
    effects.perform(0, 3, effect)
    assert len(around.wanted) == 1
    effects.perform(0, 4, effect)  # the shard of a later leadership has asked nothing yet
    assert len(around.wanted) == 2
    around.wanted[0].fail(BrokerError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
    effects.perform(0, 3, effect)
    around.wanted[2].complete(77)
    assert [outcome.fresh_id for outcome in around.told] == [77]
    effects.perform(0, 3, effect)
    assert len(around.wanted) == 4


class Narrow(Transacting):
    """A broker whose coordinator's log takes only short records, and the open transactions of the test."""

    def __init__(self) -> None:
        super().__init__(topics=False)
        self.create_topic(TRANSACTIONS_TOPIC, 1, max_message_bytes="1000")
        self.metadata.image.features["transaction.version"] = 2
        self.runtime.advance(2_000)

    @property
    def host(self) -> ShardHost:
        transactions = self.broker.transactions
        assert transactions is not None
        host = transactions.host_of(TAKEN)
        assert host is not None
        return host

    def state(self, transactional_id: str) -> State:
        transaction = cast("TransactionShard", self.host.shard).find(transactional_id)
        assert transaction is not None
        return transaction.state

    def open(self, transactional_id: str, partitions: int, epoch: int = 0) -> None:
        """Open a transaction, as if the log had its record."""
        transaction = Transaction(
            producer_id=7,
            previous_producer_id=7,
            epoch=epoch,
            timeout_ms=60_000,
            state=State.ONGOING,
            partitions=frozenset(("gone", index) for index in range(partitions)),
            started_ms=self.runtime.now_ms(),
        )
        self.host.shard.replay(record(transactional_id, transaction, 2))

    def told(self) -> list[Any]:
        return [values for _, event, values in self.log.events if "can't be aborted" in event]


@pytest.mark.parametrize("epoch", [0, LAST], ids=["has epochs", "exhausted"])
def test_a_transaction_that_cannot_be_aborted_stops_no_other(epoch: int) -> None:
    """The whole decision was refused for its one large record, and came again for ever."""
    broker = Narrow()
    for number in range(40):
        broker.open(f"before {number}", 2)
    broker.open("large", 1_000, epoch)
    for number in range(40):
        broker.open(f"after {number}", 2)
    broker.runtime.advance(71_000)
    states = {broker.state(f"{place} {number}") for place in ("before", "after") for number in range(40)}
    assert states == {State.COMPLETE_ABORT}
    assert broker.state("large") is State.ONGOING
    assert broker.told() == [{"transactional_id": "large", "partitions": 1_000}]
    broker.open("later", 2)
    broker.runtime.advance(71_000)
    assert broker.state("later") is State.COMPLETE_ABORT


def test_a_decision_whose_record_is_too_large_is_refused_as_kafka_does() -> None:
    """Kafka maps MESSAGE_TOO_LARGE of its log to UNKNOWN_SERVER_ERROR (``TransactionStateManager``)."""
    broker = Narrow()
    broker.open("large", 1_000)
    end = EndTxnRequest(transactional_id="large", producer_id=7, producer_epoch=0, committed=False)
    assert broker.ask(end, 5).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert broker.state("large") is State.ONGOING


def test_a_transaction_is_aborted_when_its_record_fits_again() -> None:
    broker = Narrow()
    broker.open("large", 1_000)
    broker.runtime.advance(71_000)
    assert broker.state("large") is State.ONGOING
    broker.metadata.image.configs[TOPIC_RESOURCE, TRANSACTIONS_TOPIC] = {"max.message.bytes": "1000000"}
    broker.metadata.tell(ImageDelta(configs_changed=((TOPIC_RESOURCE, TRANSACTIONS_TOPIC),)))
    broker.runtime.advance(11_000)
    assert broker.state("large") is State.COMPLETE_ABORT


def test_partitions_whose_record_is_too_large_are_refused_as_kafka_does() -> None:
    broker = Narrow()
    broker.create_topic("t", 400)
    assert not broker.init()
    codes = broker.add(*range(400))
    assert set(codes) == {ErrorCode.UNKNOWN_SERVER_ERROR}
    assert broker.state(TAKEN) is State.EMPTY
    assert broker.add(0) == [ErrorCode.NONE]
