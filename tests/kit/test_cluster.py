"""Nodes as processes: started, killed, paused, stopped and started again on the same data."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from blumfeld.testing.cluster import COMBINED, LOOPBACK, node_places
from blumfeld.testing.process import NodeError
from blumfeld_kit.cluster import Cluster, Node
from tests.bench.lingering_server import READY, TOLD
from tests.kit.small_cluster import LINGERING, small_cluster


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with small_cluster(tmp_path) as made:
        yield made


def launch(cluster: Cluster) -> None:
    """Start lingering servers; each takes SIGTERM when this returns."""
    for node in cluster.nodes:
        node.launch()
    for node in cluster.nodes:
        while f"\n{READY}\n" not in node.printed():
            time.sleep(0.01)


def test_a_killed_node_starts_again_in_its_folder_and_the_log_goes_on(cluster: Cluster) -> None:
    node = cluster.node(2)
    assert node.answers()
    node.kill()
    assert not node.is_up
    assert not node.answers()
    node.launch()
    node.await_ready()
    assert node.log_path.read_text().count("$ ") == 2
    assert cluster.addresses.split(",")[1] == node.place.address


def test_a_paused_node_is_up_and_silent_until_it_is_resumed(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = cluster.node(1)
    node.pause()
    with pytest.raises(OSError, match="no answer in time"), node.connect(0.1) as connection:
        connection.negotiate({})
    assert node.is_up
    node.resume()
    node.await_ready()


def test_a_stop_says_whether_the_node_ended_by_itself(tmp_path: Path) -> None:
    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(60)"
    node = Node(node_places([LOOPBACK])[0], [sys.executable, "-S", "-c", deaf], tmp_path)
    node.launch()
    while "\n\n" not in node.printed():
        time.sleep(0.01)
    node.terminate()
    assert not node.await_end(timeout_s=0.05)
    assert not node.is_up
    assert node.await_end(timeout_s=0.05)


def test_a_node_that_ends_says_what_it_printed(tmp_path: Path) -> None:
    node = Node(
        node_places([LOOPBACK])[0], [sys.executable, "-S", "-c", "raise SystemExit('no luck')"], tmp_path
    )
    node.launch()
    with pytest.raises(NodeError, match=r"node 1 ended; (.|\n)*no luck"):
        node.await_ready()


def test_the_end_reaches_paused_nodes_and_all_their_processes(cluster: Cluster) -> None:
    node = cluster.node(3)
    assert node._process is not None
    group = node._process.pid
    node.pause()
    cluster.stop()
    assert not any(each.is_up for each in cluster.nodes)
    deadline = time.monotonic() + 60
    while True:  # the child ends by itself soon after
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            break
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_each_node_is_told_once_to_end(tmp_path: Path) -> None:
    """A second SIGTERM would end a node of this build at once. Each node ends later than the one before it."""
    command = (sys.executable, "-S", str(LINGERING), "0.{id}5")
    cluster = Cluster({COMBINED: command}, node_places([LOOPBACK] * 3), tmp_path)
    launch(cluster)
    cluster.stop()
    assert [node.printed().count(TOLD) for node in cluster.nodes] == [1, 1, 1]


def test_a_stop_that_is_interrupted_kills_the_nodes_that_are_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = (sys.executable, "-S", str(LINGERING), "60")
    cluster = Cluster({COMBINED: command}, node_places([LOOPBACK] * 2), tmp_path)

    def interrupted(node: Node, timeout_s: float) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(Node, "await_end", interrupted)
    launch(cluster)
    with pytest.raises(KeyboardInterrupt):
        cluster.stop()
    assert not any(node.is_up for node in cluster.nodes)
