"""DescribeTransactions and ListTransactions (KIP-664, KIP-994, KIP-1152): what ``kafka-transactions.sh`` asks."""

from __future__ import annotations

from typing import Any

from blumfeld.coordinator.runtime.coordinator import gather
from blumfeld.spi.completion import Completion, Steps
from blumfeld.spi.context import ApiHandler, RequestContext
from blumfeld.spi.steps import STEP_ELEMENTS, by_elements, drained
from blumfeld.spi.transactions import TransactionSurroundings
from blumfeld.wire.api import ApiKey
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages import describe_transactions, list_transactions
from blumfeld.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
)
from blumfeld.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from blumfeld.wire.schema import Message
from blumfeld_transactions.commands import DescribeOne, ListAll
from blumfeld_transactions.transaction import State, Transaction

DESCRIBED_AT_ONCE = 32
"""Transactional ids of DescribeTransactions that are looked for in one step: each may take 50 µs."""
STATES = {state.text: state for state in State}


def handlers(around: TransactionSurroundings) -> list[ApiHandler]:
    """Returns the handlers of both APIs."""
    apis = ListingApis(around)
    describe = ApiHandler(
        key=ApiKey.DESCRIBE_TRANSACTIONS,
        min_version=0,
        max_version=0,
        handle=apis.describe,
        error_response=describe_failed,
        in_steps=by_elements(
            lambda: describe, ("transactional_ids",), ("transaction_states",), chunk=DESCRIBED_AT_ONCE
        ),
    )
    return [
        describe,
        ApiHandler(
            key=ApiKey.LIST_TRANSACTIONS,
            min_version=0,
            max_version=2,
            handle=apis.list,
            in_steps=apis.list_in_steps,
            error_response=list_failed,
        ),
    ]


class ListingApis:
    """Answers questions about transactions. They change nothing."""

    def __init__(self, around: TransactionSurroundings) -> None:
        self._around = around

    def describe(self, request: DescribeTransactionsRequest, context: RequestContext) -> Completion[Message]:
        """Describe each transactional id, or say why it can't be: TRANSACTIONAL_ID_NOT_FOUND, NOT_COORDINATOR,
        COORDINATOR_LOAD_IN_PROGRESS, TRANSACTIONAL_ID_AUTHORIZATION_FAILED, INVALID_REQUEST for an empty one.
        """
        submitted = [self._find(one, context) for one in request.transactional_ids]
        answered: Completion[Message] = Completion()

        def settle(_: object) -> None:
            answered.complete(
                DescribeTransactionsResponse(
                    transaction_states=[
                        _described(one, done, context)
                        for one, done in zip(request.transactional_ids, submitted, strict=True)
                    ]
                )
            )

        gather(submitted).when_done(settle)
        return answered

    def _find(self, transactional_id: str, context: RequestContext) -> Completion[Any]:
        refused: Completion[Any] = Completion()
        if not context.authorize("Describe", "TransactionalId", transactional_id):
            refused.fail(BrokerError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
        elif not transactional_id:
            refused.fail(BrokerError(ErrorCode.INVALID_REQUEST))
        else:
            command = DescribeOne(transactional_id=transactional_id)
            return self._around.submit(transactional_id, command, context)
        return refused

    def list(self, request: ListTransactionsRequest, context: RequestContext) -> Completion[Message]:
        """List the transactions whose coordinator is here. COORDINATOR_LOAD_IN_PROGRESS while a shard is loaded.

        :raises BrokerError: INVALID_REGULAR_EXPRESSION
        """
        return drained(self.list_in_steps(request, context))

    def list_in_steps(
        self, request: ListTransactionsRequest, context: RequestContext
    ) -> Steps[Completion[Message]]:
        """:meth:`list` with many filters.

        :raises BrokerError: INVALID_REGULAR_EXPRESSION
        """
        states: set[State] = set()
        unknown: list[str] = []
        for number, name in enumerate(request.state_filters):
            if name in STATES:
                states.add(STATES[name])
            else:
                unknown.append(name)
            if not (number + 1) % STEP_ELEMENTS:
                yield None
        producer_ids: set[int] = set()
        for start in range(0, len(request.producer_id_filters), STEP_ELEMENTS):
            producer_ids.update(request.producer_id_filters[start : start + STEP_ELEMENTS])
            yield None
        command = ListAll(
            states=frozenset(states) if request.state_filters else None,
            producer_ids=producer_ids,
            open_longer_than_ms=request.duration_filter,
        )
        matches = _matcher(request.transactional_id_pattern)
        submitted = self._around.submit_to_all(command)
        answered: Completion[Message] = Completion()

        def settle(_: object) -> None:
            response = ListTransactionsResponse(unknown_state_filters=unknown)
            for done in submitted:
                if done.error is not None:
                    code = getattr(done.error, "code", ErrorCode.UNKNOWN_SERVER_ERROR)
                    answered.complete(ListTransactionsResponse(error_code=code))
                    return
                response.transaction_states += [
                    list_transactions.TransactionState(
                        transactional_id=one,
                        producer_id=found.producer_id,
                        transaction_state=found.state.text,
                    )
                    for one, found in done.result()
                    if matches(one) and context.authorize("Describe", "TransactionalId", one)
                ]
            answered.complete(response)

        gather(submitted).when_done(settle)
        return answered


def _matcher(pattern: str | None) -> Any:
    if not pattern:
        return lambda _: True
    import re2

    options = re2.Options()
    options.log_errors = False
    try:
        compiled = re2.compile(pattern, options)
    except re2.error:
        raise BrokerError(ErrorCode.INVALID_REGULAR_EXPRESSION) from None
    return compiled.fullmatch


def _described(
    transactional_id: str, done: Completion[Any], context: RequestContext
) -> describe_transactions.TransactionState:
    answer = describe_transactions.TransactionState(transactional_id=transactional_id)
    if done.error is not None:
        answer.error_code = getattr(done.error, "code", ErrorCode.UNKNOWN_SERVER_ERROR)
        return answer
    found: Transaction = done.result()
    answer.producer_id, answer.producer_epoch = found.producer_id, found.epoch
    answer.transaction_state = found.state.text
    answer.transaction_timeout_ms = found.timeout_ms
    answer.transaction_start_time_ms = found.started_ms
    topics: dict[str, TopicData] = {}
    for topic, index in sorted(found.partitions):
        if topic in topics or context.authorize("Describe", "Topic", topic):
            topics.setdefault(topic, TopicData(topic=topic)).partitions.append(index)
    answer.topics = list(topics.values())
    return answer


def describe_failed(request: DescribeTransactionsRequest, code: int, _message: str | None) -> Message:
    """Returns an answer with this error for each transactional id."""
    return DescribeTransactionsResponse(
        transaction_states=[
            describe_transactions.TransactionState(transactional_id=one, error_code=code)
            for one in request.transactional_ids
        ]
    )


def list_failed(_request: Message, code: int, _message: str | None) -> Message:
    """Returns an answer with this error."""
    return ListTransactionsResponse(error_code=code)
