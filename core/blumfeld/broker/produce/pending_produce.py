"""A Produce request after its batches were placed: waits for each batch's outcome, then answers."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from blumfeld.broker.membership.leaders import hinted_leader
from blumfeld.broker.ports import Ports
from blumfeld.broker.produce.all_appended import AllAppended
from blumfeld.broker.replicas.partition import Partition
from blumfeld.broker.replicas.rules.append_rules import RejectedRecords
from blumfeld.spi.completion import Completion
from blumfeld.spi.context import NO_ANSWER, NoAnswer, RequestContext
from blumfeld.wire.batches.record_batch import RecordBatch
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

if TYPE_CHECKING:
    from blumfeld.broker.produce.transactional import Check

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
"""Errors that Kafka answers with log start offset -1. With any other error it sends the log's real start."""


NO_ERRORS: list[BatchIndexAndErrorMessage] = []
NO_LEADER = LeaderIdAndEpoch()


class PartitionAppend(PartitionProduceResponse, kw_only=True, eq=False):
    """One partition's answer, and what waits for the outcome of its batch. Implements ``AppendWaiter``.

    A request may have hundreds of partitions, and one object costs less than two.
    """

    pending: PendingProduce
    partition: Partition

    def refused(self, error: BrokerError) -> None:
        """Take the error of a batch that was refused before it was placed."""
        self.pending.open -= 1
        self.pending.refuse(self, error.code, error.message)
        if isinstance(error, RejectedRecords):
            self.record_errors = [
                BatchIndexAndErrorMessage(batch_index=at, batch_index_error_message=error.record_message)
                for at in error.indexes
            ]
        if error.code not in _WITHOUT_LOG_START:
            self.log_start_offset = self.partition.log.log_start_offset

    @property
    def commit_wait_ms(self) -> float | None:
        """As ``AppendWaiter.commit_wait_ms``."""
        return self.pending.timeout_ms

    def appended(self, code: ErrorCode) -> None:
        """As ``AppendWaiter.appended``."""
        pending = self.pending
        if code:
            pending.refuse(self, code, None)
        else:
            self.log_start_offset = self.partition.log.log_start_offset
        pending.open -= 1
        if not pending.open:
            pending.all_told()


class PendingProduce:
    """A request whose batches are placed. It is answered once each of them has its outcome.

    With acks=all that may be REQUEST_TIMED_OUT: each partition watches the deadlines of its own batches.
    """

    __slots__ = (
        "_completion",
        "_placing",
        "_ports",
        "_refused",
        "_topics",
        "acks",
        "context",
        "lasting",
        "looking",
        "open",
        "timeout_ms",
        "transactional_id",
        "verifying",
    )

    def __init__(
        self,
        ports: Ports,
        request: ProduceRequest,
        context: RequestContext,
        completion: Completion[ProduceResponse | NoAnswer],
    ) -> None:
        """:param completion: takes the answer"""
        self._completion: Completion[ProduceResponse | NoAnswer] | None = completion
        self.context = context
        self.acks = request.acks
        self.timeout_ms = request.timeout_ms
        self.open = 0
        """Number of batches whose outcome is not known yet."""
        self.looking: deque[tuple[Partition, RecordBatch, PartitionAppend]] = deque()
        """Batches whose records a worker thread must check before they are placed."""
        self.transactional_id = request.transactional_id or ""
        self.lasting = context.is_large
        """Whether the batches that wait lie in memory that outlives the turn."""
        self.verifying: list[tuple[Check, PartitionAppend]] = []
        """Batches whose transaction the coordinator must verify before they are placed."""
        self._ports = ports
        self._placing = True
        self._refused = False
        """Whether any partition's answer has an error."""
        self._topics: list[TopicProduceResponse] = []
        """The answers by topic, until the request is answered. Each of them refers to this object."""

    def add_topic(self, topic: TopicProduceData) -> list[PartitionProduceResponse]:
        """Add a topic to the response. Returns the list that takes its partitions' answers."""
        answer = TopicProduceResponse(name=topic.name, topic_id=topic.topic_id)
        self._topics.append(answer)
        return answer.partition_responses

    def all_placed(self) -> None:
        """Answer now if every outcome is known; otherwise wait. Called once, after the last batch was placed."""
        self._placing = False
        if not self.open:
            self._answer()

    def all_told(self) -> None:
        """Answer if no more batches come: the outcome of each batch so far is known."""
        if not self._placing:
            self._answer()

    def refuse(self, answer: PartitionProduceResponse, code: ErrorCode, message: str | None) -> None:
        """Set this error in a partition's answer, and -1 for each offset and time."""
        self._refused = True
        answer.error_code = int(code)
        answer.base_offset = answer.log_append_time_ms = answer.log_start_offset = -1
        answer.error_message = message

    def _answer(self) -> None:
        # The answers refer to this object. If it kept them, or their completion, nothing would ever free them.
        topics, self._topics = self._topics, []
        completion, self._completion = self._completion, None
        assert completion is not None
        if self.acks == 0:
            self._check_unanswered(topics)
            completion.complete(NO_ANSWER)
        elif self._refused or self.context.is_large:  # the answer of all appended is encoded at once
            response = ProduceResponse(responses=topics)
            if self._refused and self.context.api_version >= LEADER_HINT_FROM:
                self._hint_leaders(response)
            completion.complete(response)
        else:
            completion.complete(AllAppended(responses=topics))

    def _check_unanswered(self, topics: list[TopicProduceResponse]) -> None:
        """A request with acks=0 has no answer, so an error closes the connection, as in Kafka."""
        codes = [a.error_code for t in topics for a in t.partition_responses if a.error_code]
        if codes:
            self.context.close_connection(f"produce with acks=0 failed: {ErrorCode(codes[0]).name}")

    def _hint_leaders(self, response: ProduceResponse) -> None:
        ports, listener = self._ports, self.context.listener.name
        hinted: set[int] = set()
        for topic in response.responses:
            for answer in topic.partition_responses:
                if answer.error_code != ErrorCode.NOT_LEADER_OR_FOLLOWER:
                    continue
                image = ports.cluster.topic_image(
                    topic.name, topic.topic_id, self.context.api_version >= TOPIC_ID_FROM
                )
                partition = None if image is None else image.partitions.get(answer.index)
                if partition is None:
                    continue
                answer.current_leader = LeaderIdAndEpoch(
                    leader_id=partition.leader, leader_epoch=partition.leader_epoch
                )
                hint = hinted_leader(ports.cluster, partition, listener)
                if hint is not None and hint[0].broker_id not in hinted:
                    node, endpoint = hint
                    hinted.add(node.broker_id)
                    response.node_endpoints.append(
                        NodeEndpoint(
                            node_id=node.broker_id, host=endpoint.host, port=endpoint.port, rack=node.rack
                        )
                    )
