"""Clients that append in transactions: they commit, abort, fall silent, come back as zombies, and send too late."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from blumfeld.spi.storage import TopicPartition
from blumfeld.wire.schema import Message
from blumfeld_kit.simulation.clients.routes import RETRY_S
from blumfeld_kit.simulation.transactions.client import RIVAL_PAUSE_S, TIMEOUTS_MS, TransactionalClient
from blumfeld_kit.simulation.transactions.histories import Append, Transaction
from blumfeld_kit.simulation.transactions.session import Batch, EndedError, Session

PARTITIONS_MAX = 3
BATCHES_MAX = 2
RECORDS_MAX = 3
PAUSE_S = 0.3
VANISH_CHANCE = 0.1
ABORT_CHANCE = 0.2
LATE_CHANCE = 0.5
"""Probability that a transaction that its client gives up is followed by a late Produce."""
RIVAL_PAUSE_CHANCE = 0.25
EVERYTHING_AT_ONCE_CHANCE = 0.5
LAST_WISH_S = 3.0


class TransactionalProducer(TransactionalClient):
    """A producer, or one of two rivals under one transactional id. Run :meth:`run` as a task."""

    pause_s = PAUSE_S

    async def run(self, until_s: float) -> None:
        """Append until then."""
        self._late: list[asyncio.Task[None]] = []
        await super().run(until_s)
        if self._late:
            await asyncio.gather(*self._late)
            self._routes.close()

    async def _work(self, session: Session, until_s: float) -> bool:
        loop, random = self._routes.network.loop, self._random
        while loop.time() < until_s and session.transactional_id == self._name.id:
            if not await self._transaction(session, session.timeout_ms):
                return False
            await asyncio.sleep(random.random() * 2 * PAUSE_S)
        return True

    async def deliver(self, partitions: Sequence[TopicPartition]) -> Transaction:
        """Commit one transaction that appends to each of these partitions, and return it."""
        session = Session(
            self._routes, self._oracle, self._name.id, self._oracle.generation_max, TIMEOUTS_MS[-1]
        )
        await session.begin()
        transaction = session.begin_transaction()
        for partition in partitions:
            await self._append(session, transaction, partition)
        await session.end(commit=True)
        return transaction

    async def _transaction(self, session: Session, timeout_ms: int) -> bool:
        """Run one transaction. Return False if the process dies in the middle of it.

        :raises EndedError: the process was fenced
        """
        random = self._random
        transaction = session.begin_transaction()
        count = 1 + random.randrange(min(PARTITIONS_MAX, len(self._partitions)))
        chosen = sorted(self._partitions, key=lambda _: random.random())[:count]
        how = random.random()
        try:
            if random.random() < EVERYTHING_AT_ONCE_CHANCE:
                await session.add_partitions(chosen)
            for partition in chosen:
                await self._append(session, transaction, partition)
                if self._rival and random.random() < RIVAL_PAUSE_CHANCE:
                    await asyncio.sleep(random.random() * RIVAL_PAUSE_S)
        except EndedError as error:
            if error.fenced:
                raise
            await self._give_up(session, transaction)
            return True
        if how < VANISH_CHANCE:
            if random.random() < LATE_CHANCE:
                self._send_late(self._too_late(session, transaction), 2.0 * timeout_ms / 1_000)
            return False
        if how < VANISH_CHANCE + ABORT_CHANCE:
            await self._give_up(session, transaction)
            return True
        unanswered = session.unanswered
        if not await self._end(session, commit=True):
            return False
        if session.generation == 1 and (unanswered or session.unanswered):
            await session.begin(
                renew=True
            )  # a request that is still on its way may reach the next transaction
        return True

    async def _append(self, session: Session, transaction: Transaction, partition: TopicPartition) -> None:
        await session.add_partitions([partition])
        batches = 1 + self._random.randrange(BATCHES_MAX)
        await session.produce([self._batch(session, transaction, partition) for _ in range(batches)])

    def _batch(
        self, session: Session, transaction: Transaction, partition: TopicPartition, *, late: bool = False
    ) -> Batch:
        appends = []
        for nth in range(1 + self._random.randrange(RECORDS_MAX)):
            value = f"0|{transaction.number}.{len(transaction.appends) + nth}"
            appends.append(Append(partition=partition, value=value.encode(), sent_s=session.now_s, late=late))
        return session.batch(appends)

    # What comes too late

    async def _give_up(self, session: Session, transaction: Transaction) -> None:
        """Abort, with a Produce that is still on its way. :raises EndedError: the process was fenced"""
        late = self._too_late(session, transaction) if self._random.random() < LATE_CHANCE else None
        try:
            await session.end(commit=False)
        finally:
            if late is not None:
                self._send_late(late, LAST_WISH_S)
        if session.generation == 1:
            if late is not None and self._random.random() < 0.5:
                await asyncio.sleep(self._random.random() * LAST_WISH_S)
            await session.begin(renew=True)

    def _too_late(
        self, session: Session, transaction: Transaction
    ) -> tuple[TopicPartition, tuple[Message, int]]:
        partition = self._partitions[self._random.randrange(len(self._partitions))]
        batch = self._batch(session, transaction, partition, late=True)
        return partition, session.request(batch)

    def _send_late(self, late: tuple[TopicPartition, tuple[Message, int]], within_s: float) -> None:
        partition, (request, version) = late
        self._oracle.counts["late"] += 1

        async def send() -> None:
            await asyncio.sleep(self._random.random() ** 2 * within_s)
            try:
                connection = await self._routes.leader(partition)
                await connection.wait(connection.send(request, version))
            except OSError:
                await asyncio.sleep(RETRY_S)

        self._late = [task for task in self._late if not task.done() or task.exception() is not None]
        self._late.append(self._routes.network.loop.create_task(send()))
