"""CreateTopics (key 19), v2-7.

v4  -1 for partitions and replication factor means the defaults. v5  flexible; configs and counts in the
answer. v7  topic ids. The controller decides; the answer comes when the topics are in this node's image. On
controller listeners other brokers ask for the topics that they create by themselves: internal ones, and those of
``auto.create.topics.enable``. v6  the mutation quota may refuse.
"""

from __future__ import annotations

from blumfeld.broker.handlers.common import TOPICS_AT_ONCE
from blumfeld.broker.handlers.controller_requests import forward, may_mutate
from blumfeld.broker.ports import Ports
from blumfeld.metadata.topics.creation import NEW_PARTITIONS_MAX
from blumfeld.spi.completion import Completion, Steps
from blumfeld.spi.context import ApiHandler, RequestContext
from blumfeld.spi.steps import STEP_ELEMENTS, in_parts
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from blumfeld.wire.schema import Message

REFUSES_FROM = 6
"""The first version that knows THROTTLING_QUOTA_EXCEEDED."""
TOO_MANY = "Excessively large number of partitions per request."
"""The message that the controller answers in this case, too."""


def handlers(ports: Ports) -> list[ApiHandler]:
    """Returns the handler of CreateTopics."""

    def create(request: CreateTopicsRequest, context: RequestContext) -> Completion[Message]:
        refused = [topic for topic in request.topics if not _may_create(context, topic)]
        request.topics = [topic for topic in request.topics if topic not in refused]
        strict = context.api_version >= REFUSES_FROM
        beyond = (
            []
            if request.validate_only
            else [
                topic
                for topic in request.topics
                if not may_mutate(ports, context, _partitions(ports, topic), strict=strict)
            ]
        )
        if beyond:
            request.topics = [topic for topic in request.topics if topic not in beyond]

        def complete(answer: Message) -> Message:
            assert isinstance(answer, CreateTopicsResponse)
            answer.topics = [_shown(result, context) for result in answer.topics]
            answer.topics += [_result(topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED) for topic in refused]
            answer.topics += [_result(topic, ErrorCode.THROTTLING_QUOTA_EXCEEDED) for topic in beyond]
            return answer

        return forward(ports, request, context, request.timeout_ms, complete)

    def refuse(request: CreateTopicsRequest, _context: RequestContext) -> Message:
        return failed(request, ErrorCode.POLICY_VIOLATION, TOO_MANY)

    path = ("topics",)
    create_some = in_parts(create, failed, path, path, chunk=TOPICS_AT_ONCE, once=lambda topic: topic.name)
    refuse_some = in_parts(refuse, failed, path, path)

    def create_many(request: CreateTopicsRequest, context: RequestContext) -> Steps[Message]:
        partitions = 0
        for number, topic in enumerate(request.topics):
            partitions += len(topic.assignments) or max(topic.num_partitions, 1)
            if not number % STEP_ELEMENTS:
                yield None
        serve = refuse_some if partitions > NEW_PARTITIONS_MAX else create_some
        answer: Message = yield from serve(request, context)
        return answer

    return [
        ApiHandler(
            key=19,
            min_version=2,
            max_version=7,
            listeners=("broker", "controller"),
            handle=lambda request, context: (create_many if context.is_large else create)(request, context),
            error_response=failed,
        )
    ]


def failed(request: CreateTopicsRequest, code: int, message: str | None) -> Message:
    """Returns an answer with this error for every topic."""
    return CreateTopicsResponse(topics=[_result(topic, code, message) for topic in request.topics])


def _may_create(context: RequestContext, topic: CreatableTopic) -> bool:
    cluster = context.authorize("Create", "Cluster", "kafka-cluster", quiet=True)
    return cluster or context.authorize("Create", "Topic", topic.name)


def _partitions(ports: Ports, topic: CreatableTopic) -> int:
    default = ports.cluster.config.int("num.partitions")
    return len(topic.assignments) or (topic.num_partitions if topic.num_partitions > 0 else default)


def _shown(result: CreatableTopicResult, context: RequestContext) -> CreatableTopicResult:
    """Returns the result, without its configuration if the client may not see that."""
    if result.error_code or context.authorize("DescribeConfigs", "Topic", result.name, quiet=True):
        return result
    return CreatableTopicResult(
        name=result.name,
        topic_id=result.topic_id,
        error_message=result.error_message,
        topic_config_error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    )


def _result(topic: CreatableTopic, code: int, message: str | None = None) -> CreatableTopicResult:
    return CreatableTopicResult(name=topic.name, error_code=code, error_message=message)
