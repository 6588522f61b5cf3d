"""Nodes as processes, what they say of the cluster, and wires between them that are cut."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from blumfeld.testing.cluster import COMBINED, LOOPBACK, node_places
from blumfeld.wire.messages.describe_quorum import ReplicaState, ResponsePartitionData
from campaigns.cluster.contenders import this_build
from campaigns.cluster.faults import plan_of
from campaigns.cluster.nodes import Cluster, Node, NodeError
from campaigns.cluster.rounds import Run, Settings
from campaigns.cluster.watching import LeaderWatch, Observer, TopicState
from tests.bench.lingering_server import READY, TOLD

SMALL = Path(__file__).parents[2] / "bench" / "small_server.py"
LINGERING = SMALL.with_name("lingering_server.py")
WIRES = """
import socket, subprocess, sys
from campaigns.cluster.namespaces import Namespaces, NoNamespacesError
try:
    wires = Namespaces(2)
except NoNamespacesError as error:
    sys.exit(f"none: {error}")
SERVER = "import socket; s = socket.create_server(('10.83.0.1', 7000)); print(flush=True); s.accept(); s.accept()"
with wires:
    server = subprocess.Popen([*wires.prefixes[0], sys.executable, "-S", "-c", SERVER], stdout=subprocess.PIPE)
    server.stdout.readline()
    def reaches(timeout_s=60.0):
        try:
            socket.create_connection((wires.hosts[0], 7000), timeout_s).close()
            return True
        except OSError:
            return False
    print(reaches())
    wires.cut(1)
    print(reaches(0.3))
    wires.heal(1)
    print(reaches())
    server.kill()
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Three nodes that answer, and that name three brokers and one replica of a partition."""
    command = (sys.executable, "-S", str(SMALL), "{port}", "{folder}", "3")
    made = Cluster({COMBINED: command}, node_places([LOOPBACK] * 3), tmp_path)
    try:
        made.start()
        yield made
    finally:
        made.stop()


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
    node.await_answer()
    assert node.log_path.read_text().count("$ ") == 2
    assert cluster.addresses.split(",")[1] == node.place.address


def test_a_paused_node_is_up_and_silent_until_it_is_resumed(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = cluster.node(1)
    node.pause()
    with pytest.raises(OSError, match="timed out"), node.connect(0.1) as connection:
        connection.negotiate({})
    assert node.is_up
    node.resume()
    node.await_answer()


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
        node.await_answer()


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


def test_a_watch_notes_when_each_broker_names_leaders_that_were_not_hit(cluster: Cluster) -> None:
    """Every node of these names node 1."""
    begin = time.monotonic()
    with LeaderWatch(cluster.nodes[:2], "t", [3]) as watch:
        while None in watch.named_s(begin):
            time.sleep(0.001)
    assert all(named is not None and named > 0 for named in watch.named_s(begin))
    with LeaderWatch(cluster.nodes[1:], "t", [1]) as watch:
        time.sleep(0.05)
    assert watch.named_s(begin) == (None, None)


def test_what_a_node_says_of_the_topic(cluster: Cluster) -> None:
    observer = Observer(cluster, "t")
    state = observer.topic_of(cluster.node(1))
    assert state is not None
    assert (state.brokers, state.leaders) == (frozenset({1, 2, 3}), (1,))
    assert not observer.await_whole(0)
    cluster.node(1).kill()
    assert observer.topic_of(cluster.node(1)) is None
    assert "node 1 (down): no answer; node 2 (up): brokers [1, 2, 3]" in observer.describe()
    assert observer.controller() == -1


@pytest.mark.parametrize(
    ("state", "whole"),
    [
        (TopicState(frozenset({1, 2}), (1, 2), (frozenset({1, 2}), frozenset({1, 2}))), True),
        (TopicState(frozenset({1}), (1, 1), (frozenset({1, 2}), frozenset({1, 2}))), False),
        (TopicState(frozenset({1, 2}), (1, -1), (frozenset({1, 2}), frozenset({1, 2}))), False),
        (TopicState(frozenset({1, 2}), (1, 2), (frozenset({1, 2}), frozenset({2}))), False),
        (TopicState(frozenset({1, 2}), (), ()), False),
    ],
)
def test_a_topic_is_whole_when_every_node_is_in_sync_everywhere(state: TopicState, whole: bool) -> None:
    assert state.is_whole(2) is whole


def test_a_cut_node_is_silent_until_it_is_healed() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WIRES], capture_output=True, text=True, timeout=60, check=False
    )
    if done.stderr.startswith("none: "):
        pytest.skip(done.stderr)
    assert (done.stdout.split(), done.stderr) == (["True", "False", "True"], "")


@pytest.mark.slow
def test_faults_of_one_real_node_lose_nothing_and_their_gaps_are_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole script on the smallest cluster: what stops its only node is felt for as long as it lasts."""

    def quorum(observer: Observer) -> ResponsePartitionData:
        """A single node has no quorum to describe."""
        now = ReplicaState(replica_id=1, last_caught_up_timestamp=round(time.time() * 1000))
        return ResponsePartitionData(leader_id=1, current_voters=[now])

    monkeypatch.setattr(Observer, "_quorum", quorum)
    contender = this_build()
    cluster = Cluster(contender.commands, node_places([LOOPBACK]), tmp_path)
    settings = Settings(partitions=2, in_sync_min=1, rate_per_s=500, down_s=0.7, steady_s=0.5, settle_s=0.3)
    said: list[str] = []
    try:
        faults = plan_of(
            ("kill-controller", "pause-controller", "kill-leader", "stop-controller", "rolling"), 1
        )
        report = Run(contender, cluster, settings, None, said.append).run(faults)
    finally:
        cluster.stop()
    assert report.wrong == ()
    assert not report.is_good  # a fault was left out
    assert report.account.acked == report.sent > 1000
    assert len(said) == 5
    kill, pause, left_out, stop, rolling = report.faults
    assert left_out.nodes == ()
    assert "no partition has a leader that is not the controller" in left_out.notes[-1]
    for fault in (kill, pause, stop, rolling):
        assert fault.nodes == (1,)
        assert fault.led == (2,)
    assert min(kill.longest_s, pause.longest_s) > 0.7
    assert stop.longest_s > 0.05
    assert report.steady_s < 0.5
