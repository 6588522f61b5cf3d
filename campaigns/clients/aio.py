"""aiokafka: a client on asyncio."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from blumfeld_kit.cluster import REPLICAS
from campaigns.clients.client import (
    SESSION_TIMEOUT_MS,
    WAIT_S,
    CheckFailed,
    Client,
    ClusterView,
    Consumed,
)
from campaigns.clients.live_members import MemberSpec
from campaigns.clients.records import AS_USUAL, Received, Sample, Sending, Traits, Turn

T = TypeVar("T")


class AioKafka(Client):
    """Each call runs a loop of its own."""

    name = "aiokafka"
    package = "aiokafka"
    install = "pip install aiokafka cramjam"
    traits = Traits(null_key_and_value=False, deletes_groups=False)

    def cluster(self) -> ClusterView:
        """By the admin client."""

        async def ask(admin: Any) -> ClusterView:
            described = await admin.describe_cluster()
            brokers = [(b["node_id"], b["host"], b["port"]) for b in described["brokers"]]
            topics = await admin.describe_topics()
            return ClusterView(brokers, {t["topic"]: len(t["partitions"]) for t in topics})

        return self._with_admin(ask)

    def produce(self, topic: str, samples: Sequence[Sample], how: Sending = AS_USUAL) -> None:
        """Every future must be good."""

        async def send() -> None:
            from aiokafka import AIOKafkaProducer

            async with AIOKafkaProducer(
                bootstrap_servers=self.bootstrap,
                **self.access.aiokafka(),
                compression_type=None if how.codec == "none" else how.codec,
                acks=how.acks if how.acks == "all" else int(how.acks),
                enable_idempotence=how.idempotent,
                linger_ms=20,
            ) as producer:
                futures = [
                    await producer.send(
                        topic,
                        value=sample.value,
                        key=sample.key,
                        partition=sample.partition,
                        timestamp_ms=sample.timestamp_ms,
                        headers=list(sample.headers),
                    )
                    for sample in samples
                ]
                await asyncio.gather(*futures)

        self._run(send())

    def consume(self, topic: str, group: str, count: int) -> Consumed:
        """With a commit at the end."""

        async def read() -> Consumed:
            got: Consumed = []
            deadline = time.monotonic() + WAIT_S
            async with self._consumer(topic, group) as consumer:
                while len(got) < count and time.monotonic() < deadline:
                    await _take(consumer, got, 500)
                await consumer.commit()
            return got

        return self._run(read())

    def transact(self, topic: str, transactional_id: str, turns: Sequence[Turn]) -> None:
        """By its calls, one after the other."""

        async def send() -> None:
            from aiokafka import TopicPartition

            async with self._transactional(transactional_id) as producer:
                for turn in turns:
                    await producer.begin_transaction()
                    sent = [
                        await producer.send(topic, sample.value, sample.key, sample.partition)
                        for sample in turn.samples
                    ]
                    await asyncio.gather(*sent)
                    if turn.group:
                        offsets = {TopicPartition(turn.source, at): end for at, end in turn.offsets.items()}
                        await producer.send_offsets_to_transaction(offsets, turn.group)
                    if turn.commits:
                        await producer.commit_transaction()
                    else:
                        await producer.abort_transaction()

        self._run(send())

    def fence(self, topic: str, transactional_id: str, sample: Sample) -> str:
        """The first one's commit raises."""

        async def send() -> str:
            from aiokafka.errors import KafkaError

            first, second = self._transactional(transactional_id), self._transactional(transactional_id)
            await first.start()
            await first.begin_transaction()
            await first.send_and_wait(topic, sample.value, sample.key, sample.partition)
            await second.start()
            await second.stop()
            try:
                await first.commit_transaction()
            except KafkaError as error:
                return f"{type(error).__name__}: {error}"
            return ""

        return self._run(send())

    def _transactional(self, transactional_id: str) -> Any:
        from aiokafka import AIOKafkaProducer

        return AIOKafkaProducer(
            bootstrap_servers=self.bootstrap, **self.access.aiokafka(), transactional_id=transactional_id
        )

    def member_command(self, spec: MemberSpec) -> tuple[Sequence[str], str]:
        """By ``aio_member``."""
        self.offers(spec)
        return [sys.executable, "-m", "campaigns.clients.members.aio_member"], spec.to_json(self.bootstrap)

    def offsets(self, topic: str, timestamp_ms: int) -> dict[int, tuple[int, int, int]]:
        """By beginning_offsets, end_offsets and offsets_for_times."""

        async def ask() -> dict[int, tuple[int, int, int]]:
            from aiokafka import AIOKafkaConsumer, TopicPartition

            async with AIOKafkaConsumer(
                topic, bootstrap_servers=self.bootstrap, **self.access.aiokafka()
            ) as consumer:
                partitions = [TopicPartition(topic, n) for n in sorted(consumer.partitions_for_topic(topic))]
                first = await consumer.beginning_offsets(partitions)
                last = await consumer.end_offsets(partitions)
                timed = await consumer.offsets_for_times(dict.fromkeys(partitions, timestamp_ms))
            return {p.partition: (first[p], last[p], timed[p].offset) for p in partitions}

        return self._run(ask())

    def create_topic(self, topic: str, partitions: int, configs: Mapping[str, str]) -> None:
        """By the admin client."""
        from aiokafka.admin import NewTopic

        # It takes -1 for "as the replica assignment says".
        replicas = REPLICAS if self.bootstrap.count(",") + 1 >= REPLICAS else 1
        wanted = NewTopic(topic, partitions, replicas, topic_configs=dict(configs))
        _good(self._with_admin(lambda admin: admin.create_topics([wanted])).topic_errors)

    def add_partitions(self, topic: str, total: int) -> None:
        """By the admin client."""
        from aiokafka.admin import NewPartitions

        wanted = {topic: NewPartitions(total)}
        _good(self._with_admin(lambda admin: admin.create_partitions(wanted)).topic_errors)

    def delete_topic(self, topic: str) -> None:
        """By the admin client."""
        _good(self._with_admin(lambda admin: admin.delete_topics([topic])).topic_error_codes)

    def topic_config(self, topic: str) -> dict[str, str | None]:
        """By the admin client."""
        resource = self._topic_resource(topic)
        (answered,) = self._with_admin(lambda admin: admin.describe_configs([resource]))
        (resource_config,) = answered.resources
        if resource_config[0]:
            raise CheckFailed(f"error {resource_config[0]}: {resource_config[1]}")
        return {entry[0]: entry[1] for entry in resource_config[4]}

    def set_topic_config(self, topic: str, key: str, value: str) -> None:
        """By alter_configs, which sets a topic's whole configuration."""
        resource = self._topic_resource(topic, {key: value})
        (answered,) = self._with_admin(lambda admin: admin.alter_configs([resource]))
        (resource_config,) = answered.resources
        if resource_config[0]:
            raise CheckFailed(f"error {resource_config[0]}: {resource_config[1]}")

    def group_ids(self) -> list[str]:
        """By the admin client."""
        return [str(group[0]) for group in self._with_admin(lambda admin: admin.list_consumer_groups())]

    def group_state(self, group: str) -> str:
        """By the admin client."""
        (answered,) = self._with_admin(lambda admin: admin.describe_consumer_groups([group]))
        return str(answered.groups[0][2])

    def _consumer(self, topic: str, group: str) -> Any:
        from aiokafka import AIOKafkaConsumer

        return AIOKafkaConsumer(
            topic,
            bootstrap_servers=self.bootstrap,
            **self.access.aiokafka(),
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level=self.isolation,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            metadata_max_age_ms=1000,
        )

    def _topic_resource(self, topic: str, configs: Mapping[str, str] | None = None) -> Any:
        from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

        return ConfigResource(ConfigResourceType.TOPIC, topic, configs=configs)

    def _with_admin(self, ask: Callable[[Any], Coroutine[Any, Any, T]]) -> T:
        async def whole() -> T:
            from aiokafka.admin import AIOKafkaAdminClient

            admin = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap, **self.access.aiokafka())
            await admin.start()
            try:
                return await ask(admin)
            finally:
                await admin.close()

        return self._run(whole())

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        async def bounded() -> T:
            return await asyncio.wait_for(work, 2 * WAIT_S)

        return asyncio.run(bounded())


async def _take(consumer: Any, into: Consumed, timeout_ms: int) -> None:
    for messages in (await consumer.getmany(timeout_ms=timeout_ms)).values():
        into += [
            Received(m.partition, m.offset, m.key, m.value, tuple((k, v) for k, v in m.headers), m.timestamp)
            for m in messages
        ]


def _good(answers: Sequence[Any]) -> None:
    for name, code, *more in answers:
        if code:
            raise CheckFailed(f"{name}: error {code} {' '.join(map(str, more))}")
