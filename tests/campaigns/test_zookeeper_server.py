"""ZooKeeper servers of a campaign: how an ensemble is put together, and that none is left."""

from __future__ import annotations

from pathlib import Path

import pytest

from blumfeld.testing.process import NodeError
from campaigns import zookeeper_server
from campaigns.zookeeper_server import (
    ZooKeeperServer,
    consensus_settings,
    leader_of,
    running,
    zookeeper_ensemble,
    zookeeper_settings,
)


@pytest.fixture(autouse=True)
def _jars(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(zookeeper_server, "jars_folder", lambda: tmp_path)


def test_the_servers_of_an_ensemble_know_each_other_and_themselves(tmp_path: Path) -> None:
    servers = zookeeper_ensemble(tmp_path, 3, 9000)
    assert [server.place.address for server in servers] == [f"127.0.0.1:{9000 + nth}" for nth in range(3)]
    assert [server.place.id for server in servers] == [0, -1, -2]
    members = [f"server.{nth + 1}=127.0.0.1:{9003 + 2 * nth}:{9004 + 2 * nth}" for nth in range(3)]
    for nth in range(3):
        folder = tmp_path / str(nth + 1)
        assert (folder / "data" / "myid").read_text() == str(nth + 1)
        lines = (folder / "zoo.cfg").read_text().splitlines()
        assert [line for line in lines if line.startswith("server.")] == members
        assert f"clientPort={9000 + nth}" in lines


def test_a_server_that_does_not_serve_in_time_is_ended_with_the_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    calls = []

    def await_ready(server: ZooKeeperServer) -> None:
        if server.place.id:
            raise NodeError("was not ready")

    monkeypatch.setattr(ZooKeeperServer, "launch", lambda each: calls.append(f"launch {each.place.id}"))
    monkeypatch.setattr(ZooKeeperServer, "await_ready", await_ready)
    monkeypatch.setattr(ZooKeeperServer, "kill", lambda each: calls.append(f"kill {each.place.id}"))
    with pytest.raises(NodeError), running(zookeeper_ensemble(tmp_path, 2)):
        raise AssertionError("it doesn't serve")
    assert calls == ["launch 0", "launch -1", "kill 0", "kill -1"]


@pytest.mark.parametrize("mode", ["leader", "standalone"])
def test_the_leader_is_the_server_that_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, mode: str
) -> None:
    servers = zookeeper_ensemble(tmp_path, 3)
    says = {0: "Mode: follower", -1: f"Zookeeper version: 3.8.4\nMode: {mode}", -2: ""}
    monkeypatch.setattr(ZooKeeperServer, "status", lambda each: says[each.place.id])
    assert leader_of(servers) is servers[1]
    assert leader_of((servers[0], servers[2])) is None


@pytest.mark.parametrize(("nodes", "told"), [(1, True), (2, True), (3, False)])
def test_few_nodes_are_told_of_their_replicas(nodes: int, told: bool) -> None:
    settings = zookeeper_settings("127.0.0.1:1/blumfeld", 3_000, nodes)
    assert ('config."offsets.topic.replication.factor"=1' in settings) is told


def test_nodes_on_kraft_need_no_server(tmp_path: Path) -> None:
    with consensus_settings("kraft", tmp_path, 3) as settings:
        assert settings == ()
    assert not list(tmp_path.iterdir())
