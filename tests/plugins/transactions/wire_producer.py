"""A transactional producer that sends one request at a time, so that a test can leave a transaction at any of them.

It speaks both generations of the protocol (KIP-890), to any broker.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from blumfeld.spi.internal_topics import TRANSACTIONS_TOPIC
from blumfeld.wire.batches.builder import build_batch
from blumfeld.wire.batches.records import Record
from blumfeld.wire.codec import encode
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from blumfeld.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from blumfeld.wire.messages.describe_transactions import DescribeTransactionsRequest
from blumfeld.wire.messages.end_txn import EndTxnRequest
from blumfeld.wire.messages.find_coordinator import FindCoordinatorRequest
from blumfeld.wire.messages.init_producer_id import InitProducerIdRequest
from blumfeld.wire.messages.list_transactions import ListTransactionsRequest
from blumfeld.wire.messages.transaction_coordinator_records import (
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
)
from blumfeld.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.broker.batches import produce
from tests.broker.coordination.test_transactional_offsets_as_kafka import ask

PATIENCE_S = 120.0
AGAIN = frozenset(
    (
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    )
)
"""Errors after which a client sends the request again."""
GROUP_KEY, TRANSACTION_KEY = 0, 1


def until_answered(send: Callable[[], tuple[Any, int]]) -> tuple[Any, ErrorCode]:
    """Send a request again while its error is one of ``AGAIN``. Returns what ``send`` did: the answer and its error."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        answer, code = send()
        if code not in AGAIN or time.monotonic() > deadline:
            return answer, ErrorCode(code)
        time.sleep(0.05)


class WireProducer:
    """A producer of one transactional id, whose partition of the topic ``t`` is its own."""

    def __init__(
        self, address: str, transactional_id: str, partition: int, generation: int, timeout_ms: int = 600_000
    ) -> None:
        """``generation``: 1, or 2 for an epoch a transaction."""
        self.address = address
        self.transactional_id = transactional_id
        self.group = f"group-{transactional_id}"
        self.partition = partition
        self.generation = generation
        self.timeout_ms = timeout_ms
        self.producer_id = self.epoch = -1
        self.sequence = 0

    @property
    def _own_epochs(self) -> bool:
        return self.generation == 2

    def init(self) -> None:
        """Take the next epoch. What the last producer of this id left open is aborted."""
        for kind, key in ((TRANSACTION_KEY, self.transactional_id), (GROUP_KEY, self.group)):
            request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
            until_answered(lambda request=request: _found(self.address, request))  # type: ignore[misc]
        init_request = InitProducerIdRequest(
            transactional_id=self.transactional_id, transaction_timeout_ms=self.timeout_ms
        )
        answer, code = until_answered(lambda: _with_code(ask(self.address, init_request, 4)))
        assert code is ErrorCode.NONE, code
        self.producer_id, self.epoch, self.sequence = answer.producer_id, answer.producer_epoch, 0

    def take_up(self, other: WireProducer) -> WireProducer:
        """Go on as the producer that another address knew. Its transaction may be open."""
        self.producer_id, self.epoch, self.sequence = other.producer_id, other.epoch, other.sequence
        return self

    def write(self, *values: str) -> ErrorCode:
        if not self._own_epochs and (code := self._add_partition()):
            return code
        data = build_batch(
            [Record(b"k", value.encode(), timestamp=int(time.time() * 1000)) for value in values],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=self.sequence,
            transactional=True,
        )
        request = produce(
            data, partition=self.partition, acks=-1, transactional_id=self.transactional_id, timeout_ms=10_000
        )

        def send() -> tuple[Any, int]:
            answer = ask(self.address, request, 12 if self._own_epochs else 11)
            return answer, answer.responses[0].partition_responses[0].error_code

        _, code = until_answered(send)
        if not code:
            self.sequence += len(values)
        return code

    def _add_partition(self) -> ErrorCode:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=[self.partition])],
        )

        def send() -> tuple[Any, int]:
            answer = ask(self.address, request, 3)
            return answer, answer.results_by_topic_v3_and_below[0].results_by_partition[
                0
            ].partition_error_code

        return until_answered(send)[1]

    def commit_offset(self, offset: int) -> ErrorCode:
        """An offset of the producer's group for its partition, in the transaction."""
        if not self._own_epochs:
            added = AddOffsetsToTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                group_id=self.group,
            )
            _, code = until_answered(lambda: _with_code(ask(self.address, added, 3)))
            if code:
                return code
        committed = TxnOffsetCommitRequestPartition(partition_index=self.partition, committed_offset=offset)
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=self.group,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            topics=[TxnOffsetCommitRequestTopic(name="t", partitions=[committed])],
        )

        def send() -> tuple[Any, int]:
            answer = ask(self.address, request, 5 if self._own_epochs else 4)
            return answer, answer.topics[0].partitions[0].error_code

        return until_answered(send)[1]

    def end(self, *, commit: bool) -> ErrorCode:
        """End the transaction. The second generation goes on with the epoch that the answer has."""
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=commit,
        )
        version = 5 if self._own_epochs else 4
        answer, code = until_answered(lambda: _with_code(ask(self.address, request, version)))
        if not code and self._own_epochs:
            self.producer_id, self.epoch, self.sequence = answer.producer_id, answer.producer_epoch, 0
        return code

    def state(self) -> Any:
        request = DescribeTransactionsRequest(transactional_ids=[self.transactional_id])
        (transaction_state,) = ask(self.address, request, 0).transaction_states
        return transaction_state

    def put_state(self, status: int, *, epoch: int, level: int, next_producer_id: int = -1) -> ErrorCode:
        """Write a record of this id into ``__transaction_state``, as its coordinator would. Only the coordinator's next
        start sees it.

        :param level: the cluster's ``transaction.version``
        """
        known = self.state()
        value = TransactionLogValue(
            producer_id=known.producer_id,
            producer_epoch=epoch,
            transaction_timeout_ms=known.transaction_timeout_ms,
            transaction_status=status,
            transaction_partitions=[
                PartitionsSchema(topic=topic.topic, partition_ids=list(topic.partitions))
                for topic in known.topics
            ],
            transaction_last_update_timestamp_ms=int(time.time() * 1000),
            transaction_start_timestamp_ms=known.transaction_start_time_ms,
        )
        if level:
            value.previous_producer_id = known.producer_id
            value.next_producer_id = next_producer_id
            value.client_transaction_version = level if self._own_epochs else 0
        version = min(level, 1)
        data = build_batch(
            [
                Record(
                    bytes(2) + encode(TransactionLogKey(transactional_id=self.transactional_id), 0),
                    version.to_bytes(2) + encode(value, version),
                    timestamp=int(time.time() * 1000),
                )
            ]
        )
        request = produce(data, topic=TRANSACTIONS_TOPIC, acks=-1, timeout_ms=10_000)
        answer = ask(self.address, request, 11, client_id="__admin_client")
        return ErrorCode(answer.responses[0].partition_responses[0].error_code)


def states(address: str) -> dict[str, str]:
    """Transactional id → state, as ListTransactions says."""
    return {
        state.transactional_id: state.transaction_state
        for state in ask(address, ListTransactionsRequest(), 0).transaction_states
    }


def _with_code(answer: Any) -> tuple[Any, int]:
    return answer, answer.error_code


def _found(address: str, request: FindCoordinatorRequest) -> tuple[Any, int]:
    answer = ask(address, request, 4)
    return answer, answer.coordinators[0].error_code
