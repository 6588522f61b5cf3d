"""DescribeTopicPartitions (key 75), v0: topics by pages, with eligible leader replicas (KIP-966).

An empty list of topics asks for all. The lists of eligible leaders are empty and not null, because the Java admin
client of 3.9 fails on null. Authorized operations are always shown, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import merge
from itertools import groupby

from blumfeld.broker.handlers.common import NO_OPERATIONS, authorized_operations, is_legal_topic
from blumfeld.broker.membership.leaders import leader_for, offline_replicas
from blumfeld.broker.ports import Ports
from blumfeld.spi.cluster import PartitionImage, TopicImage
from blumfeld.spi.completion import Steps
from blumfeld.spi.context import ApiHandler, RequestContext
from blumfeld.spi.internal_topics import is_internal
from blumfeld.spi.steps import CHUNK_ELEMENTS, STEP_ELEMENTS, errors_by_elements, small_at_once
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)


def handlers(ports: Ports) -> list[ApiHandler]:
    """Returns the handler of DescribeTopicPartitions."""
    return [
        ApiHandler(
            key=75,
            min_version=0,
            max_version=0,
            handle=small_at_once(DescribeTopicPartitions(ports).serve),
            error_response=errors_by_elements(failed, ("topics",), ("topics",)),
        )
    ]


def failed(
    request: DescribeTopicPartitionsRequest, code: int, _message: str | None
) -> DescribeTopicPartitionsResponse:
    """Returns an answer with this error for every topic of the request."""
    return DescribeTopicPartitionsResponse(
        topics=[DescribeTopicPartitionsResponseTopic(error_code=code, name=t.name) for t in request.topics]
    )


class DescribeTopicPartitions:
    """Describes topics in the order of their names, from the cursor on, up to a number of partitions."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports

    def serve(
        self, request: DescribeTopicPartitionsRequest, context: RequestContext
    ) -> Steps[DescribeTopicPartitionsResponse]:
        """The steps to one page. Its ``next_cursor`` is the first partition of the next page.

        :raises BrokerError: INVALID_REQUEST: the cursor has a negative partition, or a topic that isn't among those
            of the request. The topics behind it would look like the last page.
        """
        names: Iterable[str]
        if request.topics:
            runs: list[list[str]] = []
            for start in range(0, len(request.topics), STEP_ELEMENTS):
                runs.append(sorted(topic.name for topic in request.topics[start : start + STEP_ELEMENTS]))
                yield None
            names = (name for name, _ in groupby(merge(*runs)))
        else:
            names = sorted(self._ports.cluster.image.topics)
        return (yield from self._page(request, context, names))

    def _page(
        self, request: DescribeTopicPartitionsRequest, context: RequestContext, names: Iterable[str]
    ) -> Steps[DescribeTopicPartitionsResponse]:
        cursor = request.cursor
        if cursor is not None and cursor.partition_index < 0:
            raise BrokerError(ErrorCode.INVALID_REQUEST)
        limit = self._ports.cluster.config.int("max.request.partition.size.limit")
        left = max(min(limit, request.response_partition_limit), 1)
        response = DescribeTopicPartitionsResponse()
        sought = cursor.topic_name if cursor is not None and request.topics else None
        for number, name in enumerate(names):
            if not number % CHUNK_ELEMENTS:
                yield None
            if cursor is not None and name < cursor.topic_name:
                continue
            if sought is not None:
                if name != sought:
                    break
                sought = None
            first = cursor.partition_index if cursor is not None and name == cursor.topic_name else 0
            topic = self._ports.cluster.image.topics.get(name)
            # First, so that a name that is refused tells nothing of whether there is such a topic.
            if not context.authorize("Describe", "Topic", name, quiet=not request.topics):
                if request.topics:
                    response.topics.append(
                        _refused(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED, NO_OPERATIONS)
                    )
                continue
            if not left:
                response.next_cursor = Cursor(topic_name=name, partition_index=first)
                break
            if topic is None:
                legal = is_legal_topic(name)
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if legal else ErrorCode.INVALID_TOPIC_EXCEPTION
                response.topics.append(_refused(name, code, authorized_operations(context, "Topic", name)))
                continue
            last = self._add(response, topic, first, left, context)
            left -= last - first
            if last < len(topic.partitions):
                response.next_cursor = Cursor(topic_name=name, partition_index=last)
                break
        if sought is not None:
            raise BrokerError(ErrorCode.INVALID_REQUEST)
        return response

    def _add(
        self,
        response: DescribeTopicPartitionsResponse,
        topic: TopicImage,
        first: int,
        limit: int,
        context: RequestContext,
    ) -> int:
        """Describe partitions from ``first`` on. Returns the first one that didn't fit."""
        last = max(first, min(first + limit, len(topic.partitions)))
        listener = context.listener.name
        response.topics.append(
            DescribeTopicPartitionsResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                is_internal=is_internal(topic.name),
                topic_authorized_operations=authorized_operations(context, "Topic", topic.name),
                partitions=[
                    self._partition(topic.partitions[index], listener) for index in range(first, last)
                ],
            )
        )
        return last

    def _partition(
        self, partition: PartitionImage, listener: str
    ) -> DescribeTopicPartitionsResponsePartition:
        code, leader = leader_for(self._ports.cluster, partition, listener)
        return DescribeTopicPartitionsResponsePartition(
            error_code=int(code),
            partition_index=partition.partition,
            leader_id=leader,
            leader_epoch=partition.leader_epoch,
            replica_nodes=list(partition.replicas),
            isr_nodes=list(partition.isr),
            eligible_leader_replicas=list(partition.eligible_leader_replicas),
            last_known_elr=list(partition.last_known_elr),
            offline_replicas=offline_replicas(self._ports.cluster, partition, listener),
        )


def _refused(name: str, code: ErrorCode, operations: int) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=int(code), name=name, topic_authorized_operations=operations
    )
