"""The state of a cluster as its nodes see it, wires between them that are cut, and a run on one real node."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from blumfeld.testing.cluster import LOOPBACK, node_places
from blumfeld.wire.messages.describe_quorum import ReplicaState, ResponsePartitionData
from blumfeld_kit.cluster import Cluster
from campaigns.cluster.contenders import this_build
from campaigns.cluster.faults import plan_of
from campaigns.cluster.observer import LeaderWatch, Observer, TopicState
from campaigns.cluster.rounds import Run, Settings
from tests.kit.small_cluster import small_cluster

WIRES = """
import socket, subprocess, sys
from blumfeld.cli.cluster.state import ClusterError
from campaigns.cluster.namespaces import Namespaces
try:
    wires = Namespaces(2)
except ClusterError as error:
    sys.exit(f"none: {error}")
SERVER = "import socket, sys; s = socket.create_server((sys.argv[1], 7000)); print(flush=True); s.accept(); s.accept()"
with wires:
    program = [sys.executable, "-S", "-c", SERVER, wires.hosts[0]]
    server = subprocess.Popen([*wires.prefixes[0], *program], stdout=subprocess.PIPE)
    server.stdout.readline()
    def reaches(timeout_s=60.0):
        try:
            socket.create_connection((wires.hosts[0], 7000), timeout_s).close()
            return True
        except OSError:
            return False
    print(reaches())
    wires.drop(0, 1)
    print(reaches(0.3))
    wires.pass_again(0, 1)
    print(reaches())
    server.kill()
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with small_cluster(tmp_path) as made:
        yield made


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
