"""CreatePartitions (key 37), v0-3.

v2  flexible. v3  the mutation quota may refuse.
"""

from __future__ import annotations

from blumfeld.broker.handlers.common import TOPICS_AT_ONCE
from blumfeld.broker.handlers.controller_requests import forward, may_mutate
from blumfeld.broker.ports import Ports
from blumfeld.spi.completion import Completion
from blumfeld.spi.context import ApiHandler, RequestContext
from blumfeld.spi.steps import in_parts
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from blumfeld.wire.schema import Message

REFUSES_FROM = 3
"""The first version that knows THROTTLING_QUOTA_EXCEEDED."""


def handlers(ports: Ports) -> list[ApiHandler]:
    """Returns the handler of CreatePartitions."""

    def handle(request: CreatePartitionsRequest, context: RequestContext) -> Completion[Message]:
        refused = [t.name for t in request.topics if not context.authorize("Alter", "Topic", t.name)]
        request.topics = [topic for topic in request.topics if topic.name not in refused]
        strict = context.api_version >= REFUSES_FROM
        beyond = (
            []
            if request.validate_only
            else [
                topic.name
                for topic in request.topics
                if not may_mutate(ports, context, _added(ports, topic), strict=strict)
            ]
        )
        if beyond:
            request.topics = [topic for topic in request.topics if topic.name not in beyond]

        def complete(answer: Message) -> Message:
            assert isinstance(answer, CreatePartitionsResponse)
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            answer.results += [CreatePartitionsTopicResult(name=n, error_code=code) for n in refused]
            code = ErrorCode.THROTTLING_QUOTA_EXCEEDED
            answer.results += [CreatePartitionsTopicResult(name=n, error_code=code) for n in beyond]
            return answer

        return forward(ports, request, context, request.timeout_ms, complete)

    serve = in_parts(
        handle, failed, ("topics",), ("results",), chunk=TOPICS_AT_ONCE, once=lambda topic: topic.name
    )
    return [
        ApiHandler(
            key=37,
            min_version=0,
            max_version=3,
            listeners=("broker", "controller"),
            handle=serve,
            error_response=failed,
        )
    ]


def _added(ports: Ports, topic: CreatePartitionsTopic) -> int:
    known = ports.cluster.image.topics.get(topic.name)
    return max(0, topic.count - (0 if known is None else len(known.partitions)))


def failed(request: CreatePartitionsRequest, code: int, message: str | None) -> Message:
    """Returns an answer with this error for every topic."""
    return CreatePartitionsResponse(
        results=[
            CreatePartitionsTopicResult(name=topic.name, error_code=code, error_message=message)
            for topic in request.topics
        ]
    )
