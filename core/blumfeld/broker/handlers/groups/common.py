"""The common part of the group handlers: their ports, and requests whose topics are authorized one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from msgspec.structs import replace

from blumfeld.broker.ports import Transactions
from blumfeld.coordinator.groups.answers import merged
from blumfeld.coordinator.runtime.coordinator import Coordinator
from blumfeld.log.producers.state import ProducerState
from blumfeld.spi.cluster import ClusterImage
from blumfeld.spi.completion import Completion
from blumfeld.spi.context import ApiHandler, Handle, RequestContext
from blumfeld.spi.steps import by_elements
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestTopic
from blumfeld.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteRequestTopic
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
    transactions: Transactions | None = None
    """The coordinator of transactions, if the build has one."""
    producers: Callable[[int], ProducerState | None] = lambda index: None
    """Returns the producers of a partition of ``__consumer_offsets``; ``None`` if it isn't on this node."""


def handler_of(
    key: int,
    versions: tuple[int, int],
    handle: Handle,
    error_response: ErrorResponse,
    arrays: tuple[tuple[str, ...], tuple[str, ...]],
    once: Callable[[Any], Any] | None = None,
) -> ApiHandler:
    """A handler whose large requests are served some elements at a time (docs/adr/0014): ``arrays`` are those of the
    request whose elements are answered one for one, and those of the answer. Of elements that are equal by ``once``,
    the first counts.
    """
    part = ApiHandler(key=key, min_version=0, max_version=0, handle=handle, error_response=error_response)
    return ApiHandler(
        key=key,
        min_version=versions[0],
        max_version=versions[1],
        handle=handle,
        error_response=error_response,
        in_steps=by_elements(lambda: part, *arrays, once=once),
    )


def submit_for_topics(
    ports: GroupPorts,
    request: OffsetCommitRequest | OffsetDeleteRequest | TxnOffsetCommitRequest,
    context: RequestContext,
    refused_topic: Callable[[Any, int], Any],
) -> Completion[Any]:
    """Submit the topics that may be read to the group's shard. The answer has all topics, in the order asked: the
    others have TOPIC_AUTHORIZATION_FAILED by ``refused_topic``.
    """
    allowed = [_may_read(ports, topic, context) for topic in request.topics]
    if all(allowed):
        return ports.coordinator.submit(request.group_id, request, context)
    kept: list[Any] = [topic for topic, may in zip(request.topics, allowed, strict=True) if may]
    submitted = ports.coordinator.submit(request.group_id, replace(request, topics=kept), context)

    def merge(done: list[Completion[Any]]) -> Message:
        response: Message = done[0].result()
        answers = iter(response.topics)  # type: ignore[attr-defined]
        response.topics = [  # type: ignore[attr-defined]
            next(answers) if may else refused_topic(topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            for topic, may in zip(request.topics, allowed, strict=True)
        ]
        return response

    return merged([submitted], merge)


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
