"""A consumer of every partition, which commits how far it read and looks at what it had committed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from blumfeld.spi.storage import TopicPartition
from blumfeld.wire.errors import ErrorCode, is_retriable
from blumfeld.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from blumfeld.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from blumfeld.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from blumfeld.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from blumfeld_kit.simulation.clients.client import ClientConnection
from blumfeld_kit.simulation.clients.consumer import values_of
from blumfeld_kit.simulation.clients.oracle import ViolationError
from blumfeld_kit.simulation.cluster.ledger import NEVER_S, ClusterLedger
from blumfeld_kit.simulation.cluster.routes import RETRY_S, Routes

FETCH_VERSION = 12
OFFSETS_VERSION = 5
WAIT_MS = 300
BYTES_MAX = 1 << 16
COMMIT_CHANCE = 0.5
ROUND_S = 0.5
FOLLOWER_CHANCE = 0.3
"""Probability that a fetch goes to any replica and not to the leader (KIP-392)."""
LIST_OFFSETS_VERSION = 6
LATEST = -1
LOOK_CHANCE = 0.2
"""Probability that the reader asks where the log ends after a fetch."""


class ClusterReader:
    """A consumer. Run :meth:`run` as a task."""

    def __init__(
        self, routes: Routes, ledger: ClusterLedger, partitions: Sequence[TopicPartition], group: str
    ) -> None:
        self.group = group
        self.positions = dict.fromkeys(partitions, 0)
        self._routes = routes
        self._ledger = ledger
        self._resets: dict[TopicPartition, float] = {}

    async def run(self, until_s: float) -> None:
        """Read each partition in turn until then."""
        loop, random = self._routes.network.loop, self._routes.random
        while loop.time() < until_s:
            for partition in self.positions:
                try:
                    if not await self._fetch(partition):
                        await self._routes.lost(partition)
                except OSError:
                    await self._routes.lost(partition)
            if random.random() < COMMIT_CHANCE:
                try:
                    await self.look_at_offsets()
                    await self._commit()
                except OSError:
                    await asyncio.sleep(RETRY_S)
            await asyncio.sleep(random.random() * 2 * ROUND_S)
        self._routes.close()

    async def _fetch(self, partition: TopicPartition) -> bool:
        """Fetch once. Return whether the leader answered without an error. :raises OSError: it was lost"""
        ledger = self._ledger.partitions[partition]
        # Behind an excuse a follower may show what the new leader doesn't have, until it has cut its log.
        follower = self._routes.random.random() < FOLLOWER_CHANCE and not ledger.excuses
        connection = await (self._routes.replica(partition) if follower else self._routes.leader(partition))
        if ledger.excused_s > self._resets.get(partition, NEVER_S):
            self._resets[partition] = self._routes.network.loop.time()
            self.positions[partition] = ledger.deleted
        position, epoch = self.positions[partition], self._routes.leader_epoch(partition)
        asked = FetchPartition(
            partition=partition.partition,
            fetch_offset=position,
            current_leader_epoch=epoch,
            partition_max_bytes=BYTES_MAX,
        )
        topics = [FetchTopic(topic=partition.topic, partitions=[asked])]
        request = FetchRequest(max_wait_ms=WAIT_MS, min_bytes=1, max_bytes=BYTES_MAX, topics=topics)
        answer = await connection.ask(request, FETCH_VERSION, FetchResponse)
        excused = ledger.excused_s > self._resets.get(partition, NEVER_S)
        data = answer.responses[0].partitions[0]
        if excused or (follower and data.error_code):
            return True  # a follower that lags, or that doesn't follow yet, says little
        if epoch < ledger.floor_epoch:
            return False  # a leader from before the loss that hasn't heard of its end shows what is gone
        if not self._take(partition, position, data):
            return False
        if self._routes.random.random() < LOOK_CHANCE:
            await self._look_at_end(partition)
        return True

    async def _look_at_end(self, partition: TopicPartition) -> None:
        """Ask where the log ends. Its end never goes back behind what this reader has read (KIP-207)."""
        connection = await self._routes.leader(partition)
        epoch, position = self._routes.leader_epoch(partition), self.positions[partition]
        asked = ListOffsetsPartition(
            partition_index=partition.partition, current_leader_epoch=epoch, timestamp=LATEST
        )
        request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=partition.topic, partitions=[asked])])
        answer = await connection.ask(request, LIST_OFFSETS_VERSION, ListOffsetsResponse)
        found = answer.topics[0].partitions[0]
        ledger = self._ledger.partitions[partition]
        excused = ledger.excused_s > self._resets.get(partition, NEVER_S)
        if found.error_code or excused or epoch < ledger.floor_epoch:
            return
        self._ledger.counts["ends"] += 1
        if epoch >= 0 and found.offset < position:
            raise ViolationError(
                f"{partition}: its end is {found.offset}, and a consumer has read up to {position}"
            )

    def _take(self, partition: TopicPartition, position: int, data: PartitionData) -> bool:
        ledger, code = self._ledger.partitions[partition], ErrorCode(data.error_code)
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            if position >= ledger.deleted and ledger.excused_s == NEVER_S:
                raise ViolationError(f"{partition}@{position}: out of range, and was there")
            self.positions[partition] = max(ledger.deleted, 0 if position >= ledger.deleted else position)
            return False
        if code is not ErrorCode.NONE:
            if not is_retriable(code):
                raise ViolationError(f"{partition}: Fetch was refused with {code.name}")
            return False
        for offset, value in values_of(data, position, ledger):
            if offset != position:
                raise ViolationError(f"{partition}: {offset} follows {position - 1}: a hole")
            if offset >= data.high_watermark:
                raise ViolationError(
                    f"{partition}@{offset}: shown above the high watermark {data.high_watermark}"
                )
            assert value is not None
            ledger.saw(offset, value)
            self._ledger.counts["read"] += 1
            position = offset + 1
        self.positions[partition] = position
        return True

    async def look_at_offsets(self) -> bool:
        """Ask for the committed offsets, and compare. Return whether there was an answer to compare."""
        connection = await self._routes.coordinator(self.group)
        sent_s = self._routes.network.loop.time()
        topics: dict[str, list[int]] = {}
        for partition in self.positions:
            topics.setdefault(partition.topic, []).append(partition.partition)
        request = OffsetFetchRequest(
            group_id=self.group,
            topics=[
                OffsetFetchRequestTopic(name=name, partition_indexes=each) for name, each in topics.items()
            ],
        )
        answer = await connection.ask(request, OFFSETS_VERSION, OffsetFetchResponse)
        code = ErrorCode(answer.error_code)
        if code is not ErrorCode.NONE:
            if not is_retriable(code):
                raise ViolationError(f"OffsetFetch: {code.name}")
            return False
        for topic in answer.topics:
            for each in topic.partitions:
                if each.error_code == 0:
                    at = TopicPartition(topic.name, each.partition_index)
                    offset = each.committed_offset
                    self._ledger.offsets_fetched(self.group, at, offset, connection.peer_host, sent_s)
        return True

    async def _commit(self) -> None:
        connection = await self._routes.coordinator(self.group)
        sent_s = self._routes.network.loop.time()
        answer = await self._send_commit(connection)
        for topic in answer.topics:
            for each in topic.partitions:
                code = ErrorCode(each.error_code)
                at = TopicPartition(topic.name, each.partition_index)
                if code is ErrorCode.NONE:
                    self._ledger.offsets_committed(self.group, at, self.positions[at], sent_s)
                elif not is_retriable(code):
                    raise ViolationError(f"OffsetCommit of {at}: {code.name}")

    async def _send_commit(self, connection: ClientConnection) -> OffsetCommitResponse:
        topics: dict[str, OffsetCommitRequestTopic] = {}
        for at, offset in self.positions.items():
            topic = topics.setdefault(at.topic, OffsetCommitRequestTopic(name=at.topic))
            topic.partitions.append(
                OffsetCommitRequestPartition(partition_index=at.partition, committed_offset=offset)
            )
        self._ledger.offsets_sent(self.group, self.positions)
        request = OffsetCommitRequest(group_id=self.group, topics=list(topics.values()))
        return await connection.ask(request, OFFSETS_VERSION, OffsetCommitResponse)
