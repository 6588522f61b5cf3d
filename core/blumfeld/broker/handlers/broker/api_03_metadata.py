"""Metadata (key 3), v0-13.

v0  no topics named means all; from v1 on null means all.
v4  the client may forbid auto-creation.
v7  leader epochs.  v8  authorized operations, of the cluster up to v10.  v10 topic ids, v12 asked by id.
v13 a top-level error code.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from blumfeld.broker.handlers.auto_create import AutoCreate
from blumfeld.broker.handlers.common import (
    NO_OPERATIONS,
    TOPICS_AT_ONCE,
    authorized_operations,
    cluster_operations,
    is_legal_topic,
)
from blumfeld.broker.membership.leaders import controller_id, leader_for, live_brokers, offline_replicas
from blumfeld.broker.ports import Ports
from blumfeld.metadata.topics.creation import NEW_PARTITIONS_MAX
from blumfeld.spi.cluster import PartitionImage, TopicImage
from blumfeld.spi.completion import Completion, Steps
from blumfeld.spi.context import ApiHandler, RequestContext
from blumfeld.spi.internal_topics import is_internal
from blumfeld.spi.steps import CHUNK_ELEMENTS, STEP_ELEMENTS, at_once, errors_by_elements, in_parts
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from blumfeld.wire.primitives import ZERO_UUID

LISTENER_ERROR_FROM = 6
ASKED_BY_ID_FROM = 12
PARTITIONS_AT_ONCE = 1_000
"""Partitions described before other requests get their turn: 3 ms. A request of 40 bytes may ask for a whole
cluster."""


def handlers(ports: Ports) -> list[ApiHandler]:
    """Returns the handler of Metadata."""
    metadata = Metadata(ports)
    return [
        ApiHandler(
            key=3,
            min_version=0,
            max_version=13,
            handle=metadata.handle,
            error_response=errors_by_elements(failed, ("topics",), ("topics",)),
        )
    ]


def failed(request: MetadataRequest, code: int, _message: str | None) -> MetadataResponse:
    """The same error for every topic asked, and at the top where the version has one."""
    return MetadataResponse(
        error_code=code,
        topics=[
            MetadataResponseTopic(error_code=code, name=topic.name or "", topic_id=topic.topic_id)
            for topic in request.topics or ()
        ],
    )


def _may_create(request: MetadataRequest, context: RequestContext) -> bool:
    return context.api_version < 4 or request.allow_auto_topic_creation


def _asks_for_all(request: MetadataRequest, context: RequestContext) -> bool:
    return request.topics is None or (not request.topics and context.api_version == 0)


def _is_by_id(topic: MetadataRequestTopic) -> bool:
    return topic.name is None or (topic.topic_id != ZERO_UUID and not topic.name)


class Metadata:
    """Answers from the image, and creates missing topics where that is allowed."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports
        self._auto_create = AutoCreate(ports)

    def handle(
        self, request: MetadataRequest, context: RequestContext
    ) -> MetadataResponse | Completion[MetadataResponse] | Steps[Any]:
        """Answer at once; or, if a partition that this node leads is still being opened, once it is open; or, if the
        process of a leader is gone, once its broker is fenced. If that takes long, the partition has no leader
        (LEADER_NOT_AVAILABLE), so that the client asks again soon.

        A client may produce as soon as it has our answer, so the partition must be open by then. Topics with many
        partitions together take steps.

        :raises BrokerError: INVALID_REQUEST, a topic by id or without a name before version 12
        """
        topics = None if _asks_for_all(request, context) else request.topics
        if context.is_large or self._has_many_partitions(topics):
            return self._many(request, context)
        return self._some(request, context, _may_create(request, context))

    def _some(
        self, request: MetadataRequest, context: RequestContext, may_create: bool
    ) -> MetadataResponse | Completion[MetadataResponse]:
        topics = request.topics
        if context.api_version < ASKED_BY_ID_FROM and any(
            topic.name is None or topic.topic_id != ZERO_UUID for topic in topics or ()
        ):
            raise BrokerError(ErrorCode.INVALID_REQUEST, "a topic is asked for by id from version 12 on")
        if _asks_for_all(request, context):
            topics = None
        fenced = self._ports.lost.settled(self._leaders(topics))
        if fenced is None and not self._opening(topics):
            return self._answer(request, topics, context, may_create)

        def opened() -> Steps[MetadataResponse]:
            if fenced is not None:
                yield fenced
            yield self._ports.hosted.settled()
            return self._answer(request, topics, context, may_create)

        answer: Completion[MetadataResponse] = at_once(opened())
        return answer

    def _many(self, request: MetadataRequest, context: RequestContext) -> Steps[Any]:
        """:meth:`_some` for many topics, each once. Missing topics are created in parts, up to Kafka's bound for a
        request.

        :raises BrokerError: as :meth:`handle`
        """
        if _asks_for_all(request, context):
            return (yield from self._every_topic(request, context))
        made = 0
        for number, topic in enumerate(request.topics or ()):
            if context.api_version < ASKED_BY_ID_FROM and (topic.name is None or topic.topic_id != ZERO_UUID):
                raise BrokerError(ErrorCode.INVALID_REQUEST, "a topic is asked for by id from version 12 on")
            if not number % STEP_ELEMENTS:
                yield None

        def handle(part: MetadataRequest, context: RequestContext) -> Steps[Any]:
            nonlocal made
            answer = self._some(part, context, may_create and made < NEW_PARTITIONS_MAX)
            in_flight = self._auto_create.in_flight()
            if in_flight is not None and not isinstance(answer, Completion):
                made += TOPICS_AT_ONCE
                yield in_flight
            return answer

        may_create = _may_create(request, context)
        serve = in_parts(
            handle,
            failed,
            ("topics",),
            ("topics",),
            chunk=TOPICS_AT_ONCE if may_create else CHUNK_ELEMENTS,
            once=lambda topic: topic.topic_id if topic.name is None else topic.name,
        )
        return (yield from serve(request, context))

    def _has_many_partitions(self, topics: list[MetadataRequestTopic] | None) -> bool:
        return sum(len(topic.partitions) for topic in self._asked(topics)) > PARTITIONS_AT_ONCE

    def _every_topic(self, request: MetadataRequest, context: RequestContext) -> Steps[MetadataResponse]:
        fenced = self._ports.lost.settled(
            broker.broker_id for broker in live_brokers(self._ports.cluster.image)
        )
        if fenced is not None:
            yield fenced
        if self._opening(None):
            yield self._ports.hosted.settled()
        answer = self._answer(request, [], context, False)
        looked_at = 0
        for name in sorted(self._ports.cluster.image.topics):
            topic = self._ports.cluster.image.topics.get(name)  # it may have been deleted meanwhile
            looked_at += 1
            if topic is not None and context.authorize("Describe", "Topic", name, quiet=True):
                answer.topics.append(self._topic(topic, request, context))
                looked_at += len(topic.partitions)
            if looked_at > CHUNK_ELEMENTS:
                looked_at = 0
                yield None
        return answer

    def _leaders(self, topics: list[MetadataRequestTopic] | None) -> Iterable[int]:
        return (partition.leader for topic in self._asked(topics) for partition in topic.partitions.values())

    def _asked(self, topics: list[MetadataRequestTopic] | None) -> Iterable[TopicImage]:
        """Returns the topics that are asked for by name or by id, and exist; ``None`` asks for all."""
        image = self._ports.cluster.image
        if topics is None:
            return image.topics.values()
        named = (
            image.topic_by_id(topic.topic_id) if _is_by_id(topic) else image.topics.get(topic.name or "")
            for topic in topics
        )
        return (topic for topic in named if topic is not None)

    def _opening(self, topics: list[MetadataRequestTopic] | None) -> bool:
        ports = self._ports
        if ports.hosted.settled().done:
            return False
        return any(
            partition.leader == ports.cluster.node_id and ports.hosted.find(topic.name, index) is None
            for topic in self._asked(topics)
            for index, partition in topic.partitions.items()
        )

    def _answer(
        self,
        request: MetadataRequest,
        topics: list[MetadataRequestTopic] | None,
        context: RequestContext,
        may_create: bool,
    ) -> MetadataResponse:
        ports, listener = self._ports, context.listener.name
        listed = sorted(
            [*live_brokers(ports.cluster.image), *ports.lost.just_fenced()], key=lambda each: each.broker_id
        )
        endpoints = ((b, b.endpoint(listener)) for b in listed)
        return MetadataResponse(
            brokers=[
                MetadataResponseBroker(node_id=b.broker_id, host=e.host, port=e.port, rack=b.rack)
                for b, e in endpoints
                if e is not None
            ],
            cluster_id=ports.cluster.image.cluster_id,
            controller_id=controller_id(ports.cluster),
            cluster_authorized_operations=cluster_operations(
                context, wanted=request.include_cluster_authorized_operations
            ),
            topics=list(
                self._all(request, context)
                if topics is None
                else self._named(topics, request, context, may_create)
            ),
        )

    def _all(self, request: MetadataRequest, context: RequestContext) -> Iterable[MetadataResponseTopic]:
        topics = self._ports.cluster.image.topics
        return (
            self._topic(topics[name], request, context)
            for name in sorted(topics)
            if context.authorize("Describe", "Topic", name, quiet=True)
        )

    def _named(
        self,
        topics: list[MetadataRequestTopic],
        request: MetadataRequest,
        context: RequestContext,
        may_create: bool,
    ) -> list[MetadataResponseTopic]:
        image = self._ports.cluster.image
        answers: dict[object, MetadataResponseTopic] = {}
        missing: list[str] = []
        for topic in topics:
            name = topic.name
            if name is None or _is_by_id(topic):
                answers[topic.topic_id] = self._by_id(topic.topic_id, request, context)
            elif name in answers:
                continue
            elif not context.authorize("Describe", "Topic", name):
                answers[name] = self._missing(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED, request, context)
            elif name in image.topics:
                answers[name] = self._topic(image.topics[name], request, context)
            elif not is_legal_topic(name):
                answers[name] = self._missing(name, ErrorCode.INVALID_TOPIC_EXCEPTION, request, context)
            else:
                answers[name] = self._missing(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, request, context)
                missing.append(name)
        if missing and may_create:
            for name, code in self._auto_create.wanted(missing, context).items():
                answers[name].error_code = int(code)
        return list(answers.values())

    def _missing(
        self, name: str, code: ErrorCode, request: MetadataRequest, context: RequestContext
    ) -> MetadataResponseTopic:
        topic = MetadataResponseTopic(error_code=int(code), name=name)
        if request.include_topic_authorized_operations and code != ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            topic.topic_authorized_operations = authorized_operations(context, "Topic", name)
        return topic

    def _by_id(
        self, topic_id: bytes, request: MetadataRequest, context: RequestContext
    ) -> MetadataResponseTopic:
        image = self._ports.cluster.image.topic_by_id(topic_id)
        if image is None or not context.authorize("Describe", "Topic", image.name):
            unknown = image is None
            code = ErrorCode.UNKNOWN_TOPIC_ID if unknown else ErrorCode.TOPIC_AUTHORIZATION_FAILED
            return MetadataResponseTopic(error_code=int(code), name=None, topic_id=topic_id)
        return self._topic(image, request, context)

    def _topic(
        self, topic: TopicImage, request: MetadataRequest, context: RequestContext
    ) -> MetadataResponseTopic:
        return MetadataResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            is_internal=is_internal(topic.name),
            topic_authorized_operations=authorized_operations(context, "Topic", topic.name)
            if request.include_topic_authorized_operations
            else NO_OPERATIONS,
            partitions=[
                self._partition(topic.partitions[index], context) for index in sorted(topic.partitions)
            ],
        )

    def _partition(self, partition: PartitionImage, context: RequestContext) -> MetadataResponsePartition:
        listener = context.listener.name
        code, leader = leader_for(self._ports.cluster, partition, listener)
        if self._ports.lost.refuses(leader):
            code, leader = ErrorCode.LEADER_NOT_AVAILABLE, -1
        if code == ErrorCode.LISTENER_NOT_FOUND and context.api_version < LISTENER_ERROR_FROM:
            code = ErrorCode.LEADER_NOT_AVAILABLE
        return MetadataResponsePartition(
            error_code=int(code),
            partition_index=partition.partition,
            leader_id=leader,
            leader_epoch=partition.leader_epoch,
            replica_nodes=list(partition.replicas),
            isr_nodes=list(partition.isr),
            offline_replicas=offline_replicas(self._ports.cluster, partition, listener),
        )
