"""DeleteRecords (key 21), v0-2: the log of a partition starts later. v2 is flexible.

Offset -1 means the high watermark. Errors: INVALID_TOPIC_EXCEPTION for an internal topic, POLICY_VIOLATION for one that
is only compacted, OFFSET_OUT_OF_RANGE for an offset outside of 0..high watermark. An offset below the log start is a
success, and the answer has the log start. The next retention deletes whole segments below the new start. The timeout is
not used: Kafka waits until the start has moved on every live replica, and here the leader is the only one.
"""

from __future__ import annotations

from blumfeld.broker.ports import Ports
from blumfeld.spi.context import ApiHandler, RequestContext
from blumfeld.spi.internal_topics import is_internal
from blumfeld.spi.steps import by_elements
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from blumfeld.wire.schema import Message

TO_HIGH_WATERMARK = -1
NO_LOW_WATERMARK = -1


def handlers(ports: Ports) -> list[ApiHandler]:
    """Returns the handler of DeleteRecords."""
    deleting = DeleteRecords(ports)
    handler = ApiHandler(
        key=21,
        min_version=0,
        max_version=2,
        handle=deleting.handle,
        error_response=failed,
        in_steps=by_elements(lambda: handler, ("topics", "partitions"), ("topics", "partitions")),
    )
    return [handler]


def failed(request: DeleteRecordsRequest, code: int, _message: str | None) -> Message:
    """Returns an answer with this error for every partition."""
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name, partitions=[_refused(p.partition_index, code) for p in topic.partitions]
            )
            for topic in request.topics
        ]
    )


class DeleteRecords:
    """Moves the log start of partitions that this node leads."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports

    def handle(self, request: DeleteRecordsRequest, context: RequestContext) -> Message:
        """Move the log start of each partition, with an error of its own where that fails."""
        topics = []
        for topic in request.topics:
            if context.authorize("Delete", "Topic", topic.name):
                results = [self._delete(topic.name, partition) for partition in topic.partitions]
            else:
                code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                results = [_refused(partition.partition_index, code) for partition in topic.partitions]
            topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=results))
        return DeleteRecordsResponse(topics=topics)

    def _delete(self, topic: str, asked: DeleteRecordsPartition) -> DeleteRecordsPartitionResult:
        index = asked.partition_index
        try:
            if is_internal(topic) and topic in self._ports.cluster.image.topics:
                return _refused(index, ErrorCode.INVALID_TOPIC_EXCEPTION)
            partition = self._ports.hosted.leading(topic, index)
            if partition.config.compacts and not partition.config.deletes:
                return _refused(index, ErrorCode.POLICY_VIOLATION)
            high_watermark = partition.high_watermark
            offset = high_watermark if asked.offset == TO_HIGH_WATERMARK else asked.offset
            if not 0 <= offset <= high_watermark:
                return _refused(index, ErrorCode.OFFSET_OUT_OF_RANGE)
            if offset > partition.log.log_start_offset:
                partition.advance_log_start(offset)
            low = partition.log.log_start_offset
            return DeleteRecordsPartitionResult(partition_index=index, low_watermark=low)
        except BrokerError as error:
            return _refused(index, error.code)
        except OSError as error:
            partition.fail(error)
            return _refused(index, ErrorCode.KAFKA_STORAGE_ERROR)


def _refused(index: int, code: int) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(
        partition_index=index, low_watermark=NO_LOW_WATERMARK, error_code=code
    )
