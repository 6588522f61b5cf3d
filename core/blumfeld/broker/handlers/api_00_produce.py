"""Produce (key 0), v3-13; 0 is shown as the lowest, though 0-2 are refused (KAFKA-18659).

v5  the answer has the log start offset.
v7  zstd (KIP-110).
v8  record errors and a message in the answer (KIP-467).
v9  flexible.
v10 NOT_LEADER_OR_FOLLOWER says who leads (KIP-951).
v13 topics by id.
Left out: transactions (TRANSACTIONAL_ID_AUTHORIZATION_FAILED), throttling, records checked one by one
(docs/not-implemented.md). Record errors name records without a key on a compacted topic; any other error is the
batch's, and its message says what is wrong.
Requests of one batch take the way of :mod:`blumfeld.broker.produce_fast`, with the same answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from blumfeld.broker.append_rules import RejectedRecords, check_codec
from blumfeld.broker.handlers.common import ADMIN_CLIENT_ID, is_internal, leader_for
from blumfeld.broker.partitions import ACKS_ALL, Partition
from blumfeld.spi.completion import Completion
from blumfeld.spi.context import NO_ANSWER, ApiHandler, NoAnswer, RequestContext
from blumfeld.spi.runtime import Phase
from blumfeld.spi.steps import CHUNK_ELEMENTS, Steps
from blumfeld.wire.errors import BrokerError, ErrorCode, InvalidRecord
from blumfeld.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from blumfeld.wire.record_batch import RecordBatch, TruncatedBatch

if TYPE_CHECKING:
    from blumfeld.broker.broker import Broker

LEADER_HINT_FROM = 10
TOPIC_ID_FROM = 13
_WITHOUT_LOG_START = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.RECORD_LIST_TOO_LARGE,
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.KAFKA_STORAGE_ERROR,
)
"""Refused by the log; with any other error Kafka tells where the log starts."""


def handlers(broker: Broker) -> list[ApiHandler]:
    """Produce."""
    produce = Produce(broker)
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
    """The same error for every partition."""
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
    """Appends the batches of a request, and answers when all are where ``acks`` wants them."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def handle(
        self, request: ProduceRequest, context: RequestContext
    ) -> Completion[ProduceResponse | NoAnswer]:
        """Place every batch; the rest of the answer comes at the end of the turn, or with acks=all later."""
        pending = PendingProduce(self._broker, request, context)
        code = self._refuse_all(request)
        for topic in request.topic_data:
            answers = pending.add_topic(topic)
            for data in topic.partition_data:
                self._place(request, topic, data, context, pending, answers, code)
        pending.all_placed()
        context.let_next_start()
        return pending.completion

    def in_steps(self, request: ProduceRequest, context: RequestContext) -> Steps[Any]:
        """The same for many partitions. The connection's next request waits until all are placed, as always."""
        pending = PendingProduce(self._broker, request, context)
        code = ErrorCode.NONE if request.acks in (ACKS_ALL, 0, 1) else ErrorCode.INVALID_REQUIRED_ACKS
        producers: set[int] = set()
        seen = 0
        for topic in request.topic_data:
            for data in topic.partition_data:
                code = code or self._refuse_all_for(data, producers)
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
        pending.all_placed()
        context.let_next_start()
        return pending.completion

    def _place(
        self,
        request: ProduceRequest,
        topic: TopicProduceData,
        data: PartitionProduceData,
        context: RequestContext,
        pending: PendingProduce,
        answers: list[PartitionProduceResponse],
        code: ErrorCode,
    ) -> None:
        answer = PartitionProduceResponse(index=data.index)
        answers.append(answer)
        try:
            if code:
                raise BrokerError(code)
            self._append(request, topic, data, context, PartitionAppend(pending, answer))
        except BrokerError as error:
            _refuse(answer, error.code, error.message)

    def _refuse_all(self, request: ProduceRequest) -> ErrorCode:
        if request.acks not in (ACKS_ALL, 0, 1):
            return ErrorCode.INVALID_REQUIRED_ACKS
        producers: set[int] = set()
        for topic in request.topic_data:
            for data in topic.partition_data:
                code = self._refuse_all_for(data, producers)
                if code:
                    return code
        return ErrorCode.NONE

    def _refuse_all_for(self, data: PartitionProduceData, producers: set[int]) -> ErrorCode:
        """The error that one partition's batch gives to all; ``producers`` are those seen so far."""
        try:
            batch = one_batch(data)
        except BrokerError:
            return ErrorCode.NONE  # that partition's own error
        if batch.is_transactional:
            return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        if batch.has_producer_id:
            producers.add(batch.producer_id)
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING if len(producers) > 1 else ErrorCode.NONE

    def _append(
        self,
        request: ProduceRequest,
        topic: TopicProduceData,
        data: PartitionProduceData,
        context: RequestContext,
        waiter: PartitionAppend,
    ) -> None:
        partition = self._find(topic, data.index, context)
        batch = one_batch(data)
        check_codec(batch, context.api_version)
        if is_internal(partition.partition.topic) and context.client_id != ADMIN_CLIENT_ID:
            raise BrokerError(ErrorCode.INVALID_TOPIC_EXCEPTION, "clients may not write to an internal topic")
        answer = waiter.answer
        waiter.partition = partition
        waiter.pending.open += 1
        try:
            answer.base_offset = partition.append(batch, request.acks, waiter)
        except BrokerError as error:
            waiter.pending.open -= 1
            _refuse(answer, error.code, error.message)
            if isinstance(error, RejectedRecords):
                answer.record_errors = [
                    BatchIndexAndErrorMessage(batch_index=at, batch_index_error_message=error.record_message)
                    for at in error.indexes
                ]
            if error.code not in _WITHOUT_LOG_START:
                answer.log_start_offset = partition.log.log_start_offset
            return
        answer.log_append_time_ms = partition.append_ms

    def _find(self, topic: TopicProduceData, index: int, context: RequestContext) -> Partition:
        """The partition, if this node leads it and the client may write to it."""
        broker = self._broker
        name = topic.name
        if context.api_version >= TOPIC_ID_FROM:
            image = broker.image.topic_by_id(topic.topic_id)
            if image is None:
                raise BrokerError(ErrorCode.UNKNOWN_TOPIC_ID)
            name = image.name
        if not context.authorize("Write", "Topic", name):
            raise BrokerError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        return broker.leading(name, index)


def one_batch(data: PartitionProduceData) -> RecordBatch:
    """The one batch that a partition's data must be.

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
    """Whether another batch follows; the beginning of one is ignored, as Kafka does."""
    try:
        RecordBatch(records, at)
    except TruncatedBatch:
        return False
    except BrokerError:
        return True
    return True


def _refuse(answer: PartitionProduceResponse, code: ErrorCode, message: str | None) -> None:
    answer.error_code = int(code)
    answer.base_offset = answer.log_append_time_ms = answer.log_start_offset = -1
    answer.error_message = message


class PartitionAppend:
    """Waits for one partition's batch."""

    __slots__ = ("answer", "done", "partition", "pending")

    def __init__(self, pending: PendingProduce, answer: PartitionProduceResponse) -> None:
        self.pending = pending
        self.answer = answer
        self.partition: Partition | None = None
        self.done = False

    def appended(self, code: ErrorCode) -> None:
        """As ``AppendWaiter.appended``."""
        if self.done:
            return
        self.done = True
        if code or self.partition is None:
            _refuse(self.answer, code, None)
        else:
            self.answer.log_start_offset = self.partition.log.log_start_offset
        self.pending.one_done()


class PendingProduce:
    """A request whose batches are placed. Parked only when it isn't answered within its turn (acks=all)."""

    __slots__ = ("_broker", "_placing", "_response", "acks", "completion", "context", "open", "timeout_ms")

    def __init__(self, broker: Broker, request: ProduceRequest, context: RequestContext) -> None:
        self.completion: Completion[ProduceResponse | NoAnswer] = Completion()
        self.context = context
        self.acks = request.acks
        self.timeout_ms = request.timeout_ms
        self.open = 0
        """Batches whose outcome is not known."""
        self._broker = broker
        self._placing = True
        self._response = ProduceResponse()

    def add_topic(self, topic: TopicProduceData) -> list[PartitionProduceResponse]:
        """Where the answers of the topic's partitions go."""
        answer = TopicProduceResponse(name=topic.name, topic_id=topic.topic_id)
        self._response.responses.append(answer)
        return answer.partition_responses

    def all_placed(self) -> None:
        """Nothing more is placed: answer, or wait."""
        self._placing = False
        if not self.open:
            self._answer()
        elif self.acks == ACKS_ALL:
            self._broker.runtime.at_end_of_turn(Phase.COMPLETE, self._park)

    def one_done(self) -> None:
        """The outcome of one batch is there."""
        self.open -= 1
        if not self.open and not self._placing:
            self._answer()
            self._broker.parking.wake(self)

    def _park(self) -> None:
        if not self.completion.done:
            self._broker.parking.park(self, (self,), self.timeout_ms)

    def try_complete(self) -> bool:
        """As ``ParkedOperation.try_complete``."""
        return self.completion.done

    def expire(self) -> None:
        """The time is up: what is not committed yet may still become so."""
        for topic in self._response.responses:
            for answer in topic.partition_responses:
                if not answer.error_code and answer.log_start_offset < 0:
                    _refuse(answer, ErrorCode.REQUEST_TIMED_OUT, None)
        self._answer()

    def _answer(self) -> None:
        if self.completion.done:
            return
        if self.acks == 0:
            self._answer_nothing()
            return
        if self.context.api_version >= LEADER_HINT_FROM:
            self._hint_leaders()
        self.completion.complete(self._response)

    def _answer_nothing(self) -> None:
        """acks=0: an error can only be told by closing the connection."""
        codes = [
            a.error_code for t in self._response.responses for a in t.partition_responses if a.error_code
        ]
        if codes:
            self.context.close_connection(f"produce with acks=0 failed: {ErrorCode(codes[0]).name}")
        self.completion.complete(NO_ANSWER)

    def _hint_leaders(self) -> None:
        broker, listener = self._broker, self.context.listener.name
        told: set[int] = set()
        for topic in self._response.responses:
            for answer in topic.partition_responses:
                if answer.error_code != ErrorCode.NOT_LEADER_OR_FOLLOWER:
                    continue
                image = broker.topic_image(
                    topic.name, topic.topic_id, self.context.api_version >= TOPIC_ID_FROM
                )
                partition = None if image is None else image.partitions.get(answer.index)
                if partition is None:
                    continue
                answer.current_leader = LeaderIdAndEpoch(
                    leader_id=partition.leader, leader_epoch=partition.leader_epoch
                )
                code, leader = leader_for(broker, partition, listener)
                if code == ErrorCode.NONE and leader not in told:
                    told.add(leader)
                    node = broker.image.brokers[leader]
                    endpoint = node.endpoint(listener)
                    if endpoint is not None:
                        self._response.node_endpoints.append(
                            NodeEndpoint(
                                node_id=leader, host=endpoint.host, port=endpoint.port, rack=node.rack
                            )
                        )
