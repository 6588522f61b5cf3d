"""What a node measures of its cluster: the active controller, brokers, elections."""

from __future__ import annotations

from blumfeld.spi.cluster import ImageDelta
from blumfeld.spi.consensus import Controller
from tests.broker.harness import NODE, BrokerHarness


def test_the_active_controller_is_one_node() -> None:
    broker = BrokerHarness()

    def controller() -> tuple[int, int, int]:
        active, node_id, epoch = "active_controller", "controller_id", "controller_epoch"
        return tuple(broker.gauge(name) for name in (active, node_id, epoch))

    assert controller() == (1, NODE, 1)
    broker.metadata.controller = Controller(NODE + 1, 2)
    assert controller() == (0, NODE + 1, 2)
    broker.metadata.controller = None
    assert controller() == (0, -1, -1)


def test_elections_count_on_the_active_controller_only() -> None:
    """So the sum over all nodes is the cluster's."""
    broker = BrokerHarness()
    assert broker.gauge("leader_elections_total") == 0
    broker.metadata.tell(ImageDelta(leaders_elected=3, leaders_elected_uncleanly=1))
    broker.metadata.tell(ImageDelta(leaders_elected=9, first=True))
    broker.metadata.controller = Controller(NODE + 1, 2)
    broker.metadata.tell(ImageDelta(leaders_elected=5, leaders_elected_uncleanly=5))
    assert broker.gauge("leader_elections_total") == 3
    assert broker.gauge("unclean_leader_elections_total") == 1


def test_brokers_topics_and_partitions_are_counted() -> None:
    broker = BrokerHarness()
    broker.create_topic("a", 2)
    broker.create_topic("b", 3)
    assert broker.gauge("cluster_topics") == 2
    assert broker.gauge("cluster_partitions") == 5
    assert broker.gauge("cluster_brokers") == {("active",): 1, ("fenced",): 0}
    broker.metadata.set_fenced(NODE, True)
    assert broker.gauge("cluster_brokers") == {("active",): 0, ("fenced",): 1}
