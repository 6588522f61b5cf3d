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

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from blumfeld.broker.ports import Ports
from blumfeld.broker.produce.pending_produce import NO_ERRORS, NO_LEADER, PartitionAppend, PendingProduce
from blumfeld.broker.produce.whole_request import FoundTopic, WholeRequest
from blumfeld.broker.replicas.partition import Partition
from blumfeld.broker.replicas.rules.append_rules import ZSTD_FROM, TooMuchAtOnce, check_codec
from blumfeld.spi.completion import Completion, Steps
from blumfeld.spi.context import ApiHandler, NoAnswer, RequestContext
from blumfeld.spi.defects import place_of
from blumfeld.spi.repeated_events import RepeatedEvents
from blumfeld.spi.steps import CHUNK_ELEMENTS, errors_by_elements, small_at_once, waited
from blumfeld.spi.transport import OWNED_FRAME_BYTES
from blumfeld.wire.batches.record_batch import TRANSACTIONAL_BIT, RecordBatch, TruncatedBatch
from blumfeld.wire.errors import BrokerError, ErrorCode, InvalidRecord
from blumfeld.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)

if TYPE_CHECKING:
    from blumfeld.broker.produce.transactional import Check
    from blumfeld.spi.transactions import Outcomes

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
            handle=small_at_once(produce.serve),
            error_response=errors_by_elements(
                failed, ("topic_data", "partition_data"), ("responses", "partition_responses")
            ),
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
        self._defects = RepeatedEvents(ports.runtime)
        self._check: CheckOf | None = None
        self._transactional: Any = None
        """The module of the checks, once there was a transactional batch."""

    def serve(self, request: ProduceRequest, context: RequestContext) -> Steps[Any]:
        """Place every batch. The answer completes at the end of the turn, with acks=all perhaps later.

        The connection's next request waits until all batches are placed, because its requests are placed in order. Some
        are placed after a question: to the coordinator, whether they belong to a transaction, or to a worker that looks
        into them. A marker may come between the coordinator's answer and a batch's step: :meth:`Check.confirm` looks
        for it.
        """
        answered: Completion[ProduceResponse | NoAnswer] = Completion()
        pending = PendingProduce(self._ports, request, context, answered)
        whole = WholeRequest(self._ports, request, context)
        read: deque[list[RecordBatch | BrokerError]] = deque()
        for topic in request.topic_data:
            for some in _chunks(topic.partition_data):
                batches = batches_of(some)
                whole.take(batches)
                read.append(batches)
                yield None
        for topic in request.topic_data:
            answers = pending.add_topic(topic)
            for some in _chunks(topic.partition_data):
                # The topic may be deleted between two chunks.
                found_topic = FoundTopic(self._ports, topic, context)
                self._place(found_topic, some, read.popleft(), pending, answers, whole.code)
                yield None
        while pending.verifying or pending.looking:
            if pending.verifying:
                yield from self._verify(pending, context)
            else:
                partition, batch, waiter = pending.looking.popleft()
                looked = self._ports.record_inspection.look(batch, partition.config)
                if not looked.done:
                    yield looked
                self._looked(partition, batch, waiter, looked)
        pending.all_placed()
        context.let_next_start()
        return answered

    def _looked(
        self,
        partition: Partition,
        batch: RecordBatch,
        waiter: PartitionAppend,
        done: Completion[RecordBatch],
    ) -> None:
        error = done.error  # not raised: its traceback would hold this frame, and the batch in a circle
        if error is None:
            self._append_looked(partition, batch, waiter, done.result())
        elif isinstance(error, BrokerError):
            waiter.refused(error)
        else:
            log, key = self._ports.events.error, place_of(error)
            self._defects.say(log, "a batch could not be looked into", key, exc_info=error)
            waiter.appended(ErrorCode.UNKNOWN_SERVER_ERROR)

    def _verify(self, pending: PendingProduce, context: RequestContext) -> Steps[None]:
        """Ask the coordinator about the partitions of a transaction, and place their batches."""
        verifying, pending.verifying = pending.verifying, []
        transactional, transactions = self._transactional, self._ports.transactions()
        assert transactions is not None
        checks = [check for check, _ in verifying]
        if not pending.lasting:
            transactional.keep([check.batch for check in checks])
            pending.lasting = True
        outcomes = yield from waited(
            transactional.ask(
                transactions,
                self._ports.runtime,
                pending.transactional_id,
                checks,
                adds=context.api_version >= transactional.ADDS_FROM,
            )
        )
        for start in range(0, len(verifying), CHUNK_ELEMENTS):
            some = verifying[start : start + CHUNK_ELEMENTS]
            self._place_verified(pending, context, some, outcomes)
            yield None

    def _place_verified(
        self,
        pending: PendingProduce,
        context: RequestContext,
        verifying: list[tuple[Check, PartitionAppend]],
        outcomes: Outcomes,
    ) -> None:
        transactional, version = self._transactional, context.api_version
        adds, abortable = version >= transactional.ADDS_FROM, version >= transactional.ABORTABLE_FROM
        for check, waiter in verifying:
            code = outcomes.get(check.key, ErrorCode.UNKNOWN_SERVER_ERROR)
            try:
                may = check.confirm(code, adds, abortable)
            except BrokerError as error:
                waiter.refused(check.partition.state.refusal(error, check.batch))
                continue
            if may:
                self._append_to(check.partition, check.batch, waiter, check.looked)
            else:
                pending.verifying.append((check, waiter))

    def _place(
        self,
        topic: FoundTopic,
        some: Sequence[PartitionProduceData],
        batches: Sequence[RecordBatch | BrokerError],
        pending: PendingProduce,
        answers: list[PartitionProduceResponse],
        code: ErrorCode,
    ) -> None:
        """Place the batches of some partitions of a topic.

        :param batches: the batch of each partition, or its error
        :param answers: takes the answer of each partition
        :param code: the error by which the whole request fails
        """
        leading, name = self._ports.hosted.leading, topic.name
        any_codec = pending.context.api_version >= ZSTD_FROM
        for data, batch in zip(some, batches, strict=True):
            index = data.index
            try:
                if code:
                    raise self._whole(code, topic, index)
                if topic.code:
                    raise BrokerError(topic.code)
                partition = leading(name, index)
                if isinstance(batch, BrokerError):
                    raise batch
                if not any_codec:
                    check_codec(batch)
                if topic.is_foreign:
                    raise BrokerError(
                        ErrorCode.INVALID_TOPIC_EXCEPTION, "clients may not write to an internal topic"
                    )
            except BrokerError as error:
                refused = PartitionProduceResponse(index=index)
                pending.refuse(refused, error.code, error.message)
                answers.append(refused)
                continue
            answer = PartitionAppend(
                index=index,
                record_errors=NO_ERRORS,
                current_leader=NO_LEADER,
                pending=pending,
                partition=partition,
            )
            answers.append(answer)
            pending.open += 1
            if batch.attributes & TRANSACTIONAL_BIT:
                # The module is loaded with the first transaction. An import here would cost each batch a microsecond.
                check = (self._check or self._load_check())(partition, batch)
                if check is not None:
                    pending.verifying.append((check, answer))
                    continue
            self._append_to(partition, batch, answer)

    def _whole(self, code: ErrorCode, topic: FoundTopic, index: int) -> BrokerError:
        """Returns the error of a partition of a request that fails as a whole."""
        if code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED and self._ports.transactions() is None:
            # A client whose metadata is old must look for the leader, which may be a broker with transactions.
            if topic.code:
                return BrokerError(topic.code)
            try:
                self._ports.hosted.leading(topic.name, index)
            except BrokerError as error:
                return error
        return BrokerError(code)

    def _load_check(self) -> CheckOf:
        from blumfeld.broker.produce import transactional

        self._transactional = transactional
        self._check = transactional.FirstSequences().check_of
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
        try:
            placed = partition.append(batch, waiter.pending.acks, waiter, looked)
        except TooMuchAtOnce:
            self._keep(batch)
            waiter.pending.looking.append((partition, batch, waiter))
            return
        except BrokerError as error:
            waiter.refused(partition.state.refusal(error, batch))
            return
        waiter.base_offset, waiter.log_append_time_ms = placed

    def _append_looked(
        self, partition: Partition, batch: RecordBatch, waiter: PartitionAppend, checked_batch: RecordBatch
    ) -> None:
        """Append a batch that a worker thread has checked. A marker may have ended its transaction meanwhile. So a
        batch of a transaction that isn't open in the partition is verified again."""
        check = (self._check or self._load_check())(partition, batch) if batch.is_transactional else None
        if check is None:
            self._append_to(partition, batch, waiter, checked_batch)
        else:
            check.looked = checked_batch
            waiter.pending.verifying.append((check, waiter))


def batches_of(some: Iterable[PartitionProduceData]) -> list[RecordBatch | BrokerError]:
    """Returns the only batch of each partition's data, or the error: INVALID_RECORD or CORRUPT_MESSAGE."""
    batches: list[RecordBatch | BrokerError] = []
    for data in some:
        records = data.records
        batch: RecordBatch | BrokerError
        if not isinstance(records, memoryview) or not records:
            batch = InvalidRecord("no record batch was sent")
        else:
            try:
                batch = RecordBatch(records)
                if batch.size_bytes != len(records) and _is_batch(records, batch.size_bytes):
                    batch = InvalidRecord("a partition takes exactly one batch in a request")
            except TruncatedBatch as error:
                batch = InvalidRecord(f"no whole record batch was sent: {error.message}")
            except BrokerError as error:
                batch = error
        batches.append(batch)
    return batches


def _chunks(some: list[PartitionProduceData]) -> Sequence[list[PartitionProduceData]]:
    """Returns the partitions of a topic in chunks of a step; one empty chunk if there are none."""
    if len(some) <= CHUNK_ELEMENTS:
        return (some,)
    return [some[start : start + CHUNK_ELEMENTS] for start in range(0, len(some), CHUNK_ELEMENTS)]


def _is_batch(records: memoryview, at: int) -> bool:
    """Whether another batch begins at ``at``. A cut-off one at the end is ignored, as Kafka does."""
    try:
        RecordBatch(records, at)
    except TruncatedBatch:
        return False
    except BrokerError:
        return True
    return True
