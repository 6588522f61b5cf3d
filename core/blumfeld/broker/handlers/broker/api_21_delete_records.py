"""DeleteRecords (key 21), v0-2: the log of a partition starts later. v2 is flexible.

Offset -1 means the high watermark. Errors: INVALID_TOPIC_EXCEPTION for an internal topic, POLICY_VIOLATION for one that
is only compacted, OFFSET_OUT_OF_RANGE for an offset outside of 0..high watermark. An offset below the log start is a
success, and the answer has the log start. The next retention deletes whole segments below the new start. The answer
waits until the start has moved on every replica on a live broker, and at most the request's timeout:
REQUEST_TIMED_OUT then, although the records are gone on the leader.
"""

from __future__ import annotations

from blumfeld.broker.ports import Ports
from blumfeld.broker.replicas.partition import Partition
from blumfeld.spi.completion import Completion
from blumfeld.spi.context import ApiHandler, RequestContext
from blumfeld.spi.internal_topics import is_internal
from blumfeld.spi.steps import in_parts
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
    path = ("topics", "partitions")
    serve = in_parts(DeleteRecords(ports).handle, failed, path, path)
    return [ApiHandler(key=21, min_version=0, max_version=2, handle=serve, error_response=failed)]


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


class _Waiting:
    """A request that waits for followers. Implements ``Expires``."""

    def __init__(self, response: Message, ports: Ports, timeout_ms: int, now_ms: float) -> None:
        self.answered: Completion[Message] = Completion()
        self._response = response
        self._parking = ports.parking
        self._timeout_ms = max(timeout_ms, 0)
        self._left: dict[_Behind, None] = {}
        self._now_ms = now_ms

    def add(self, behind: _Behind) -> None:
        """Wait for the followers of one more partition."""
        self._left[behind] = None
        behind.wait(self)

    def begin(self) -> None:
        """Answer at the latest when the request's time is up."""
        self._parking.until(self, self._timeout_ms, self._now_ms)

    def settled(self, behind: _Behind) -> None:
        """A partition has its result. Answer with the last one."""
        self._left.pop(behind, None)
        if not self._left and not self.answered.done:
            self._parking.completed(self, self._timeout_ms)
            self.answered.complete(self._response)

    def expire(self) -> None:
        """As ``Expires.expire``."""
        for behind in self._left:
            behind.leave()
        self.answered.complete(self._response)


class _Behind:
    """A partition whose followers still have records that are to be deleted."""

    def __init__(self, partition: Partition, offset: int, result: DeleteRecordsPartitionResult) -> None:
        self._partition = partition
        self._offset = offset
        self._result = result
        self._waiting: _Waiting
        result.error_code = ErrorCode.REQUEST_TIMED_OUT  # unless something else comes before

    def wait(self, waiting: _Waiting) -> None:
        """Look again whenever the low watermark moves."""
        self._waiting = waiting
        self._partition.watchers.low_watermark[self._moved] = None

    def leave(self) -> None:
        """Stop looking at the partition."""
        self._partition.watchers.low_watermark.pop(self._moved, None)

    def _moved(self) -> None:
        partition, result = self._partition, self._result
        leader = partition.leader
        if leader is None:
            result.error_code = partition.closed or ErrorCode.NOT_LEADER_OR_FOLLOWER
            result.low_watermark = NO_LOW_WATERMARK
        elif leader.low_watermark >= self._offset:
            result.error_code = ErrorCode.NONE
            result.low_watermark = leader.low_watermark
        else:
            return
        self.leave()
        self._waiting.settled(self)


class DeleteRecords:
    """Moves the log start of partitions that this node leads."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports

    def handle(self, request: DeleteRecordsRequest, context: RequestContext) -> Message | Completion[Message]:
        """Move the log start of each partition, with an error of its own where that fails."""
        topics = []
        behind: list[_Behind] = []
        for topic in request.topics:
            if context.authorize("Delete", "Topic", topic.name):
                results = [self._delete(topic.name, partition, behind) for partition in topic.partitions]
            else:
                code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                results = [_refused(partition.partition_index, code) for partition in topic.partitions]
            topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=results))
        response = DeleteRecordsResponse(topics=topics)
        if not behind:
            return response
        waiting = _Waiting(response, self._ports, request.timeout_ms, context.received_ms)
        for deletion in behind:
            waiting.add(deletion)
        waiting.begin()
        return waiting.answered

    def _delete(
        self, topic: str, deletion: DeleteRecordsPartition, behind: list[_Behind]
    ) -> DeleteRecordsPartitionResult:
        index = deletion.partition_index
        try:
            if is_internal(topic) and topic in self._ports.cluster.image.topics:
                return _refused(index, ErrorCode.INVALID_TOPIC_EXCEPTION)
            partition = self._ports.hosted.leading(topic, index)
            if partition.config.compacts and not partition.config.deletes:
                return _refused(index, ErrorCode.POLICY_VIOLATION)
            high_watermark = partition.high_watermark
            offset = high_watermark if deletion.offset == TO_HIGH_WATERMARK else deletion.offset
            if not 0 <= offset <= high_watermark:
                return _refused(index, ErrorCode.OFFSET_OUT_OF_RANGE)
            if offset > partition.log.log_start_offset:
                partition.advance_log_start(offset)
            leader = partition.leader
            low = partition.log.log_start_offset if leader is None else leader.low_watermark
            result = DeleteRecordsPartitionResult(partition_index=index, low_watermark=low)
            if low < offset:
                behind.append(_Behind(partition, offset, result))
            return result
        except BrokerError as error:
            return _refused(index, error.code)
        except OSError as error:
            partition.fail(error)
            return _refused(index, ErrorCode.KAFKA_STORAGE_ERROR)


def _refused(index: int, code: int) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(
        partition_index=index, low_watermark=NO_LOW_WATERMARK, error_code=code
    )
