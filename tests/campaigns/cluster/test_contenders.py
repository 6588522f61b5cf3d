"""The commands of the nodes that are measured."""

from __future__ import annotations

from pathlib import Path

from blumfeld.testing.cluster import LOOPBACK, node_places
from blumfeld_kit.cluster import Cluster
from campaigns.cluster.contenders import LAYOUTS, MIXED, this_build, with_kafka


def test_a_mixed_cluster_has_three_nodes_of_this_build_and_a_kafka_on_the_same_zookeeper(
    tmp_path: Path,
) -> None:
    contender = with_kafka(this_build(), Path("/kafka-peer"), "127.0.0.1:2181/c", 3000)
    places = node_places([LOOPBACK] * 4, 9000, LAYOUTS[MIXED])
    *ours, kafka = Cluster(contender.commands, places, tmp_path).brokers
    assert all("blumfeld.cli.main" in node.command for node in ours)
    assert kafka.command == (
        *("env", "KAFKA_PEER_VERSION=3.9.2", "/kafka-peer", "start", f"{tmp_path}/node4", "9006"),
        *("broker.id=4", "zookeeper.connect=127.0.0.1:2181/c", "zookeeper.session.timeout.ms=3000"),
        "offsets.topic.replication.factor=3",
    )
