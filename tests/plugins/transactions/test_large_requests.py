"""Requests about transactions with many elements: they are served in steps, with the answers of small ones."""

from __future__ import annotations

from collections.abc import Iterator
from types import GeneratorType, SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import force_setattr, replace

from blumfeld.coordinator.runtime.coordinator import Coordinator
from blumfeld.metadata.image.partition_table import PartitionTable
from blumfeld.spi.completion import Steps
from blumfeld.spi.context import ApiHandler, LazyHandler, RequestContext
from blumfeld.spi.steps import STEP_ELEMENTS, drained
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from blumfeld.wire.messages.describe_transactions import DescribeTransactionsRequest
from blumfeld.wire.messages.list_transactions import ListTransactionsRequest
from blumfeld.wire.schema import Message
from blumfeld_transactions.handlers import TransactionApis
from blumfeld_transactions.listing import LISTED_AT_ONCE, ListingApis
from blumfeld_transactions.transaction import State, Transaction, record
from tests.plugins.transactions.test_on_broker import ID, Transacting

MANY = 20 * STEP_ELEMENTS


class Counted(Transacting):
    """Counts the steps in which requests were served."""

    steps = 0

    def ask_in_steps(self, request: Message, version: int) -> tuple[int, Any]:
        """Returns the number of steps, and the answer."""
        self.steps = 0
        answer = self.ask(request, version)
        return self.steps, answer


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Counted:
    load = LazyHandler._load

    def counted(steps: Steps[Any]) -> Steps[Any]:
        while True:
            try:
                awaited = next(steps)
            except StopIteration as end:
                return end.value
            counting.steps += 1
            yield awaited

    def loaded(self: LazyHandler) -> ApiHandler:
        handle = load(self).handle

        def served(request: Any, context: RequestContext) -> Any:
            answer = handle(request, context)
            return counted(answer) if isinstance(answer, GeneratorType) else answer

        served_handler = replace(load(self), handle=served)
        for handler in self._registered:
            force_setattr(handler, "handle", served)
        return served_handler

    monkeypatch.setattr(LazyHandler, "_load", loaded)
    counting = Counted()
    assert not counting.init()
    return counting


def of_client(broker: Counted, indexes: list[int], topic: str = "t", name: str = ID) -> Message:
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=broker.producer_id,
        v3_and_below_producer_epoch=broker.epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=indexes)],
    )


@pytest.mark.parametrize(
    ("indexes", "name", "codes"),
    [
        ([0, 1], ID, {0: ErrorCode.NONE, 1: ErrorCode.NONE}),
        ([0, 2], ID, {0: ErrorCode.OPERATION_NOT_ATTEMPTED, 2: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}),
        ([0, 1], "", {0: ErrorCode.INVALID_REQUEST, 1: ErrorCode.INVALID_REQUEST}),
        ([0, 1], "other", dict.fromkeys((0, 1), ErrorCode.INVALID_PRODUCER_ID_MAPPING)),
    ],
    ids=["known", "one unknown", "no id", "another id"],
)
def test_partitions_of_a_client(
    broker: Counted, indexes: list[int], name: str, codes: dict[int, ErrorCode]
) -> None:
    all_indexes = indexes * (MANY // 2)
    count, answer = broker.ask_in_steps(of_client(broker, list(all_indexes), name=name), 3)
    (topic,) = answer.results_by_topic_v3_and_below
    index_codes = [
        (partition_result.partition_index, partition_result.partition_error_code)
        for partition_result in topic.results_by_partition
    ]
    assert index_codes == [(index, codes[index]) for index in all_indexes]
    assert count >= 20
    _, small = broker.ask_in_steps(of_client(broker, indexes, name=name), 3)
    assert set(index_codes) == {
        (partition_result.partition_index, partition_result.partition_error_code)
        for partition_result in small.results_by_topic_v3_and_below[0].results_by_partition
    }


def test_transactions_of_a_broker(broker: Counted) -> None:
    topics = [AddPartitionsToTxnTopic(name="t", partitions=[0])]
    transaction = AddPartitionsToTxnTransaction(
        transactional_id=ID, producer_id=broker.producer_id, producer_epoch=0, topics=topics
    )
    count, answer = broker.ask_in_steps(AddPartitionsToTxnRequest(transactions=[transaction] * 5_000), 4)
    assert len(answer.results_by_transaction) == 5_000
    assert not any(
        result.topic_results[0].results_by_partition[0].partition_error_code
        for result in answer.results_by_transaction
    )
    assert count >= 20


def test_transactional_ids_that_are_described(broker: Counted) -> None:
    transactional_ids = [ID, *(f"x{number}" for number in range(5_000))]
    count, answer = broker.ask_in_steps(
        DescribeTransactionsRequest(transactional_ids=list(transactional_ids)), 0
    )
    assert [state.transactional_id for state in answer.transaction_states] == transactional_ids
    known, *unknown = (state.error_code for state in answer.transaction_states)
    assert (known, set(unknown)) == (ErrorCode.NONE, {ErrorCode.TRANSACTIONAL_ID_NOT_FOUND})
    assert count >= 20


def replay(broker: Counted, transactional_id: str, partitions: frozenset[tuple[str, int]]) -> None:
    transactions = broker.broker.transactions
    assert transactions is not None
    host = transactions.host_of(transactional_id)
    assert host is not None
    open_one = Transaction(
        producer_id=7, epoch=0, timeout_ms=60_000, state=State.ONGOING, partitions=partitions
    )
    host.shard.replay(record(transactional_id, open_one, 2))


def test_one_transaction_of_many_partitions_is_described_in_steps(broker: Counted) -> None:
    """Forty ids of 50,000 partitions each held the loop for 229 ms."""
    replay(broker, "large", frozenset((topic, index) for topic in ("b", "a") for index in range(MANY)))
    count, answer = broker.ask_in_steps(DescribeTransactionsRequest(transactional_ids=["large"]), 0)
    (state,) = answer.transaction_states
    assert [(topic.topic, topic.partitions) for topic in state.topics] == [
        ("a", list(range(MANY))),
        ("b", list(range(MANY))),
    ]
    assert count >= 2 * MANY // STEP_ELEMENTS


@pytest.mark.parametrize("transactional_ids", [[ID, ID], ["x", ID] * 2_500], ids=["few", "many"])
def test_an_id_that_is_described_twice_is_refused(broker: Counted, transactional_ids: list[str]) -> None:
    """An id of three bytes may have a hundred thousand partitions. A request of some kB would ask for gigabytes."""
    _, answer = broker.ask_in_steps(DescribeTransactionsRequest(transactional_ids=list(transactional_ids)), 0)
    assert [state.transactional_id for state in answer.transaction_states] == transactional_ids
    assert {state.error_code for state in answer.transaction_states} == {ErrorCode.INVALID_REQUEST}


def test_many_ids_are_listed_in_steps(broker: Counted) -> None:
    names = [f"open {number:05}" for number in range(MANY)]
    for name in names:
        replay(broker, name, frozenset())
    count, answer = broker.ask_in_steps(
        ListTransactionsRequest(state_filters=["Ongoing"], producer_id_filters=[7]), 1
    )
    assert [state.transactional_id for state in answer.transaction_states] == names
    assert count >= MANY // LISTED_AT_ONCE


class LeavesAfterItsCount:
    """The coordinator of a broker that leads the partition no more when its shard is asked."""

    def __init__(self, real: Coordinator) -> None:
        self._real = real

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def shards(self) -> list[tuple[int, int]]:
        real_shards = self._real.shards()
        assert real_shards
        self._real.resigned(0)
        return real_shards


def test_a_shard_that_leaves_during_a_list_makes_the_client_ask_again(broker: Counted) -> None:
    shards = broker.broker.transactions
    assert shards is not None
    leaves = cast("Coordinator", LeavesAfterItsCount(shards))
    steps = ListingApis(leaves, cast("Any", None)).list_some(
        ListTransactionsRequest(), cast("RequestContext", None)
    )
    with pytest.raises(BrokerError) as refused:
        drained(steps)
    assert refused.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_filters_of_a_list(broker: Counted) -> None:
    names = [f"unknown {number}" for number in range(MANY)]
    count, answer = broker.ask_in_steps(ListTransactionsRequest(state_filters=[*names, "Empty"]), 1)
    assert answer.unknown_state_filters == names
    assert [state.transactional_id for state in answer.transaction_states] == [ID]
    assert count >= 20


# AddPartitionsToTxn over topics with many partitions


class Table(PartitionTable):
    """The table of a large topic."""

    def __iter__(self) -> Iterator[int]:
        raise AssertionError("a request for one partition goes through all of the topic")


def test_only_the_partitions_asked_for_are_looked_up() -> None:
    topics = {"big": SimpleNamespace(partitions=Table({i: cast("Any", None) for i in range(2_000)}))}
    around = SimpleNamespace(coordinator=None, metadata=SimpleNamespace(image=SimpleNamespace(topics=topics)))
    apis = TransactionApis(cast("Any", around))
    topic_requests = [
        AddPartitionsToTxnTopic(name="big", partitions=[5, 2_000]),
        AddPartitionsToTxnTopic(name="none", partitions=[0]),
    ]
    assert apis._unknown(topic_requests) == {("big", 2_000), ("none", 0)}
