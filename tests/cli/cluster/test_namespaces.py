"""Isolated nodes: their addresses, and packets that are dropped between two of them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from blumfeld.cli.cluster import namespaces
from blumfeld.cli.cluster.state import ClusterError, ClusterState, NodeState
from blumfeld.kernel.manifest.sections import listener_sections, read_manifest
from blumfeld.kernel.supervising.derivation import node_manifests

CAN = os.geteuid() == 0 and shutil.which("ip") is not None and Path("/run").is_dir()
PORT = 7


def test_every_listener_and_voter_moves_to_the_nodes_address() -> None:
    manifest = read_manifest(None, overrides=["nodes=4", "metrics.bind=127.0.0.1:9100"])
    made = namespaces.isolated(node_manifests(manifest, "m"), "bf00000a")
    assert [section.bind for section in listener_sections(made[1])] == ["10.202.1.2:9102", "10.202.1.2:9103"]
    assert made[1].metrics.bind == "10.202.1.2:9110"
    voters = "1@10.202.1.1:9093,2@10.202.1.2:9103,3@10.202.1.3:9113"
    assert {node_manifest.config["controller.quorum.voters"] for node_manifest in made} == {voters}
    assert [section.bind for section in listener_sections(made[3])] == ["10.202.1.4:9122"]


def test_brokers_of_another_quorum_are_not_isolated() -> None:
    servers = 'config."controller.quorum.bootstrap.servers"="h:1"'
    manifest = read_manifest(None, overrides=["nodes=2", 'node.roles=["broker"]', servers])
    with pytest.raises(ClusterError, match="outside of the namespaces"):
        namespaces.isolated(node_manifests(manifest, "m"), "bf00000a")


def test_nodes_on_one_network_are_not_cut() -> None:
    first_node, second_node = (
        NodeState(id=n, roles=(), host="h", port=1, manifest="", log="") for n in (1, 2)
    )
    with pytest.raises(ClusterError, match=r"share one network.*up N --isolated"):
        namespaces.cut(first_node, second_node)


def test_a_node_whose_namespace_is_gone_is_healed() -> None:
    """A reboot takes namespaces and cuts away, and leaves the cluster's file."""
    first_node, second_node = (
        NodeState(id=n, roles=(), host="10.1.2.3", port=1, manifest="", log="", namespace=f"bf-never-{n}")
        for n in (1, 2)
    )
    namespaces.heal(first_node, second_node)


@pytest.fixture
def isolated(tmp_path: Path) -> Iterator[ClusterState]:
    bridge = namespaces.bridge_name(tmp_path)
    nodes = [
        NodeState(
            id=n,
            roles=(),
            host=namespaces.address_of(bridge, n),
            port=PORT,
            manifest="",
            log="",
            namespace=f"{bridge}-{n}",
        )
        for n in (1, 2)
    ]
    state = ClusterState(nodes=nodes, bridge=bridge)
    try:
        namespaces.make(state)
    except ClusterError as error:
        namespaces.remove(state)
        pytest.skip(f"this machine makes no namespaces: {error}")
    yield state
    namespaces.remove(state)


HEAR = """
import socket, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as hears:
    hears.bind(("", int(sys.argv[1])))
    print("hears", flush=True)
    while True:
        print(hears.recv(100).decode(), flush=True)
"""
SAY = """
import socket, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as says:
    for host, text in zip(sys.argv[2::2], sys.argv[3::2]):
        try:
            says.sendto(text.encode(), (host, int(sys.argv[1])))
        except OSError:
            print("refused", text)
"""


def run_in(node: NodeState, code: str, *arguments: str) -> list[str]:
    return [*namespaces.prefix(node), sys.executable, "-I", "-S", "-c", code, str(PORT), *arguments]


@pytest.mark.skipif(not CAN, reason="needs root and iproute2")
def test_a_cut_drops_packets_in_one_direction_until_it_is_healed(isolated: ClusterState) -> None:
    first_node, second_node = isolated.nodes
    hears = subprocess.Popen(run_in(second_node, HEAR), stdout=subprocess.PIPE, text=True)
    back = subprocess.Popen(run_in(first_node, HEAR), stdout=subprocess.PIPE, text=True)
    try:
        assert hears.stdout is not None
        assert back.stdout is not None
        assert hears.stdout.readline() == back.stdout.readline() == "hears\n"
        say(first_node, second_node, "before")
        namespaces.cut(first_node, second_node)
        namespaces.cut(first_node, second_node)  # a second time is no mistake
        say(first_node, second_node, "lost")
        say(second_node, first_node, "back")
        say(None, second_node, "from outside")
        namespaces.heal(first_node, second_node)
        say(first_node, second_node, "after")
        assert [hears.stdout.readline().strip() for _ in range(3)] == ["before", "from outside", "after"]
        assert back.stdout.readline().strip() == "back"
    finally:
        hears.kill()
        back.kill()
        hears.communicate()
        back.communicate()


def say(sender: NodeState | None, receiver: NodeState, text: str) -> None:
    """Send one datagram; from outside of the namespaces where there is no sender."""
    arguments = (receiver.host, text)
    command = (
        [sys.executable, "-I", "-S", "-c", SAY, str(PORT), *arguments]
        if sender is None
        else run_in(sender, SAY, *arguments)
    )
    subprocess.run(command, capture_output=True, timeout=30, check=True)


SERVE = """
import socket, sys
with socket.create_server(("", int(sys.argv[1]))) as server:
    print("serves", flush=True)
    while True:
        connection, _ = server.accept()
        connection.sendall(connection.recv(100))
"""
CALL = """
import select, socket, sys
def told(text): print(text, flush=True)
def tried():
    try:
        with socket.create_connection((sys.argv[2], int(sys.argv[1])), timeout=0.3): told("connected")
    except OSError as error: told(type(error).__name__)
with socket.create_connection((sys.argv[2], int(sys.argv[1])), timeout=30) as open_before:
    told("open")
    sys.stdin.readline()
    tried()
    open_before.sendall(b"late")
    told("answered" if select.select([open_before], [], [], 0.3)[0] else "silent")
    sys.stdin.readline()
    told(open_before.recv(100).decode())
    tried()
"""


@pytest.mark.skipif(not CAN, reason="needs root and iproute2")
@pytest.mark.parametrize("backwards", [False, True])
def test_a_cut_is_silent(isolated: ClusterState, backwards: bool) -> None:
    """A connection attempt times out, and an open connection stays open: as with a cable that is cut. A node that is
    dead refuses and resets, so the cluster reacts otherwise."""
    first_node, second_node = isolated.nodes
    cut = (second_node, first_node) if backwards else (first_node, second_node)
    serves = subprocess.Popen(run_in(second_node, SERVE), stdout=subprocess.PIPE, text=True)
    assert serves.stdout is not None
    assert serves.stdout.readline() == "serves\n"
    calls = subprocess.Popen(
        run_in(first_node, CALL, second_node.host), stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True
    )
    try:
        assert calls.stdout is not None
        assert calls.stdin is not None
        assert calls.stdout.readline() == "open\n"
        namespaces.cut(*cut)
        print(file=calls.stdin, flush=True)
        assert calls.stdout.readline() == "TimeoutError\n"
        assert calls.stdout.readline() == "silent\n"
        namespaces.heal(*cut)
        print(file=calls.stdin, flush=True)
        assert calls.stdout.readline() == "late\n", "what was sent during the cut arrives after it"
        assert calls.stdout.readline() == "connected\n"
    finally:
        for process in (serves, calls):
            process.kill()
            process.communicate()


@pytest.mark.skipif(not CAN, reason="needs root and iproute2")
def test_a_half_made_namespace_is_made_anew_and_its_cuts_are_gone(isolated: ClusterState) -> None:
    first_node, second_node = isolated.nodes
    namespaces.cut(first_node, second_node)
    namespaces.cut(second_node, first_node)
    isolated.cuts = [(1, 2), (2, 1)]
    namespaces.make(isolated)
    assert isolated.cuts == [(1, 2), (2, 1)], "whole ones stay as they are"
    assert first_node.namespace is not None
    namespaces._ip("-n", first_node.namespace, "link", "del", namespaces.DEVICE)
    namespaces.make(isolated)
    assert isolated.cuts == [(2, 1)]
    assert namespaces._is_whole(first_node)
    namespaces.heal(first_node, second_node)  # nothing to heal
    namespaces.heal(second_node, first_node)
    namespaces.heal(second_node, first_node)


@pytest.mark.skipif(not CAN, reason="needs root and iproute2")
def test_a_refused_namespace_leaves_nothing_behind(
    isolated: ClusterState, monkeypatch: pytest.MonkeyPatch
) -> None:
    namespaces.remove(isolated)
    real = namespaces._ip

    def refused(*arguments: str) -> str:
        if arguments[-2:] == (namespaces.DEVICE, "up") and "-o" not in arguments:
            raise ClusterError("refused")
        return real(*arguments)

    monkeypatch.setattr(namespaces, "_ip", refused)
    with pytest.raises(ClusterError, match="refused"):
        namespaces.make(isolated)
    assert isolated.bridge is not None
    assert not any(map(namespaces.has_namespace, isolated.nodes))
    assert not namespaces._is_there(isolated.bridge)
    assert not namespaces._is_there(f"{isolated.bridge}.1")
