"""Creates topics on demand: for a Metadata request (``auto.create.topics.enable``), and internal topics for their
coordinators.
"""

from __future__ import annotations

from collections.abc import Iterable

from blumfeld.broker.ports import Ports
from blumfeld.spi.completion import Completion
from blumfeld.spi.context import RequestContext
from blumfeld.spi.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, is_internal
from blumfeld.spi.repeated_events import RepeatedEvents
from blumfeld.wire.errors import ErrorCode, known_code
from blumfeld.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from blumfeld.wire.schema import Message

CREATE_TIMEOUT_MS = 30_000


class AutoCreate:
    """Asks the controller to create topics. Only one request for a topic is under way at a time."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports
        self._in_flight: set[str] = set()
        self._made: Completion[None] = Completion.of(None)
        self._repeated = RepeatedEvents(ports.runtime)

    def wanted(self, names: Iterable[str], context: RequestContext) -> dict[str, ErrorCode]:
        """Begin to create missing topics of a client's request. Returns the error for each, to be answered now.

        UNKNOWN_TOPIC_OR_PARTITION is retriable: the client asks again, and finds the topic if it was created.
        """
        ports = self._ports
        codes: dict[str, ErrorCode] = {}
        make: list[str] = []
        for name in names:
            codes[name] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            allowed = is_internal(name) or ports.cluster.config.bool("auto.create.topics.enable")
            if not allowed or name in self._in_flight:
                continue
            if not (
                context.authorize("Create", "Cluster", "kafka-cluster", quiet=True)
                or context.authorize("Create", "Topic", name)
            ):
                codes[name] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                continue
            make.append(name)
        if make:
            self.create(make)
        return codes

    def in_flight(self) -> Completion[None] | None:
        """Returns a completion for all topics that are being created; ``None`` if there are none."""
        return None if self._made.done else self._made

    def create(self, names: list[str]) -> None:
        """Ask the controller to create these topics. Failures are only logged, and an internal topic waits until there
        are brokers for all its replicas.
        """
        topics = [self._topic(name) for name in names if name not in self._in_flight]
        topics = [topic for topic in topics if not self._waits(topic)]
        if not topics:
            return
        fresh = [topic.name for topic in topics]
        self._in_flight.update(fresh)
        if self._made.done:
            self._made = Completion()
        request = CreateTopicsRequest(topics=topics, timeout_ms=CREATE_TIMEOUT_MS)

        def made(done: Completion[Message]) -> None:
            self._in_flight.difference_update(fresh)
            if not self._in_flight:
                self._made.complete(None)
            if done.error is not None:
                self._ports.events.warning("topics not created", topics=fresh, error=str(done.error))
                return
            answer = done.result()
            assert isinstance(answer, CreateTopicsResponse)
            for topic in answer.topics:
                if topic.error_code not in (0, ErrorCode.TOPIC_ALREADY_EXISTS):
                    name = known_code(topic.error_code).name
                    self._ports.events.warning(
                        "topic not created", topic=topic.name, error=name, reason=topic.error_message
                    )

        self._ports.controller.submit(request, CREATE_TIMEOUT_MS).when_done(made)

    def _topic(self, name: str) -> CreatableTopic:
        config = self._ports.cluster.config
        if name == OFFSETS_TOPIC:
            return CreatableTopic(
                name=name,
                num_partitions=config.int("offsets.topic.num.partitions"),
                replication_factor=self._factor(config.int("offsets.topic.replication.factor")),
                configs=_configs(
                    {
                        "cleanup.policy": "compact",
                        "segment.bytes": str(config.int("offsets.topic.segment.bytes")),
                        "compression.type": "producer",
                    }
                ),
            )
        if name == TRANSACTIONS_TOPIC:
            return CreatableTopic(
                name=name,
                num_partitions=config.int("transaction.state.log.num.partitions"),
                replication_factor=self._factor(config.int("transaction.state.log.replication.factor")),
                configs=_configs(
                    {
                        "cleanup.policy": "compact",
                        "segment.bytes": str(config.int("transaction.state.log.segment.bytes")),
                        "compression.type": "uncompressed",
                        "unclean.leader.election.enable": "false",
                        "min.insync.replicas": str(config.int("transaction.state.log.min.isr")),
                    }
                ),
            )
        return CreatableTopic(name=name, num_partitions=-1, replication_factor=-1)

    def _factor(self, configured: int) -> int:
        """Returns the replication factor of an internal topic: as configured, which is 3 by default.

        On a single node it is at most the number of live brokers, so that groups work there without a setting. In a
        cluster it is never less: a topic that is made while the others are starting would keep one replica for good.
        """
        return max(1, min(configured, self._live())) if self._ports.single_node else configured

    def _live(self) -> int:
        return sum(not b.fenced for b in self._ports.cluster.image.brokers.values())

    def _waits(self, topic: CreatableTopic) -> bool:
        """Whether an internal topic has to wait for more brokers. It is created with a later request."""
        live = self._live()
        if not is_internal(topic.name) or topic.replication_factor <= live:
            return False
        self._repeated.say(
            self._ports.events.warning,
            "internal topic waits for brokers",
            topic.name,
            topic=topic.name,
            replication_factor=topic.replication_factor,
            live_brokers=live,
        )
        return True


def _configs(values: dict[str, str]) -> list[CreatableTopicConfig]:
    return [CreatableTopicConfig(name=name, value=value) for name, value in values.items()]
