"""The APIs of the coordinator: InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, EndTxn."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from blumfeld.coordinator.runtime.coordinator import Coordinator, gather, partition_for
from blumfeld.spi.completion import Completion, Steps
from blumfeld.spi.context import ApiHandler, RequestContext
from blumfeld.spi.internal_topics import OFFSETS_TOPIC
from blumfeld.spi.runtime import Runtime
from blumfeld.spi.steps import STEP_ELEMENTS, in_parts, small_at_once
from blumfeld.spi.transactions import TransactionSurroundings
from blumfeld.wire.api import ApiKey
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from blumfeld.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from blumfeld.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from blumfeld.wire.messages.init_producer_id import InitProducerIdRequest
from blumfeld.wire.schema import Message
from blumfeld_transactions.commands import AddPartitions, EndTransaction, InitProducer, NeedsProducerId
from blumfeld_transactions.transaction import EPOCH_A_TRANSACTION, Partition

BROKERS_FROM = 4
"""From this version of AddPartitionsToTxn on brokers send it, for several transactions at once (KIP-890)."""
OWN_EPOCH_FROM = 5
"""From this version of EndTxn on each transaction has its own epoch (KIP-890)."""
FENCED_FROM = {
    ApiKey.INIT_PRODUCER_ID: 4,
    ApiKey.ADD_PARTITIONS_TO_TXN: 2,
    ApiKey.ADD_OFFSETS_TO_TXN: 2,
    ApiKey.END_TXN: 2,
}
"""API → its first version whose clients know PRODUCER_FENCED. Older ones get INVALID_PRODUCER_EPOCH (KIP-588)."""
TRANSACTIONS_AT_ONCE = 32
"""Transactions and partitions of a broker's request that are served in one step: one may take 50 µs."""
_OF_BROKERS = ("transactions", "topics", "partitions")
_FOR_BROKERS = ("results_by_transaction", "topic_results", "results_by_partition")
ABORTABLE_FROM = 5
"""First version of AddPartitionsToTxn whose senders know TRANSACTION_ABORTABLE."""


def mapped(code: ErrorCode, context: RequestContext) -> ErrorCode:
    """Returns the code that the client's version of the request knows."""
    if code is ErrorCode.PRODUCER_FENCED and context.api_version < FENCED_FROM[ApiKey(context.api_key)]:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code


def handlers(around: TransactionSurroundings, _runtime: Runtime) -> list[ApiHandler]:
    """Returns the handlers of AddPartitionsToTxn, AddOffsetsToTxn and EndTxn."""
    apis = TransactionApis(around)
    return [
        ApiHandler(
            key=ApiKey.ADD_PARTITIONS_TO_TXN,
            min_version=0,
            max_version=5,
            handle=apis.add_partitions,
            error_response=add_partitions_failed,
        ),
        _handler(ApiKey.ADD_OFFSETS_TO_TXN, (0, 4), apis.add_offsets, add_offsets_failed),
        _handler(ApiKey.END_TXN, (0, 5), apis.end, end_failed),
    ]


class TransactionApis:
    """Turns requests into commands of the shard, and replies into answers."""

    def __init__(self, around: TransactionSurroundings) -> None:
        self._coordinator: Coordinator = around.coordinator
        self._around = around
        self._add_for_one_client = small_at_once(self._add_for_client)
        self._add_for_some_brokers = in_parts(
            self._add_for_brokers,
            _failed_for_brokers,
            _OF_BROKERS,
            _FOR_BROKERS,
            chunk=TRANSACTIONS_AT_ONCE,
            named="transactional_id",
        )

    # InitProducerId

    def init_producer_id(
        self, request: InitProducerIdRequest, context: RequestContext
    ) -> Completion[Message]:
        """Answer an InitProducerId with a transactional id. The principal may write to it.

        Fails with ``BrokerError``: the request's error.
        """
        transactional_id = request.transactional_id
        assert transactional_id is not None
        expected = None if request.producer_id < 0 else (request.producer_id, request.producer_epoch)

        def command(fresh_id: int) -> InitProducer:
            return InitProducer(
                transactional_id=transactional_id,
                timeout_ms=request.transaction_timeout_ms,
                expected=expected,
                fresh_id=fresh_id,
            )

        return self._with_producer_id(transactional_id, command, context)

    def _with_producer_id(
        self, transactional_id: str, command: Callable[[int], Any], context: RequestContext
    ) -> Completion[Message]:
        """Submit a command. If its decision needs a fresh producer id, get one and submit it again.

        Fails with the error that the client's version of the request knows.
        """
        answered: Completion[Message] = Completion()

        def settle(done: Completion[Any]) -> None:
            if done.error is None:
                answered.complete(done.result())
            else:
                answered.fail(_mapped_error(done.error, context))

        def first(done: Completion[Any]) -> None:
            if done.error is None and isinstance(done.result(), NeedsProducerId):
                self._around.new_producer_id().when_done(second)
            else:
                settle(done)

        def second(done: Completion[int]) -> None:
            if done.error is not None:
                settle(done)
            else:
                self._coordinator.submit(transactional_id, command(done.result()), context).when_done(settle)

        self._coordinator.submit(transactional_id, command(-1), context).when_done(first)
        return answered

    # AddPartitionsToTxn

    def add_partitions(self, request: AddPartitionsToTxnRequest, context: RequestContext) -> Any:
        """AddPartitionsToTxn of a client (v0-3), or of a broker (v4-5).

        :raises BrokerError: CLUSTER_AUTHORIZATION_FAILED, TRANSACTIONAL_ID_AUTHORIZATION_FAILED, INVALID_REQUEST
        """
        for_brokers = context.api_version >= BROKERS_FROM
        return (self._add_for_some_brokers if for_brokers else self._add_for_one_client)(request, context)

    def _add_for_client(
        self, request: AddPartitionsToTxnRequest, context: RequestContext
    ) -> Steps[AddPartitionsToTxnResponse]:
        """Add all partitions or none. So the request is walked twice: to find those that can't be added, and to answer
        each element. Between the two the rest is submitted as one command."""
        transactional_id = request.v3_and_below_transactional_id
        topics, known = request.v3_and_below_topics, self._around.metadata.image.topics
        if not context.authorize("Write", "TransactionalId", transactional_id):
            raise BrokerError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)

        def refusals(topic: str, some: list[int]) -> list[ErrorCode]:
            if not context.authorize("Write", "Topic", topic):
                return [ErrorCode.TOPIC_AUTHORIZATION_FAILED] * len(some)
            topic_image = known.get(topic)
            there = {} if topic_image is None else topic_image.partitions
            return [
                ErrorCode.NONE if index in there else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for index in some
            ]

        def refusals_of_all(topic: str, some: list[int]) -> list[ErrorCode]:
            return [code or ErrorCode.OPERATION_NOT_ATTEMPTED for code in refusals(topic, some)]

        partitions: set[Partition] = set()
        is_refused = False
        for topic, some in _pieces(topics):
            is_refused = is_refused or any(refusals(topic.name, some))
            if not is_refused:  # all of them are known, so there are no more than the cluster has
                partitions.update((topic.name, index) for index in some)
            yield None
        if is_refused:
            return (yield from _answer_of(topics, refusals_of_all))
        command = AddPartitions(
            transactional_id=_named(transactional_id),
            producer_id=request.v3_and_below_producer_id,
            epoch=request.v3_and_below_producer_epoch,
            partitions=frozenset(partitions),
        )
        submitted = self._coordinator.submit(transactional_id, command, context)
        if not submitted.done:
            yield submitted
        code = _code(submitted.error, context)
        return (yield from _answer_of(topics, lambda _, some: [code] * len(some)))

    def _unknown(self, topics: Iterable[AddPartitionsToTxnTopic]) -> set[Partition]:
        """Returns the partitions that the image doesn't have."""
        known = self._around.metadata.image.topics
        unknown: set[Partition] = set()
        for topic in topics:
            topic_image = known.get(topic.name)
            # Not by a set's difference(): that goes through all partitions of a large topic, whose table is no dict.
            partitions = () if topic_image is None else topic_image.partitions
            lacking = [index for index in topic.partitions if index not in partitions]
            if lacking:
                unknown.update((topic.name, index) for index in lacking)
        return unknown

    def _add_for_brokers(
        self, request: AddPartitionsToTxnRequest, context: RequestContext
    ) -> Completion[Message]:
        if not context.authorize("ClusterAction", "Cluster", "kafka-cluster"):
            raise BrokerError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        submitted = [self._add_for_broker(transaction) for transaction in request.transactions]
        answered: Completion[Message] = Completion()

        def settle(_: object) -> None:
            results = []
            for transaction, done in zip(request.transactions, submitted, strict=True):
                codes = _outcomes(transaction, done, context)
                results.append(
                    AddPartitionsToTxnResult(
                        transactional_id=transaction.transactional_id,
                        topic_results=_results(transaction.topics, codes.__getitem__),
                    )
                )
            answered.complete(AddPartitionsToTxnResponse(results_by_transaction=results))

        gather(submitted).when_done(settle)
        return answered

    def _add_for_broker(self, transaction: AddPartitionsToTxnTransaction) -> Completion[Any]:
        if not transaction.transactional_id:
            refused: Completion[Any] = Completion()
            refused.fail(BrokerError(ErrorCode.INVALID_REQUEST))
            return refused
        if unknown := self._unknown(transaction.topics):
            # The image here may lag behind the leader's. Markers go by it, so the partition would never get one.
            return Completion.of(
                {
                    at: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    if at in unknown
                    else ErrorCode.OPERATION_NOT_ATTEMPTED
                    for at in _partitions(transaction.topics)
                }
            )
        command = AddPartitions(
            transactional_id=transaction.transactional_id,
            producer_id=transaction.producer_id,
            epoch=transaction.producer_epoch,
            partitions=frozenset(_partitions(transaction.topics)),
            verify_only=transaction.verify_only,
            client_version=0 if transaction.verify_only else EPOCH_A_TRANSACTION,
        )
        return self._coordinator.submit(transaction.transactional_id, command, None)

    # AddOffsetsToTxn

    def add_offsets(self, request: AddOffsetsToTxnRequest, context: RequestContext) -> Completion[Message]:
        """AddOffsetsToTxn: add the partition of ``__consumer_offsets`` that has the group.

        :raises BrokerError: TRANSACTIONAL_ID_AUTHORIZATION_FAILED, GROUP_AUTHORIZATION_FAILED, INVALID_REQUEST;
            COORDINATOR_NOT_AVAILABLE while there is no ``__consumer_offsets``
        """
        if not context.authorize("Write", "TransactionalId", request.transactional_id):
            raise BrokerError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        if not context.authorize("Read", "Group", request.group_id):
            raise BrokerError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        offsets = self._around.metadata.image.topics.get(OFFSETS_TOPIC)
        if offsets is None:
            # Kafka takes the number of partitions from its configuration, and the topic is made by the look-up of the
            # group's coordinator. A client sends that look-up after this request, so here this one makes the topic.
            self._around.make_offsets_topic()
            raise BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        index = partition_for(request.group_id, len(offsets.partitions))
        command = AddPartitions(
            transactional_id=_named(request.transactional_id),
            producer_id=request.producer_id,
            epoch=request.producer_epoch,
            partitions=frozenset([(OFFSETS_TOPIC, index)]),
        )
        answered: Completion[Message] = Completion()
        self._coordinator.submit(request.transactional_id, command, context).when_done(
            lambda done: answered.complete(AddOffsetsToTxnResponse(error_code=_code(done.error, context)))
        )
        return answered

    # EndTxn

    def end(self, request: EndTxnRequest, context: RequestContext) -> Completion[Message]:
        """EndTxn: commit or abort. Answered when the decision is committed, before the markers are written.

        :raises BrokerError: TRANSACTIONAL_ID_AUTHORIZATION_FAILED, INVALID_REQUEST
        """
        transactional_id = _named(request.transactional_id)
        if not context.authorize("Write", "TransactionalId", transactional_id):
            raise BrokerError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        own_epoch = context.api_version >= OWN_EPOCH_FROM

        def command(fresh_id: int) -> EndTransaction:
            return EndTransaction(
                transactional_id=transactional_id,
                producer_id=request.producer_id,
                epoch=request.producer_epoch,
                commit=request.committed,
                client_version=EPOCH_A_TRANSACTION if own_epoch else 0,
                fresh_id=fresh_id,
            )

        return self._with_producer_id(transactional_id, command, context)


def _named(transactional_id: str) -> str:
    if not transactional_id:
        raise BrokerError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
    return transactional_id


def _handler(key: int, versions: tuple[int, int], handle: Any, failed: Any) -> ApiHandler:
    return ApiHandler(
        key=key, min_version=versions[0], max_version=versions[1], handle=handle, error_response=failed
    )


def _code(error: BaseException | None, context: RequestContext) -> ErrorCode:
    if error is None:
        return ErrorCode.NONE
    return mapped(error.code if isinstance(error, BrokerError) else ErrorCode.UNKNOWN_SERVER_ERROR, context)


def _mapped_error(error: BaseException, context: RequestContext) -> BaseException:
    if isinstance(error, BrokerError) and mapped(error.code, context) is not error.code:
        return BrokerError(mapped(error.code, context), error.message)
    return error


def _partitions(topics: Iterable[AddPartitionsToTxnTopic]) -> list[Partition]:
    return [(topic.name, index) for topic in topics for index in topic.partitions]


def _outcomes(
    transaction: AddPartitionsToTxnTransaction, done: Completion[Any], context: RequestContext
) -> dict[Partition, ErrorCode]:
    if done.error is not None:
        return dict.fromkeys(_partitions(transaction.topics), _code(done.error, context))
    old = context.api_version < ABORTABLE_FROM
    return {
        at: ErrorCode.INVALID_TXN_STATE if old and code is ErrorCode.TRANSACTION_ABORTABLE else code
        for at, code in done.result().items()
    }


def _results(
    topics: Iterable[AddPartitionsToTxnTopic], code: Callable[[Partition], int]
) -> list[AddPartitionsToTxnTopicResult]:
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(
                    partition_index=index, partition_error_code=code((topic.name, index))
                )
                for index in topic.partitions
            ],
        )
        for topic in topics
    ]


def _answer_of(
    topics: list[AddPartitionsToTxnTopic], codes_of: Callable[[str, list[int]], list[ErrorCode]]
) -> Steps[AddPartitionsToTxnResponse]:
    """The steps to an answer for each element of a client's request.

    :param codes_of: returns the codes of some partitions of a topic
    """
    results: list[AddPartitionsToTxnTopicResult] = []
    last: AddPartitionsToTxnTopic | None = None
    for topic, some in _pieces(topics):
        if topic is not last:
            results.append(AddPartitionsToTxnTopicResult(name=topic.name, results_by_partition=[]))
            last = topic
        results[-1].results_by_partition += [
            AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
            for index, code in zip(some, codes_of(topic.name, some), strict=True)
        ]
        yield None
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)


def _pieces(topics: list[AddPartitionsToTxnTopic]) -> Iterator[tuple[AddPartitionsToTxnTopic, list[int]]]:
    """Yield each topic with some of its indexes, and a topic without any once."""
    for topic in topics:
        for start in range(0, len(topic.partitions) or 1, STEP_ELEMENTS):
            yield topic, topic.partitions[start : start + STEP_ELEMENTS]


def _failed_for_brokers(_request: Message, code: int, _message: str | None) -> Message:
    return AddPartitionsToTxnResponse(error_code=code)


def add_partitions_failed(
    request: AddPartitionsToTxnRequest, code: int, message: str | None
) -> Steps[Message]:
    """The steps to an answer with this error for every partition; for brokers at the top."""
    if request.transactions:
        return _failed_for_brokers(request, code, message)
    error = ErrorCode(code)
    return (yield from _answer_of(request.v3_and_below_topics, lambda _, some: [error] * len(some)))


def add_offsets_failed(_request: Message, code: int, _message: str | None) -> Message:
    """Returns an answer with this error."""
    return AddOffsetsToTxnResponse(error_code=code)


def end_failed(_request: Message, code: int, _message: str | None) -> Message:
    """Returns an answer with this error, and no producer id."""
    return EndTxnResponse(error_code=code)
