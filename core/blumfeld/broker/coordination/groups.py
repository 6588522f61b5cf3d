"""The groups coordinator's way into the broker: shards follow the leadership of ``__consumer_offsets``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from blumfeld.broker.coordination.led_topic import LedTopic
from blumfeld.broker.handlers import group_handlers
from blumfeld.broker.handlers.groups.common import GroupPorts
from blumfeld.broker.replicas.hosting.partition_manager import PartitionManager
from blumfeld.config.values import BrokerConfig
from blumfeld.coordinator.groups.shard import ForgetTopics, GroupsShard
from blumfeld.log.producers.state import ProducerState
from blumfeld.spi.cluster import ClusterImage, TopicImage
from blumfeld.spi.context import ApiHandler
from blumfeld.spi.groups import GroupProtocol
from blumfeld.spi.hooks import EventLog, Metric
from blumfeld.spi.internal_topics import OFFSETS_TOPIC
from blumfeld.spi.peers import PeerChannel
from blumfeld.spi.runtime import Runtime
from blumfeld.spi.transactions import TransactionCoordinator
from blumfeld.wire.compression.codec import Codec
from blumfeld.wire.primitives import uuid_text

if TYPE_CHECKING:
    from blumfeld.broker.coordination.group_lag import GroupLags


class GroupCoordination:
    """The coordinator of this node's groups, elected and resigned with the partitions that it lives on."""

    def __init__(
        self,
        *,
        runtime: Runtime,
        events: EventLog,
        config: BrokerConfig,
        partitions: PartitionManager,
        protocols: Sequence[GroupProtocol],
        image: Callable[[], ClusterImage],
        transactions: TransactionCoordinator | None = None,
    ) -> None:
        """``transactions``: their coordinator, if the build has one, so that offsets may be committed in them."""
        self._runtime = runtime
        self._partitions = partitions
        self._config = config
        self._protocols = protocols
        self._image = image
        self._transactions = transactions
        topic = LedTopic(
            OFFSETS_TOPIC,
            self._new_shard,
            runtime=runtime,
            events=events,
            partitions=partitions,
            image=image,
            codec=Codec(config.int("offsets.topic.compression.codec")),
        )
        self.coordinator = topic.coordinator

    def handlers(self) -> list[ApiHandler]:
        """API handlers of the groups."""
        ports = GroupPorts(self.coordinator, self._image, self._transactions, self._producers)
        return group_handlers(ports, self._protocols, self._transactions is not None)

    def metrics(self) -> list[Metric]:
        """The gauges and counters of the groups."""
        from blumfeld.broker.coordination.group_metrics import group_metrics

        return group_metrics(self.coordinator)

    def lags(self, node_id: int, channel: Callable[[int], PeerChannel]) -> GroupLags:
        """Returns what finds out the lag of groups.

        :param channel: gives the channel to another node
        """
        from blumfeld.broker.coordination.group_lag import GroupLags

        return GroupLags(self.coordinator, self._partitions, self._image, node_id, channel)

    def topics_deleted(self, topics: Sequence[TopicImage]) -> None:
        """Forget the offsets that were committed for these topics, in later turns, so that a new topic of the same name
        begins without them.
        """
        names, ids = (topic.name for topic in topics), (topic.topic_id for topic in topics)
        self.coordinator.tell_all(ForgetTopics(tuple(names), tuple(ids)))

    def transaction_ended(self, index: int, producer_id: int, committed: bool) -> None:
        """A marker was placed in this partition of ``__consumer_offsets`` (WriteTxnMarkers): what the producer
        committed there counts from now on, or is forgotten. To be called in the turn in which it was placed.
        """
        self.coordinator.transaction_ended(index, producer_id, committed)

    def stop(self) -> None:
        """Drop every shard. Requests that wait are answered NOT_COORDINATOR."""
        self.coordinator.stop()

    def _producers(self, index: int) -> ProducerState | None:
        partition = self._partitions.find(OFFSETS_TOPIC, index)
        return None if partition is None else partition.state.producers

    def _new_shard(self, _partition: int) -> GroupsShard:
        return GroupsShard(
            self._protocols, self._config, self._image, self._new_member_id, self.coordinator.counts
        )

    def _new_member_id(self, prefix: str) -> str:
        return f"{prefix}-{uuid_text(self._runtime.new_uuid())}"
