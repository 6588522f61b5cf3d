"""An idempotent producer with acks=all: bursts of pipelined batches to one leader, retried in order."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from blumfeld.client.produce import ProducerIdentity, one_batch, only_outcome
from blumfeld.spi.storage import TopicPartition
from blumfeld.wire.batches.builder import build_batch
from blumfeld.wire.batches.records import Record
from blumfeld.wire.errors import ErrorCode, is_retriable
from blumfeld.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from blumfeld.wire.messages.produce import ProduceResponse
from blumfeld_kit.fakes.runtime import EPOCH_MS
from blumfeld_kit.simulation.clients.oracle import ViolationError
from blumfeld_kit.simulation.cluster.ledger import ClusterLedger
from blumfeld_kit.simulation.cluster.routes import RETRY_S, Routes

IN_FLIGHT_MAX = 5
PRODUCE_VERSION = 9
INIT_PRODUCER_ID_VERSION = 4
TIMEOUT_MS = 5_000
MORE_THAN_ANY_SEQUENCE = 1 << 31
FORGOTTEN = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID)


class Batch(msgspec.Struct):
    """Records on their way. A retry keeps the sequence."""

    base_sequence: int
    values: list[bytes]
    acked: bool = False
    tries: int = 0
    refused: ErrorCode = ErrorCode.NONE
    """The answer to the newest try, unless it was acknowledged."""
    sent_s: float = 0.0
    """Virtual time of the newest try."""


class ClusterProducer:
    """A producer. Run :meth:`run` as a task."""

    def __init__(
        self, routes: Routes, ledger: ClusterLedger, partitions: Sequence[TopicPartition], pause_s: float
    ) -> None:
        self._routes = routes
        self._ledger = ledger
        self._partitions = partitions
        self._pause_s = pause_s
        self._identity = ProducerIdentity()
        self._ids = 0
        self._known_s = 0.0
        """Virtual time at which the newest producer id was asked for."""
        self._first_acked: dict[TopicPartition, int] = {}
        """Lowest sequence that was acknowledged with this producer id."""
        self._number = 0

    async def run(self, until_s: float) -> None:
        """Produce until then, and go on until every record is settled."""
        loop, random = self._routes.network.loop, self._routes.random
        while loop.time() < until_s:
            partition = self._partitions[random.randrange(len(self._partitions))]
            await self.deliver(partition, 1 + random.randrange(IN_FLIGHT_MAX))
            await asyncio.sleep(random.random() * 2 * self._pause_s)
        self._routes.close()

    async def deliver(self, partition: TopicPartition, batches: int) -> None:
        """Send a burst of batches to one partition, until each is acknowledged or given up."""
        while not self._identity.known:
            await self._ask_id()
        burst = [self._new_batch(partition) for _ in range(batches)]
        for batch in burst:
            self._ledger.sent(partition, batch.values)
        while burst:
            try:
                await self._try(partition, burst)
            except OSError:
                await self._routes.lost(partition)
            burst = [batch for batch in burst if not batch.acked]
            self._ledger.counts["retries"] += len(burst)

    def _new_batch(self, partition: TopicPartition) -> Batch:
        random, values = self._routes.random, []
        for _ in range(1 + random.randrange(8)):
            self._number += 1
            filler = random.randbytes(random.randrange(200)).hex()
            values.append(f"{self._routes.name}.{self._ids}#{self._number}#{filler}".encode())
        return Batch(self._identity.take(partition, len(values)), values)

    async def _ask_id(self) -> None:
        self._known_s = self._routes.network.loop.time()
        try:
            connection = await self._routes.any_broker()
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
            answer = await connection.ask(request, INIT_PRODUCER_ID_VERSION, InitProducerIdResponse)
        except OSError:
            await asyncio.sleep(RETRY_S)
            return
        if answer.error_code:
            if not is_retriable(answer.error_code):
                raise ViolationError(f"InitProducerId: {ErrorCode(answer.error_code).name}")
            await asyncio.sleep(RETRY_S)
            return
        self._identity.given(answer.producer_id, answer.producer_epoch)
        self._first_acked.clear()
        self._ids += 1

    async def _try(self, partition: TopicPartition, burst: list[Batch]) -> None:
        connection = await self._routes.leader(partition)
        now_s, answers = self._routes.network.loop.time(), []
        for batch in burst:
            batch.tries += 1
            batch.refused = ErrorCode.NONE
            batch.sent_s = now_s
            data = build_batch(
                [Record(value=value, timestamp=EPOCH_MS + int(now_s * 1000)) for value in batch.values],
                producer_id=self._identity.producer_id,
                producer_epoch=self._identity.producer_epoch,
                base_sequence=batch.base_sequence,
            )
            request = one_batch(partition.topic, partition.partition, data, timeout_ms=TIMEOUT_MS)
            answers.append((batch, connection.send(request, PRODUCE_VERSION)))
        for batch, answer in answers:
            self._answered(partition, burst, batch, await connection.wait(answer))
        if not all(batch.acked for batch in burst):
            await self._routes.lost(partition)

    def _answered(self, partition: TopicPartition, burst: list[Batch], batch: Batch, answer: object) -> None:
        assert isinstance(answer, ProduceResponse)
        if batch.acked:  # given up with the producer id, by the answer to a batch before it
            return
        outcome = only_outcome(answer)
        batch.refused = code = ErrorCode(outcome.error_code)
        if code is ErrorCode.NONE:
            batch.acked = True
            first = self._first_acked.get(partition, batch.base_sequence)
            self._first_acked[partition] = min(first, batch.base_sequence)
            self._ledger.acked(partition, outcome.base_offset, batch.values, batch.sent_s)
        elif code in FORGOTTEN:
            self._forgotten(partition, burst, batch)
        elif not is_retriable(code):
            raise ViolationError(f"{partition}: a correct batch was refused with {code.name}")

    def _forgotten(self, partition: TopicPartition, burst: list[Batch], batch: Batch) -> None:
        """Judge the refusal of a batch that doesn't follow what the leader knows of the producer."""
        earlier = next((earlier for earlier in burst[: burst.index(batch)] if not earlier.acked), None)
        if earlier is not None:  # it comes again first
            if earlier.refused not in FORGOTTEN:
                # librdkafka begins a producer epoch, and sends again what is open in other partitions.
                raise ViolationError(
                    f"{partition}: {batch.refused.name} to a batch behind one that is to come again "
                    f"({earlier.refused.name})"
                )
            return
        ledger = self._ledger.partitions[partition]
        # A producer that a partition doesn't know may begin with any sequence, as in Kafka. So once the first batches
        # failed and a later one was taken, the first ones are refused for ever.
        began_later = batch.base_sequence < self._first_acked.get(partition, MORE_THAN_ANY_SEQUENCE)
        if batch.tries > 1:
            # Snapshots of producers have the last batch only, as in Kafka. So the repetition of an earlier one may be
            # refused; the refusal says that the log has it.
            if not began_later:
                ledger.claimed.update(dict.fromkeys(batch.values))
        elif not began_later and ledger.excused_s <= self._known_s:
            raise ViolationError(f"{partition}: a leader forgot a producer whose batches were acknowledged")
        for given_up in burst:
            given_up.acked = True
        self._identity.forget()
        self._ledger.counts["ids given up"] += 1
