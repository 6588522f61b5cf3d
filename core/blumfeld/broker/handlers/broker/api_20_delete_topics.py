"""DeleteTopics (key 20), v1-6.

v4  flexible. v5  error messages. v6  by id as well as by name. The quota of mutations may refuse from v5 on.
"""

from __future__ import annotations

from blumfeld.broker.handlers.common import CLUSTER_NAME
from blumfeld.broker.handlers.controller_requests import forward, may_mutate
from blumfeld.broker.ports import Ports
from blumfeld.spi.completion import Completion
from blumfeld.spi.context import ApiHandler, RequestContext
from blumfeld.spi.steps import in_parts
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from blumfeld.wire.primitives import ZERO_UUID
from blumfeld.wire.schema import Message

BY_ID_SINCE_VERSION = 6
REFUSES_FROM = 5
"""The first version that knows THROTTLING_QUOTA_EXCEEDED."""


def handlers(ports: Ports) -> list[ApiHandler]:
    """Returns the handler of DeleteTopics."""
    delete = DeleteTopics(ports).handle
    by_name = in_parts(delete, failed, ("topic_names",), ("responses",), once=lambda name: name)
    by_either = in_parts(
        delete, failed, ("topics",), ("responses",), once=lambda topic: (topic.name, topic.topic_id)
    )
    return [
        ApiHandler(
            key=20,
            min_version=1,
            max_version=6,
            listeners=("broker", "controller"),
            handle=lambda request, context: (
                by_name if context.api_version < BY_ID_SINCE_VERSION else by_either
            )(request, context),
            error_response=failed,
        )
    ]


def failed(request: DeleteTopicsRequest, code: int, message: str | None) -> Message:
    """Returns an answer with this error for every topic."""
    topics = request.topics or [DeleteTopicState(name=name) for name in request.topic_names]
    return DeleteTopicsResponse(responses=[_result(topic, code, message) for topic in topics])


class DeleteTopics:
    """Checks what the client may delete, then asks the controller."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports

    def handle(self, request: DeleteTopicsRequest, context: RequestContext) -> Completion[Message]:
        """Delete the topics that the client may delete. Each of the others gets its own error."""
        if not self._ports.cluster.config.bool("delete.topic.enable"):
            old = context.api_version < 3
            raise BrokerError(ErrorCode.INVALID_REQUEST if old else ErrorCode.TOPIC_DELETION_DISABLED)
        by_name = context.api_version < BY_ID_SINCE_VERSION
        topics = [DeleteTopicState(name=n) for n in request.topic_names] if by_name else request.topics
        refused: list[DeletableTopicResult] = []
        allowed: list[DeleteTopicState] = []
        may_all = context.authorize("Delete", "Cluster", CLUSTER_NAME, quiet=True)
        for topic in topics:
            refusal = self._refusal(topic, context, may_all)
            if refusal is None and (code := self._charge(topic, context)):
                refusal = _result(topic, code)
            if refusal is not None:
                refused.append(refusal)
            else:
                allowed.append(topic)
        # As in version 6: the controller on another node is asked in its newest version, which has no list of names.
        request.topics, request.topic_names = allowed, []

        def complete(answer: Message) -> Message:
            assert isinstance(answer, DeleteTopicsResponse)
            answer.responses += refused
            return answer

        return forward(self._ports, request, context, request.timeout_ms, complete)

    def _refusal(
        self, topic: DeleteTopicState, context: RequestContext, may_all: bool
    ) -> DeletableTopicResult | None:
        """Returns the error of a topic that isn't to be deleted. To a client that may not describe it a topic that
        isn't there looks like any other, and an id has no name."""
        topics = self._ports.cluster.image.topics
        name = topic.name
        if name is None:
            known = self._ports.cluster.image.topic_by_id(topic.topic_id)
            if known is None:
                given = topic.topic_id != ZERO_UUID
                return _result(topic, ErrorCode.UNKNOWN_TOPIC_ID if given else ErrorCode.INVALID_REQUEST)
            name = known.name
        elif topic.topic_id != ZERO_UUID:
            return _result(topic, ErrorCode.INVALID_REQUEST)  # name and id at once
        if may_all or context.authorize("Delete", "Topic", name):
            return None
        refusal = _result(topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        if context.authorize("Describe", "Topic", name, quiet=True):
            refusal.name = name
            if name not in topics:
                refusal.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return refusal

    def _charge(self, topic: DeleteTopicState, context: RequestContext) -> ErrorCode:
        image = self._ports.cluster.image
        known = image.topic_by_id(topic.topic_id) if topic.name is None else image.topics.get(topic.name)
        count = 0 if known is None else len(known.partitions)
        strict = context.api_version >= REFUSES_FROM
        charged = not count or may_mutate(self._ports, context, count, strict=strict)
        return ErrorCode.NONE if charged else ErrorCode.THROTTLING_QUOTA_EXCEEDED


def _result(topic: DeleteTopicState, code: int, message: str | None = None) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=topic.name, topic_id=topic.topic_id, error_code=code, error_message=message
    )
