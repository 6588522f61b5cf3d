"""Packets that faults drop: in the direction that they name, and until the last of them is over."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import cast

import pytest

from blumfeld.testing.cluster import COMBINED, LOOPBACK, node_places
from blumfeld_kit.cluster import Cluster
from campaigns import zookeeper_server
from campaigns.cluster import harm as harm_module
from campaigns.cluster.contenders import this_build
from campaigns.cluster.harm import Harm
from campaigns.cluster.namespaces import LOAD, Namespaces
from campaigns.cluster.sessions import NoSessionError, SessionDoor
from campaigns.door import Way
from campaigns.zookeeper_server import zookeeper_ensemble


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


def test_a_cut_zookeeper_server_has_an_end_of_its_own_behind_the_nodes(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zookeeper_server, "jars_folder", lambda: tmp_path)
    servers = zookeeper_ensemble(tmp_path / "zookeeper", 3)
    wires = Wires()
    Harm(cluster, wires, servers=3).begin("cut", [servers[1]])
    others = (LOAD, 1, 2, 3, 4, 6)
    assert wires.dropped == {pair for other in others for pair in ((other, 5), (5, other))}


def test_the_answer_of_the_controllers_multi_is_lost_by_a_topic_that_it_is_asked_for(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    class Door:
        """The door of one node."""

        lost = threading.Event()

        def lose_next_multi(self) -> None:
            asked.append("armed")

        def set(self, way: Way) -> None:
            asked.append(way.name)

    def begin_topic(bootstrap: str, name: str, replicas: int) -> None:
        asked.append(f"{name} of {replicas}")
        Door.lost.set()

    monkeypatch.setattr(harm_module, "begin_topic", begin_topic)
    harm = Harm(cluster, None, doors={2: cast(SessionDoor, Door())})
    harm.begin("lose", [cluster.node(2)])
    harm.end("lose", [cluster.node(2)])
    assert asked == ["armed", "half-made-1 of 3", "OPEN"]
    Door.lost.clear()
    monkeypatch.setattr(harm_module, "begin_topic", lambda *_: None)
    monkeypatch.setattr(harm_module, "LOST_S", 0.0)
    with pytest.raises(NoSessionError, match="node 2 sent no multi"):
        harm.begin("lose", [cluster.node(2)])
