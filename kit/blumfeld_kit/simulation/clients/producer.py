"""An idempotent producer like those of client libraries: bursts of pipelined batches, retried in order until
acknowledged.
"""

from __future__ import annotations

import asyncio

import msgspec

from blumfeld.client.produce import ProducerIdentity, one_batch, only_outcome
from blumfeld.spi.runtime import Random
from blumfeld.spi.storage import TopicPartition
from blumfeld.wire.batches.builder import build_batch
from blumfeld.wire.batches.records import Record
from blumfeld.wire.errors import ErrorCode, is_retriable
from blumfeld.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from blumfeld.wire.messages.produce import ProduceRequest, ProduceResponse
from blumfeld_kit.fakes.runtime import EPOCH_MS
from blumfeld_kit.simulation.clients.client import ClientConnection, Reach, connect_patiently
from blumfeld_kit.simulation.clients.oracle import Oracle, ViolationError

IN_FLIGHT_MAX = 5
"""``max.in.flight.requests.per.connection`` of an idempotent producer: the broker remembers as many batches."""
PRODUCE_VERSION = 9
INIT_PRODUCER_ID_VERSION = 4
RETRY_S = 0.1

FORGOTTEN = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID)


class Batch(msgspec.Struct):
    """Records of one partition on their way. A retry keeps the sequence."""

    partition: TopicPartition
    base_sequence: int
    values: list[bytes]
    acked: bool = False
    tries: int = 0
    restarts: int = 0
    """The broker's restarts before the first try."""
    is_followed: bool = False
    """A later batch of the burst goes to the same partition."""
    write_failed: bool = False
    """The broker answered once that it could not write the batch."""


class Producer:
    """A producer. Run :meth:`run` as a task."""

    def __init__(
        self,
        name: str,
        network: Reach,
        address: tuple[str, int],
        oracle: Oracle,
        random: Random,
        partitions: list[TopicPartition],
        *,
        pause_s: float,
    ) -> None:
        self.name = name
        self._network = network
        self._address = address
        self._oracle = oracle
        self._random = random
        self._partitions = partitions
        self._pause_s = pause_s
        self._connection: ClientConnection | None = None
        self._identity = ProducerIdentity()
        self._number = 0
        self._power_cuts = 0
        """The broker's power cuts before it gave the id."""

    async def run(self, until_s: float) -> None:
        """Produce until the end of the run, then go on until every record is acknowledged."""
        loop = asyncio.get_running_loop()
        while loop.time() < until_s:
            burst = [self._new_batch() for _ in range(1 + self._random.randrange(IN_FLIGHT_MAX))]
            await self._deliver(burst)
            await asyncio.sleep(self._random.random() * 2 * self._pause_s)
        if self._connection is not None:
            self._connection.close()

    def _new_batch(self) -> Batch:
        partition = self._partitions[self._random.randrange(len(self._partitions))]
        values = []
        for _ in range(1 + self._random.randrange(8)):
            self._number += 1
            filler = self._random.randbytes(self._random.randrange(200)).hex()
            values.append(f"{self.name}#{self._number}#{filler}".encode())
        return self._sequenced(Batch(partition, 0, values))

    def _sequenced(self, batch: Batch) -> Batch:
        batch.base_sequence = self._identity.take(batch.partition, len(batch.values))
        return batch

    async def _deliver(self, burst: list[Batch]) -> None:
        for place, batch in enumerate(burst):
            self._oracle.sent(batch.partition, batch.values)
            batch.restarts = self._oracle.restarts
            batch.is_followed = any(later.partition == batch.partition for later in burst[place + 1 :])
        while not all(batch.acked for batch in burst):
            try:
                connection = await self._connected()
                sent = []
                for batch in burst:
                    batch.tries += 1
                    sent.append((batch, connection.send(self._request(batch), PRODUCE_VERSION)))
                for batch, answer in sent:
                    self._answered(burst, batch, await connection.wait(answer))
            except ConnectionError:
                await asyncio.sleep(RETRY_S)
            burst = [batch for batch in burst if not batch.acked]
            if burst:
                self._oracle.counts.retries += 1
                await asyncio.sleep(RETRY_S)

    async def _connected(self) -> ClientConnection:
        if self._connection is None or not self._connection.is_open:
            self._connection = await connect_patiently(self._network, self._address, self.name)
        while not self._identity.known:
            self._power_cuts = self._oracle.power_cuts
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
            answer = await self._connection.ask(request, INIT_PRODUCER_ID_VERSION, InitProducerIdResponse)
            if answer.error_code and not is_retriable(ErrorCode(answer.error_code)):
                raise ViolationError(f"InitProducerId: {ErrorCode(answer.error_code).name}")
            self._identity.given(answer.producer_id, answer.producer_epoch)
            if not self._identity.known:
                await asyncio.sleep(RETRY_S)
        return self._connection

    def _request(self, batch: Batch) -> ProduceRequest:
        now_ms = EPOCH_MS + int(self._network.loop.time() * 1000)
        records = [Record(key=self.name.encode(), value=value, timestamp=now_ms) for value in batch.values]
        data = build_batch(
            records,
            producer_id=self._identity.producer_id,
            producer_epoch=self._identity.producer_epoch,
            base_sequence=batch.base_sequence,
        )
        return one_batch(batch.partition.topic, batch.partition.partition, data)

    def _answered(self, burst: list[Batch], batch: Batch, answer: object) -> None:
        assert isinstance(answer, ProduceResponse)
        if batch.acked:  # given up with the producer id, by the answer to a batch before it
            return
        outcome = only_outcome(answer)
        code = ErrorCode(outcome.error_code)
        if code is ErrorCode.NONE:
            batch.acked = True
            self._oracle.acked(batch.partition, outcome.base_offset, batch.values)
        elif code in FORGOTTEN:
            self._forgotten(burst, batch)
        elif code is ErrorCode.KAFKA_STORAGE_ERROR:
            batch.write_failed = True
        elif not is_retriable(code):
            raise ViolationError(f"{batch.partition}: a correct batch was refused with {code.name}")

    def _forgotten(self, burst: list[Batch], batch: Batch) -> None:
        """Handle a broker that doesn't know the batches before: an earlier batch of the burst failed, or the broker
        lost it.
        """
        for earlier in burst:
            if earlier is batch:
                break
            if earlier.partition == batch.partition and not earlier.acked:
                return
        # The very first batch failed, and the next was accepted: an unknown producer may begin with any sequence.
        began_later = batch.base_sequence == 0 and batch.write_failed and batch.is_followed
        # A snapshot of producers has only the last batch of each, as in Kafka: after a restart the repetition of an
        # earlier one is refused although it was written. So it must be in the log.
        behind = burst[burst.index(batch) + 1 :]
        is_repeated = batch.tries > 1 and any(
            later.partition == batch.partition and later.tries > 1 for later in behind
        )
        oracle = self._oracle
        if is_repeated and oracle.restarts > batch.restarts:
            if not began_later:
                oracle.repetition_refused(batch.partition, batch.values, power_cuts=self._power_cuts)
        elif not began_later:
            oracle.sequence_refused(batch.partition, power_cuts=self._power_cuts)
        for given_up in burst:  # after a new producer id, batches under way are never sent again
            given_up.acked = True
        self._identity.forget()
