"""An operator of transactions: changes ``transaction.version``, and ends what an excuse left hanging."""

from __future__ import annotations

from collections.abc import Sequence

from blumfeld.spi.storage import TopicPartition
from blumfeld.wire.errors import ErrorCode, is_retriable
from blumfeld.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from blumfeld.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from blumfeld.wire.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from blumfeld.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from blumfeld_kit.simulation.clients.client import ClientConnection
from blumfeld_kit.simulation.clients.oracle import NEVER_S, ViolationError
from blumfeld_kit.simulation.clients.routes import Routes
from blumfeld_kit.simulation.cluster.operator import TIMEOUT_MS, Operator
from blumfeld_kit.simulation.transactions.oracle import TransactionOracle

PAUSE_S = 6.0
FEATURE = "transaction.version"
UPGRADE = 1
SAFE_DOWNGRADE = 2
OPEN_STATES = ["Ongoing", "PrepareCommit", "PrepareAbort"]


class TransactionOperator(Operator):
    """Moves partitions and leaders, the coordinators' too. Run :meth:`run` as a task."""

    _oracle: TransactionOracle
    pause_s = PAUSE_S
    upgrade_s = NEVER_S
    """Virtual time at which it finalizes ``transaction.version`` 2; -1: it doesn't."""

    async def _act(self) -> None:
        """Do one thing. :raises OSError: nobody knows whether it was done"""
        if 0 <= self.upgrade_s <= self._routes.network.loop.time():
            if await finalize(self._routes, 2):
                self._oracle.generation_max = 2
                self.upgrade_s = NEVER_S
        elif self._routes.random.random() < 0.6:
            await self._reassign()
        else:
            await self._elect()


async def finalize(routes: Routes, level: int) -> bool:
    """Finalize a level of ``transaction.version``. Return whether that was done. :raises OSError: nobody knows"""
    update = FeatureUpdateKey(
        feature=FEATURE, max_version_level=level, upgrade_type=UPGRADE if level else SAFE_DOWNGRADE
    )
    connection = await routes.for_admin()
    request = UpdateFeaturesRequest(feature_updates=[update], timeout_ms=TIMEOUT_MS)
    answer = await connection.ask(request, 2, UpdateFeaturesResponse)
    code = ErrorCode(answer.error_code)
    if code is not ErrorCode.NONE and not is_retriable(code):
        raise ViolationError(f"UpdateFeatures to {level}: {code.name}")
    return code is ErrorCode.NONE


async def open_transactions(routes: Routes, addresses: Sequence[tuple[str, int]]) -> list[str] | None:
    """Return the transactional ids whose transaction is open or is being ended, with its state; ``None``: nobody knows
    them all."""
    descriptions = []
    for address in addresses:
        try:
            connection = await routes.connection(address)
            request = ListTransactionsRequest(state_filters=OPEN_STATES)
            answer = await connection.ask(request, 1, ListTransactionsResponse)
        except OSError:
            return None
        if answer.error_code:
            return None
        descriptions += [
            f"{state.transactional_id} {state.transaction_state}" for state in answer.transaction_states
        ]
    return descriptions


async def abort_hanging(routes: Routes, partition: TopicPartition) -> int:
    """Abort each transaction that is open in a partition, as ``kafka-transactions.sh abort`` does. Return their number.

    :raises OSError: the leader is lost
    """
    connection = await routes.leader(partition)
    topic_request = TopicRequest(name=partition.topic, partition_indexes=[partition.partition])
    answer = await connection.ask(
        DescribeProducersRequest(topics=[topic_request]), 0, DescribeProducersResponse
    )
    described = answer.topics[0].partitions[0]
    if described.error_code:
        await routes.lost(partition)
        return 0
    hanging = [
        candidate for candidate in described.active_producers if candidate.current_txn_start_offset >= 0
    ]
    for producer in hanging:
        await _abort(
            connection,
            partition,
            producer.producer_id,
            producer.producer_epoch,
            max(producer.coordinator_epoch, 0),
        )
    return len(hanging)


async def _abort(
    connection: ClientConnection, partition: TopicPartition, producer_id: int, epoch: int, coordinator: int
) -> None:
    topic = WritableTxnMarkerTopic(name=partition.topic, partition_indexes=[partition.partition])
    marker = WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=epoch,
        transaction_result=False,
        topics=[topic],
        coordinator_epoch=coordinator,
    )
    await connection.ask(WriteTxnMarkersRequest(markers=[marker]), 1, WriteTxnMarkersResponse)
