"""The topic ``__remote_log_metadata``: its settings, and its creation when it is needed first."""

from __future__ import annotations

from typing import Annotated

import msgspec

from blumfeld.spi.cluster import TopicImage
from blumfeld.spi.hooks import Composition, EventLog
from blumfeld.spi.internal_topics import REMOTE_LOG_METADATA_TOPIC
from blumfeld.spi.repeated_events import RepeatedEvents
from blumfeld.wire.errors import BrokerError, ErrorCode, known_code
from blumfeld.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

CREATE_TIMEOUT_MS = 30_000


class MetadataTopicSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The settings that Kafka has under ``rlmm.config.remote.log.metadata.topic``, with its defaults."""

    num_partitions: Annotated[int, msgspec.Meta(ge=1)] = 50
    """May never change: it says in which partition records lie."""
    replication_factor: Annotated[int, msgspec.Meta(ge=1, le=32767)] = 3
    """A single node makes one replica."""
    retention_ms: Annotated[int, msgspec.Meta(ge=-1)] = -1
    """Records that are deleted take what they say with them: their segments are orphans then."""
    min_isr: Annotated[int, msgspec.Meta(ge=1)] = 2


def topic_settings(settings: MetadataTopicSettings, factor: int) -> dict[str, str]:
    """Returns the settings that the topic has in the cluster.

    :param factor: its replicas
    """
    return {
        "cleanup.policy": "delete",
        "retention.ms": str(settings.retention_ms),
        "remote.storage.enable": "false",
        # A local segment goes once its copy is recorded. A power cut that took the record would take the segment.
        "flush.messages": "1",
        "min.insync.replicas": str(min(settings.min_isr, factor)),
    }


class MetadataTopic:
    """Finds the topic in the image, and has the controller create it."""

    def __init__(self, composition: Composition, settings: MetadataTopicSettings, events: EventLog) -> None:
        self._composition = composition
        self._settings = settings
        self._events = events
        self._repeated = RepeatedEvents(composition.runtime)

    def image(self) -> TopicImage | None:
        """Returns the topic; ``None`` if it isn't there, or has too few partitions."""
        topic = self._composition.metadata.image.topics.get(REMOTE_LOG_METADATA_TOPIC)
        if topic is None or len(topic.partitions) >= self._settings.num_partitions:
            return topic
        self._repeated.say(
            self._events.error,
            "the topic of remote log metadata has too few partitions; set num_partitions to their number",
            "partitions",
            topic=REMOTE_LOG_METADATA_TOPIC,
            found=len(topic.partitions),
            num_partitions=self._settings.num_partitions,
        )
        return None

    @property
    def is_absent(self) -> bool:
        """Whether no topic of this name exists."""
        return REMOTE_LOG_METADATA_TOPIC not in self._composition.metadata.image.topics

    async def create(self) -> None:
        """Ask the controller to create it. Failures are logged: it is asked again. Other nodes ask, too."""
        live = sum(not broker.fenced for broker in self._composition.metadata.image.brokers.values())
        factor = self._settings.replication_factor
        if self._composition.single_node:
            factor = 1
        elif live < factor:
            self._say("the topic of remote log metadata waits for brokers", f"{live} of {factor} are there")
            return
        request = CreateTopicsRequest(topics=[self._wanted(factor)], timeout_ms=CREATE_TIMEOUT_MS)
        try:
            answer = await self._composition.metadata.submit(request, CREATE_TIMEOUT_MS)
        except BrokerError as error:
            self._say("the topic of remote log metadata was not created", str(error))
            return
        assert isinstance(answer, CreateTopicsResponse)
        for topic in answer.topics:
            if topic.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                reason = topic.error_message or known_code(topic.error_code).name
                self._say("the topic of remote log metadata was not created", reason)

    def _wanted(self, factor: int) -> CreatableTopic:
        configs = topic_settings(self._settings, factor)
        return CreatableTopic(
            name=REMOTE_LOG_METADATA_TOPIC,
            num_partitions=self._settings.num_partitions,
            replication_factor=factor,
            configs=[CreatableTopicConfig(name=name, value=value) for name, value in configs.items()],
        )

    def _say(self, event: str, reason: str) -> None:
        self._repeated.say(self._events.warning, event, (event, reason), reason=reason)
