"""TxnOffsetCommit (key 28), v0-5: offsets that count once their transaction is committed (KIP-98, KIP-447)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from blumfeld.broker.handlers.groups.common import (
    TOPICS,
    GroupPorts,
    by_rights,
    commit_codes,
    handler_of,
    names_nothing,
)
from blumfeld.coordinator.groups.answers import code_of
from blumfeld.coordinator.runtime.coordinator import partition_for
from blumfeld.log.producers.snapshot import ProducerEntry
from blumfeld.spi.completion import Completion
from blumfeld.spi.context import ApiHandler, RequestContext
from blumfeld.spi.internal_topics import OFFSETS_TOPIC
from blumfeld.spi.transactions import Outcomes, PartitionsOfTransaction
from blumfeld.wire.api import ApiKey
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)


def handlers(ports: GroupPorts) -> list[ApiHandler]:
    """TxnOffsetCommit."""
    commit = TxnOffsetCommit(ports)
    return [handler_of(ApiKey.TXN_OFFSET_COMMIT, (0, 5), commit.handle, commit.failed, (TOPICS, TOPICS))]


LOAD_IN_PROGRESS_SINCE_VERSION = 2
"""Older producers break at COORDINATOR_LOAD_IN_PROGRESS (KAFKA-7296), so they get COORDINATOR_NOT_AVAILABLE."""


ABORTABLE_SINCE_VERSION = 4
"""First version whose clients know TRANSACTION_ABORTABLE."""
ADDS_SINCE_VERSION = 5
"""First version that adds the group's partition to the transaction by itself."""


_NOT_NOW = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)
"""Errors of the transaction's coordinator that pass. The last one says that it doesn't know of the group's partition
yet."""


class TxnOffsetCommit:
    """Commits offsets in a transaction."""

    def __init__(self, ports: GroupPorts) -> None:
        self._ports = ports

    def handle(self, request: TxnOffsetCommitRequest, context: RequestContext) -> Completion[Any]:
        """TxnOffsetCommit. Topics that may not be read fail on their own: TOPIC_AUTHORIZATION_FAILED.

        First the coordinator of the transaction verifies that the group's partition is in the transaction. From v5 on
        it adds the partition (KIP-890).
        """
        if not context.authorize("Write", "TransactionalId", request.transactional_id):
            raise BrokerError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        if not context.authorize("Read", "Group", request.group_id):
            raise BrokerError(ErrorCode.GROUP_AUTHORIZATION_FAILED)

        def serve(request: TxnOffsetCommitRequest) -> Completion[Any]:
            if names_nothing(self._ports, request):
                return Completion.of(self.failed(request, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None))
            if not request.group_id:
                raise BrokerError(ErrorCode.INVALID_GROUP_ID)
            return self._verified(request, context)

        submitted = by_rights(self._ports, request, context, serve, self.failed, _refused_topic)
        if context.api_version < LOAD_IN_PROGRESS_SINCE_VERSION:
            submitted = _loading_as_not_available(submitted)
        return submitted

    def failed(
        self, request: TxnOffsetCommitRequest, code: int, _message: str | None
    ) -> TxnOffsetCommitResponse:
        """Every partition that was asked has the error, but for those that aren't there."""
        image = self._ports.image()
        return TxnOffsetCommitResponse(
            topics=[_answer(topic, commit_codes(image, topic, code)) for topic in request.topics]
        )

    def _verified(self, request: TxnOffsetCommitRequest, context: RequestContext) -> Completion[Any]:
        """Commit once the group's partition is verified to be in the transaction.

        A commit after the end of the transaction would stay pending forever: no marker would come for it. So a marker
        between the question and the answer refuses the commit: INVALID_TXN_STATE. From v5 on it may be the marker of
        the last transaction, so the question is asked again. A transaction that is open in the group's partition needs
        no question.
        """
        transactions, offsets = self._ports.transactions, self._ports.image().topics.get(OFFSETS_TOPIC)
        if transactions is None or offsets is None:
            return self._ports.coordinator.submit(request.group_id, request, context)
        at = OFFSETS_TOPIC, partition_for(request.group_id, len(offsets.partitions))
        adds = context.api_version >= ADDS_SINCE_VERSION
        guard = _Guard(self._ports, at[1], request)
        if guard.is_open:
            return self._ports.coordinator.submit(request.group_id, request, context)
        transaction_partitions = PartitionsOfTransaction(
            transactional_id=request.transactional_id,
            producer_id=request.producer_id,
            producer_epoch=request.producer_epoch,
            partitions=frozenset([at]),
            add=adds,
        )
        answered: Completion[Any] = Completion()

        def pass_on(done: Completion[Any]) -> None:
            if done.error is None:
                answered.complete(done.result())
            else:
                answered.fail(done.error)

        def settle(done: Completion[Outcomes]) -> None:
            unknown = ErrorCode.UNKNOWN_SERVER_ERROR
            code = done.result().get(at, unknown) if done.error is None else code_of(done.error)
            if not code and guard.has_changed:
                if adds:  # it may be the marker of the last transaction: only the coordinator knows
                    self._verified(request, context).when_done(pass_on)
                    return
                code = ErrorCode.INVALID_TXN_STATE
            if code:
                answered.fail(BrokerError(_error(code, context.api_version)))
            else:
                self._ports.coordinator.submit(request.group_id, request, context).when_done(pass_on)

        transactions.partitions_of(transaction_partitions).when_done(settle)
        return answered


class _Guard:
    """The producer's state in the group's partition, from the question to the coordinator until its answer."""

    def __init__(self, ports: GroupPorts, index: int, request: TxnOffsetCommitRequest) -> None:
        self._ports = ports
        self._index = index
        self._request = request
        self._before = self._entry()

    def _entry(self) -> ProducerEntry | None:
        producers = self._ports.producers(self._index)
        return None if producers is None else producers.producer(self._request.producer_id)

    @property
    def is_open(self) -> bool:
        """Whether the transaction of the request is open in the partition."""
        producers = self._ports.producers(self._index)
        return producers is not None and producers.has_open_transaction(
            self._request.producer_id, self._request.producer_epoch
        )

    @property
    def has_changed(self) -> bool:
        """Whether the transaction may have ended since, so that the answer speaks of one that is over. A later epoch
        refuses the offset by itself.
        """
        entry = self._entry()
        fences = entry is not None and entry.epoch > self._request.producer_epoch
        return not self.is_open and entry is not self._before and not fences


def _error(code: ErrorCode, version: int) -> ErrorCode:
    """Returns the error of a commit whose transaction could not be verified, as the request's version knows it."""
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < ABORTABLE_SINCE_VERSION:
        return ErrorCode.INVALID_TXN_STATE
    if code is ErrorCode.CONCURRENT_TRANSACTIONS and version >= ADDS_SINCE_VERSION:
        return code
    if code in _NOT_NOW:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return code


def _loading_as_not_available(submitted: Completion[Any]) -> Completion[Any]:
    """Replace COORDINATOR_LOAD_IN_PROGRESS, which breaks old producers (KAFKA-7296), by COORDINATOR_NOT_AVAILABLE."""
    answered: Completion[Any] = Completion()

    def settle(done: Completion[Any]) -> None:
        if done.error is None:
            answered.complete(done.result())
        elif code_of(done.error) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            answered.fail(BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        else:
            answered.fail(done.error)

    submitted.when_done(settle)
    return answered


def _refused_topic(topic: TxnOffsetCommitRequestTopic, code: int) -> TxnOffsetCommitResponseTopic:
    """Every partition of the topic has the error."""
    return _answer(topic, [(p.partition_index, code) for p in topic.partitions])


def _answer(
    topic: TxnOffsetCommitRequestTopic, codes: Sequence[tuple[int, int]]
) -> TxnOffsetCommitResponseTopic:
    return TxnOffsetCommitResponseTopic(
        name=topic.name,
        partitions=[
            TxnOffsetCommitResponsePartition(partition_index=index, error_code=code) for index, code in codes
        ],
    )
