"""Metrics of the cluster as this node's metadata shows it: its controller, its brokers, its elections."""

from __future__ import annotations

from blumfeld.spi.cluster import ClusterImage, ImageDelta
from blumfeld.spi.consensus import ClusterMetadata, is_controller
from blumfeld.spi.hooks import Metric

NO_CONTROLLER = -1


class ClusterGauges:
    """Counts elections while this node is the active controller, so that the sum over all nodes is the cluster's.

    Made only in a node with a metrics endpoint.
    """

    def __init__(self, metadata: ClusterMetadata, node_id: int) -> None:
        self._metadata = metadata
        self._node_id = node_id
        self.elections = 0
        self.unclean_elections = 0
        metadata.subscribe(self._count)

    def _count(self, image: ClusterImage, delta: ImageDelta) -> None:
        if is_controller(self._metadata, self._node_id) and not delta.first:
            self.elections += delta.leaders_elected
            self.unclean_elections += delta.leaders_elected_uncleanly

    def _controller_id(self) -> int:
        controller = self._metadata.controller
        return NO_CONTROLLER if controller is None else controller.node_id

    def _epoch(self) -> int:
        controller = self._metadata.controller
        return -1 if controller is None else controller.epoch

    def metrics(self) -> list[Metric]:
        """Returns the metrics. A scrape looks at brokers and topics, never at each partition."""
        metadata = self._metadata
        return [
            Metric(
                "blumfeld_active_controller",
                "1 on the node that is the active controller, else 0 (Kafka's ActiveControllerCount)",
                "gauge",
                lambda: int(is_controller(self._metadata, self._node_id)),
            ),
            Metric(
                "blumfeld_controller_id",
                "Node id of the active controller, as this node knows it; -1: none (Kafka's current-leader)",
                "gauge",
                self._controller_id,
            ),
            Metric(
                "blumfeld_controller_epoch",
                "Epoch of the active controller; -1 if none is known (Kafka's current-epoch)",
                "gauge",
                self._epoch,
            ),
            Metric(
                "blumfeld_metadata_applied_offset",
                "Last record of the metadata log that this node's image contains (Kafka's last-applied-record-offset)",
                "gauge",
                lambda: metadata.applied_offset,
            ),
            Metric(
                "blumfeld_leader_elections_total",
                "Partitions that got another leader while this node was the active controller",
                "counter",
                lambda: self.elections,
            ),
            Metric(
                "blumfeld_unclean_leader_elections_total",
                "Those whose new leader may lack committed records (Kafka's UncleanLeaderElectionsPerSec)",
                "counter",
                lambda: self.unclean_elections,
            ),
            Metric(
                "blumfeld_cluster_brokers",
                "Registered brokers, as this node's metadata says (Kafka's ActiveBrokerCount, FencedBrokerCount)",
                "gauge",
                lambda: _brokers(metadata.image),
                ("state",),
            ),
            Metric(
                "blumfeld_cluster_topics",
                "Topics of the cluster, as this node's metadata says (Kafka's GlobalTopicCount)",
                "gauge",
                lambda: len(metadata.image.topics),
            ),
            Metric(
                "blumfeld_cluster_partitions",
                "Partitions of the cluster, as this node's metadata says (Kafka's GlobalPartitionCount)",
                "gauge",
                lambda: sum(len(topic.partitions) for topic in metadata.image.topics.values()),
            ),
        ]


def _brokers(image: ClusterImage) -> dict[tuple[str, ...], int]:
    fenced = sum(broker.fenced for broker in image.brokers.values())
    return {("active",): len(image.brokers) - fenced, ("fenced",): fenced}
