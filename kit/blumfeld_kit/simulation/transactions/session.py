"""One process under a transactional id, by the real protocol of either generation: what a client library would send."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import msgspec

from blumfeld.client.produce import ProducerIdentity, one_batch, only_outcome
from blumfeld.spi.storage import TopicPartition
from blumfeld.wire.batches.builder import build_batch
from blumfeld.wire.batches.records import Record
from blumfeld.wire.errors import ErrorCode, is_retriable
from blumfeld.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from blumfeld.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from blumfeld.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from blumfeld.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from blumfeld.wire.messages.produce import ProduceResponse
from blumfeld.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from blumfeld.wire.schema import Message
from blumfeld_kit.fakes.runtime import EPOCH_MS
from blumfeld_kit.simulation.clients.client import ClientConnection
from blumfeld_kit.simulation.clients.oracle import ViolationError
from blumfeld_kit.simulation.clients.routes import RETRY_S, Routes
from blumfeld_kit.simulation.transactions.histories import Append, Incarnation, Outcome, Transaction
from blumfeld_kit.simulation.transactions.oracle import Fate, TransactionOracle

R = TypeVar("R", bound=Message)

GROUP, TRANSACTION = 0, 1
"""Types of coordinators."""
INIT_VERSION = 4
ADD_PARTITIONS_VERSION = 3
ADD_OFFSETS_VERSION = 3
PRODUCE_VERSIONS = {1: 11, 2: 12}
END_VERSIONS = {1: 4, 2: 5}
OFFSETS_VERSIONS = {1: 3, 2: 5}
PRODUCE_TIMEOUT_MS = 5_000
CONCURRENT_S = 0.05
FENCED = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
ABORTABLE = (
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.TRANSACTION_ABORTABLE,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
)


class EndedError(Exception):
    """The broker refuses to go on with the transaction."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(code.name)
        self.fenced = code in FENCED
        """Whether the process must begin anew. Otherwise an abort is enough."""


class Batch(msgspec.Struct):
    """Values on their way to one partition. A retry keeps the sequence."""

    base_sequence: int
    appends: list[Append]
    acked: bool = False
    tries: int = 0


class Session:
    """One incarnation of a transactional id. :meth:`begin` must have returned before anything else is called."""

    def __init__(
        self,
        routes: Routes,
        oracle: TransactionOracle,
        transactional_id: str,
        generation: int,
        timeout_ms: int,
    ) -> None:
        self.transactional_id = transactional_id
        self.generation = generation
        self.incarnation: Incarnation
        self.unanswered = 0
        """Requests of this transaction whose answer never came. One may still arrive at a broker."""
        self._routes = routes
        self._oracle = oracle
        self.timeout_ms = timeout_ms
        self._identity = ProducerIdentity()
        self._coordinators: dict[tuple[int, str], ClientConnection] = {}
        self._added: dict[TopicPartition, None] = {}
        self._transaction: Transaction

    @property
    def now_s(self) -> float:
        """Virtual time."""
        return self._routes.network.loop.time()

    @property
    def producer_id(self) -> int:
        """The producer id, once :meth:`begin` has returned."""
        return self._identity.producer_id

    # The coordinator

    async def _coordinator(self, kind: int, key: str) -> ClientConnection:
        connection = self._coordinators.get((kind, key))
        if connection is None or not connection.is_open:
            connection = self._coordinators[kind, key] = await self._routes.coordinator(key, kind)
        return connection

    async def _ask(
        self,
        coordinator: tuple[int, str],
        request: Message,
        version: int,
        expected: type[R],
        code_of: Callable[[R], int],
        retried: Callable[[bool], None] = lambda answered: None,
    ) -> tuple[R, ErrorCode]:
        """Send a request until it has an answer that another try would not change.

        :param retried: told before each further try whether the last one had an answer
        :raises EndedError: the transactional id is given up, behind an excuse
        """
        while True:
            self._give_up_behind_an_excuse()
            try:
                connection = await self._coordinator(*coordinator)
            except OSError:
                await asyncio.sleep(RETRY_S)
                continue
            try:
                self.unanswered += 1
                answer = await connection.ask(request, version, expected)
                self.unanswered -= 1
            except OSError:
                retried(False)
                self._coordinators.pop(coordinator, None)
                await asyncio.sleep(RETRY_S * self._routes.random.random())
                continue
            code = ErrorCode(code_of(answer))
            if code is ErrorCode.NONE or not is_retriable(code):
                return answer, code
            retried(True)
            if code is ErrorCode.CONCURRENT_TRANSACTIONS:
                await asyncio.sleep(CONCURRENT_S * (0.5 + self._routes.random.random()))
            else:
                self._coordinators.pop(coordinator, None)
                await asyncio.sleep(RETRY_S)

    def _give_up_behind_an_excuse(self) -> None:
        """Raise the error of a process whose coordinator may have lost what it knew.

        What it lost may come back as a transaction that it can't end: a partition that knows a later epoch refuses the
        marker. Every request of this transactional id is then refused as concurrent, for ever, as in Kafka.

        :raises EndedError: the transactional id is given up
        """
        if self.incarnation.excused:
            raise EndedError(ErrorCode.PRODUCER_FENCED)

    # The process

    async def begin(self, *, renew: bool = False) -> None:
        """Get an epoch. Every earlier process under this id is fenced afterwards.

        :param renew: this very process asks for a further epoch (KIP-360)
        :raises EndedError: it was fenced itself
        """
        if not renew:
            self.incarnation = self._oracle.incarnation(self.transactional_id, self.now_s)
        known = self._identity
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self.timeout_ms,
            producer_id=known.producer_id if renew else -1,
            producer_epoch=known.producer_epoch if renew else -1,
        )
        answer, code = await self._ask(
            (TRANSACTION, self.transactional_id),
            request,
            INIT_VERSION,
            InitProducerIdResponse,
            lambda answer: answer.error_code,
            self._repeated,
        )
        if code in FENCED and renew:
            raise EndedError(code)
        if code is not ErrorCode.NONE:
            raise ViolationError(f"InitProducerId of {self.transactional_id}: {code.name}")
        self._given(answer.producer_id, answer.producer_epoch)
        if not renew:
            self.incarnation.known_s = self.now_s
        self.unanswered = 0

    def _repeated(self, answered: bool) -> None:
        self.incarnation.repeated |= not answered

    def _given(self, producer_id: int, epoch: int) -> None:
        self._identity.forget()
        self._identity.given(producer_id, epoch)

    def begin_transaction(self) -> Transaction:
        """Begin a transaction. Nothing is sent for it."""
        self._added.clear()
        self.unanswered = 0
        self._transaction = self._oracle.begin(self.incarnation, self.generation, self.now_s)
        return self._transaction

    def _refused(self, what: str, code: ErrorCode) -> EndedError:
        """Return the error of a transaction that a broker refuses to go on with.

        :raises ViolationError: it has no reason to, or no correct client ever gets this code
        """
        if code not in FENCED and code not in ABORTABLE:
            raise ViolationError(f"{what} of {self.transactional_id} was refused with {code.name}")
        if not self._oracle.reason_to_refuse(self._transaction, self.timeout_ms, self.now_s):
            raise ViolationError(
                f"{what} was refused without a reason: {self._transaction.name}, {code.name}"
            )
        self._oracle.counts[f"refused {code.name}"] += 1
        return EndedError(code)

    # The transaction

    async def add_partitions(self, partitions: Sequence[TopicPartition]) -> None:
        """Add partitions, where the generation asks for it. :raises EndedError: see there"""
        new = [candidate for candidate in partitions if candidate not in self._added]
        if self.generation > 1 or not new:
            return
        topics: dict[str, AddPartitionsToTxnTopic] = {}
        for partition in new:
            topics.setdefault(
                partition.topic, AddPartitionsToTxnTopic(name=partition.topic)
            ).partitions.append(partition.partition)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self._identity.producer_id,
            v3_and_below_producer_epoch=self._identity.producer_epoch,
            v3_and_below_topics=list(topics.values()),
        )
        _, code = await self._ask(
            (TRANSACTION, self.transactional_id),
            request,
            ADD_PARTITIONS_VERSION,
            AddPartitionsToTxnResponse,
            _added_code,
        )
        if code is not ErrorCode.NONE:
            raise self._refused("AddPartitionsToTxn", code)
        self._added.update(dict.fromkeys(new))

    def batch(self, appends: list[Append]) -> Batch:
        """Note values of one partition that are about to be sent, and give them their sequences."""
        for append in appends:
            self._oracle.append(self._transaction, append)
        return Batch(self._identity.take(appends[0].partition, len(appends)), appends)

    def _bytes(self, batch: Batch) -> bytearray:
        timestamp = EPOCH_MS + int(self.now_s * 1000)
        return build_batch(
            [Record(value=append.value, timestamp=timestamp) for append in batch.appends],
            producer_id=self._identity.producer_id,
            producer_epoch=self._identity.producer_epoch,
            base_sequence=batch.base_sequence,
            transactional=True,
        )

    def request(self, batch: Batch) -> tuple[Message, int]:
        """Return the Produce request of a batch, as of now, and its version."""
        at = batch.appends[0].partition
        request = one_batch(at.topic, at.partition, self._bytes(batch), timeout_ms=PRODUCE_TIMEOUT_MS)
        request.transactional_id = self.transactional_id
        return request, PRODUCE_VERSIONS[self.generation]

    async def produce(self, burst: list[Batch]) -> None:
        """Send batches of one partition in their order, until each is acknowledged. :raises EndedError: see there"""
        partition = burst[0].appends[0].partition
        while burst:
            self._give_up_behind_an_excuse()
            try:
                await self._try(partition, burst)
            except OSError:
                await self._routes.lost(partition)
            burst = [batch for batch in burst if not batch.acked]

    async def _try(self, partition: TopicPartition, burst: list[Batch]) -> None:
        connection = await self._routes.leader(partition)
        answers = []
        for batch in burst:
            batch.tries += 1
            self.unanswered += 1
            answers.append((batch, connection.send(*self.request(batch))))
        for batch, sent in answers:
            answer = await connection.wait(sent)
            self.unanswered -= 1
            assert isinstance(answer, ProduceResponse)
            self._answered(burst, batch, answer)
        if not all(batch.acked for batch in burst):
            await self._routes.lost(partition)

    def _answered(self, burst: list[Batch], batch: Batch, answer: ProduceResponse) -> None:
        outcome = only_outcome(answer)
        code = ErrorCode(outcome.error_code)
        if code is ErrorCode.NONE:
            batch.acked = True
            for nth, append in enumerate(batch.appends):
                append.offset, append.acked_s = outcome.base_offset + nth, self.now_s
            self._oracle.counts["acked"] += len(batch.appends)
        elif is_retriable(code):
            self._oracle.counts["retries"] += 1
        elif code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and not all(
            earlier.acked for earlier in burst[: burst.index(batch)]
        ):
            pass  # an earlier batch failed, and comes again first
        else:
            raise self._refused("Produce", code)

    async def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Add offsets of a group to the transaction. :raises EndedError: see there"""
        if self.generation == 1:
            added = AddOffsetsToTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=self._identity.producer_id,
                producer_epoch=self._identity.producer_epoch,
                group_id=group,
            )
            _, code = await self._ask(
                (TRANSACTION, self.transactional_id),
                added,
                ADD_OFFSETS_VERSION,
                AddOffsetsToTxnResponse,
                lambda answer: answer.error_code,
            )
            if code is not ErrorCode.NONE:
                raise self._refused("AddOffsetsToTxn", code)
        self._transaction.group = group
        self._transaction.offsets.update(offsets)
        _, code = await self._ask(
            (GROUP, group),
            self._offsets_request(group, offsets),
            OFFSETS_VERSIONS[self.generation],
            TxnOffsetCommitResponse,
            _offsets_code,
        )
        if code is not ErrorCode.NONE:
            raise self._refused("TxnOffsetCommit", code)

    def _offsets_request(self, group: str, offsets: Mapping[TopicPartition, int]) -> TxnOffsetCommitRequest:
        topics: dict[str, TxnOffsetCommitRequestTopic] = {}
        for at, offset in offsets.items():
            topic = topics.setdefault(at.topic, TxnOffsetCommitRequestTopic(name=at.topic))
            topic.partitions.append(
                TxnOffsetCommitRequestPartition(partition_index=at.partition, committed_offset=offset)
            )
        return TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group,
            producer_id=self._identity.producer_id,
            producer_epoch=self._identity.producer_epoch,
            topics=list(topics.values()),
        )

    async def end(self, *, commit: bool, may_die: bool = False) -> Fate:
        """Commit or abort, and note what came of it. Return what happens to the process then.

        :raises EndedError: refused; this process can't go on
        """
        transaction = self._transaction
        maybe_decided = False

        def retried(_answered: bool) -> None:
            nonlocal maybe_decided
            # A refusal that can be retried may come from a coordinator that lost its place while the decision was on
            # its way into the log.
            maybe_decided = True

        if commit:
            transaction.outcome = Outcome.UNKNOWN
        self._oracle.ending(transaction)
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self._identity.producer_id,
            producer_epoch=self._identity.producer_epoch,
            committed=commit,
        )
        fate = self._oracle.deciding(transaction) if may_die else Fate.GOES_ON
        if fate is Fate.DIES:
            await self._die_asking(request)
            return fate
        answer, code = await self._ask(
            (TRANSACTION, self.transactional_id),
            request,
            END_VERSIONS[self.generation],
            EndTxnResponse,
            lambda answer: answer.error_code,
            retried,
        )
        if code is ErrorCode.NONE:
            outcome = Outcome.COMMITTED if commit else Outcome.ABORTED
            self._oracle.ended(transaction, outcome, self.now_s)
            if self.generation > 1:
                self._given(answer.producer_id, answer.producer_epoch)
            return fate
        outcome = Outcome.UNKNOWN if commit and maybe_decided else Outcome.ABORTED
        self._oracle.ended(transaction, outcome, self.now_s)
        raise self._refused("EndTxn", code)

    async def _die_asking(self, request: EndTxnRequest) -> None:
        """Ask for the end, and end as a process before there is an answer."""
        try:
            connection = await self._coordinator(TRANSACTION, self.transactional_id)
            answer = connection.send(request, END_VERSIONS[self.generation])
            answer.add_done_callback(lambda done: done.cancelled() or done.exception())  # nobody waits for it
        except OSError:
            pass  # the process died before it asked
        self._oracle.counts["died"] += 1
        self._oracle.ended(self._transaction, Outcome.UNKNOWN, self.now_s)


def _added_code(answer: AddPartitionsToTxnResponse) -> int:
    codes = [
        partition.partition_error_code
        for topic in answer.results_by_topic_v3_and_below
        for partition in topic.results_by_partition
    ]
    refusals = [code for code in codes if code not in (ErrorCode.NONE, ErrorCode.OPERATION_NOT_ATTEMPTED)]
    return refusals[0] if refusals else ErrorCode.NONE


def _offsets_code(answer: TxnOffsetCommitResponse) -> int:
    codes = [partition.error_code for topic in answer.topics for partition in topic.partitions]
    return next((code for code in codes if code), ErrorCode.NONE)
