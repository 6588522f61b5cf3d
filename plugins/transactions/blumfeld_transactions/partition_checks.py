"""The check of a partition's leader before the first batch of a transaction (KIP-890): the coordinator of the
transactional id answers, on this node or another one."""

from __future__ import annotations

from blumfeld.coordinator.runtime.coordinator import Coordinator, leader_for_key
from blumfeld.spi.completion import Completion
from blumfeld.spi.internal_topics import TRANSACTIONS_TOPIC
from blumfeld.spi.transactions import Outcomes, PartitionsOfTransaction, TransactionSurroundings
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from blumfeld.wire.schema import Message
from blumfeld_transactions.commands import AddPartitions
from blumfeld_transactions.transaction import EPOCH_A_TRANSACTION


def partitions_of(
    around: TransactionSurroundings, own_id: int, transaction_partitions: PartitionsOfTransaction
) -> Completion[Outcomes]:
    """As ``TransactionCoordinator.partitions_of``.

    :param own_id: this node's id
    """
    leader = leader_for_key(
        around.metadata.image, TRANSACTIONS_TOPIC, transaction_partitions.transactional_id
    )
    if leader == own_id:
        return _submit(around.coordinator, transaction_partitions)
    if leader < 0:
        outcome: Completion[Outcomes] = Completion()
        outcome.fail(BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        return outcome
    return _ask(around, leader, transaction_partitions)


def _submit(
    coordinator: Coordinator, transaction_partitions: PartitionsOfTransaction
) -> Completion[Outcomes]:
    command = AddPartitions(
        transactional_id=transaction_partitions.transactional_id,
        producer_id=transaction_partitions.producer_id,
        epoch=transaction_partitions.producer_epoch,
        partitions=transaction_partitions.partitions,
        verify_only=not transaction_partitions.add,
        client_version=EPOCH_A_TRANSACTION if transaction_partitions.add else 0,
    )
    return coordinator.submit(transaction_partitions.transactional_id, command, None)


def _ask(
    around: TransactionSurroundings, node_id: int, transaction_partitions: PartitionsOfTransaction
) -> Completion[Outcomes]:
    topics: dict[str, AddPartitionsToTxnTopic] = {}
    for topic, index in sorted(transaction_partitions.partitions):
        topics.setdefault(topic, AddPartitionsToTxnTopic(name=topic)).partitions.append(index)
    request = AddPartitionsToTxnRequest(
        transactions=[
            AddPartitionsToTxnTransaction(
                transactional_id=transaction_partitions.transactional_id,
                producer_id=transaction_partitions.producer_id,
                producer_epoch=transaction_partitions.producer_epoch,
                verify_only=not transaction_partitions.add,
                topics=list(topics.values()),
            )
        ]
    )
    outcome: Completion[Outcomes] = Completion()

    def settle(done: Completion[Message]) -> None:
        response = None if done.error is not None else done.result()
        if not isinstance(response, AddPartitionsToTxnResponse) or response.error_code:
            outcome.fail(BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(done.error or response)))
            return
        outcome.complete(
            {
                (topic.name, partition.partition_index): ErrorCode(partition.partition_error_code)
                for result in response.results_by_transaction
                for topic in result.topic_results
                for partition in topic.results_by_partition
            }
        )

    around.send(node_id, request).when_done(settle)
    return outcome
