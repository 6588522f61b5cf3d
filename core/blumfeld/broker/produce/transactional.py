"""The check of a transactional batch before its partition takes it (KIP-890): the partition must be in the transaction.

Without it a late Produce request could open a transaction that nothing ends, and read_committed consumers would wait
forever. A batch of a transaction that is open in the partition needs no check.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate

import msgspec

from blumfeld.broker.replicas.partition import Partition
from blumfeld.log.producers.rules import check_first
from blumfeld.log.producers.snapshot import ProducerEntry
from blumfeld.spi.completion import Completion
from blumfeld.spi.runtime import Runtime
from blumfeld.spi.transactions import Outcomes, PartitionsOfTransaction, TransactionCoordinator
from blumfeld.spi.transport import OWNED_FRAME_BYTES
from blumfeld.wire.batches.record_batch import NO_PRODUCER_EPOCH, RecordBatch
from blumfeld.wire.errors import BrokerError, ErrorCode

ABORTABLE_FROM = 11
"""First version of Produce whose clients know TRANSACTION_ABORTABLE. Older ones get INVALID_TXN_STATE."""
ADDS_FROM = 12
"""First version of Produce that adds its partitions to the transaction by itself."""
ADD_RETRY_PAUSES_MS = (2, 4, 8, 16, 32, 38)
"""Pauses before a partition is added again to a transaction whose predecessor is still being completed.

Kafka pauses 20 ms each time (``add.partitions.to.txn.retry.backoff.ms``), for 100 ms in all
(``add.partitions.to.txn.retry.backoff.max.ms``). The markers of a transaction are mostly written within a few
milliseconds, so the first pauses are shorter here. After 100 ms the client tries again, as with Kafka."""
FIRST_SEQUENCES_MAX = 10_000
"""Producers and partitions whose first sequence is remembered while they are verified. Beyond that the oldest is
forgotten, so that producers that never come back take no memory."""
_AS_NOT_ENOUGH_REPLICAS = frozenset(
    (
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.OPERATION_NOT_ATTEMPTED,
    )
)
"""Errors of the coordinator that old producers don't expect from Produce. They repeat a request that is answered
NOT_ENOUGH_REPLICAS, without asking for metadata first. The last two come from a coordinator that doesn't know yet of a
partition that is led here."""


def produce_error(code: ErrorCode, *, adds: bool, abortable: bool) -> BrokerError:
    """Returns the error of a batch whose check failed with this code.

    :param adds: the producer leaves it to the partition's leader to add the partition (transactions of version 2)
    :param abortable: the client knows TRANSACTION_ABORTABLE
    """
    answered = code
    if code is ErrorCode.PRODUCER_FENCED:
        answered = ErrorCode.INVALID_PRODUCER_EPOCH
    elif code is ErrorCode.TRANSACTION_ABORTABLE and not abortable:
        answered = ErrorCode.INVALID_TXN_STATE
    elif code in _AS_NOT_ENOUGH_REPLICAS or (code is ErrorCode.CONCURRENT_TRANSACTIONS and not adds):
        answered = ErrorCode.NOT_ENOUGH_REPLICAS
    return BrokerError(
        answered, f"the partition could not be verified as part of the transaction: {code.name}"
    )


def is_open_for(entry: ProducerEntry | None, batch: RecordBatch) -> bool:
    """Whether this entry of the batch's producer says that its transaction is open in the partition.

    Then the coordinator needs no question: the partition was verified with the first batch (KIP-890).
    """
    return entry is not None and entry.txn_first_offset >= 0 and entry.epoch == batch.producer_epoch


class Check(msgspec.Struct, eq=False):
    """One partition's part of a check, from the question to the answer."""

    partition: Partition
    batch: RecordBatch
    key: tuple[str, int]
    """(topic, index) of the partition."""
    before: ProducerEntry | None
    """The producer's entry in the partition as of the question."""
    first_sequences: FirstSequences
    looked: RecordBatch | None = None
    """The batch as the topic requires it, if a worker thread has checked its records already."""

    def confirm(self, code: ErrorCode, adds: bool, abortable: bool) -> bool:
        """Check that the batch may be appended now, with the coordinator's outcome. Returns whether it may. If not, the
        coordinator must be asked again.

        A marker that came between question and answer may have ended the transaction that the answer speaks of. Then
        the batch would open it again, with nothing to end it. In transactions of version 2 it may as well be the marker
        of the last transaction, which begins the batch's epoch: at its first writing, or once more by the next
        coordinator. Only the coordinator knows.

        :raises BrokerError: it may not
        """
        if code:
            raise produce_error(code, adds=adds, abortable=abortable)
        entry = self.partition.state.producers.producer(self.batch.producer_id)
        if entry is not self.before and not is_open_for(entry, self.batch):
            if not adds:
                raise BrokerError(
                    ErrorCode.INVALID_TXN_STATE, "the transaction ended while the partition was verified"
                )
            if entry is None or entry.epoch <= self.batch.producer_epoch:
                self.before = entry
                return False
        if entry is None:
            check_first(self.batch, adds)
            self.first_sequences.check(self.key, self.batch)
        return True


def keep(batches: Sequence[RecordBatch]) -> None:
    """Move the batches of one request to memory that outlives the turn. A small frame lies in the receive buffer, which
    the next turn overwrites."""
    ends = list(accumulate([batch.size_bytes for batch in batches]))
    if ends[-1] > OWNED_FRAME_BYTES:
        return  # so is their frame
    memory, start = memoryview(bytearray().join([batch.data for batch in batches])), 0
    for batch, end in zip(batches, ends, strict=True):
        batch.data = memory[start:end]
        start = end


class FirstSequences:
    """The lowest sequence with which each producer came to a partition that doesn't know it, until the partition does.

    A producer sends on while its first batch is verified. If that one is refused and may be repeated, the next must not
    begin the partition in its place: the first would then be out of order for good. Kafka's leader remembers the same
    (``VerificationStateEntry.lowestSequence``).
    """

    def __init__(self) -> None:
        self._lowest: dict[tuple[tuple[str, int], int], tuple[int, int]] = {}

    def check_of(self, partition: Partition, batch: RecordBatch) -> Check | None:
        """Returns the check that a transactional batch needs before its partition takes it; ``None`` if it needs
        none.
        """
        entry = partition.state.producers.producer(batch.producer_id)
        # Mostly the batch is its transaction's first one here, and the producer has none open: seen without a call.
        if entry is not None and entry.txn_first_offset >= 0 and is_open_for(entry, batch):
            return None
        at = partition.partition
        key = (at.topic, at.partition)
        if entry is None:
            self._note(key, batch)
        return Check(partition, batch, key, entry, self)

    def _note(self, key: tuple[str, int], batch: RecordBatch) -> None:
        at = (key, batch.producer_id)
        epoch, sequence = self._lowest.get(at, (NO_PRODUCER_EPOCH, 0))
        if epoch < batch.producer_epoch or (epoch == batch.producer_epoch and batch.base_sequence < sequence):
            self._lowest[at] = batch.producer_epoch, batch.base_sequence
            if len(self._lowest) > FIRST_SEQUENCES_MAX:
                del self._lowest[next(iter(self._lowest))]

    def check(self, key: tuple[str, int], batch: RecordBatch) -> None:
        """Check that no batch of the same producer and epoch came before this one; forget the producer if none did.

        :raises BrokerError: OUT_OF_ORDER_SEQUENCE_NUMBER
        """
        at = (key, batch.producer_id)
        epoch, sequence = self._lowest.get(at, (NO_PRODUCER_EPOCH, 0))
        if epoch == batch.producer_epoch and sequence < batch.base_sequence:
            raise BrokerError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {batch.producer_id} is unknown to this partition and sent sequence {sequence} before "
                f"{batch.base_sequence}",
            )
        self._lowest.pop(at, None)


def ask(
    transactions: TransactionCoordinator,
    runtime: Runtime,
    transactional_id: str,
    checks: Sequence[Check],
    *,
    adds: bool,
) -> Completion[Outcomes]:
    """Ask the coordinator about the partitions of one producer. Completes with the outcomes by :attr:`Check.key`. A
    partition may be missing among them.

    A transaction of version 2 may be added to while its predecessor is being completed. That takes a moment, so it is
    tried some times before the client is told.
    """
    batch = checks[0].batch
    transaction_partitions = PartitionsOfTransaction(
        transactional_id=transactional_id,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        partitions=frozenset([check.key for check in checks]),
        add=adds,
    )
    question = _Question(transactions, runtime, transaction_partitions)
    question.put()
    return question


class _Question(Completion[Outcomes]):
    """One question, from its first try to its answer: the completion of its own answer.

    It is an object, because a function that hands itself on as the callback refers to itself. Then the batches of each
    request would stay in memory until the garbage collector runs, which would stop the loop for tens of milliseconds.
    """

    __slots__ = ("_asked", "_pauses_ms", "_runtime", "_transactions")

    def __init__(
        self,
        transactions: TransactionCoordinator,
        runtime: Runtime,
        transaction_partitions: PartitionsOfTransaction,
    ) -> None:
        super().__init__()
        self._transactions = transactions
        self._runtime = runtime
        self._asked = transaction_partitions
        self._pauses_ms = iter(ADD_RETRY_PAUSES_MS)

    def put(self) -> None:
        """Ask the coordinator, for the first time or again."""
        self._transactions.partitions_of(self._asked).when_done(self._answered)

    def _answered(self, done: Completion[Outcomes]) -> None:
        outcomes = _outcomes(done, self._asked.partitions)
        if self._asked.add and ErrorCode.CONCURRENT_TRANSACTIONS in outcomes.values():
            pause_ms = next(self._pauses_ms, None)
            if pause_ms is not None:
                self._runtime.call_later(pause_ms, self.put)
                return
        self.complete(outcomes)


def _outcomes(done: Completion[Outcomes], partitions: Iterable[tuple[str, int]]) -> Outcomes:
    if done.error is None:
        return done.result()
    code = done.error.code if isinstance(done.error, BrokerError) else ErrorCode.UNKNOWN_SERVER_ERROR
    return dict.fromkeys(partitions, code)
