"""DescribeTransactions and ListTransactions (KIP-664, KIP-994, KIP-1152): what ``kafka-transactions.sh`` asks."""

from __future__ import annotations

from collections import deque
from typing import Any

from msgspec.structs import replace

from blumfeld.coordinator.runtime.coordinator import Coordinator
from blumfeld.spi.completion import Completion, Steps
from blumfeld.spi.context import ApiHandler, RequestContext
from blumfeld.spi.runtime import Runtime
from blumfeld.spi.steps import STEP_ELEMENTS, errors_by_elements, first_repeated, parts_of, waited
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
from blumfeld_transactions.commands import DescribeOne, ListIds, ListSome
from blumfeld_transactions.id_patterns import IdPatterns, pieces
from blumfeld_transactions.transaction import State, Transaction, in_pieces

DESCRIBED_AT_ONCE = 32
"""Transactional ids of DescribeTransactions that are looked for in one step: each may take 50 µs."""
LISTED_AT_ONCE = 256
"""Transactional ids that ListTransactions looks at in one step: each may take 3 µs, with rights."""
STATES = {state.text: state for state in State}


def handlers(around: TransactionSurroundings, runtime: Runtime) -> list[ApiHandler]:
    """Returns the handlers of both APIs."""
    apis = ListingApis(around.coordinator, IdPatterns(runtime))
    return [
        ApiHandler(
            key=ApiKey.DESCRIBE_TRANSACTIONS,
            min_version=0,
            max_version=0,
            handle=apis.describe,
            error_response=errors_by_elements(
                describe_failed, ("transactional_ids",), ("transaction_states",)
            ),
        ),
        ApiHandler(
            key=ApiKey.LIST_TRANSACTIONS,
            min_version=0,
            max_version=2,
            handle=apis.list_some,
            error_response=list_failed,
        ),
    ]


class ListingApis:
    """Answers questions about transactions. They change nothing.

    Small requests take steps, too, because a few bytes may ask for an answer of any size.
    """

    def __init__(self, coordinator: Coordinator, patterns: IdPatterns) -> None:
        self._coordinator = coordinator
        self._patterns = patterns

    def describe(
        self, request: DescribeTransactionsRequest, context: RequestContext
    ) -> Steps[DescribeTransactionsResponse]:
        """Describe each transactional id, or say why it can't be: TRANSACTIONAL_ID_NOT_FOUND, NOT_COORDINATOR,
        COORDINATOR_LOAD_IN_PROGRESS, TRANSACTIONAL_ID_AUTHORIZATION_FAILED, INVALID_REQUEST for an empty one.

        :raises BrokerError: INVALID_REQUEST if an id is asked for twice. A few kB could ask for gigabytes
        """
        transactional_ids = request.transactional_ids
        repeated = yield from first_repeated(transactional_ids)
        if repeated is not None:
            raise BrokerError(ErrorCode.INVALID_REQUEST, f"{repeated} is asked for twice")
        states: list[describe_transactions.TransactionState] = []
        for some, _ in parts_of(list(transactional_ids), (), DESCRIBED_AT_ONCE):
            submitted = [self._find(name, context) for name in some]
            yield None
            for transactional_id, lookup in zip(some, submitted, strict=True):
                if not lookup.done:
                    yield lookup
                states.append((yield from _described(transactional_id, lookup, context)))
        return DescribeTransactionsResponse(transaction_states=states)

    def _find(self, transactional_id: str, context: RequestContext) -> Completion[Any]:
        refused: Completion[Any] = Completion()
        if not context.authorize("Describe", "TransactionalId", transactional_id):
            refused.fail(BrokerError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
        elif not transactional_id:
            refused.fail(BrokerError(ErrorCode.INVALID_REQUEST))
        else:
            command = DescribeOne(transactional_id=transactional_id)
            return self._coordinator.submit(transactional_id, command, context)
        return refused

    def list_some(
        self, request: ListTransactionsRequest, context: RequestContext
    ) -> Steps[ListTransactionsResponse]:
        """List the transactions whose coordinator is here, shard by shard. Each is listed as it is in its own step.

        :raises BrokerError: INVALID_REGULAR_EXPRESSION; COORDINATOR_LOAD_IN_PROGRESS while a shard is loaded, and
            where one leaves this node meanwhile
        """
        response = ListTransactionsResponse()
        states: set[State] = set()
        for number, name in enumerate(request.state_filters):
            if name in STATES:
                states.add(STATES[name])
            else:
                response.unknown_state_filters.append(name)
            if not (number + 1) % STEP_ELEMENTS:
                yield None
        producer_ids: set[int] = set()
        for start in range(0, len(request.producer_id_filters), STEP_ELEMENTS):
            producer_ids.update(request.producer_id_filters[start : start + STEP_ELEMENTS])
            yield None
        filters = ListSome(
            transactional_ids=(),
            states=frozenset(states) if request.state_filters else None,
            producer_ids=producer_ids,
            open_longer_than_ms=request.duration_filter,
        )
        pattern = request.transactional_id_pattern
        compiled = (yield from waited(self._patterns.compiled(pattern))) if pattern else None
        for partition, epoch in self._coordinator.shards():
            submitted = yield from self._ask_shard(partition, epoch, filters)
            while submitted:
                some = yield from _answer_of(submitted.popleft())
                listed = [
                    list_transactions.TransactionState(
                        transactional_id=transactional_id,
                        producer_id=transaction.producer_id,
                        transaction_state=transaction.state.text,
                    )
                    for transactional_id, transaction in some
                    if context.authorize("Describe", "TransactionalId", transactional_id, quiet=True)
                ]
                if compiled is not None:
                    listed = yield from self._matching(compiled, listed, partition, epoch)
                response.transaction_states += listed
                yield None
        return response

    def _matching(
        self, compiled: Any, listed: list[list_transactions.TransactionState], partition: int, epoch: int
    ) -> Steps[list[list_transactions.TransactionState]]:
        """Only ids that the client may know of come here: how long an expression takes tells about the ids.

        :raises BrokerError: COORDINATOR_LOAD_IN_PROGRESS if the shard has moved: a node that stops waits for one piece
        """
        matches: list[bool] = []
        for some in pieces([listing.transactional_id for listing in listed]):
            if self._coordinator.epoch_of(partition) != epoch:
                raise BrokerError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            matches += yield from waited(self._patterns.matching(compiled, some))
        return [listing for listing, does in zip(listed, matches, strict=True) if does]

    def _ask_shard(self, partition: int, epoch: int, filters: ListSome) -> Steps[deque[Completion[Any]]]:
        """Ask a shard for all its transactional ids, some at a time. The questions don't wait for each other's answers,
        because each answer waits for a commit."""
        first = self._coordinator.submit_in_epoch(partition, epoch, ListIds())
        ids: tuple[str, ...] = yield from _answer_of(first)
        submitted: deque[Completion[Any]] = deque()
        for start in range(0, len(ids), LISTED_AT_ONCE):
            some = replace(filters, transactional_ids=ids[start : start + LISTED_AT_ONCE])
            submitted.append(self._coordinator.submit_in_epoch(partition, epoch, some))
            yield None
        return submitted


def _answer_of(submitted: Completion[Any]) -> Steps[Any]:
    """Wait for the answer of a shard.

    :raises BrokerError: COORDINATOR_LOAD_IN_PROGRESS, also where the shard isn't here any more. The client asks again
    """
    if not submitted.done:
        yield submitted
    error = submitted.error
    if isinstance(error, BrokerError) and error.code is ErrorCode.NOT_COORDINATOR:
        raise BrokerError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    return submitted.result()


def _described(
    transactional_id: str, done: Completion[Any], context: RequestContext
) -> Steps[describe_transactions.TransactionState]:
    answer = describe_transactions.TransactionState(transactional_id=transactional_id)
    if done.error is not None:
        answer.error_code = getattr(done.error, "code", ErrorCode.UNKNOWN_SERVER_ERROR)
        return answer
    transaction: Transaction = done.result()
    answer.producer_id, answer.producer_epoch = transaction.producer_id, transaction.epoch
    answer.transaction_state = transaction.state.text
    answer.transaction_timeout_ms = transaction.timeout_ms
    answer.transaction_start_time_ms = transaction.started_ms
    topics: dict[str, TopicData] = {}
    for some in in_pieces(transaction.partitions, STEP_ELEMENTS):
        for topic, index in some:
            if topic in topics or context.authorize("Describe", "Topic", topic, quiet=True):
                topics.setdefault(topic, TopicData(topic=topic)).partitions.append(index)
        yield None
    answer.topics = list(topics.values())
    return answer


def describe_failed(request: DescribeTransactionsRequest, code: int, _message: str | None) -> Message:
    """Returns an answer with this error for each transactional id."""
    return DescribeTransactionsResponse(
        transaction_states=[
            describe_transactions.TransactionState(transactional_id=name, error_code=code)
            for name in request.transactional_ids
        ]
    )


def list_failed(_request: Message, code: int, _message: str | None) -> Message:
    """Returns an answer with this error."""
    return ListTransactionsResponse(error_code=code)
