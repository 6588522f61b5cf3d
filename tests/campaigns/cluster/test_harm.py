"""Packets that faults drop: in the direction that they name, and until the last of them is over."""

from __future__ import annotations

from pathlib import Path

import pytest

from blumfeld.testing.cluster import COMBINED, LOOPBACK, node_places
from blumfeld_kit.cluster import Cluster
from campaigns.cluster.contenders import this_build
from campaigns.cluster.harm import Harm
from campaigns.cluster.namespaces import LOAD, Namespaces


class Wires(Namespaces):
    """A network that knows which packets it drops."""

    def __init__(self) -> None:
        self.dropped: set[tuple[int, int]] = set()

    def drop(self, sender: int, receiver: int) -> None:
        assert (sender, receiver) not in self.dropped
        self.dropped.add((sender, receiver))

    def pass_again(self, sender: int, receiver: int) -> None:
        self.dropped.remove((sender, receiver))


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(this_build().commands, node_places([LOOPBACK] * 3, 0, (COMBINED,) * 3), tmp_path)


@pytest.mark.parametrize(
    ("action", "nodes", "dropped"),
    [
        ("deafen", (2,), {(LOAD, 2), (1, 2), (3, 2)}),
        ("mute", (2,), {(2, LOAD), (2, 1), (2, 3)}),
        ("mute", (1, 2), {(1, LOAD), (1, 2), (1, 3), (2, LOAD), (2, 1), (2, 3)}),
        ("part", (1, 3), {(1, 3), (3, 1)}),
        ("cut", (2,), {(LOAD, 2), (1, 2), (3, 2), (2, LOAD), (2, 1), (2, 3)}),
    ],
)
def test_a_fault_of_the_network_drops_the_packets_that_it_names(
    cluster: Cluster, action: str, nodes: tuple[int, ...], dropped: set[tuple[int, int]]
) -> None:
    wires = Wires()
    harm = Harm(cluster, wires)
    hit = [cluster.node(node) for node in nodes]
    harm.begin(action, hit)
    assert wires.dropped == dropped
    assert harm.end(action, hit) == []
    assert not wires.dropped


def test_packets_pass_again_when_the_last_fault_that_drops_them_is_over(cluster: Cluster) -> None:
    wires = Wires()
    harm = Harm(cluster, wires)
    harm.begin("mute", [cluster.node(1)])
    harm.begin("deafen", [cluster.node(2)])
    harm.end("mute", [cluster.node(1)])
    assert wires.dropped == {(LOAD, 2), (1, 2), (3, 2)}
    harm.end("deafen", [cluster.node(2)])
    assert not wires.dropped
