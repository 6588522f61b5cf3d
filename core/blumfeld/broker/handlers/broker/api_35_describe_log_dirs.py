"""DescribeLogDirs (key 35), v1-5: the replicas in each log directory of this broker.

v2  flexible. v3  a top-level error. v4  total and usable bytes. v5  cordoned directories (never here).

A replica that is being moved is shown in both directories, in the new one as a future replica. An offline directory has
KAFKA_STORAGE_ERROR and no replicas. The cluster's metadata log is not shown, because it belongs to no topic.
"""

from __future__ import annotations

from blumfeld.broker.ports import Ports
from blumfeld.spi.completion import Steps
from blumfeld.spi.context import ApiHandler, RequestContext
from blumfeld.spi.steps import STEP_ELEMENTS, small_at_once
from blumfeld.spi.storage import LogDirInfo, TopicPartition, several_directories
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from blumfeld.wire.schema import Message


def handlers(ports: Ports) -> list[ApiHandler]:
    """Returns the handler of DescribeLogDirs."""

    def serve(request: DescribeLogDirsRequest, context: RequestContext) -> Steps[Message]:
        if not context.authorize("Describe", "Cluster", "kafka-cluster"):
            return failed(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, None)
        wanted: set[TopicPartition] | None = None
        if request.topics is not None:
            wanted = set()
            for topic in request.topics:
                for number, index in enumerate(topic.partitions):
                    if ports.hosted.find(topic.topic, index) is not None:
                        wanted.add(TopicPartition(topic.topic, index))
                    if not number % STEP_ELEMENTS:
                        yield None
                yield None
        contents = _Contents()
        contents.add_replicas(ports, wanted)
        contents.add_moves(ports, wanted)
        directories = ports.storage.log_dirs()
        return DescribeLogDirsResponse(results=[contents.result(directory) for directory in directories])

    return [
        ApiHandler(key=35, min_version=1, max_version=5, handle=small_at_once(serve), error_response=failed)
    ]


def failed(_request: DescribeLogDirsRequest, code: int, _message: str | None) -> Message:
    """Returns an answer with this error at the top."""
    return DescribeLogDirsResponse(error_code=code)


class _Contents:
    """The replicas of this node, by directory and topic."""

    def __init__(self) -> None:
        self._topics: dict[bytes, dict[str, DescribeLogDirsTopic]] = {}

    def add_replicas(self, ports: Ports, wanted: set[TopicPartition] | None) -> None:
        for partition in ports.hosted:
            if partition.closed is not None or (wanted is not None and partition.partition not in wanted):
                continue
            log = partition.log
            try:
                size_bytes = log.size_bytes()
            except OSError:  # its directory has gone offline a moment ago, and is shown as such
                continue
            lag = max(0, partition.high_watermark - log.written_end_offset)
            self._add(log.directory_id, partition.partition, size_bytes, lag, is_future=False)

    def add_moves(self, ports: Ports, wanted: set[TopicPartition] | None) -> None:
        several = several_directories(ports.storage)
        for move in () if several is None else several.moves():
            at = move.partition
            hosted = ports.hosted.find(at.topic, at.partition)
            if hosted is None or hosted.closed is not None or (wanted is not None and at not in wanted):
                continue
            lag = hosted.log.written_end_offset - move.copied_end_offset
            self._add(move.to_directory_id, at, move.size_bytes, lag, is_future=True)

    def _add(
        self, directory_id: bytes, at: TopicPartition, size_bytes: int, lag: int, *, is_future: bool
    ) -> None:
        topics = self._topics.setdefault(directory_id, {})
        topics.setdefault(at.topic, DescribeLogDirsTopic(name=at.topic)).partitions.append(
            DescribeLogDirsPartition(
                partition_index=at.partition,
                partition_size=size_bytes,
                offset_lag=lag,
                is_future_key=is_future,
            )
        )

    def result(self, directory: LogDirInfo) -> DescribeLogDirsResult:
        """Returns the result for one directory."""
        if not directory.online:
            return DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=directory.path)
        return DescribeLogDirsResult(
            log_dir=directory.path,
            topics=list(self._topics.get(directory.directory_id, {}).values()),
            total_bytes=directory.total_bytes,
            usable_bytes=directory.usable_bytes,
        )
