"""The transaction coordinator's way into the broker: shards follow the leadership of ``__transaction_state``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from blumfeld.broker.cluster import ClusterView
from blumfeld.broker.coordination.led_topic import LedTopic
from blumfeld.broker.replicas.hosting.partition_manager import PartitionManager
from blumfeld.coordinator.runtime.partitioning import partition_for
from blumfeld.spi.cluster import ClusterImage
from blumfeld.spi.completion import Completion
from blumfeld.spi.context import ApiHandler, RequestContext
from blumfeld.spi.hooks import EventLog, Metric
from blumfeld.spi.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from blumfeld.spi.peers import PeerClient
from blumfeld.spi.runtime import Runtime
from blumfeld.spi.transactions import Outcomes, PartitionsOfTransaction, TransactionCoordinator
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.schema import Message

PURPOSE = "transactions"
TIMEOUT_MS = 30_000
"""Time that another broker has for an answer (Kafka's ``request.timeout.ms``)."""


class TransactionCoordination:
    """The coordinator of this node's transactional ids, and the way to those of other nodes. Implements
    ``TransactionSurroundings``.
    """

    def __init__(
        self,
        plugin: TransactionCoordinator,
        *,
        runtime: Runtime,
        events: EventLog,
        cluster: ClusterView,
        partitions: PartitionManager,
        peers: PeerClient,
        listener: str,
        producer_ids: Callable[[], Completion[int]],
        write_own_markers: Callable[[Any], Completion[Message]],
        create_topics: Callable[[list[str]], None],
    ) -> None:
        """
        :param listener: the name of the listener that brokers use among themselves
        :param write_own_markers: answers WriteTxnMarkers for this node
        :param create_topics: asks the controller to create internal topics
        """
        self._plugin = plugin
        self._cluster = cluster
        self._peers = peers
        self._listener = listener
        self._producer_ids = producer_ids
        self._write_own_markers = write_own_markers
        self._create_topics = create_topics
        plugin.attach(self)
        topic = LedTopic(
            TRANSACTIONS_TOPIC,
            lambda _: plugin.new_shard(),
            runtime=runtime,
            events=events,
            partitions=partitions,
            image=self.image,
            perform=plugin.perform,
        )
        self.coordinator = topic.coordinator

    def handlers(self) -> list[ApiHandler]:
        """API handlers of the plug-in."""
        return list(self._plugin.handlers())

    def init_producer_id(self, request: Message, context: RequestContext) -> Completion[Message]:
        """As ``TransactionCoordinator.init_producer_id``."""
        return self._plugin.init_producer_id(request, context)

    def partitions_of(self, asked: PartitionsOfTransaction) -> Completion[Outcomes]:
        """Ask the transactional id's coordinator, here or at another node.

        Fails with ``BrokerError``: the coordinator's error, or COORDINATOR_NOT_AVAILABLE if it can't be reached.
        """
        topic = self._cluster.image.topics.get(TRANSACTIONS_TOPIC)
        leader = -1
        if topic is not None:
            index = partition_for(asked.transactional_id, len(topic.partitions))
            leader = topic.partitions[index].leader
        if leader == self._cluster.node_id:
            return self._plugin.partitions_of(asked)
        if leader < 0:
            outcome: Completion[Outcomes] = Completion()
            outcome.fail(BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return outcome
        return self._ask(leader, asked)

    def _ask(self, node_id: int, asked: PartitionsOfTransaction) -> Completion[Outcomes]:
        from blumfeld.wire.messages.add_partitions_to_txn import (
            AddPartitionsToTxnRequest,
            AddPartitionsToTxnResponse,
            AddPartitionsToTxnTopic,
            AddPartitionsToTxnTransaction,
        )

        topics: dict[str, AddPartitionsToTxnTopic] = {}
        for topic, index in sorted(asked.partitions):
            topics.setdefault(topic, AddPartitionsToTxnTopic(name=topic)).partitions.append(index)
        request = AddPartitionsToTxnRequest(
            transactions=[
                AddPartitionsToTxnTransaction(
                    transactional_id=asked.transactional_id,
                    producer_id=asked.producer_id,
                    producer_epoch=asked.producer_epoch,
                    verify_only=not asked.add,
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
                    (topic.name, one.partition_index): ErrorCode(one.partition_error_code)
                    for result in response.results_by_transaction
                    for topic in result.topic_results
                    for one in topic.results_by_partition
                }
            )

        self._peers.channel(node_id, self._listener, PURPOSE).send(request, TIMEOUT_MS).when_done(settle)
        return outcome

    def metrics(self) -> list[Metric]:
        """The gauges and counters of the coordinator."""
        from blumfeld.broker.coordination.transaction_metrics import transaction_metrics

        return transaction_metrics(self.coordinator, self._plugin)

    def stop(self) -> None:
        """Drop every shard. Requests that wait are answered NOT_COORDINATOR."""
        self.coordinator.stop()

    # TransactionSurroundings

    def image(self) -> ClusterImage:
        """The cluster, as of now."""
        return self._cluster.image

    def submit(self, transactional_id: str, command: Any, context: RequestContext | None) -> Completion[Any]:
        """As ``TransactionSurroundings.submit``."""
        return self.coordinator.submit(transactional_id, command, context)

    def submit_in_epoch(self, partition: int, epoch: int, command: Any) -> Completion[Any]:
        """As ``TransactionSurroundings.submit_in_epoch``."""
        return self.coordinator.submit_in_epoch(partition, epoch, command)

    def shards(self) -> list[tuple[int, int]]:
        """As ``TransactionSurroundings.shards``."""
        return self.coordinator.shards()

    def coordinates(self, partition: int, epoch: int) -> bool:
        """As ``TransactionSurroundings.coordinates``."""
        return self.coordinator.epoch_of(partition) == epoch

    def new_producer_id(self) -> Completion[int]:
        """As ``TransactionSurroundings.new_producer_id``."""
        return self._producer_ids()

    def make_offsets_topic(self) -> None:
        """As ``TransactionSurroundings.make_offsets_topic``."""
        self._create_topics([OFFSETS_TOPIC])

    def write_markers(self, node_id: int, request: Message) -> Completion[Message]:
        """As ``TransactionSurroundings.write_markers``."""
        if node_id == self._cluster.node_id:
            return self._write_own_markers(request)
        return self._peers.channel(node_id, self._listener, PURPOSE).send(request, TIMEOUT_MS)
