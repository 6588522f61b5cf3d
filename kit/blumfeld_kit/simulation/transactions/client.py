"""A client under a transactional id: its processes follow one another, and each ends its transactions."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from blumfeld.spi.storage import TopicPartition
from blumfeld_kit.simulation.clients.routes import Routes
from blumfeld_kit.simulation.transactions.oracle import Fate, Name, TransactionOracle
from blumfeld_kit.simulation.transactions.session import EndedError, Session

TIMEOUTS_MS = (3_000, 6_000, 12_000)
RIVAL_PAUSE_S = 8.0
LINGER_S = 4.0
"""Longest time for which a client is slow, so that it has a transaction open when old markers arrive."""


class TransactionalClient:
    """A client, or one of two rivals under one transactional id. Run :meth:`run` as a task."""

    pause_s: float

    def __init__(
        self,
        routes: Routes,
        oracle: TransactionOracle,
        name: Name,
        partitions: Sequence[TopicPartition],
        *,
        rival: bool = False,
    ) -> None:
        """:param partitions: it appends to these"""
        self._routes = routes
        self._oracle = oracle
        self._name = name
        self._partitions = partitions
        self._rival = rival
        self._random = routes.random
        self._fate = Fate.GOES_ON

    async def run(self, until_s: float) -> None:
        """Work until then."""
        loop = self._routes.network.loop
        while loop.time() < until_s:
            try:
                await self._live(until_s)
            except EndedError:
                # Fenced: the rival goes on for a while.
                await asyncio.sleep(self._random.random() * (RIVAL_PAUSE_S if self._rival else self.pause_s))
        self._routes.close()

    async def _live(self, until_s: float) -> None:
        """Be one process. :raises EndedError: it was fenced"""
        random = self._random
        timeout_ms = TIMEOUTS_MS[random.randrange(len(TIMEOUTS_MS))]
        generation = 1 + random.randrange(self._oracle.generation_max)
        session = Session(self._routes, self._oracle, self._name.id, generation, timeout_ms)
        await session.begin()
        if not await self._work(session, until_s):
            await asyncio.sleep(random.random() * 1.5 * timeout_ms / 1_000)

    async def _work(self, session: Session, until_s: float) -> bool:
        """Run transactions until then. Return False if the process dies in one. :raises EndedError: it was fenced"""
        raise NotImplementedError

    async def _end(self, session: Session, *, commit: bool) -> bool:
        """End the transaction. Return False if the process dies in that. :raises EndedError: refused"""
        if self._fate is Fate.LINGERS:
            self._oracle.counts["lingered"] += 1
            await asyncio.sleep(min(LINGER_S, 0.6 * session.timeout_ms / 1_000))
        self._fate = await session.end(commit=commit, may_die=commit)
        return self._fate is not Fate.DIES
