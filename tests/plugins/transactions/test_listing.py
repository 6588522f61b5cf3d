"""DescribeTransactions and ListTransactions, through a broker on virtual time."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.describe_transactions import DescribeTransactionsRequest
from blumfeld.wire.messages.init_producer_id import InitProducerIdRequest
from blumfeld.wire.messages.list_transactions import ListTransactionsRequest
from tests.broker.harness import Permissions
from tests.plugins.transactions.test_on_broker import ID, NONE, Transacting


@pytest.fixture
def broker() -> Transacting:
    """``tx`` has an open transaction in both partitions since 5 s, ``other`` has none."""
    started = Transacting()
    assert started.init() == NONE
    started.ask(InitProducerIdRequest(transactional_id="other", transaction_timeout_ms=1_000), 4)
    assert started.add(0, 1) == [NONE, NONE]
    started.runtime.advance(5_000)
    return started


def listed(broker: Transacting, version: int = 2, **filters: Any) -> list[tuple[str, str]]:
    response = broker.ask(ListTransactionsRequest(**filters), version)
    assert not response.error_code
    return sorted((state.transactional_id, state.transaction_state) for state in response.transaction_states)


OPEN, EMPTY = (ID, "Ongoing"), ("other", "Empty")


def test_list_and_its_filters(broker: Transacting) -> None:
    assert listed(broker) == listed(broker, 0) == [EMPTY, OPEN]
    assert listed(broker, state_filters=["Ongoing", "PrepareAbort"]) == [OPEN]
    assert listed(broker, producer_id_filters=[broker.producer_id]) == [OPEN]
    assert listed(broker, duration_filter=4_000, state_filters=["Ongoing"]) == [OPEN]
    assert listed(broker, duration_filter=6_000, state_filters=["Ongoing"]) == []
    assert listed(broker, transactional_id_pattern="o.*") == [EMPTY]
    assert listed(broker, transactional_id_pattern="t") == []  # the whole id must match (KIP-1152)


def test_unknown_states_are_named_and_select_nothing(broker: Transacting) -> None:
    response = broker.ask(ListTransactionsRequest(state_filters=["Gone"]), 2)
    assert (response.unknown_state_filters, response.transaction_states) == (["Gone"], [])


def test_a_bad_expression_is_refused(broker: Transacting) -> None:
    response = broker.ask(ListTransactionsRequest(transactional_id_pattern="("), 2)
    assert response.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


def test_describe(broker: Transacting) -> None:
    request = DescribeTransactionsRequest(transactional_ids=[ID, "nobody", ""])
    known, unknown, empty = broker.ask(request, 0).transaction_states
    assert (known.error_code, known.producer_id, known.producer_epoch) == (0, broker.producer_id, 0)
    assert (known.transaction_state, known.transaction_timeout_ms) == ("Ongoing", 60_000)
    assert [(topic.topic, topic.partitions) for topic in known.topics] == [("t", [0, 1])]
    assert known.transaction_start_time_ms == broker.runtime.now_ms() - 5_000
    assert unknown.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert empty.error_code == ErrorCode.INVALID_REQUEST


def test_a_description_leaves_out_topics_that_the_client_may_not_describe() -> None:
    permissions = Permissions(lambda *_: True)
    broker = Transacting(authorizer=permissions)
    assert broker.init() == NONE
    assert broker.add(0) == [NONE]
    permissions.allows = lambda _operation, kind, _name: kind != "Topic"
    permissions.generation += 1
    (described,) = broker.ask(DescribeTransactionsRequest(transactional_ids=[ID]), 0).transaction_states
    assert (described.error_code, described.transaction_state, described.topics) == (0, "Ongoing", [])


@pytest.mark.parametrize("again", [[], ["id7"]])
def test_errors_leave_nothing_to_the_garbage_collector(broker: Transacting, again: list[str]) -> None:
    """An error's traceback holds the frames that it went through, and these may hold the error."""
    request = DescribeTransactionsRequest(transactional_ids=[f"id{i}" for i in range(1_000)] + again)
    broker.ask(DescribeTransactionsRequest(transactional_ids=["nobody"]), 0)
    gc.collect()
    gc.disable()
    try:
        assert broker.ask(request, 0).transaction_states[0].error_code
        assert gc.collect() == 0
    finally:
        gc.enable()
