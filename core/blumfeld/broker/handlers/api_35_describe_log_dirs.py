"""DescribeLogDirs (key 35), v1-5: what lies in each log directory of this broker.

v2  flexible. v3  a top-level error. v4  total and usable bytes. v5  cordoned directories (never here). Left
out: which of several directories a partition is in; all are shown in the first one that is online.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from blumfeld.spi.context import ApiHandler, RequestContext
from blumfeld.spi.storage import LogDirInfo
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from blumfeld.wire.schema import Message

if TYPE_CHECKING:
    from blumfeld.broker.broker import Broker


def handlers(broker: Broker) -> list[ApiHandler]:
    """DescribeLogDirs."""

    def handle(request: DescribeLogDirsRequest, context: RequestContext) -> Message:
        if not context.authorize("Describe", "Cluster", "kafka-cluster"):
            return failed(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, None)
        wanted = None
        if request.topics is not None:
            wanted = {(t.topic, p) for t in request.topics for p in t.partitions}
        results = []
        topics = _topics(broker, wanted)
        for directory in broker.composition.storage.log_dirs():
            results.append(_result(directory, topics if directory.online else []))
            if directory.online:
                topics = []
        return DescribeLogDirsResponse(results=results)

    return [ApiHandler(key=35, min_version=1, max_version=5, handle=handle, error_response=failed)]


def failed(_request: DescribeLogDirsRequest, code: int, _message: str | None) -> Message:
    """The answer as a whole has the error."""
    return DescribeLogDirsResponse(error_code=code)


def _topics(broker: Broker, wanted: set[tuple[str, int]] | None) -> list[DescribeLogDirsTopic]:
    topics: dict[str, DescribeLogDirsTopic] = {}
    for partition in broker.partitions:
        name, index = partition.partition.topic, partition.partition.partition
        if partition.closed is not None or (wanted is not None and (name, index) not in wanted):
            continue
        log = partition.log
        lag = max(0, partition.high_watermark - log.written_end_offset)
        topics.setdefault(name, DescribeLogDirsTopic(name=name)).partitions.append(
            DescribeLogDirsPartition(partition_index=index, partition_size=log.size_bytes(), offset_lag=lag)
        )
    return list(topics.values())


def _result(directory: LogDirInfo, topics: list[DescribeLogDirsTopic]) -> DescribeLogDirsResult:
    return DescribeLogDirsResult(
        error_code=ErrorCode.NONE if directory.online else ErrorCode.KAFKA_STORAGE_ERROR,
        log_dir=directory.path,
        topics=topics,
        total_bytes=directory.total_bytes,
        usable_bytes=directory.usable_bytes,
    )
