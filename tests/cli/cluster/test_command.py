"""``blumfeld cluster`` with a real node, and what it refuses."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from blumfeld.cli.app import run_app
from blumfeld.cli.cluster import command, namespaces
from blumfeld.cli.cluster.creation import new_cluster
from blumfeld.cli.cluster.questions import Answers
from blumfeld.cli.cluster.state import ClusterError, ClusterState, NodeState, load_state, save_state
from blumfeld.testing.process import free_port

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


class Cluster:
    """The command on one directory."""

    def __init__(self, directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.directory = directory
        self._capsys = capsys

    def __call__(self, *arguments: str, expected: int = 0) -> str:
        """What the command said: on stdout if it succeeded, else on stderr."""
        status = run_app(["cluster", *arguments, "--dir", str(self.directory)])
        out, err = self._capsys.readouterr()
        assert status == expected, out + err
        return err if expected else out

    def node(self) -> dict[str, Any]:
        """The first node, as `status --json` says."""
        first_node: dict[str, Any] = json.loads(self("status", "--json"))["nodes"][0]
        return first_node


@pytest.fixture
def cluster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Cluster]:
    made = Cluster(tmp_path / "c", capsys)
    yield made
    if (made.directory / "cluster.json").exists():
        run_app(["cluster", "stop", "--dir", str(made.directory)])


def test_a_node_is_started_hurt_and_stopped(cluster: Cluster) -> None:
    address = f"127.0.0.1:{free_port()}"
    said = cluster("up", "1", "--listen", address)
    assert said.splitlines()[-1] == f"all 1 nodes serve; bootstrap.servers={address}"
    first = json.loads((cluster.directory / "cluster.json").read_text())["nodes"][0]["pid"]
    assert cluster.node() | {"lag": 0} == {
        "id": 1,
        "roles": ["broker", "controller"],
        "address": address,
        "process": "running",
        "answers": True,
        "place": None,
        "leads": 0,
        "replicas": 0,
        "not_in_sync": 0,
        "lag": 0,
    }
    assert "0 without a leader" in cluster("status")
    cluster("pause", "1")
    assert "not all nodes serve: node 1 is paused. `blumfeld cluster resume 1`" in cluster("up", expected=1)
    assert cluster("kill", "1") == "node 1: SIGKILL\n"
    assert (cluster.node()["process"], cluster.node()["answers"]) == ("dead", False)
    assert "node 1 doesn't run" in cluster("kill", "1", expected=1)
    assert "all 1 nodes serve" in cluster("up")
    assert json.loads((cluster.directory / "cluster.json").read_text())["nodes"][0]["pid"] != first
    assert "1 twice: two nodes are needed" in cluster("cut", "1", "1", expected=1)
    assert "node 2: this cluster has the nodes 1" in cluster("cut", "1", "2", expected=1)
    assert "there is a cluster of 1 nodes already" in cluster("up", "2", expected=1)
    assert cluster("stop") == "stopped: node 1\n"
    assert (cluster.directory / "node-1" / ".kafka_cleanshutdown").exists(), "it was stopped cleanly"
    assert cluster.node()["process"] == "dead"
    assert cluster("stop") == ""


def test_a_node_that_cannot_start_leaves_none_behind(cluster: Cluster) -> None:
    address = f"127.0.0.1:{free_port()}"
    said = cluster("up", "1", "--listen", address, "--set", "metrics.bind=256.0.0.1:1", expected=1)
    assert said.startswith("blumfeld: node 1 ended\n")
    assert "could not start: metrics" in said
    assert cluster.node()["process"] == "dead"


def test_a_node_that_is_not_ready_in_time_is_ended(cluster: Cluster) -> None:
    said = cluster("up", "1", "--listen", f"127.0.0.1:{free_port()}", "--timeout", "0.01", expected=1)
    assert said.startswith("blumfeld: node 1 isn't ready after ")
    assert cluster.node()["process"] == "dead"


def test_a_node_that_hangs_does_not_serve(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster("up", "1", "--listen", f"127.0.0.1:{free_port()}")

    async def nothing(_nodes: object, _security: object) -> list[Answers]:
        return []

    monkeypatch.setattr(command, "ask_all", nothing)
    said = cluster("up", "--timeout", "0.1", expected=1)
    assert "not all nodes serve: node 1 is running without an answer; see " in said


def test_the_number_of_nodes_is_the_manifests_unless_the_command_says_it(tmp_path: Path) -> None:
    def count(given: int | None, *overrides: str) -> int:
        directory = tmp_path / f"{given}-{len(overrides)}"
        listen = f"127.0.0.1:{free_port(adjacent=42)}"
        return len(new_cluster(given, directory, None, overrides, listen, is_isolated=False).nodes)

    assert [count(None), count(None, "nodes=5"), count(2), count(1)] == [3, 5, 2, 1]


def test_the_manifests_of_nodes_are_their_owners_alone(tmp_path: Path) -> None:
    """They have the passwords and private keys of the manifest that they are derived from."""
    listen = f"127.0.0.1:{free_port(adjacent=42)}"
    state = new_cluster(2, tmp_path / "c", None, [], listen, is_isolated=False)
    assert {Path(node.manifest).stat().st_mode & 0o777 for node in state.nodes} == {0o600}


def test_a_port_that_is_taken_is_seen_before_anything_is_written(cluster: Cluster) -> None:
    """Two clusters side by side: the second one can be begun again with other ports."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        said = cluster("up", "2", "--listen", f"127.0.0.1:{taken}", expected=1)
    assert f"PLAINTEXT of node 1 can't listen on 127.0.0.1:{taken}: Address already in use. --listen" in said
    assert not cluster.directory.exists()


def test_a_dead_node_is_not_asked(cluster: Cluster) -> None:
    """Another process may have its port by now, and its answers would be taken for the node's."""
    address = f"127.0.0.1:{free_port()}"
    cluster("up", "1", "--listen", address)
    cluster("kill", "1")
    host, _, port = address.rpartition(":")
    with socket.create_server((host, int(port))) as other:
        status = json.loads(cluster("status", "--json"))
        other.setblocking(False)
        with pytest.raises(BlockingIOError):
            other.accept()
    assert (status["cluster_id"], status["nodes"][0]["answers"]) == (None, False)


def test_cuts_are_written_down_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that fails halfway leaves a file that says which packets are dropped."""
    nodes = [
        NodeState(id=n, roles=(), host="h", port=1, manifest="", log="", namespace=f"bf-{n}")
        for n in (1, 2, 3)
    ]
    save_state(tmp_path, ClusterState(nodes=nodes, bridge="bf"))
    dropped: list[tuple[int, int]] = []

    def dropping(name: str) -> None:
        def change(sender: NodeState, receiver: NodeState) -> None:
            if sender.id == 2:
                raise ClusterError("refused")
            (dropped.append if name == "cut" else dropped.remove)((sender.id, receiver.id))

        monkeypatch.setattr(namespaces, name, change)

    dropping("cut")
    dropping("heal")
    for arguments in (("cut", "1", "2"), ("cut", "3", "1", "--one-way")):
        run_app(["cluster", *arguments, "--dir", str(tmp_path)])
        assert load_state(tmp_path).cuts == dropped
    save_state(tmp_path, ClusterState(nodes=nodes, bridge="bf", cuts=[(1, 2), (2, 1), (3, 1)]))
    assert run_app(["cluster", "heal", "--dir", str(tmp_path)]) == 1
    assert load_state(tmp_path).cuts == [(2, 1), (3, 1)]


@pytest.mark.slow
def test_what_is_left_of_a_quorum_says_what_it_knows(cluster: Cluster) -> None:
    """Real processes: no leader answers DescribeQuorum any more, and everything else is answered."""
    cluster("up", "3", "--listen", f"127.0.0.1:{free_port(adjacent=22)}")
    quorum = json.loads(cluster("status", "--json"))["quorum"]
    assert [replica["is_voter"] for replica in quorum["replicas"]] == [True, True, True]
    left = next(node_id for node_id in (1, 2, 3) if node_id != quorum["leader"])
    for dead in {1, 2, 3} - {left}:
        cluster("kill", str(dead))
    status = json.loads(cluster("status", "--json"))
    assert status["quorum"] is None
    assert [node["answers"] for node in status["nodes"]] == [node_id == left for node_id in (1, 2, 3)]
    assert status["nodes"][left - 1]["place"]["epoch"] >= quorum["epoch"]
    assert status["topics"] == 0


@pytest.mark.parametrize(
    ("arguments", "status", "complaint"),
    [
        (("status",), 1, "has no cluster (cluster.json): begin one with"),
        (("status", "--bootstrap", "9092"), 1, "--bootstrap: found '9092'; allowed: HOST:PORT"),
        (("up", "2", "--set", "nodse=1"), 2, "nodse: found an unknown key"),
        (("up", "1", "--listen", "127.0.0.1:0"), 1, "PLAINTEXT of node 1 has port 0"),
        (("up", "3", "--set", "nodes=2"), 2, "--set: nodes: found 2; allowed: nothing here: N says how many"),
        (
            ("up", "--set", "node.data_dir=d"),
            2,
            "node.data_dir: found d; allowed: nothing here: --dir has all",
        ),
        (("up", "0"), 2, "nodes: found 0"),
        (("up", "--manifest", "absent.toml"), 2, "absent.toml: no such file"),
    ],
)
def test_what_it_refuses(cluster: Cluster, arguments: tuple[str, ...], status: int, complaint: str) -> None:
    assert complaint in cluster(*arguments, expected=status)
    assert not (cluster.directory / "cluster.json").exists()
