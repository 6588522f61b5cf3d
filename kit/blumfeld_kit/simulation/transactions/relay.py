"""A client that consumes, transforms and produces: its outputs and its offsets are one transaction (KIP-447)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from blumfeld.spi.storage import TopicPartition
from blumfeld.wire.errors import ErrorCode, is_retriable
from blumfeld.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from blumfeld.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from blumfeld_kit.simulation.clients.oracle import ViolationError
from blumfeld_kit.simulation.cluster.routes import RETRY_S, Routes
from blumfeld_kit.simulation.transactions.histories import Append, Outcome, Transaction
from blumfeld_kit.simulation.transactions.ledger import Fate, Name, TransactionLedger
from blumfeld_kit.simulation.transactions.producer import TIMEOUTS_MS, linger
from blumfeld_kit.simulation.transactions.reading import Read, read
from blumfeld_kit.simulation.transactions.session import EndedError, Session

OFFSET_FETCH_VERSION = 7
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
RIVAL_PAUSE_S = 8.0


def hops_of(value: bytes) -> int:
    """Return how many times a value was made of another one."""
    return int(value.partition(b"|")[0])


class Relay:
    """A consumer and producer in one. Its rival runs under the same transactional id. Run :meth:`run` as a task."""

    def __init__(
        self,
        routes: Routes,
        ledger: TransactionLedger,
        name: Name,
        outputs: Sequence[TopicPartition],
        *,
        rival: bool = False,
    ) -> None:
        self._routes = routes
        self._ledger = ledger
        self._name = name
        self._outputs = outputs
        self._rival = rival
        self._random = routes.random
        self._positions: dict[TopicPartition, int] = {}
        self._fate = Fate.GOES_ON

    async def run(self, until_s: float) -> None:
        """Work until then."""
        loop = self._routes.network.loop
        while loop.time() < until_s:
            try:
                await self._live(until_s)
            except EndedError:
                await asyncio.sleep(self._random.random() * (RIVAL_PAUSE_S if self._rival else PAUSE_S))
        self._routes.close()

    async def _live(self, until_s: float) -> None:
        """Be one process. First nobody else may go on under its id, then it asks where to begin.

        :raises EndedError: it was fenced
        """
        loop, random = self._routes.network.loop, self._random
        timeout_ms = TIMEOUTS_MS[random.randrange(len(TIMEOUTS_MS))]
        generation = 1 + random.randrange(self._ledger.generation_max)
        group = self._name.group
        session = Session(self._routes, self._ledger, self._name.id, generation, timeout_ms)
        await session.begin()
        self._positions = await offsets_of(
            self._routes, self._ledger, group, self._name.consumes, stable=True
        )
        while loop.time() < until_s and group == self._name.group:
            partition = self._name.consumes[random.randrange(len(self._name.consumes))]
            found = await self._read(partition)
            if found is None or found.position == self._positions[partition]:
                await asyncio.sleep(random.random() * PAUSE_S)
                continue
            if group != self._name.group:
                return
            if not await self._work_off(session, group, partition, found):
                await asyncio.sleep(random.random() * 1.5 * timeout_ms / 1_000)
                return

    async def _read(self, partition: TopicPartition) -> Read | None:
        follower = self._random.random() < FOLLOWER_CHANCE
        position = self._positions[partition]
        try:
            found = await read(
                self._routes, self._ledger, partition, position, committed=True, follower=follower
            )
        except OSError:
            await self._routes.lost(partition)
            return None
        if found is None or len(found.values) <= RECORDS_MAX:
            return found
        return Read(found.values[:RECORDS_MAX], found.values[RECORDS_MAX][0], found.data)

    async def _work_off(self, session: Session, group: str, partition: TopicPartition, found: Read) -> bool:
        """Make outputs of what was read, and commit both. Return False if the process ends in the middle of it.

        :raises EndedError: it was fenced
        """
        random, transaction = self._random, session.begin_transaction()
        how = random.random()
        try:
            await self._produce(session, transaction, partition, found.values)
            await session.commit_offsets(group, {partition: found.position})
            if random.random() < LOOK_CHANCE:
                await offsets_of(
                    self._routes, self._ledger, group, self._name.consumes, stable=False, once=True
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
        if self._fate is Fate.LINGERS:
            await linger(session, self._ledger)
        self._fate = await session.end(commit=commit, may_die=commit)
        if self._fate is Fate.DIES:
            return False
        if commit:
            self._positions[partition] = found.position
        if session.generation == 1 and (unanswered or session.unanswered or not commit):
            await session.begin(renew=True)
        return True

    async def _produce(
        self,
        session: Session,
        transaction: Transaction,
        partition: TopicPartition,
        values: Sequence[tuple[int, bytes]],
    ) -> None:
        by_output: dict[TopicPartition, list[Append]] = {}
        for offset, value in values:
            transaction.reads[value] = None
            hops = hops_of(value)
            if hops >= HOPS_MAX:
                continue
            output = self._outputs[offset % len(self._outputs)]
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
    ledger: TransactionLedger,
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
            found = await _offsets_once(routes, group, partitions, stable)
        except OSError:
            found = None
        if found is not None:
            for partition, offset in found.items():
                _check_shown(ledger, group, partition, offset)
            return {partition: max(offset, 0) for partition, offset in found.items()}
        if once or group in ledger.spoiled_groups:
            return {}
        await asyncio.sleep(RETRY_S * (0.5 + routes.random.random()))


async def _offsets_once(
    routes: Routes, group: str, partitions: Sequence[TopicPartition], stable: bool
) -> dict[TopicPartition, int] | None:
    broker = await routes.any_broker()
    where = await broker.ask(FindCoordinatorRequest(key=group), 3, FindCoordinatorResponse)
    if where.error_code:
        return None
    connection = await routes.connection((where.host, where.port))
    topics: dict[str, list[int]] = {}
    for partition in partitions:
        topics.setdefault(partition.topic, []).append(partition.partition)
    request = OffsetFetchRequest(
        group_id=group,
        require_stable=stable,
        topics=[OffsetFetchRequestTopic(name=name, partition_indexes=each) for name, each in topics.items()],
    )
    answer = await connection.ask(request, OFFSET_FETCH_VERSION, OffsetFetchResponse)
    codes = [answer.error_code, *(one.error_code for topic in answer.topics for one in topic.partitions)]
    for code in map(ErrorCode, codes):
        if code is not ErrorCode.NONE:
            if not is_retriable(code):
                raise ViolationError(f"OffsetFetch of {group}: {code.name}")
            return None
    return {
        TopicPartition(topic.name, one.partition_index): one.committed_offset
        for topic in answer.topics
        for one in topic.partitions
    }


def _check_shown(ledger: TransactionLedger, group: str, partition: TopicPartition, offset: int) -> None:
    """Check that an offset that is shown was committed, or may have been."""
    if offset < 0 or group in ledger.spoiled_groups:
        return
    for transaction in ledger.transactions:
        if (
            transaction.group == group
            and transaction.offsets.get(partition) == offset
            and transaction.outcome is not Outcome.ABORTED
        ):
            return
    raise ViolationError(
        f"group {group} shows offset {offset} of {partition}, which no transaction has committed"
    )
