"""An idempotent producer with acks=all, as client libraries have it: bursts of pipelined batches, retried in order."""

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
from blumfeld_kit.simulation.clients.oracle import Oracle, ViolationError
from blumfeld_kit.simulation.clients.routes import RETRY_S, Routes

IN_FLIGHT_MAX = 5
"""``max.in.flight.requests.per.connection`` of an idempotent producer: a broker remembers as many batches."""
PRODUCE_VERSION = 9
INIT_PRODUCER_ID_VERSION = 4
TIMEOUT_MS = 5_000
FORGOTTEN = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID)


class Batch(msgspec.Struct):
    """Records on their way. A retry keeps the sequence."""

    partition: TopicPartition
    base_sequence: int
    values: list[bytes]
    acked: bool = False
    tries: int = 0
    refused: ErrorCode = ErrorCode.NONE
    """The answer to the newest try, unless it was acknowledged."""
    sent_s: float = 0.0
    """Virtual time of the newest try."""
    first_sent_s: float = 0.0
    is_followed: bool = False
    """A later batch of the burst goes to the same partition."""


class Producer:
    """A producer. Run :meth:`run` as a task.

    :param spread: each batch of a burst goes to a partition of its own. Otherwise all go to one
    """

    def __init__(
        self,
        routes: Routes,
        oracle: Oracle,
        partitions: Sequence[TopicPartition],
        pause_s: float,
        *,
        spread: bool = False,
    ) -> None:
        self._routes = routes
        self._oracle = oracle
        self._partitions = partitions
        self._pause_s = pause_s
        self._spread = spread
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
            partition = self._any_partition()
            batches = 1 + random.randrange(IN_FLIGHT_MAX)
            more = [self._any_partition() if self._spread else partition for _ in range(batches - 1)]
            await self.deliver(partition, *more)
            await asyncio.sleep(random.random() * 2 * self._pause_s)
        self._routes.close()

    def _any_partition(self) -> TopicPartition:
        return self._partitions[self._routes.random.randrange(len(self._partitions))]

    async def deliver(self, *partitions: TopicPartition) -> None:
        """Send a burst, one batch to each of these partitions, until each is acknowledged or given up."""
        while not self._identity.known:
            await self._ask_id()
        burst = [self._new_batch(partition) for partition in partitions]
        for nth, batch in enumerate(burst):
            batch.is_followed = batch.partition in partitions[nth + 1 :]
            self._oracle.sent(batch.partition, batch.values)
        while burst:
            try:
                await self._try(burst)
            except OSError:
                await self._routes.lost(burst[0].partition)
            burst = [batch for batch in burst if not batch.acked]
            self._oracle.counts["retries"] += len(burst)

    def _new_batch(self, partition: TopicPartition) -> Batch:
        random, values = self._routes.random, []
        for _ in range(1 + random.randrange(8)):
            self._number += 1
            filler = random.randbytes(random.randrange(200)).hex()
            values.append(f"{self._routes.name}.{self._ids}#{self._number}#{filler}".encode())
        sequence = self._identity.take(partition, len(values))
        return Batch(partition, sequence, values, first_sent_s=self._routes.network.loop.time())

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

    async def _try(self, burst: list[Batch]) -> None:
        answers, now_s = [], self._routes.network.loop.time()
        for batch in burst:
            connection = await self._routes.leader(batch.partition)
            batch.tries += 1
            batch.refused = ErrorCode.NONE
            batch.sent_s = now_s
            data = build_batch(
                [Record(value=value, timestamp=EPOCH_MS + int(now_s * 1000)) for value in batch.values],
                producer_id=self._identity.producer_id,
                producer_epoch=self._identity.producer_epoch,
                base_sequence=batch.base_sequence,
            )
            at = batch.partition
            request = one_batch(at.topic, at.partition, data, timeout_ms=TIMEOUT_MS)
            answers.append((batch, connection, connection.send(request, PRODUCE_VERSION)))
        for batch, connection, answer in answers:
            self._answered(burst, batch, await connection.wait(answer))
        if not all(batch.acked for batch in burst):
            await self._routes.lost(burst[0].partition)

    def _answered(self, burst: list[Batch], batch: Batch, answer: object) -> None:
        assert isinstance(answer, ProduceResponse)
        if batch.acked:  # given up with the producer id, by the answer to a batch before it
            return
        outcome = only_outcome(answer)
        batch.refused = code = ErrorCode(outcome.error_code)
        if code is ErrorCode.NONE:
            batch.acked = True
            first = self._first_acked.get(batch.partition, batch.base_sequence)
            self._first_acked[batch.partition] = min(first, batch.base_sequence)
            self._oracle.acked(batch.partition, outcome.base_offset, batch.values, batch.sent_s)
        elif code in FORGOTTEN:
            self._forgotten(burst, batch)
        elif not is_retriable(code):
            raise ViolationError(f"{batch.partition}: a correct batch was refused with {code.name}")

    def _forgotten(self, burst: list[Batch], batch: Batch) -> None:
        """Judge the refusal of a batch that doesn't follow what the leader knows of the producer."""
        others = [entry for entry in burst if entry.partition == batch.partition]
        place = others.index(batch)
        earlier = next((entry for entry in others[:place] if not entry.acked), None)
        if earlier is not None:  # it comes again first
            if earlier.refused not in FORGOTTEN and earlier.refused is not ErrorCode.KAFKA_STORAGE_ERROR:
                # librdkafka begins a producer epoch, and sends again what is open in other partitions.
                raise ViolationError(
                    f"{batch.partition}: {batch.refused.name} to a batch behind one that is to come again "
                    f"({earlier.refused.name})"
                )
            return
        oracle = self._oracle
        if not self._began_later(batch):
            # Snapshots of producers have the last batch only, as in Kafka. So the repetition of an earlier one may be
            # refused; the refusal says that the log has it.
            is_repeated = batch.tries > 1 and any(later.tries > 1 for later in others[place + 1 :])
            if is_repeated and oracle.restarted_s > batch.first_sent_s:
                oracle.partitions[batch.partition].repetition_refused(batch.values, self._known_s)
            else:
                oracle.partitions[batch.partition].sequence_refused(self._known_s)
        for given_up in burst:  # after a new producer id, batches under way are never sent again
            given_up.acked = True
        self._identity.forget()
        oracle.counts["ids given up"] += 1

    def _began_later(self, batch: Batch) -> bool:
        """Whether the partition may have begun the producer with a later batch.

        A producer that a partition doesn't know may begin with any sequence, as in Kafka. So once the first batches
        failed and a later one was taken, the first ones are refused for ever.
        """
        first = self._first_acked.get(batch.partition)
        if first is not None:
            return batch.base_sequence < first
        return batch.is_followed and batch.tries > 1
