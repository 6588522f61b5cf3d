"""The common part of the group handlers: their ports, and requests whose topics are authorized one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from msgspec.structs import replace

from blumfeld.coordinator.groups.answers import merged, refused
from blumfeld.coordinator.runtime.coordinator import Coordinator
from blumfeld.log.producers.state import ProducerState
from blumfeld.spi.cluster import ClusterImage, TopicImage
from blumfeld.spi.completion import Completion
from blumfeld.spi.context import ApiHandler, RequestContext
from blumfeld.spi.steps import in_parts
from blumfeld.spi.transactions import TransactionCoordinator
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestTopic
from blumfeld.wire.messages.offset_delete import OffsetDeleteRequestTopic
from blumfeld.wire.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitRequestTopic
from blumfeld.wire.primitives import ZERO_UUID
from blumfeld.wire.schema import Message

TOPICS = ("topics", "partitions")
"""The arrays of a request on offsets, and those of its answer."""
ErrorResponse = Callable[[Any, int, str | None], Message]


class GroupPorts(NamedTuple):
    """The ports that the group handlers are handed."""

    coordinator: Coordinator
    image: Callable[[], ClusterImage]
    transactions: TransactionCoordinator | None = None
    """The coordinator of transactions, if the build has one."""
    producers: Callable[[int], ProducerState | None] = lambda index: None
    """Returns the producers of a partition of ``__consumer_offsets``; ``None`` if it isn't on this node."""


def handler_of(
    key: int,
    versions: tuple[int, int],
    handle: Callable[[Any, RequestContext], Any],
    error_response: ErrorResponse,
    arrays: tuple[tuple[str, ...], tuple[str, ...]],
    once: Callable[[Any], Any] | None = None,
) -> ApiHandler:
    """A handler whose large requests are served some elements at a time (docs/adr/0045): ``arrays`` are those of the
    request whose elements are answered one for one, and those of the answer. Of elements that are equal by ``once``,
    the first counts.
    """
    return ApiHandler(
        key=key,
        min_version=versions[0],
        max_version=versions[1],
        handle=in_parts(handle, error_response, *arrays, once=once),
        error_response=error_response,
    )


def by_rights(
    ports: GroupPorts,
    request: Any,
    context: RequestContext,
    serve: Callable[[Any], Completion[Any]],
    failed: Callable[[Any, int, str | None], Message],
    refused_topic: Callable[[Any, int], Any],
) -> Completion[Any]:
    """Have ``serve`` answer a request with those of its topics that may be read. The answer has all topics, in the
    order asked: the others have TOPIC_AUTHORIZATION_FAILED by ``refused_topic``, whatever becomes of the rest, so that
    it tells nothing of them. If no topic may be read, ``serve`` isn't called.

    :param failed: makes the answer to a request that ``serve`` refused as a whole
    """
    allowed = [_may_read(ports, topic, context) for topic in request.topics]
    if all(allowed):
        return serve(request)
    rest = replace(request, topics=[topic for topic, may in zip(request.topics, allowed, strict=True) if may])
    served: Completion[Any]
    try:
        served = serve(rest) if rest.topics else Completion.of(failed(rest, ErrorCode.NONE, None))
    except BrokerError as error:
        served = refused(error.code)

    def merge(done: list[Completion[Any]]) -> Any:
        error = done[0].error
        if isinstance(error, BrokerError):
            response: Any = failed(rest, int(error.code), None)
        else:
            response = done[0].result()
        if not getattr(response, "error_code", 0):
            answers = iter(response.topics)
            response.topics = [
                next(answers) if may else refused_topic(topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                for topic, may in zip(request.topics, allowed, strict=True)
            ]
        return response

    return merged([served], merge)


Commit = OffsetCommitRequest | TxnOffsetCommitRequest
CommitTopic = OffsetCommitRequestTopic | TxnOffsetCommitRequestTopic
NO_GROUP_ASKED = (
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
)
"""Errors of a commit whose topics nobody has looked at."""


def names_nothing(ports: GroupPorts, request: Commit) -> bool:
    """Whether no partition of a commit is there. Its group isn't asked then, as in Kafka."""
    image = ports.image()
    for entry in request.topics:
        topic, _ = _topic(image, entry)
        if topic is not None and any(p.partition_index in topic.partitions for p in entry.partitions):
            return False
    return True


def commit_codes(image: ClusterImage, commit_topic: CommitTopic, code: int) -> list[tuple[int, int]]:
    """Returns (partition, error) of a topic in a commit that its group refuses with ``code``.

    Partitions that aren't there have their own error, as in Kafka, where the group doesn't hear of them.
    """
    topic, missing = _topic(image, commit_topic)
    if code in NO_GROUP_ASKED:
        return [(p.partition_index, code) for p in commit_topic.partitions]
    if topic is None:
        return [(p.partition_index, missing) for p in commit_topic.partitions]
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return [
        (p.partition_index, code if p.partition_index in topic.partitions else unknown)
        for p in commit_topic.partitions
    ]


def _topic(image: ClusterImage, commit_topic: CommitTopic) -> tuple[TopicImage | None, ErrorCode]:
    """Returns the topic of a commit, by its id from v10 on, and the error of its partitions if there is none."""
    if isinstance(commit_topic, OffsetCommitRequestTopic) and not commit_topic.name:
        return image.topic_by_id(commit_topic.topic_id), ErrorCode.UNKNOWN_TOPIC_ID
    return image.topics.get(commit_topic.name), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _may_read(
    ports: GroupPorts,
    topic: OffsetCommitRequestTopic | OffsetDeleteRequestTopic | TxnOffsetCommitRequestTopic,
    context: RequestContext,
) -> bool:
    name = topic.name
    if isinstance(topic, OffsetCommitRequestTopic) and topic.topic_id != ZERO_UUID:
        known = ports.image().topic_by_id(topic.topic_id)
        if known is None:
            return True  # the shard answers UNKNOWN_TOPIC_ID
        name = known.name
    return context.authorize("Read", "Topic", name)
