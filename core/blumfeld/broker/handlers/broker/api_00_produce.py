"""Produce (key 0), v3-13. ApiVersions shows v0 as the lowest, as Kafka does for old librdkafka (KAFKA-18659); v0-2 are
refused.

v5  the answer has the log start offset.
v7  zstd (KIP-110).
v8  record errors and a message in the answer (KIP-467).
v9  flexible.
v10 NOT_LEADER_OR_FOLLOWER says who leads (KIP-951).
v11 TRANSACTION_ABORTABLE.  v12 a batch adds its partition to the transaction (KIP-890).
v13 topics by id.
In a composition without a transactions plug-in a transactional batch gets TRANSACTIONAL_ID_AUTHORIZATION_FAILED.
Left out: throttling, records checked one by one (docs/not-implemented.md). Record errors name records without a key on
a compacted topic; any other error is the batch's, and its message says what is wrong.
Requests with one batch are mostly served by :mod:`blumfeld.broker.produce.straight`, with the same answers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from blumfeld.broker.handlers.common import ADMIN_CLIENT_ID
from blumfeld.broker.ports import Ports
from blumfeld.broker.produce.pending import TOPIC_ID_FROM, PartitionAppend, PendingProduce, refuse
from blumfeld.broker.replicas.partition import Partition
from blumfeld.broker.replicas.rules.append_rules import TooMuchAtOnce, check_codec
from blumfeld.broker.replicas.waiting_appends import ACKS_ALL
from blumfeld.spi.completion import Completion, Steps
from blumfeld.spi.context import ApiHandler, NoAnswer, RequestContext
from blumfeld.spi.internal_topics import is_internal
from blumfeld.spi.steps import CHUNK_ELEMENTS
from blumfeld.spi.transport import OWNED_FRAME_BYTES
from blumfeld.wire.batches.record_batch import RecordBatch, TruncatedBatch
from blumfeld.wire.errors import BrokerError, ErrorCode, InvalidRecord
from blumfeld.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

if TYPE_CHECKING:
    from blumfeld.broker.produce.transactional import Check

CheckOf: TypeAlias = "Callable[[Partition, RecordBatch], Check | None]"


def handlers(ports: Ports) -> list[ApiHandler]:
    """Returns the handler of Produce."""
    produce = Produce(ports)
    return [
        ApiHandler(
            key=0,
            min_version=3,
            max_version=13,
            advertised_min=0,
            handle=produce.handle,
            error_response=failed,
            in_steps=produce.in_steps,
        )
    ]


def failed(request: ProduceRequest, code: int, message: str | None) -> ProduceResponse:
    """Returns an answer with this error for every partition."""
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[_refused(p.index, code, message) for p in topic.partition_data],
            )
            for topic in request.topic_data
        ]
    )


def _refused(index: int, code: int, message: str | None) -> PartitionProduceResponse:
    return PartitionProduceResponse(index=index, error_code=code, base_offset=-1, error_message=message)


class Produce:
    """The general way: appends the batches of a request, and answers when all are written or committed, as ``acks``
    asks."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports
        self._check: CheckOf | None = None

    def handle(
        self, request: ProduceRequest, context: RequestContext
    ) -> Completion[ProduceResponse | NoAnswer]:
        """Place every batch. The answer completes at the end of the turn, with acks=all perhaps later."""
        pending = PendingProduce(self._ports, request, context)
        batches: list[RecordBatch | BrokerError] = []
        code = self._refuse_all(request, context, batches)
        following = iter(batches)
        for topic in request.topic_data:
            answers = pending.add_topic(topic)
            for data in topic.partition_data:
                self._place(request, topic, data, context, pending, answers, code, next(following, None))
        self._all_placed(pending, context)
        return pending.completion

    def in_steps(self, request: ProduceRequest, context: RequestContext) -> Steps[Any]:
        """:meth:`handle` for many partitions. The connection's next request waits until all batches are placed."""
        pending = PendingProduce(self._ports, request, context)
        code = ErrorCode.NONE if request.acks in (ACKS_ALL, 0, 1) else ErrorCode.INVALID_REQUIRED_ACKS
        producers: set[int] = set()
        seen = 0
        for topic in request.topic_data:
            for data in topic.partition_data:
                code = code or self._refuse_all_for(batch_or_error(data), producers, request, context)
                seen += 1
                if not seen % CHUNK_ELEMENTS:
                    yield None
            if not topic.partition_data:
                yield None
        for topic in request.topic_data:
            answers = pending.add_topic(topic)
            for data in topic.partition_data:
                self._place(request, topic, data, context, pending, answers, code)
                seen += 1
                if not seen % CHUNK_ELEMENTS:
                    yield None
            if not topic.partition_data:
                yield None
        self._all_placed(pending, context)
        return pending.completion

    def _all_placed(self, pending: PendingProduce, context: RequestContext) -> None:
        """Place the batches whose transaction must be verified, and those whose records a worker must check. Then the
        next request may start.

        It must not start earlier: requests of a connection are placed in order.
        """
        if pending.verifying:
            self._verify(pending, context)
            return
        if pending.looking:
            partition, batch, waiter = pending.looking.popleft()

            def looked(done: Completion[RecordBatch]) -> None:
                try:
                    found = done.result()
                except BrokerError as error:
                    waiter.refused(partition, error)
                except Exception as error:
                    self._ports.events.error("a batch could not be looked into", exc_info=error)
                    waiter.appended(ErrorCode.UNKNOWN_SERVER_ERROR)
                else:
                    self._append_looked(partition, batch, waiter, found)
                self._all_placed(pending, context)

            self._ports.looking_inside.look(batch, partition.config).when_done(looked)
            return
        pending.all_placed()
        context.let_next_start()

    def _verify(self, pending: PendingProduce, context: RequestContext) -> None:
        """Ask the coordinator about the partitions of a transaction, and place their batches."""
        from blumfeld.broker.produce import transactional

        verifying, pending.verifying = pending.verifying, []
        transactions = self._ports.transactions()
        assert transactions is not None
        version = context.api_version
        adds, abortable = version >= transactional.ADDS_FROM, version >= transactional.ABORTABLE_FROM

        def place(outcome: Callable[[Check], ErrorCode]) -> None:
            for check, waiter in verifying:
                try:
                    may = check.confirm(outcome(check), adds=adds, abortable=abortable)
                except BrokerError as error:
                    waiter.refused(check.partition, error)
                    continue
                if may:
                    self._append_to(check.partition, check.batch, waiter, check.looked)
                else:
                    pending.verifying.append((check, waiter))
            self._all_placed(pending, context)

        checks = [check for check, _ in verifying]
        transactional.ask(
            transactions, self._ports.runtime, pending.transactional_id, checks, adds=adds, then=place
        )

    def _place(
        self,
        request: ProduceRequest,
        topic: TopicProduceData,
        data: PartitionProduceData,
        context: RequestContext,
        pending: PendingProduce,
        answers: list[PartitionProduceResponse],
        code: ErrorCode,
        batch: RecordBatch | BrokerError | None = None,
    ) -> None:
        """:param batch: the partition's batch if it was read before, or what is wrong with it"""
        answer = PartitionProduceResponse(index=data.index)
        answers.append(answer)
        try:
            if code:
                if (
                    code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
                    and self._ports.transactions() is None
                ):
                    # A client whose metadata is old must look for the leader, which may be a broker with transactions.
                    self._find(topic, data.index, context)
                raise BrokerError(code)
            if batch is None:
                batch = batch_or_error(data)
            self._append(topic, data.index, batch, context, PartitionAppend(pending, answer))
        except BrokerError as error:
            refuse(answer, error.code, error.message)

    def _refuse_all(
        self, request: ProduceRequest, context: RequestContext, batches: list[RecordBatch | BrokerError]
    ) -> ErrorCode:
        """Returns the error by which the whole request fails, or NONE.

        :param batches: takes each partition's batch, or what is wrong with it, so that it is read only once
        """
        if request.acks not in (ACKS_ALL, 0, 1):
            return ErrorCode.INVALID_REQUIRED_ACKS
        producers: set[int] = set()
        for topic in request.topic_data:
            for data in topic.partition_data:
                batch = batch_or_error(data)
                batches.append(batch)
                code = self._refuse_all_for(batch, producers, request, context)
                if code:
                    return code
        return ErrorCode.NONE

    def _refuse_all_for(
        self,
        batch: RecordBatch | BrokerError,
        producers: set[int],
        request: ProduceRequest,
        context: RequestContext,
    ) -> ErrorCode:
        """Returns the error by which one partition's batch makes the whole request fail, or NONE.

        :param producers: producer ids of the batches before it; this batch's is added
        """
        if isinstance(batch, BrokerError):
            return ErrorCode.NONE  # only this partition fails
        if batch.is_transactional and not self._may_transact(request.transactional_id, context):
            return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        if batch.has_producer_id:
            producers.add(batch.producer_id)
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING if len(producers) > 1 else ErrorCode.NONE

    def _may_transact(self, transactional_id: str | None, context: RequestContext) -> bool:
        """Whether this build has transactions, and the client may write in this one."""
        if transactional_id is None or self._ports.transactions() is None:
            return False
        return context.authorize("Write", "TransactionalId", transactional_id)

    def _append(
        self,
        topic: TopicProduceData,
        index: int,
        batch: RecordBatch | BrokerError,
        context: RequestContext,
        waiter: PartitionAppend,
    ) -> None:
        partition = self._find(topic, index, context)
        if isinstance(batch, BrokerError):
            raise batch
        check_codec(batch, context.api_version)
        if is_internal(partition.partition.topic) and context.client_id != ADMIN_CLIENT_ID:
            raise BrokerError(ErrorCode.INVALID_TOPIC_EXCEPTION, "clients may not write to an internal topic")
        waiter.partition = partition
        waiter.pending.open += 1
        if batch.is_transactional:
            # The module is loaded with the first transaction. An import here would cost each batch a microsecond.
            check = (self._check or self._load_check())(partition, batch)
            if check is not None:
                self._keep(batch)
                waiter.pending.verifying.append((check, waiter))
                return
        self._append_to(partition, batch, waiter)

    def _load_check(self) -> CheckOf:
        from blumfeld.broker.produce.transactional import FirstSequences

        self._check = FirstSequences().check_of
        return self._check

    def _keep(self, batch: RecordBatch) -> None:
        """Move the batch to memory that outlives the turn. A small frame lies in the receive buffer, which the next
        turn overwrites."""
        if batch.size_bytes <= OWNED_FRAME_BYTES:
            batch.data = memoryview(bytearray(batch.data))

    def _append_to(
        self,
        partition: Partition,
        batch: RecordBatch,
        waiter: PartitionAppend,
        looked: RecordBatch | None = None,
    ) -> None:
        answer = waiter.answer
        try:
            answer.base_offset = partition.append(batch, waiter.pending.acks, waiter, looked)
        except TooMuchAtOnce:
            self._keep(batch)
            waiter.pending.looking.append((partition, batch, waiter))
            return
        except BrokerError as error:
            waiter.refused(partition, error)
            return
        answer.log_append_time_ms = partition.append_ms

    def _append_looked(
        self, partition: Partition, batch: RecordBatch, waiter: PartitionAppend, found: RecordBatch
    ) -> None:
        """Append a batch that a worker thread has checked. A marker may have ended its transaction meanwhile. So a
        batch of a transaction that isn't open in the partition is verified again."""
        check = (self._check or self._load_check())(partition, batch) if batch.is_transactional else None
        if check is None:
            self._append_to(partition, batch, waiter, found)
        else:
            check.looked = found
            waiter.pending.verifying.append((check, waiter))

    def _find(self, topic: TopicProduceData, index: int, context: RequestContext) -> Partition:
        """Returns the partition, if this node leads it and the client may write to it."""
        ports = self._ports
        name = topic.name
        if context.api_version >= TOPIC_ID_FROM:
            image = ports.cluster.image.topic_by_id(topic.topic_id)
            if image is None:
                raise BrokerError(ErrorCode.UNKNOWN_TOPIC_ID)
            name = image.name
        if not context.authorize("Write", "Topic", name):
            raise BrokerError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        return ports.hosted.leading(name, index)


def batch_or_error(data: PartitionProduceData) -> RecordBatch | BrokerError:
    """Returns the only batch of a partition's data, or the error of :func:`one_batch`."""
    try:
        return one_batch(data)
    except BrokerError as error:
        return error


def one_batch(data: PartitionProduceData) -> RecordBatch:
    """Returns the only batch of a partition's data.

    :raises BrokerError: INVALID_RECORD, CORRUPT_MESSAGE
    """
    records = data.records
    if not isinstance(records, memoryview) or not records:
        raise InvalidRecord("no record batch was sent")
    try:
        batch = RecordBatch(records)
    except TruncatedBatch as error:
        raise InvalidRecord(f"no whole record batch was sent: {error.message}") from None
    if batch.size_bytes != len(records) and _is_batch(records, batch.size_bytes):
        raise InvalidRecord("a partition takes exactly one batch in a request")
    return batch


def _is_batch(records: memoryview, at: int) -> bool:
    """Whether another batch begins at ``at``. A cut-off one at the end is ignored, as Kafka does."""
    try:
        RecordBatch(records, at)
    except TruncatedBatch:
        return False
    except BrokerError:
        return True
    return True
