"""A consumer that reads from leaders and followers, and commits its offsets for a group, without being its member."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from blumfeld.spi.storage import TopicPartition
from blumfeld.wire.errors import ErrorCode, is_retriable
from blumfeld.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from blumfeld_kit.simulation.clients.offsets import commit_offsets, fetch_offsets
from blumfeld_kit.simulation.clients.oracle import NEVER_S, Oracle, ViolationError
from blumfeld_kit.simulation.clients.reads import read
from blumfeld_kit.simulation.clients.routes import RETRY_S, Routes

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
        self, routes: Routes, oracle: Oracle, partitions: Sequence[TopicPartition], group: str
    ) -> None:
        self.group = group
        self.positions = dict.fromkeys(partitions, 0)
        self._routes = routes
        self._oracle = oracle
        self._resets: dict[TopicPartition, float] = {}

    async def run(self, until_s: float) -> None:
        """Read each partition in turn until then."""
        loop, random = self._routes.network.loop, self._routes.random
        while loop.time() < until_s:
            for partition in self.positions:
                try:
                    await self._fetch(partition)
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

    async def _fetch(self, partition: TopicPartition) -> None:
        """Fetch once. :raises OSError: the broker was lost"""
        it, random = self._oracle.partitions[partition], self._routes.random
        # Behind an excuse a follower may show what the new leader doesn't have, until it has cut its log.
        follower = random.random() < FOLLOWER_CHANCE and not it.excuses
        if it.excused_s > self._resets.get(partition, NEVER_S):
            self._resets[partition] = self._routes.network.loop.time()
            self.positions[partition] = it.deleted
        position = self.positions[partition]
        reading = await read(self._routes, self._oracle, partition, position, follower=follower, resets=True)
        if reading is None:
            return
        reading.check_whole(partition, position)
        self.positions[partition] = reading.position
        if not reading.data.error_code and random.random() < LOOK_CHANCE:
            await self._look_at_end(partition)

    async def _look_at_end(self, partition: TopicPartition) -> None:
        """Ask where the log ends. Its end never goes back behind what this reader has read (KIP-207)."""
        connection = await self._routes.leader(partition)
        epoch, position = self._routes.leader_epoch(partition), self.positions[partition]
        query = ListOffsetsPartition(
            partition_index=partition.partition, current_leader_epoch=epoch, timestamp=LATEST
        )
        request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=partition.topic, partitions=[query])])
        answer = await connection.ask(request, LIST_OFFSETS_VERSION, ListOffsetsResponse)
        partition_answer = answer.topics[0].partitions[0]
        it = self._oracle.partitions[partition]
        excused = it.excused_s > self._resets.get(partition, NEVER_S)
        if partition_answer.error_code or excused or epoch < it.floor_epoch:
            return
        self._oracle.counts["ends"] += 1
        if epoch >= 0 and partition_answer.offset < position:
            raise ViolationError(
                f"{partition}: its end is {partition_answer.offset}, and a consumer has read up to {position}"
            )

    async def look_at_offsets(self) -> bool:
        """Ask for the committed offsets, and compare. Return whether there was an answer to compare."""
        connection = await self._routes.coordinator(self.group)
        sent_s = self._routes.network.loop.time()
        offsets = await fetch_offsets(connection, self.group, self.positions)
        for at, offset in (offsets or {}).items():
            self._oracle.offsets_fetched(self.group, at, offset, connection.peer_host, sent_s)
        return offsets is not None

    async def _commit(self) -> None:
        connection = await self._routes.coordinator(self.group)
        sent_s, positions = self._routes.network.loop.time(), dict(self.positions)
        self._oracle.offsets_sent(self.group, positions)
        for at, code in (await commit_offsets(connection, self.group, positions)).items():
            if code is ErrorCode.NONE:
                self._oracle.offsets_committed(self.group, at, positions[at], sent_s)
            elif not is_retriable(code):
                raise ViolationError(f"OffsetCommit of {at}: {code.name}")
