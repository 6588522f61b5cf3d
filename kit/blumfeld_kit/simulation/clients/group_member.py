"""A member of a classic consumer group: it joins, reads its partitions, commits, leaves, and comes back."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from blumfeld.client.classic_group import NO_MEMBER_ID, RANGE, Membership, Next, partitions_of
from blumfeld.client.fetch import Place
from blumfeld.spi.storage import TopicPartition
from blumfeld.wire.errors import ErrorCode, is_retriable
from blumfeld.wire.messages.heartbeat import HeartbeatResponse
from blumfeld.wire.messages.join_group import JoinGroupResponse
from blumfeld.wire.messages.leave_group import LeaveGroupResponse
from blumfeld.wire.messages.sync_group import SyncGroupResponse
from blumfeld_kit.simulation.clients.client import ClientConnection
from blumfeld_kit.simulation.clients.consumer import Consumer
from blumfeld_kit.simulation.clients.offsets import commit_offsets, fetch_offsets
from blumfeld_kit.simulation.clients.oracle import Oracle, ViolationError
from blumfeld_kit.simulation.clients.routes import Routes

SESSION_TIMEOUT_MS = 10_000
REBALANCE_TIMEOUT_MS = 20_000
RETRY_S = 0.3
OLDEST_VERSION = 0
"""The oldest version of subscriptions and assignments. A leader must read it too."""


class RejoinError(Exception):
    """The generation is over, and the member joins again."""


class GroupMember:
    """A group member. Run :meth:`run` as a task."""

    def __init__(
        self,
        routes: Routes,
        oracle: Oracle,
        partitions: Sequence[TopicPartition],
        group: str,
        pause_s: float,
    ) -> None:
        self._routes = routes
        self._oracle = oracle
        self._partitions = partitions
        self._group = group
        self._pause_s = pause_s
        self._random = routes.random
        self._membership = Membership(
            group_id=group,
            protocol=RANGE,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            version=OLDEST_VERSION,
        )

    async def run(self, until_s: float) -> None:
        """Be a member until the end of the run, with pauses in which it has left or falls silent."""
        loop = self._routes.network.loop
        while loop.time() < until_s:
            try:
                connection = await self._routes.coordinator(self._group)
                stays_s = (0.5 + self._random.random()) * 40 * self._pause_s
                await self._be_member(connection, min(until_s, loop.time() + stays_s))
                await self._go_away(connection)
            except (OSError, RejoinError):
                pass
            self._routes.close()
            await asyncio.sleep(RETRY_S + self._random.random() * self._pause_s)

    def _check(self, what: str, code: int) -> None:
        """Check an error code.

        :raises RejoinError: the member must join again
        :raises ViolationError: a correct member never gets this error
        """
        after = self._membership.heard(code)
        if after is Next.FAIL and not is_retriable(code):
            raise ViolationError(f"{what} of group {self._group} was refused with {ErrorCode(code).name}")
        if after is not Next.GO_ON:
            raise RejoinError

    async def _be_member(self, connection: ClientConnection, until_s: float) -> None:
        while self._routes.network.loop.time() < until_s:
            try:
                assigned = await self._join(connection)
                await self._read(connection, assigned, until_s)
            except RejoinError:
                await asyncio.sleep(RETRY_S)
                connection = await self._routes.coordinator(self._group)

    async def _join(self, connection: ClientConnection) -> list[TopicPartition]:
        topics = sorted({partition.topic for partition in self._partitions})
        code: int = ErrorCode.MEMBER_ID_REQUIRED
        while code == ErrorCode.MEMBER_ID_REQUIRED:
            answer = await connection.ask(self._membership.join(topics), 5, JoinGroupResponse)
            code = answer.error_code
            if code in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
                self._membership.member_id = answer.member_id
        self._check("JoinGroup", code)
        self._membership.generation = answer.generation_id
        self._oracle.counts["rebalances"] += 1
        return await self._sync(connection, [member.member_id for member in answer.members])

    async def _sync(self, connection: ClientConnection, members: list[str]) -> list[TopicPartition]:
        shares: dict[str, list[Place]] = {member: [] for member in members}
        for nth, at in enumerate(self._partitions if members else ()):
            shares[members[nth % len(members)]].append((at.topic, at.partition))
        answer = await connection.ask(self._membership.sync(shares), 3, SyncGroupResponse)
        self._check("SyncGroup", answer.error_code)
        return [TopicPartition(topic, index) for topic, index in partitions_of(bytes(answer.assignment))]

    async def _read(
        self, connection: ClientConnection, assigned: list[TopicPartition], until_s: float
    ) -> None:
        consumer = Consumer(self._routes, self._oracle, assigned, max_wait_ms=200)
        consumer.positions.update(await self._committed(connection, assigned))
        while self._routes.network.loop.time() < until_s:
            before = dict(consumer.positions)
            if assigned:
                await consumer.fetch_once(connection)
            if consumer.positions != before:
                await self._commit(connection, consumer.positions)
            else:
                await self._beat(connection)
            await asyncio.sleep(self._random.random() * self._pause_s)

    async def _committed(
        self, connection: ClientConnection, assigned: list[TopicPartition]
    ) -> dict[TopicPartition, int]:
        offsets = await fetch_offsets(connection, self._group, assigned) if assigned else {}
        if offsets is None:
            raise RejoinError
        for at, offset in offsets.items():
            self._oracle.offsets_fetched(self._group, at, offset)
        return {at: max(offset, 0) for at, offset in offsets.items()}

    async def _commit(self, connection: ClientConnection, positions: dict[TopicPartition, int]) -> None:
        outcomes = await commit_offsets(connection, self._group, positions, self._membership)
        for at, code in outcomes.items():
            self._check("OffsetCommit", code)
            self._oracle.offsets_committed(self._group, at, positions[at])

    async def _beat(self, connection: ClientConnection) -> None:
        answer = await connection.ask(self._membership.heartbeat(), 3, HeartbeatResponse)
        self._check("Heartbeat", answer.error_code)

    async def _go_away(self, connection: ClientConnection) -> None:
        """Leave the group, or fall silent so that the session times out."""
        if self._random.random() < 0.5:
            await connection.ask(self._membership.leave(), 3, LeaveGroupResponse)
        else:
            await asyncio.sleep(2 * SESSION_TIMEOUT_MS / 1000)
        self._membership.member_id = NO_MEMBER_ID
