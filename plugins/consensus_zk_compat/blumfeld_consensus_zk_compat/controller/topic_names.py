"""Commands for topics whose name is taken until the tree has nothing of an earlier topic. Pure."""

from __future__ import annotations

from collections.abc import Container

from msgspec.structs import replace

from blumfeld.metadata.decision import ControllerDecision, ControllerState, Moment
from blumfeld.metadata.topics.creation import create_topics
from blumfeld.metadata.topics.more_partitions import create_partitions
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from blumfeld.wire.messages.create_topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)


def create_unless_marked(
    state: ControllerState, request: CreateTopicsRequest, moment: Moment, marked: Container[str]
) -> ControllerDecision:
    """Create topics, except those of these names: TOPIC_ALREADY_EXISTS, as Kafka answers."""
    decision = create_topics(
        state,
        replace(request, topics=[topic for topic in request.topics if topic.name not in marked]),
        moment,
    )
    response = decision.response
    if isinstance(response, CreateTopicsResponse):
        results = {result.name: result for result in response.topics}
        for topic in request.topics:
            if topic.name in marked:
                results[topic.name] = CreatableTopicResult(
                    name=topic.name,
                    error_code=ErrorCode.TOPIC_ALREADY_EXISTS,
                    error_message=f"Topic '{topic.name}' is marked for deletion.",
                )
        ordered = dict.fromkeys(topic.name for topic in request.topics)
        response = replace(response, topics=[results[name] for name in ordered])
    return replace(decision, response=response)


def grow_unless_marked(
    state: ControllerState, request: CreatePartitionsRequest, moment: Moment, marked: Container[str]
) -> ControllerDecision:
    """Add partitions, except to topics of these names: INVALID_TOPIC_EXCEPTION, as Kafka answers."""
    decision = create_partitions(state, request, moment)
    response = decision.response
    if isinstance(response, CreatePartitionsResponse):
        results = [
            CreatePartitionsTopicResult(
                name=result.name,
                error_code=ErrorCode.INVALID_TOPIC_EXCEPTION,
                error_message="The topic is queued for deletion.",
            )
            if result.name in marked
            else result
            for result in response.results
        ]
        response = replace(response, results=results)
    return replace(decision, response=response)
