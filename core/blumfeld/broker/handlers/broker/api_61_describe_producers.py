"""DescribeProducers (key 61), v0: a partition's producers and their open transactions (KIP-664).

Any replica answers from its own state. ``kafka-transactions.sh describe-producers`` and ``abort`` send it.
"""

from __future__ import annotations

from typing import Any

from blumfeld.broker.handlers.common import is_legal_topic
from blumfeld.broker.ports import Ports
from blumfeld.log.producers.snapshot import ProducerEntry
from blumfeld.spi.completion import Steps
from blumfeld.spi.context import ApiHandler, RequestContext
from blumfeld.spi.steps import at_once, errors_by_elements, first_repeated, in_parts, result_of
from blumfeld.wire.errors import BrokerError, ErrorCode, message_of
from blumfeld.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)

PRODUCERS_AT_ONCE = 1_000
"""Producers that are described in one turn: this many take 2 ms. A request for more is served partition by
partition."""
_PATHS = ("topics", "partition_indexes"), ("topics", "partitions")


def handlers(ports: Ports) -> list[ApiHandler]:
    """Returns the handler of DescribeProducers."""
    described = DescribeProducers(ports)
    return [
        ApiHandler(
            key=61,
            min_version=0,
            max_version=0,
            handle=described.handle,
            error_response=errors_by_elements(failed, *_PATHS),
        )
    ]


def failed(request: DescribeProducersRequest, code: int, message: str | None) -> DescribeProducersResponse:
    """Returns an answer with this error for every partition."""
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=[
                    PartitionResponse(partition_index=index, error_code=code, error_message=message)
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics
        ]
    )


class DescribeProducers:
    """Describes producers from the state of the replicas on this node."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports
        self._by_partition = in_parts(self._answer, failed, *_PATHS, chunk=1)

    def handle(
        self, request: DescribeProducersRequest, context: RequestContext
    ) -> DescribeProducersResponse | Steps[Any]:
        """Describe each partition, or answer its error: INVALID_TOPIC_EXCEPTION, TOPIC_AUTHORIZATION_FAILED, or the
        error for a partition that isn't here. Many producers take steps.

        :raises BrokerError: INVALID_REQUEST if a partition is asked for twice. A few kB could ask for gigabytes
        """
        steps = self._steps(request, context)
        if context.is_large or self._has_many(request):
            return steps
        answer: DescribeProducersResponse = at_once(steps)
        return answer

    def _has_many(self, request: DescribeProducersRequest) -> bool:
        hosted = (
            self._ports.hosted.find(topic.name, index)
            for topic in request.topics
            for index in topic.partition_indexes
        )
        producers = (len(partition.state.producers) for partition in hosted if partition is not None)
        return sum(producers) > PRODUCERS_AT_ONCE

    def _steps(self, request: DescribeProducersRequest, context: RequestContext) -> Steps[Any]:
        yield from self._check(request)
        return (yield from result_of(self._by_partition(request, context)))

    def _check(self, request: DescribeProducersRequest) -> Steps[None]:
        places = ((topic.name, index) for topic in request.topics for index in topic.partition_indexes)
        repeated = yield from first_repeated(places)
        if repeated is not None:
            raise BrokerError(ErrorCode.INVALID_REQUEST, f"{repeated[0]}-{repeated[1]} is asked for twice")

    def _answer(
        self, request: DescribeProducersRequest, context: RequestContext
    ) -> DescribeProducersResponse:
        response = failed(request, ErrorCode.NONE, None)
        for topic in response.topics:
            code = ErrorCode.NONE
            if not is_legal_topic(topic.name):
                code = ErrorCode.INVALID_TOPIC_EXCEPTION
            elif not context.authorize("Read", "Topic", topic.name):
                code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            for answer in topic.partitions:
                self._describe(topic.name, answer, code)
        return response

    def _describe(self, topic: str, answer: PartitionResponse, code: ErrorCode) -> None:
        if code is ErrorCode.NONE:
            partition = self._ports.hosted.find(topic, answer.partition_index)
            if partition is not None and partition.closed is None:
                producers = partition.state.producers.producers()
                answer.active_producers = [_described(entry) for entry in producers]
                return
            try:
                self._ports.hosted.leading(topic, answer.partition_index)
            except BrokerError as error:
                code = error.code
        answer.error_code = code
        answer.error_message = message_of(code)


def _described(entry: ProducerEntry) -> ProducerState:
    return ProducerState(
        producer_id=entry.producer_id,
        producer_epoch=entry.epoch,
        last_sequence=entry.last_sequence,
        last_timestamp=entry.last_timestamp_ms,
        coordinator_epoch=entry.coordinator_epoch,
        current_txn_start_offset=entry.txn_first_offset,
    )
