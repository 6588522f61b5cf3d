"""A broker under attack: raw requests, and the records that it has acknowledged."""

from __future__ import annotations

import time
from typing import TypeVar

from blumfeld.wire.batches.builder import build_batch
from blumfeld.wire.batches.records import Record
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from blumfeld.wire.messages.fetch import FetchResponse
from blumfeld.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from blumfeld.wire.messages.produce import PartitionProduceResponse, ProduceResponse
from blumfeld.wire.schema import Message
from campaigns.raw_connection import ConnectionEnded, RawConnection
from campaigns.raw_requests import FETCH_VERSION, PRODUCE_VERSION, fetch_request, produce_request, records_of
from campaigns.waits import await_true

R = TypeVar("R", bound=Message)

CLOSED = "closed"
"""The broker hung up without an answer."""
NEW_TOPIC_S = 60.0


class Target:
    """A broker. ``topic`` is a plain one for the cases; ``acknowledged_topic`` is touched by good requests only."""

    def __init__(self, address: str, tag: str) -> None:
        self.address = address
        self.tag = tag
        self.topic = f"{tag}-plain"
        self.acknowledged_topic = f"{tag}-acknowledged"
        self._acknowledged: list[bytes] = []
        for topic in (self.topic, self.acknowledged_topic):
            self.make_topic(topic)

    def connect(self, timeout_s: float = 60.0) -> RawConnection:
        """A new connection."""
        return RawConnection(self.address, timeout_s)

    def ask(self, message: Message, version: int, answer: type[R]) -> R:
        """One request on a connection of its own."""
        with self.connect() as connection:
            return connection.ask(message, version, answer)

    def make_topic(self, name: str, configs: dict[str, str] | None = None) -> str:
        """A topic of one partition, led before this returns."""
        code = self.create_topic(CreatableTopic(name=name, num_partitions=1, replication_factor=1), configs)
        if code != "NONE":
            raise RuntimeError(f"{name} was not created: {code}")
        await_true(lambda: self.metadata(name) == "NONE", NEW_TOPIC_S)
        return name

    def create_topic(self, topic: CreatableTopic, configs: dict[str, str] | None = None) -> str:
        """The error of CreateTopics."""
        topic.configs = [CreatableTopicConfig(name=k, value=v) for k, v in (configs or {}).items()]
        answer = self.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 5, CreateTopicsResponse)
        return name_of(answer.topics[0].error_code)

    def metadata(self, topic: str, create: bool = False) -> str:
        """The error of a topic in Metadata, or that of its partition."""
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=create)
        (topic_metadata,) = self.ask(request, 9, MetadataResponse).topics
        return name_of(
            topic_metadata.error_code or max((p.error_code for p in topic_metadata.partitions), default=0)
        )

    def produce(
        self,
        batch: bytes | bytearray | None,
        *,
        topic: str = "",
        partition: int = 0,
        acks: int = -1,
        version: int = PRODUCE_VERSION,
    ) -> PartitionProduceResponse:
        """One partition's batch; acks must not be 0."""
        request = produce_request(topic or self.topic, batch, partition, acks)
        answer = self.ask(request, version, ProduceResponse)
        return answer.responses[0].partition_responses[0]

    def refusal(self, batch: bytes | bytearray | None, **options: object) -> str:
        """The name of the error that a batch gets, or ``closed``."""
        try:
            answer = self.produce(batch, **options)  # type: ignore[arg-type]
        except ConnectionEnded:
            return CLOSED
        return name_of(answer.error_code)

    def frame(self, payload: bytes) -> str:
        """Send a frame for which no answer is expected; return how that ended."""
        with self.connect() as connection:
            connection.send_frame(payload)
            return CLOSED if connection.ends() else "not closed"

    def bytes_on_the_wire(self, data: bytes) -> str:
        """Send bytes, frame or not; return how that ended."""
        with self.connect() as connection:
            try:
                connection.send(data)
            except ConnectionEnded:
                return CLOSED
            return CLOSED if connection.ends() else "not closed"

    def round_trip(self) -> str:
        """Produce a record with acks=all, and fetch it: empty if that worked, else what did not."""
        value = f"{self.tag} {len(self._acknowledged)}".encode()
        try:
            answer = self.produce(good_batch(value), topic=self.acknowledged_topic)
            if answer.error_code:
                return f"produce: {name_of(answer.error_code)}"
            if answer.base_offset != len(self._acknowledged):
                return f"produce: offset {answer.base_offset}, not {len(self._acknowledged)}"
            self._acknowledged.append(value)
            values = self.values(answer.base_offset)
        except (OSError, ConnectionEnded) as error:
            return f"{type(error).__name__}: {error}"
        return "" if values == [value] else f"fetch: {values!r}"

    def lost(self) -> str:
        """Read all acknowledged records: empty if they are there, once and in order."""
        values: list[bytes] = []
        while more := self.values(len(values)):
            values += more
        if values == self._acknowledged:
            return ""
        return f"{len(self._acknowledged)} acknowledged, {len(values)} read, or others"

    @property
    def acknowledged(self) -> int:
        """The number of records that it has acknowledged."""
        return len(self._acknowledged)

    def values(self, offset: int) -> list[bytes]:
        """Return the values of acknowledged records from an offset, as many as come."""
        answer = self.ask(fetch_request(self.acknowledged_topic, offset), FETCH_VERSION, FetchResponse)
        return [bytes(record.value or b"") for record in records_of(answer, offset)]


def good_batch(*values: bytes, **options: object) -> bytearray:
    """A batch that any broker takes."""
    now_ms = int(time.time() * 1000)
    return build_batch([Record(b"key", value, (), now_ms) for value in values], **options)  # type: ignore[arg-type]


def name_of(code: int) -> str:
    """Kafka's name of an error code."""
    return ErrorCode(code).name
