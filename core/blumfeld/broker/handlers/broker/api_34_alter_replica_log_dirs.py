"""AlterReplicaLogDirs (key 34), v1-2: replicas of this broker move between its log directories (KIP-113).

v2  flexible.

A directory is named by its whole path, as DescribeLogDirs shows it. The answer comes when the move has begun;
DescribeLogDirs shows its progress. A replica that isn't here yet is answered with REPLICA_NOT_AVAILABLE, and will be
created in the requested directory. No move begins while a directory is offline, as in Kafka: an earlier move of the
replica may have been under way to that directory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from blumfeld.broker.ports import Ports
from blumfeld.spi.completion import Steps
from blumfeld.spi.context import ApiHandler, RequestContext
from blumfeld.spi.steps import CHUNK_ELEMENTS, STEP_ELEMENTS, small_at_once
from blumfeld.spi.storage import (
    LogDirInfo,
    LogDirNotFoundError,
    LogNotOpenError,
    TopicPartition,
    several_directories,
)
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from blumfeld.wire.schema import Message

FUTURE_SUFFIX_CHARS = len("-.-future") + 32
"""Length of the suffix that a directory's name has during a move. Topic, partition and suffix together must fit into
the 255 bytes of a file name."""
NAME_CHARS_MAX = 255


def handlers(ports: Ports) -> list[ApiHandler]:
    """Returns the handler of AlterReplicaLogDirs."""

    def serve(request: AlterReplicaLogDirsRequest, context: RequestContext) -> Steps[Message]:
        if not context.authorize("Alter", "Cluster", "kafka-cluster"):
            return (yield from failed(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, None))
        return (yield from _answer(request, lambda path, at: _alter(ports, path, at)))

    return [
        ApiHandler(key=34, min_version=1, max_version=2, handle=small_at_once(serve), error_response=failed)
    ]


def failed(request: AlterReplicaLogDirsRequest, code: int, _message: str | None) -> Steps[Message]:
    """The steps to an answer with this error for every partition."""
    return _answer(request, lambda _path, _at: code)


def _answer(
    request: AlterReplicaLogDirsRequest, alter: Callable[[str, TopicPartition], int]
) -> Steps[Message]:
    """If a request names several directories for a replica, the last one counts, as in Kafka."""
    wanted: dict[TopicPartition, str] = {}
    seen = 0
    for directory in request.dirs:
        for topic in directory.topics:
            for index in topic.partitions:
                wanted[TopicPartition(topic.name, index)] = directory.path
                seen += 1
                if not seen % STEP_ELEMENTS:
                    yield None
            yield None
        yield None
    results: dict[str, AlterReplicaLogDirTopicResult] = {}
    for number, (at, path) in enumerate(wanted.items()):
        topic_result = results.setdefault(at.topic, AlterReplicaLogDirTopicResult(topic_name=at.topic))
        topic_result.partitions.append(
            AlterReplicaLogDirPartitionResult(partition_index=at.partition, error_code=alter(path, at))
        )
        if not number % CHUNK_ELEMENTS:
            yield None
    while wanted:  # freeing all of them in one go would hold the loop
        wanted.popitem()
        if not len(wanted) % STEP_ELEMENTS:
            yield None
    return AlterReplicaLogDirsResponse(results=list(results.values()))


def _alter(ports: Ports, path: str, at: TopicPartition) -> int:
    try:
        _begin(ports, path, at)
    except BrokerError as error:
        return error.code
    return ErrorCode.NONE


def _begin(ports: Ports, path: str, at: TopicPartition) -> None:
    if len(str(at)) + FUTURE_SUFFIX_CHARS > NAME_CHARS_MAX:
        raise BrokerError(ErrorCode.INVALID_TOPIC_EXCEPTION)
    directories = ports.storage.log_dirs()
    directory = _directory(directories, path)
    if not directory.online or ports.hosted.is_offline(at.topic, at.partition):
        raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR)
    partition = ports.hosted.find(at.topic, at.partition)
    if partition is None:
        ports.hosted.prefer(at, directory.directory_id)
        topic = ports.cluster.image.topics.get(at.topic)
        known = topic is not None and at.partition in topic.partitions
        raise BrokerError(ErrorCode.REPLICA_NOT_AVAILABLE if known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if partition.closed is not None:
        raise BrokerError(partition.closed)
    elsewhere = directory.directory_id != partition.log.directory_id
    if elsewhere and not all(log_dir.online for log_dir in directories):
        raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR)
    _move(ports, at, directory)


def _directory(directories: Sequence[LogDirInfo], path: str) -> LogDirInfo:
    for directory in directories:
        if directory.path == path:
            return directory
    raise BrokerError(ErrorCode.LOG_DIR_NOT_FOUND)


def _move(ports: Ports, at: TopicPartition, directory: LogDirInfo) -> None:
    several = several_directories(ports.storage)
    if several is None:
        return  # the only directory: the replica lies there already
    try:
        several.move_log(at, directory.directory_id)
    except LogDirNotFoundError:
        raise BrokerError(ErrorCode.LOG_DIR_NOT_FOUND) from None
    except LogNotOpenError:
        raise BrokerError(ErrorCode.REPLICA_NOT_AVAILABLE) from None
    except OSError as error:
        ports.events.error("replica not moved", partition=str(at), to=directory.path, error=str(error))
        raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR) from None
    ports.events.info("replica moves", partition=str(at), to=directory.path)
