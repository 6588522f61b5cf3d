"""A reader of every list, in both isolation levels, from leaders and followers, that keeps what it read for the
checker."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from blumfeld.spi.storage import TopicPartition
from blumfeld_kit.simulation.clients.reads import read, readable
from blumfeld_kit.simulation.clients.routes import Routes
from blumfeld_kit.simulation.transactions.histories import View
from blumfeld_kit.simulation.transactions.oracle import TransactionOracle

ROUND_S = 0.4
FOLLOWER_CHANCE = 0.4
COMMITTED_CHANCE = 0.75


class TransactionReader:
    """A reader. Run :meth:`run` as a task."""

    def __init__(
        self, routes: Routes, oracle: TransactionOracle, partitions: Sequence[TopicPartition]
    ) -> None:
        self._routes = routes
        self._oracle = oracle
        self._partitions = partitions
        self._views: dict[TopicPartition, tuple[int, View]] = {}
        """Partition → (excuses before the first record, what was seen)."""
        self._uncommitted: dict[TopicPartition, int] = {}

    async def run(self, until_s: float) -> None:
        """Read each list in turn until then."""
        loop, random = self._routes.network.loop, self._routes.random
        while loop.time() < until_s:
            for partition in self._partitions:
                try:
                    await self._round(partition, random.random() < COMMITTED_CHANCE)
                except OSError:
                    await self._routes.lost(partition)
            await asyncio.sleep(random.random() * 2 * ROUND_S)
        self._routes.close()

    async def _round(self, partition: TopicPartition, committed: bool) -> None:
        excuses = self._oracle.partitions[partition].excuses
        # Behind an excuse a follower may show what the new leader doesn't have, until it has cut its log.
        follower = self._routes.random.random() < FOLLOWER_CHANCE and not excuses
        if committed:
            await self._read_committed(partition, follower)
            return
        position = 0 if excuses else self._uncommitted.get(partition, 0)
        reading = await read(
            self._routes, self._oracle, partition, position, committed=False, follower=follower, wait_ms=100
        )
        if reading is not None:
            self._uncommitted[partition] = reading.position

    async def _read_committed(self, partition: TopicPartition, follower: bool) -> None:
        excuses = self._oracle.partitions[partition].excuses
        known = self._views.get(partition)
        if known is None or known[0] != excuses:
            view = View(reader=self._routes.name, partition=partition, position=0, seen=[])
            known = self._views[partition] = (excuses, view)
            self._oracle.views.append(view)
        view = known[1]
        reading = await read(
            self._routes,
            self._oracle,
            partition,
            view.position,
            committed=True,
            follower=follower,
            wait_ms=100,
        )
        if reading is not None:
            view.seen += readable(reading.values)
            view.position = reading.position
