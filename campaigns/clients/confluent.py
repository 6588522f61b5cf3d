"""confluent-kafka: librdkafka behind Python."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

from campaigns.clients.client import (
    BROKERS_DEFAULT,
    SESSION_TIMEOUT_MS,
    WAIT_S,
    CheckFailed,
    Client,
    ClusterView,
    Consumed,
)
from campaigns.clients.live_members import MemberSpec, Protocol
from campaigns.clients.records import AS_USUAL, Received, Sample, Sending, Turn


class ConfluentKafka(Client):
    """The most used client outside the JVM."""

    name = "confluent-kafka"
    package = "confluent_kafka"
    install = "pip install confluent-kafka"
    protocols = ("classic", "consumer")
    assignors = ("range", "roundrobin", "cooperative-sticky", "uniform")

    def __init__(self, bootstrap: str, protocol: Protocol = "classic") -> None:
        super().__init__(bootstrap, protocol)
        self._one_admin: Any = None

    @classmethod
    def version(cls) -> str:
        """The versions of the binding and of librdkafka."""
        import confluent_kafka

        return f"{confluent_kafka.__version__} (librdkafka {confluent_kafka.libversion()[0]})"

    def cluster(self) -> ClusterView:
        """By list_topics."""
        metadata = self._admin().list_topics(timeout=WAIT_S)
        brokers = [(b.id, b.host, b.port) for b in metadata.brokers.values()]
        return ClusterView(brokers, {name: len(t.partitions) for name, t in metadata.topics.items()})

    def produce(self, topic: str, samples: Sequence[Sample], how: Sending = AS_USUAL) -> None:
        """Every delivery report must be good."""
        from confluent_kafka import Producer

        failed: list[str] = []

        def report(error: Any, message: Any) -> None:
            if error is not None:
                failed.append(str(error))

        producer = Producer(
            {
                **self.access.librdkafka(),
                "bootstrap.servers": self.bootstrap,
                "compression.type": how.codec,
                "acks": how.acks,
                "enable.idempotence": how.idempotent,
                "linger.ms": 20,
                "message.timeout.ms": int(WAIT_S * 1000),
            }
        )
        for sample in samples:
            producer.produce(
                topic,
                sample.value,
                sample.key,
                sample.partition,
                on_delivery=report,
                timestamp=sample.timestamp_ms,
                headers=list(sample.headers),
            )
            producer.poll(0)
        left = producer.flush(WAIT_S)
        if left or failed:
            raise CheckFailed(f"{left} not delivered, {len(failed)} refused: {failed[:1]}")

    def transact(self, topic: str, transactional_id: str, turns: Sequence[Turn]) -> None:
        """Every delivery report of a transaction that commits must be good."""
        from confluent_kafka import TopicPartition

        producer = self._transactional(transactional_id)
        for turn in turns:
            producer.begin_transaction()
            for sample in turn.samples:
                producer.produce(topic, sample.value, sample.key, sample.partition)
            if producer.flush(WAIT_S):
                raise CheckFailed("not all was delivered")
            if turn.group:
                places = [TopicPartition(turn.source, at, offset) for at, offset in turn.offsets.items()]
                reader = self._consumer(None, turn.group)
                member = reader.consumer_group_metadata()
                producer.send_offsets_to_transaction(places, member, WAIT_S)
                reader.close()
            if turn.commits:
                producer.commit_transaction(WAIT_S)
            else:
                producer.abort_transaction(WAIT_S)

    def fence(self, topic: str, transactional_id: str, sample: Sample) -> str:
        """The first one's error is fatal."""
        from confluent_kafka import KafkaException

        first = self._transactional(transactional_id)
        first.begin_transaction()
        first.produce(topic, sample.value, sample.key, sample.partition)
        first.flush(WAIT_S)
        self._transactional(transactional_id)
        try:
            first.commit_transaction(WAIT_S)
        except KafkaException as error:
            return str(error)
        return ""

    def _transactional(self, transactional_id: str) -> Any:
        from confluent_kafka import Producer

        producer = Producer(
            {
                **self.access.librdkafka(),
                "bootstrap.servers": self.bootstrap,
                "transactional.id": transactional_id,
            }
        )
        producer.init_transactions(WAIT_S)
        return producer

    def consume(self, topic: str, group: str, count: int) -> Consumed:
        """With a synchronous commit at the end."""
        consumer = self._consumer(topic, group)
        got: Consumed = []
        deadline = time.monotonic() + WAIT_S
        while len(got) < count and time.monotonic() < deadline:
            _take(consumer, got, 1.0)
        consumer.commit(asynchronous=False)
        consumer.close()
        return got

    def member_command(self, spec: MemberSpec) -> tuple[Sequence[str], str]:
        """By ``confluent_member``."""
        self.offers(spec)
        return [sys.executable, "-m", "campaigns.clients.members.confluent_member"], spec.to_json(
            self.bootstrap
        )

    def offsets(self, topic: str, timestamp_ms: int) -> dict[int, tuple[int, int, int]]:
        """By watermarks and offsets_for_times."""
        from confluent_kafka import TopicPartition

        # In no group: librdkafka 2.16 can hang for ever, in its assignment callback, if it is closed while it joins.
        consumer = self._consumer(None, f"{topic}-offsets")
        partitions = list(consumer.list_topics(topic, WAIT_S).topics[topic].partitions)
        offsets = {}
        for n in partitions:
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, n), WAIT_S, cached=False)
            (by_time,) = consumer.offsets_for_times([TopicPartition(topic, n, timestamp_ms)], WAIT_S)
            offsets[n] = (low, high, by_time.offset)
        consumer.close()
        return offsets

    def create_topic(self, topic: str, partitions: int, configs: Mapping[str, str]) -> None:
        """By _admin_module().AdminClient."""
        wanted = _admin_module().NewTopic(topic, partitions, BROKERS_DEFAULT, config=dict(configs))
        self._admin().create_topics([wanted])[topic].result(WAIT_S)

    def add_partitions(self, topic: str, total: int) -> None:
        """By _admin_module().AdminClient."""
        self._admin().create_partitions([_admin_module().NewPartitions(topic, total)])[topic].result(WAIT_S)

    def delete_topic(self, topic: str) -> None:
        """By _admin_module().AdminClient."""
        self._admin().delete_topics([topic])[topic].result(WAIT_S)

    def topic_config(self, topic: str) -> dict[str, str | None]:
        """By _admin_module().AdminClient."""
        resource = self._topic_resource(topic)
        (answered,) = self._admin().describe_configs([resource]).values()
        return {entry.name: entry.value for entry in answered.result(WAIT_S).values()}

    def set_topic_config(self, topic: str, key: str, value: str) -> None:
        """By incremental_alter_configs."""
        resource = self._topic_resource(topic)
        resource.add_incremental_config(
            _admin_module().ConfigEntry(
                key, value, incremental_operation=_admin_module().AlterConfigOpType.SET
            )
        )
        (answered,) = self._admin().incremental_alter_configs([resource]).values()
        answered.result(WAIT_S)

    def group_ids(self) -> list[str]:
        """By _admin_module().AdminClient."""
        return [g.group_id for g in self._admin().list_consumer_groups().result(WAIT_S).valid]

    def group_state(self, group: str) -> str:
        """By _admin_module().AdminClient."""
        described = self._admin().describe_consumer_groups([group])[group].result(WAIT_S)
        return str(described.state.name).title()

    def delete_group(self, group: str) -> None:
        """By _admin_module().AdminClient."""
        self._admin().delete_consumer_groups([group])[group].result(WAIT_S)

    def _admin(self) -> Any:
        """One for the whole check: its futures fail when it is collected."""
        if self._one_admin is None:
            self._one_admin = _admin_module().AdminClient(
                {**self.access.librdkafka(), "bootstrap.servers": self.bootstrap}
            )
        return self._one_admin

    def _topic_resource(self, topic: str) -> Any:
        return _admin_module().ConfigResource(_admin_module().ResourceType.TOPIC, topic)

    def _consumer(self, topic: str | None, group: str) -> Any:
        from confluent_kafka import Consumer

        settings = {
            **self.access.librdkafka(),
            "bootstrap.servers": self.bootstrap,
            "group.id": group,
            "group.protocol": self.protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": self.isolation,
            "topic.metadata.refresh.interval.ms": 1000,
        }
        if self.protocol == "classic":
            settings["session.timeout.ms"] = SESSION_TIMEOUT_MS
        consumer = Consumer(settings)
        if topic is not None:
            consumer.subscribe([topic])
        return consumer


def _take(consumer: Any, into: Consumed, timeout_s: float) -> None:
    for message in consumer.consume(100, timeout_s):
        if message.error():
            raise CheckFailed(str(message.error()))
        headers = tuple((name, value) for name, value in message.headers() or [])
        into.append(
            Received(
                message.partition(),
                message.offset(),
                message.key(),
                message.value(),
                headers,
                message.timestamp()[1],
            )
        )


def _admin_module() -> Any:
    return import_module("confluent_kafka.admin")
