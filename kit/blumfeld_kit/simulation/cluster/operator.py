"""An operator: creates, moves and deletes topics, elects leaders, and deletes records."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from blumfeld.spi.storage import TopicPartition
from blumfeld.wire.errors import ErrorCode, is_retriable
from blumfeld.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from blumfeld.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from blumfeld.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from blumfeld.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from blumfeld.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from blumfeld_kit.simulation.clients.oracle import Oracle, ViolationError
from blumfeld_kit.simulation.clients.routes import RETRY_S, Routes

TIMEOUT_MS = 8_000
NOT_ELECTED = (ErrorCode.ELECTION_NOT_NEEDED, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)
PAUSE_S = 3.0
LARGE_CHANCE = 0.15
LARGE_PARTITIONS = 60
"""Partitions of a topic that takes a controller more than one turn."""
NO_CONFIG: Mapping[str, str] = {}
BROKER_GONE = ErrorCode.INVALID_REPLICA_ASSIGNMENT
"""A replica's broker isn't there: in a tree a broker that is down is no broker, as in Kafka 3.9."""
REPLICAS_MISSING = (ErrorCode.INVALID_REPLICATION_FACTOR, ErrorCode.BROKER_NOT_AVAILABLE)


async def create_topic(
    routes: Routes, name: str, partitions: int, replicas: int, config: Mapping[str, str] = NO_CONFIG
) -> ErrorCode:
    """Create a topic. :raises OSError: nobody knows whether it was created"""
    configs = [CreatableTopicConfig(name=key, value=value) for key, value in config.items()]
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=replicas, configs=configs)
    request = CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS)
    connection = await routes.for_admin()
    answer = await connection.ask(request, 5, CreateTopicsResponse)
    return ErrorCode(answer.topics[0].error_code)


class Operator:
    """An operator. Run :meth:`run` as a task."""

    pause_s = PAUSE_S

    def __init__(
        self,
        routes: Routes,
        oracle: Oracle,
        partitions: Sequence[TopicPartition],
        replicas: int,
        brokers: Sequence[int],
        busy: Callable[[], None] = lambda: None,
    ) -> None:
        """:param busy: called when the controller gets much to decide"""
        self._routes = routes
        self._oracle = oracle
        self._partitions = partitions
        self._replicas = replicas
        self._brokers = list(brokers)
        self._busy = busy
        self._number = 0

    async def run(self, until_s: float) -> None:
        """Do one thing after the other until then."""
        loop, random = self._routes.network.loop, self._routes.random
        while loop.time() < until_s:
            try:
                await self._act()
            except OSError:
                await asyncio.sleep(RETRY_S)
            await asyncio.sleep(random.random() * 2 * self.pause_s)
        self._routes.close()

    async def _act(self) -> None:
        """Do one thing. :raises OSError: nobody knows whether it was done"""
        actions = (self._create, self._delete, self._delete_records, self._reassign, self._elect)
        await actions[self._routes.random.randrange(len(actions))]()

    def _any_partition(self) -> TopicPartition:
        return self._partitions[self._routes.random.randrange(len(self._partitions))]

    async def _create(self) -> None:
        random = self._routes.random
        self._number += 1
        name = f"{self._routes.name}-{self._number}"
        partitions = LARGE_PARTITIONS if random.random() < LARGE_CHANCE else 1 + random.randrange(3)
        self._oracle.topics[name] = None
        if partitions == LARGE_PARTITIONS:
            self._busy()
        code = await create_topic(self._routes, name, partitions, self._replicas)
        # A broker that lost the controller's answer asks the next controller, as Kafka's does. Nobody else creates a
        # topic of this name, so it is there.
        if code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            self._oracle.topics[name] = True
            self._oracle.counts["topics created"] += 1
            self._oracle.partition_counts[name] = partitions
        elif not is_retriable(code) and code not in REPLICAS_MISSING:
            raise ViolationError(f"CreateTopics of {name}: {code.name}")

    async def _delete(self) -> None:
        there = [name for name, known in self._oracle.topics.items() if known]
        if not there:
            return
        name = there[self._routes.random.randrange(len(there))]
        self._oracle.topics[name] = None
        connection = await self._routes.for_admin()
        request = DeleteTopicsRequest(topic_names=[name], timeout_ms=TIMEOUT_MS)
        answer = await connection.ask(request, 5, DeleteTopicsResponse)
        code = ErrorCode(answer.responses[0].error_code)
        if code is ErrorCode.NONE:
            self._oracle.topics[name] = False
            self._oracle.counts["topics deleted"] += 1
        elif not is_retriable(code):
            raise ViolationError(f"DeleteTopics of {name}: {code.name}")

    async def _reassign(self) -> None:
        """Move a partition to some brokers, or let another of its replicas be the first."""
        partition = self._any_partition()
        chosen = sorted(self._brokers, key=lambda _: self._routes.random.random())[: self._replicas]
        wanted = ReassignablePartition(partition_index=partition.partition, replicas=chosen)
        request = AlterPartitionReassignmentsRequest(
            timeout_ms=TIMEOUT_MS, topics=[ReassignableTopic(name=partition.topic, partitions=[wanted])]
        )
        connection = await self._routes.for_admin()
        answer = await connection.ask(request, 0, AlterPartitionReassignmentsResponse)
        code = ErrorCode(answer.error_code or answer.responses[0].partitions[0].error_code)
        if code is ErrorCode.NONE:
            self._oracle.counts["reassigned"] += 1
            self._busy()
        elif not is_retriable(code) and (self._routes.brokers_forward or code is not BROKER_GONE):
            raise ViolationError(f"AlterPartitionReassignments of {partition} to {chosen}: {code.name}")

    async def _elect(self) -> None:
        """Elect the preferred leaders of a topic's partitions."""
        topic = self._any_partition().topic
        indexes = [place.partition for place in self._partitions if place.topic == topic]
        topics = [TopicPartitions(topic=topic, partitions=indexes)]
        connection = await self._routes.for_admin()
        request = ElectLeadersRequest(election_type=0, topic_partitions=topics, timeout_ms=TIMEOUT_MS)
        answer = await connection.ask(request, 2, ElectLeadersResponse)
        results = [result for topic in answer.replica_election_results for result in topic.partition_result]
        codes = [ErrorCode(result.error_code) for result in results]
        for code in (ErrorCode(answer.error_code), *codes):
            if code is not ErrorCode.NONE and not is_retriable(code) and code not in NOT_ELECTED:
                raise ViolationError(f"ElectLeaders: {code.name}")
        self._oracle.counts["elected"] += codes.count(ErrorCode.NONE)

    async def _delete_records(self) -> None:
        partition = self._any_partition()
        it = self._oracle.partitions[partition]
        if not it.acked:
            return
        offset = self._routes.random.randrange(max(it.acked) // 2 + 1)
        connection = await self._routes.leader(partition)
        sent_s = self._routes.network.loop.time()
        it.deleted = max(it.deleted, offset)
        deletion = DeleteRecordsPartition(partition_index=partition.partition, offset=offset)
        topic = DeleteRecordsTopic(name=partition.topic, partitions=[deletion])
        request = DeleteRecordsRequest(topics=[topic], timeout_ms=TIMEOUT_MS)
        answer = await connection.ask(request, 2, DeleteRecordsResponse)
        result = answer.topics[0].partitions[0]
        code = ErrorCode(result.error_code)
        if code is ErrorCode.NONE:
            self._oracle.deleted(partition, result.low_watermark, sent_s)
        else:
            await self._routes.lost(partition)
            if not is_retriable(code) and code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                raise ViolationError(f"DeleteRecords of {partition}: {code.name}")
