"""CreatePartitions (key 37), v0-3.

v2  flexible. v3  the mutation quota may refuse. Left out: that quota.
"""

from __future__ import annotations

from blumfeld.broker.handlers.common import TOPICS_AT_ONCE
from blumfeld.broker.handlers.controller_requests import forward
from blumfeld.broker.ports import Ports
from blumfeld.spi.completion import Completion
from blumfeld.spi.context import ApiHandler, RequestContext
from blumfeld.spi.steps import in_parts
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from blumfeld.wire.schema import Message


def handlers(ports: Ports) -> list[ApiHandler]:
    """Returns the handler of CreatePartitions."""

    def handle(request: CreatePartitionsRequest, context: RequestContext) -> Completion[Message]:
        refused = [t.name for t in request.topics if not context.authorize("Alter", "Topic", t.name)]
        request.topics = [topic for topic in request.topics if topic.name not in refused]

        def complete(answer: Message) -> Message:
            assert isinstance(answer, CreatePartitionsResponse)
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            answer.results += [CreatePartitionsTopicResult(name=n, error_code=code) for n in refused]
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


def failed(request: CreatePartitionsRequest, code: int, message: str | None) -> Message:
    """Returns an answer with this error for every topic."""
    return CreatePartitionsResponse(
        results=[
            CreatePartitionsTopicResult(name=topic.name, error_code=code, error_message=message)
            for topic in request.topics
        ]
    )
