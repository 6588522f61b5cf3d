"""A client that creates, moves and deletes topics, elects leaders, and deletes records."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from blumfeld.spi.storage import TopicPartition
from blumfeld.wire.errors import ErrorCode, is_retriable
from blumfeld.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from blumfeld.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from blumfeld.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from blumfeld_kit.simulation.clients.oracle import ViolationError
from blumfeld_kit.simulation.cluster.ledger import ClusterLedger
from blumfeld_kit.simulation.cluster.moving import TIMEOUT_MS, elect_preferred, reassign
from blumfeld_kit.simulation.cluster.routes import RETRY_S, Routes

PAUSE_S = 3.0
LARGE_CHANCE = 0.15
LARGE_PARTITIONS = 60
"""Partitions of a topic that takes a controller more than one turn."""
REPLICAS_MISSING = (ErrorCode.INVALID_REPLICATION_FACTOR, ErrorCode.BROKER_NOT_AVAILABLE)


async def create_topic(routes: Routes, name: str, partitions: int, replicas: int) -> ErrorCode:
    """Create a topic. :raises OSError: nobody knows whether it was created"""
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=replicas)
    request = CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS)
    connection = await routes.any_broker()
    answer = await connection.ask(request, 5, CreateTopicsResponse)
    return ErrorCode(answer.topics[0].error_code)


class ClusterAdmin:
    """An operator. Run :meth:`run` as a task."""

    def __init__(
        self,
        routes: Routes,
        ledger: ClusterLedger,
        partitions: Sequence[TopicPartition],
        replicas: int,
        brokers: Sequence[int],
        busy: Callable[[], None],
    ) -> None:
        """:param busy: called when the controller gets much to decide"""
        self._routes = routes
        self._ledger = ledger
        self._partitions = partitions
        self._replicas = replicas
        self._brokers = list(brokers)
        self._busy = busy
        self._number = 0

    async def run(self, until_s: float) -> None:
        """Do one thing after the other until then."""
        loop, random = self._routes.network.loop, self._routes.random
        actions = (self._create, self._delete, self._delete_records, self._reassign, self._elect)
        while loop.time() < until_s:
            try:
                await actions[random.randrange(len(actions))]()
            except OSError:
                await asyncio.sleep(RETRY_S)
            await asyncio.sleep(random.random() * 2 * PAUSE_S)
        self._routes.close()

    async def _create(self) -> None:
        random = self._routes.random
        self._number += 1
        name = f"{self._routes.name}-{self._number}"
        partitions = LARGE_PARTITIONS if random.random() < LARGE_CHANCE else 1 + random.randrange(3)
        self._ledger.topics[name] = None
        if partitions == LARGE_PARTITIONS:
            self._busy()
        code = await create_topic(self._routes, name, partitions, self._replicas)
        # A broker that lost the controller's answer asks the next controller, as Kafka's does. Nobody else creates a
        # topic of this name, so it is there.
        if code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            self._ledger.topics[name] = True
            self._ledger.counts["topics created"] += 1
            self._ledger.partition_counts[name] = partitions
        elif not is_retriable(code) and code not in REPLICAS_MISSING:
            raise ViolationError(f"CreateTopics of {name}: {code.name}")

    async def _delete(self) -> None:
        there = [name for name, known in self._ledger.topics.items() if known]
        if not there:
            return
        name = there[self._routes.random.randrange(len(there))]
        self._ledger.topics[name] = None
        connection = await self._routes.any_broker()
        request = DeleteTopicsRequest(topic_names=[name], timeout_ms=TIMEOUT_MS)
        answer = await connection.ask(request, 5, DeleteTopicsResponse)
        code = ErrorCode(answer.responses[0].error_code)
        if code is ErrorCode.NONE:
            self._ledger.topics[name] = False
            self._ledger.counts["topics deleted"] += 1
        elif not is_retriable(code):
            raise ViolationError(f"DeleteTopics of {name}: {code.name}")

    async def _reassign(self) -> None:
        partition = self._partitions[self._routes.random.randrange(len(self._partitions))]
        if await reassign(self._routes, partition, self._brokers, self._replicas):
            self._ledger.counts["reassigned"] += 1
            self._busy()

    async def _elect(self) -> None:
        indexes = [one.partition for one in self._partitions]
        self._ledger.counts["elected"] += await elect_preferred(
            self._routes, self._partitions[0].topic, indexes
        )

    async def _delete_records(self) -> None:
        random = self._routes.random
        partition = self._partitions[random.randrange(len(self._partitions))]
        ledger = self._ledger.partitions[partition]
        if not ledger.acked:
            return
        offset = random.randrange(max(ledger.acked) // 2 + 1)
        connection = await self._routes.leader(partition)
        sent_s = self._routes.network.loop.time()
        ledger.deleted = max(ledger.deleted, offset)
        asked = DeleteRecordsPartition(partition_index=partition.partition, offset=offset)
        topic = DeleteRecordsTopic(name=partition.topic, partitions=[asked])
        request = DeleteRecordsRequest(topics=[topic], timeout_ms=TIMEOUT_MS)
        answer = await connection.ask(request, 2, DeleteRecordsResponse)
        result = answer.topics[0].partitions[0]
        code = ErrorCode(result.error_code)
        if code is ErrorCode.NONE:
            self._ledger.deleted(partition, result.low_watermark, sent_s)
        else:
            await self._routes.lost(partition)
            if not is_retriable(code) and code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                raise ViolationError(f"DeleteRecords of {partition}: {code.name}")
