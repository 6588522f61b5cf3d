"""A consumer without a group, with fetch sessions. It reads everything in order, and reads on after each restart."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from blumfeld.client.fetch import FetchSession
from blumfeld.spi.storage import TopicPartition
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.fetch import FetchRequest, FetchResponse
from blumfeld_kit.simulation.clients.client import ClientConnection
from blumfeld_kit.simulation.clients.oracle import Oracle, ViolationError
from blumfeld_kit.simulation.clients.reads import FETCH_VERSION, judged
from blumfeld_kit.simulation.clients.routes import RETRY_S, Routes

BYTES_MAX = 4_096


class Consumer:
    """A consumer of one broker. Run :meth:`run` as a task."""

    def __init__(
        self, routes: Routes, oracle: Oracle, partitions: Sequence[TopicPartition], max_wait_ms: int
    ) -> None:
        self.positions = dict.fromkeys(partitions, 0)
        self._routes = routes
        self._oracle = oracle
        self._max_wait_ms = max_wait_ms
        self._session = FetchSession()

    async def run(self, until_s: float) -> None:
        """Read until the end of the run."""
        loop = self._routes.network.loop
        while loop.time() < until_s:
            try:
                connection = await self._routes.any_broker()
                self._session.forget()
                while loop.time() < until_s:
                    if not await self.fetch_once(connection):
                        await asyncio.sleep(RETRY_S)
            except OSError:
                await asyncio.sleep(RETRY_S)
        self._routes.close()

    async def fetch_once(self, connection: ClientConnection) -> bool:
        """Send one Fetch. Return whether it succeeded. :raises ConnectionError: the connection is lost"""
        oracle = self._oracle
        promised = {at: oracle.partitions[at].is_promised(to) for at, to in self.positions.items()}
        answer = await connection.ask(self._request(), FETCH_VERSION, FetchResponse)
        if answer.error_code:  # each connection has a new fetch session, and no other client evicts it
            raise ViolationError(
                f"Fetch in session epoch {self._session.session_epoch}: {ErrorCode(answer.error_code).name}"
            )
        self._session.answered(answer)
        fine = True
        for topic in answer.responses:
            for data in topic.partitions:
                at = TopicPartition(topic.topic, data.partition_index)
                position = self.positions[at]
                reading = judged(oracle, at, position, data, promised=promised[at])
                fine &= reading is not None and not data.error_code
                if reading is not None:
                    reading.check_whole(at, position)
                    self.positions[at] = reading.position
        return fine

    def _request(self) -> FetchRequest:
        positions = {(at.topic, at.partition): offset for at, offset in self.positions.items()}
        return FetchRequest(
            max_wait_ms=self._max_wait_ms,
            min_bytes=1,
            max_bytes=4 * BYTES_MAX,
            session_id=self._session.session_id,
            session_epoch=self._session.session_epoch,
            topics=self._session.wanted(positions, BYTES_MAX),
        )
