"""A client that consumes, transforms and produces: its outputs and its offsets are one transaction (KIP-447)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from blumfeld.spi.storage import TopicPartition
from blumfeld_kit.simulation.clients.offsets import fetch_offsets
from blumfeld_kit.simulation.clients.oracle import ViolationError
from blumfeld_kit.simulation.clients.reads import Read, Values, read, readable
from blumfeld_kit.simulation.clients.routes import RETRY_S, Routes
from blumfeld_kit.simulation.transactions.client import RIVAL_PAUSE_S, TransactionalClient
from blumfeld_kit.simulation.transactions.histories import Append, Outcome, Transaction
from blumfeld_kit.simulation.transactions.oracle import TransactionOracle
from blumfeld_kit.simulation.transactions.session import EndedError, Session

PAUSE_S = 0.5
RECORDS_MAX = 8
HOPS_MAX = 2
"""Values that were made of others so often are read and left alone: two relays in a circle would never end."""
ABORT_CHANCE = 0.12
VANISH_CHANCE = 0.06
LOOK_CHANCE = 0.3
"""Probability that the client asks for the group's offsets while its transaction is open."""
FOLLOWER_CHANCE = 0.3
RIVAL_PAUSE_CHANCE = 0.15


def hops_of(value: bytes) -> int:
    """Return how many times a value was made of another one."""
    return int(value.partition(b"|")[0])


class Relay(TransactionalClient):
    """A consumer and producer in one. Its rival runs under the same transactional id. Run :meth:`run` as a task."""

    pause_s = PAUSE_S
    _positions: dict[TopicPartition, int]

    async def _work(self, session: Session, until_s: float) -> bool:
        """See :meth:`TransactionalClient._work`. Nobody else may go on under its id, so it asks where to begin."""
        loop, random, group = self._routes.network.loop, self._random, self._name.group
        consumes = self._name.consumes
        self._positions = await offsets_of(self._routes, self._oracle, group, consumes, stable=True)
        while loop.time() < until_s and group == self._name.group:
            partition = consumes[random.randrange(len(consumes))]
            reading = await self._read(partition)
            if reading is None or reading.position == self._positions[partition]:
                await asyncio.sleep(random.random() * PAUSE_S)
                continue
            if group != self._name.group:
                break
            if not await self._work_off(session, group, partition, reading):
                return False
        return True

    async def _read(self, partition: TopicPartition) -> Read | None:
        follower = self._random.random() < FOLLOWER_CHANCE
        position = self._positions[partition]
        try:
            reading = await read(
                self._routes, self._oracle, partition, position, committed=True, follower=follower
            )
        except OSError:
            await self._routes.lost(partition)
            return None
        if reading is None or len(reading.values) <= RECORDS_MAX:
            return reading
        return Read(reading.values[:RECORDS_MAX], reading.values[RECORDS_MAX][0], reading.data)

    async def _work_off(self, session: Session, group: str, partition: TopicPartition, reading: Read) -> bool:
        """Make outputs of what was read, and commit both. Return False if the process ends in the middle of it.

        :raises EndedError: it was fenced
        """
        random, transaction = self._random, session.begin_transaction()
        how = random.random()
        try:
            await self._produce(session, transaction, partition, reading.values)
            await session.commit_offsets(group, {partition: reading.position})
            if random.random() < LOOK_CHANCE:
                await offsets_of(
                    self._routes, self._oracle, group, self._name.consumes, stable=False, once=True
                )
            if self._rival and random.random() < RIVAL_PAUSE_CHANCE:
                await asyncio.sleep(random.random() * RIVAL_PAUSE_S)
            if how < VANISH_CHANCE:
                return False
        except EndedError as error:
            if error.fenced:
                raise
            how = VANISH_CHANCE
        commit = how >= VANISH_CHANCE + ABORT_CHANCE
        unanswered = session.unanswered
        if not await self._end(session, commit=commit):
            return False
        if commit:
            self._positions[partition] = reading.position
        if session.generation == 1 and (unanswered or session.unanswered or not commit):
            await session.begin(renew=True)
        return True

    async def _produce(
        self,
        session: Session,
        transaction: Transaction,
        partition: TopicPartition,
        values: Values,
    ) -> None:
        by_output: dict[TopicPartition, list[Append]] = {}
        for offset, value in readable(values):
            transaction.reads[value] = None
            hops = hops_of(value)
            if hops >= HOPS_MAX:
                continue
            output = self._partitions[offset % len(self._partitions)]
            made = f"{hops + 1}|{transaction.number}.{partition.topic}-{partition.partition}@{offset}"
            by_output.setdefault(output, []).append(
                Append(
                    partition=output, value=made.encode(), sent_s=session.now_s, source=(partition, offset)
                )
            )
        for output, appends in by_output.items():
            await session.add_partitions([output])
            for append in appends:
                append.sent_s = session.now_s
            await session.produce([session.batch(appends)])


async def offsets_of(
    routes: Routes,
    oracle: TransactionOracle,
    group: str,
    partitions: Sequence[TopicPartition],
    *,
    stable: bool,
    once: bool = False,
) -> dict[TopicPartition, int]:
    """Return a group's committed offsets; 0 for none. An offset that no transaction has committed is a violation.

    :param stable: wait until no transaction has offsets pending
    :param once: give up where there is no answer at once; then offsets are missing. They are missing, too, for a group
        behind an excuse: its offsets may stay pending for ever
    """
    while True:
        try:
            connection = await routes.coordinator(group)
            offsets = await fetch_offsets(connection, group, partitions, stable=stable)
        except OSError:
            offsets = None
        if offsets is not None:
            for partition, offset in offsets.items():
                _check_shown(oracle, group, partition, offset)
            return {partition: max(offset, 0) for partition, offset in offsets.items()}
        if once or group in oracle.spoiled_groups:
            return {}
        await asyncio.sleep(RETRY_S * (0.5 + routes.random.random()))


def _check_shown(oracle: TransactionOracle, group: str, partition: TopicPartition, offset: int) -> None:
    """Check that an offset that is shown was committed, or may have been."""
    if offset < 0 or group in oracle.spoiled_groups:
        return
    for transaction in oracle.transactions:
        if (
            transaction.group == group
            and transaction.offsets.get(partition) == offset
            and transaction.outcome is not Outcome.ABORTED
        ):
            return
    raise ViolationError(
        f"group {group} shows offset {offset} of {partition}, which no transaction has committed"
    )
