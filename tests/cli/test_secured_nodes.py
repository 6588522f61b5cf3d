"""Three nodes of one manifest with SASL_SSL on every listener: they are asked, and stop cleanly."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from blumfeld.cli.app import run_app
from blumfeld.cli.manifest import load_manifest
from blumfeld.cli.peer_questions import quorum_leader_of
from blumfeld.kernel.composing.plan import Plan, make_plan
from blumfeld.kernel.supervising.derivation import node_manifests
from blumfeld.plugging.errors import Faults
from blumfeld.testing.process import free_port
from campaigns.certificates import private
from tests.secured import Secured

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="the supervisor needs Linux"),
]
READY = "all 3 nodes serve"


class Nodes:
    """A supervisor of three secured nodes."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port(adjacent=22)
        self.files = Secured(folder)
        self.manifest = self.files.manifest_file(self.port, nodes=3)
        command = [sys.executable, "-m", "blumfeld.cli.main", "run", self.manifest]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.said: list[str] = []

    def plans(self) -> list[Plan]:
        faults = Faults(self.manifest)
        manifest = load_manifest(self.manifest, faults=faults)
        return [
            make_plan(node, self.manifest, faults=faults) for node in node_manifests(manifest, "m", faults)
        ]

    def wait_until_ready(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said.append(line)
            if READY in line:
                return
        raise AssertionError("".join(self.said))

    def stop(self) -> int:
        """Return the status, and keep what was said."""
        self.process.send_signal(signal.SIGTERM)
        rest, _ = self.process.communicate(timeout=60)
        self.said.append(rest)
        return self.process.returncode


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    nodes = Nodes(tmp_path)
    try:
        nodes.wait_until_ready()
        yield nodes
    finally:
        if nodes.process.poll() is None:
            nodes.process.kill()
        nodes.process.communicate()


def test_the_nodes_are_asked_and_stop_cleanly(nodes: Nodes, capsys: pytest.CaptureFixture[str]) -> None:
    config = nodes.files.properties(
        sasl_mechanism="PLAIN", sasl_jaas_config=None, **nodes.files.plain_login()
    )
    address = f"127.0.0.1:{nodes.port}"
    assert run_app(["cluster", "status", "--json", "--bootstrap", address, "--command-config", config]) == 0
    told = json.loads(capsys.readouterr().out)
    assert len(told["nodes"]) == 3
    leader = told["quorum"]["leader"]
    assert quorum_leader_of(nodes.plans()) == leader
    assert nodes.stop() == 0
    said = "".join(nodes.said)
    assert "isn't known" not in said, said
    assert "didn't stop" not in said, said


def test_a_supervisor_that_is_not_let_in_says_why(nodes: Nodes) -> None:
    nodes.files.login.write_text("user = 'admin'\npassword = 'changed meanwhile'\n")
    assert nodes.stop() == 0
    said = "".join(nodes.said)
    assert "the quorum's leader isn't known" in said, said
    assert "login of 'admin' by PLAIN: the server refuses: Authentication failed" in said, said


@pytest.mark.parametrize("text", [None, "user = 'admin"])
def test_a_login_that_is_gone_or_broken_keeps_no_supervisor_from_a_stop(
    text: str | None, nodes: Nodes
) -> None:
    """It ended with a traceback, and its nodes were killed."""
    nodes.files.login.unlink()
    if text is not None:
        private(nodes.files.login, text.encode())
    assert nodes.stop() == 0
    said = "".join(nodes.said)
    assert "the quorum's leader isn't known" in said, said
    assert "security.options.peer_login: found " in said, said


def test_a_secured_cluster_for_experiments_is_looked_at_and_stopped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files, directory = Secured(tmp_path), str(tmp_path / "cluster")
    manifest = files.manifest_file(free_port(adjacent=22), nodes=3)
    config = files.properties(sasl_mechanism="PLAIN", sasl_jaas_config=None, **files.plain_login())
    login = ["--command-config", config]

    def cluster(*arguments: str) -> tuple[int, str, str]:
        status = run_app(["cluster", *arguments, "--dir", directory])
        return status, *capsys.readouterr()

    status, out, err = cluster("up", "--manifest", manifest)
    try:
        assert status == 0, err
        status, out, err = cluster("up", *login)
        assert (status, err) == (0, ""), err
        status, out, err = cluster("up")
        assert (status, "may want TLS or a login" in err) == (1, True), err
        status, out, err = cluster("status", "--json", *login)
        told = json.loads(out)
        assert [(node["answers"], node["place"]["leader"]) for node in told["nodes"]] == [
            (True, told["quorum"]["leader"])
        ] * 3
        assert cluster("kill", "1")[0] == 0
        status, out, err = cluster("status", "--json", *login)
        assert [node["answers"] for node in json.loads(out)["nodes"]] == [False, True, True]
        status, out, err = cluster("status")
        assert (status, "may want TLS or a login" in err) == (1, True), err
    finally:
        status, out, err = cluster("stop", *login)
    assert (status, err) == (0, ""), err
