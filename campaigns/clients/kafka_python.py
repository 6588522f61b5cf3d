"""kafka-python: a client in pure Python."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from campaigns.clients.client import (
    BROKERS_DEFAULT,
    SESSION_TIMEOUT_MS,
    WAIT_S,
    Client,
    ClusterView,
    Consumed,
)
from campaigns.clients.live_members import MemberSpec
from campaigns.clients.members.kafka_python_member import learn_topic
from campaigns.clients.records import AS_USUAL, Received, Sample, Sending, Traits, Turn


class KafkaPython(Client):
    """Its codecs other than gzip come with its extras lz4, snappy and zstd."""

    name = "kafka-python"
    package = "kafka"
    install = "pip install 'kafka-python[lz4,snappy,zstd]'"
    traits = Traits(null_headers=False, null_key_and_value=False)
    assignors = ("range", "roundrobin", "cooperative-sticky")

    def cluster(self) -> ClusterView:
        """By the admin client."""
        with _Closing(self._admin()) as admin:
            brokers = [(b["broker_id"], b["host"], b["port"]) for b in admin.describe_cluster()["brokers"]]
            topics = {t["name"]: len(t["partitions"]) for t in admin.describe_topics()}
        return ClusterView(brokers, topics)

    def produce(self, topic: str, samples: Sequence[Sample], how: Sending = AS_USUAL) -> None:
        """Every future must be good."""
        from kafka import KafkaProducer

        with _Closing(
            KafkaProducer(
                bootstrap_servers=self.bootstrap,
                **self.access.kafka_python(),
                compression_type=None if how.codec == "none" else how.codec,
                acks=how.acks if how.acks == "all" else int(how.acks),
                enable_idempotence=how.idempotent,
                linger_ms=20,
            )
        ) as producer:
            futures = [
                producer.send(
                    topic,
                    value=sample.value,
                    key=sample.key,
                    headers=list(sample.headers),
                    partition=sample.partition,
                    timestamp_ms=sample.timestamp_ms,
                )
                for sample in samples
            ]
            producer.flush(WAIT_S)
            for future in futures:
                future.get(WAIT_S)

    def transact(self, topic: str, transactional_id: str, turns: Sequence[Turn]) -> None:
        """By its calls, one after the other."""
        from kafka import TopicPartition
        from kafka.structs import OffsetAndMetadata

        with _Closing(self._transactional(transactional_id)) as producer:
            for turn in turns:
                producer.begin_transaction()
                sent = [
                    producer.send(topic, value=sample.value, key=sample.key, partition=sample.partition)
                    for sample in turn.samples
                ]
                for future in sent:
                    future.get(WAIT_S)
                if turn.group:
                    offsets = {
                        TopicPartition(turn.source, at): OffsetAndMetadata(end, "", -1)
                        for at, end in turn.offsets.items()
                    }
                    producer.send_offsets_to_transaction(offsets, turn.group)
                if turn.commits:
                    producer.commit_transaction()
                else:
                    producer.abort_transaction()

    def fence(self, topic: str, transactional_id: str, sample: Sample) -> str:
        """The first one's commit raises."""
        from kafka.errors import KafkaError

        first = self._transactional(transactional_id)
        first.begin_transaction()
        first.send(topic, value=sample.value, key=sample.key, partition=sample.partition).get(WAIT_S)
        with _Closing(self._transactional(transactional_id)):
            try:
                first.commit_transaction()
            except KafkaError as error:
                return f"{type(error).__name__}: {error}"
        return ""

    def _transactional(self, transactional_id: str) -> Any:
        from kafka import KafkaProducer

        producer = KafkaProducer(
            bootstrap_servers=self.bootstrap,
            **self.access.kafka_python(),
            transactional_id=transactional_id,
            enable_idempotence=True,
        )
        producer.init_transactions()
        return producer

    def consume(self, topic: str, group: str, count: int) -> Consumed:
        """With a synchronous commit at the end."""
        got: Consumed = []
        deadline = time.monotonic() + WAIT_S
        with _Closing(self._consumer(topic, group)) as consumer:
            while len(got) < count and time.monotonic() < deadline:
                _take(consumer, got, 500)
            consumer.commit()
        return got

    def member_command(self, spec: MemberSpec) -> tuple[Sequence[str], str]:
        """By ``kafka_python_member``."""
        self.offers(spec)
        return [sys.executable, "-m", "campaigns.clients.members.kafka_python_member"], spec.to_json(
            self.bootstrap
        )

    def offsets(self, topic: str, timestamp_ms: int) -> dict[int, tuple[int, int, int]]:
        """By beginning_offsets, end_offsets and offsets_for_times."""
        from kafka import KafkaConsumer, TopicPartition

        with _Closing(
            KafkaConsumer(bootstrap_servers=self.bootstrap, **self.access.kafka_python())
        ) as consumer:
            partitions = [TopicPartition(topic, n) for n in sorted(consumer.partitions_for_topic(topic))]
            first = consumer.beginning_offsets(partitions)
            last = consumer.end_offsets(partitions)
            timed = consumer.offsets_for_times(dict.fromkeys(partitions, timestamp_ms))
        return {p.partition: (first[p], last[p], timed[p].offset) for p in partitions}

    def create_topic(self, topic: str, partitions: int, configs: Mapping[str, str]) -> None:
        """By the admin client."""
        from kafka.admin import NewTopic

        wanted = NewTopic(
            topic, num_partitions=partitions, replication_factor=BROKERS_DEFAULT, topic_configs=dict(configs)
        )
        with _Closing(self._admin()) as admin:
            admin.create_topics([wanted])

    def add_partitions(self, topic: str, total: int) -> None:
        """By the admin client."""
        from kafka.admin import NewPartitions

        with _Closing(self._admin()) as admin:
            admin.create_partitions({topic: NewPartitions(total)})

    def delete_topic(self, topic: str) -> None:
        """By the admin client."""
        with _Closing(self._admin()) as admin:
            admin.delete_topics([topic])

    def topic_config(self, topic: str) -> dict[str, str | None]:
        """By the admin client."""
        from kafka.admin import ConfigResource, ConfigResourceType

        with _Closing(self._admin()) as admin:
            described = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
        return {k: v["value"] if isinstance(v, dict) else v for k, v in described["topic"][topic].items()}

    def set_topic_config(self, topic: str, key: str, value: str) -> None:
        """By the admin client."""
        from kafka.admin import ConfigResource, ConfigResourceType

        with _Closing(self._admin()) as admin:
            admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, configs={key: value})])

    def group_ids(self) -> list[str]:
        """By the admin client."""
        with _Closing(self._admin()) as admin:
            return [str(group["group_id"]) for group in admin.list_groups()]

    def group_state(self, group: str) -> str:
        """By the admin client."""
        with _Closing(self._admin()) as admin:
            return str(admin.describe_groups([group])[group]["group_state"])

    def delete_group(self, group: str) -> None:
        """By the admin client."""
        with _Closing(self._admin()) as admin:
            admin.delete_groups([group])

    def _admin(self) -> Any:
        from kafka import KafkaAdminClient

        return KafkaAdminClient(bootstrap_servers=self.bootstrap, **self.access.kafka_python())

    def _consumer(self, topic: str, group: str) -> Any:
        from kafka import KafkaConsumer

        consumer = KafkaConsumer(
            topic,
            bootstrap_servers=self.bootstrap,
            **self.access.kafka_python(),
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level=self.isolation,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            metadata_max_age_ms=1000,
        )
        learn_topic(consumer, topic)
        return consumer


class _Closing:
    """``with`` for clients whose close has arguments of its own."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def __enter__(self) -> Any:
        return self._client

    def __exit__(self, *_: object) -> None:
        self._client.close()


def _take(consumer: Any, into: Consumed, timeout_ms: int) -> None:
    for messages in consumer.poll(timeout_ms=timeout_ms).values():
        into += [
            Received(m.partition, m.offset, m.key, m.value, tuple((k, v) for k, v in m.headers), m.timestamp)
            for m in messages
        ]
