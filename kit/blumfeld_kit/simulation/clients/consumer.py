"""A consumer without a group, with fetch sessions. It reads everything in order, and reads on after each restart."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from blumfeld.client.fetch import FetchSession
from blumfeld.spi.storage import TopicPartition
from blumfeld.wire.batches.record_batch import split_batches
from blumfeld.wire.batches.records import records
from blumfeld.wire.errors import CorruptBatch, ErrorCode, is_retriable
from blumfeld.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from blumfeld_kit.simulation.clients.client import ClientConnection, Reach, connect_patiently
from blumfeld_kit.simulation.clients.oracle import Oracle, PartitionLedger, ViolationError

FETCH_VERSION = 12
RETRY_S = 0.2


def values_of(
    data: PartitionData, position: int, ledger: PartitionLedger
) -> Iterator[tuple[int, bytes | None]]:
    """Return (offset, value) of every record from ``position`` on in one partition's part of an answer.

    The value of a record in a batch that is known to be rotten is ``None``: a client would seek over it.

    :raises ViolationError: a batch is damaged in which no bit has flipped
    """
    if not data.records:
        return
    assert isinstance(data.records, memoryview)
    for batch in split_batches(data.records, allow_partial=True):
        try:
            batch.verify_crc()
        except CorruptBatch:
            last_offset = ledger.skip_rotten(batch.base_offset)
            for offset in range(max(batch.base_offset, position), last_offset + 1):
                yield offset, None
            continue
        for record in records(batch):
            if record.offset >= position:
                assert record.value is not None
                yield record.offset, record.value


class Consumer:
    """A consumer. Run :meth:`run` as a task."""

    def __init__(
        self,
        name: str,
        network: Reach,
        address: tuple[str, int],
        oracle: Oracle,
        partitions: list[TopicPartition],
        *,
        max_wait_ms: int,
        max_bytes: int = 4_096,
    ) -> None:
        self.name = name
        self.positions = dict.fromkeys(partitions, 0)
        self._network = network
        self._address = address
        self._oracle = oracle
        self._max_wait_ms = max_wait_ms
        self._max_bytes = max_bytes
        self._session = FetchSession()

    async def run(self, until_s: float) -> None:
        """Read until the end of the run."""
        loop = asyncio.get_running_loop()
        while loop.time() < until_s:
            connection = await connect_patiently(self._network, self._address, self.name)
            self._session.forget()
            try:
                while loop.time() < until_s:
                    if not await self.fetch_once(connection):
                        await asyncio.sleep(RETRY_S)
                connection.close()
            except ConnectionError:
                await asyncio.sleep(RETRY_S)

    async def read_all(self) -> dict[TopicPartition, list[tuple[int, bytes | None]]]:
        """Read every partition from its start to its high watermark, for the last check."""
        connection = await connect_patiently(self._network, self._address, self.name)
        found: dict[TopicPartition, list[tuple[int, bytes | None]]] = {}
        for partition in self.positions:
            read = found[partition] = []
            position, end = 0, 1
            while position < end:
                wanted = FetchPartition(
                    partition=partition.partition, fetch_offset=position, partition_max_bytes=1 << 20
                )
                topic = FetchTopic(topic=partition.topic, partitions=[wanted])
                request = FetchRequest(max_bytes=1 << 20, topics=[topic])
                answer = await connection.ask(request, FETCH_VERSION, FetchResponse)
                data = answer.responses[0].partitions[0]
                if data.error_code:
                    raise ViolationError(f"{partition}@{position}: {ErrorCode(data.error_code).name}")
                end = data.high_watermark
                read += values_of(data, position, self._oracle.partitions[partition])
                position = read[-1][0] + 1 if read else position
        connection.close()
        return found

    async def fetch_once(self, connection: ClientConnection) -> bool:
        """Send one Fetch. Return whether it succeeded. :raises ConnectionError: the connection is lost"""
        answer = await connection.ask(self._request(), FETCH_VERSION, FetchResponse)
        if answer.error_code:  # each connection has a new fetch session, and no other client evicts it
            raise ViolationError(
                f"Fetch in session epoch {self._session.session_epoch}: {ErrorCode(answer.error_code).name}"
            )
        self._session.answered(answer)
        fine = True
        for topic in answer.responses:
            for data in topic.partitions:
                fine &= self._take(TopicPartition(topic.topic, data.partition_index), data)
        return fine

    def _request(self) -> FetchRequest:
        positions = {(at.topic, at.partition): offset for at, offset in self.positions.items()}
        return FetchRequest(
            max_wait_ms=self._max_wait_ms,
            min_bytes=1,
            max_bytes=4 * self._max_bytes,
            session_id=self._session.session_id,
            session_epoch=self._session.session_epoch,
            topics=self._session.wanted(positions, self._max_bytes),
        )

    def _take(self, partition: TopicPartition, data: PartitionData) -> bool:
        code = ErrorCode(data.error_code)
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            self._oracle.out_of_range(partition, self.positions[partition])
            self.positions[partition] = 0
            return False
        if code is not ErrorCode.NONE:
            if not is_retriable(code):
                raise ViolationError(f"{partition}: Fetch was refused with {code.name}")
            return False
        ledger = self._oracle.partitions[partition]
        for offset, value in values_of(data, self.positions[partition], ledger):
            if offset != self.positions[partition]:
                raise ViolationError(f"{partition}: {offset} follows {self.positions[partition] - 1}: a hole")
            if value is not None:
                self._oracle.read(partition, offset, value)
            self.positions[partition] = offset + 1
        return True


async def check_claims(network: Reach, address: tuple[str, int], oracle: Oracle) -> None:
    """Look into the log for each batch whose repetition the broker refused. To be called while the broker is well."""
    claimed = [at for at, ledger in oracle.partitions.items() if ledger.claimed]
    if claimed:
        reader = Consumer("claims", network, address, oracle, claimed, max_wait_ms=0)
        for partition, found in (await reader.read_all()).items():
            oracle.partitions[partition].check_claims(found)
