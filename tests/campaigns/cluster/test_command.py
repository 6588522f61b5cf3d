"""Wrong input is refused before a node is started, and SIGTERM leaves nothing behind."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from pathlib import Path

import pytest

from blumfeld.cli.cluster.state import ClusterError
from blumfeld.testing.endings import TOLD_TO_END
from campaigns import zookeeper_server
from campaigns.cluster import __main__ as command
from campaigns.cluster.__main__ import main
from campaigns.terminal import BAD_INPUT
from tests.bench.lingering_server import READY

ROOT = Path(__file__).resolve().parents[3]
LINGERING = ROOT / "tests" / "bench" / "lingering_server.py"
ENDLESS = """
import sys
from blumfeld.cli.cluster.state import ClusterError
from blumfeld.testing.endings import sigterm_unwinds
from campaigns.cluster import __main__ as command
from campaigns.cluster.contenders import Contender
node = (sys.executable, "-S", sys.argv[1], "0.1", "{folder}")
command.this_build = lambda *_: Contender("stand-in", {("broker", "controller"): node})
with sigterm_unwinds():
    sys.exit(command.main([]))
"""
"""A campaign whose nodes never answer, so that it waits for them."""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--faults", "kill-leader,drown-leader"], "found drown-leader; allowed: rolling, or kill"),
        (
            ["--only", "redpanda"],
            "found redpanda; allowed: blumfeld, and kafka where --peer names its script",
        ),
        (["--only", "kafka"], "found kafka; allowed: blumfeld"),
        (["--only", "kafka", "--peer", "x", "--set", "node.id=1"], "--only kafka runs none of them"),
        (
            ["--only", "kafka", "--peer", "x", "--manifest", "m.toml"],
            "--manifest and --set change the nodes of",
        ),
        (["--faults", "kill-leader,kill-zookeeper"], "a fault of zookeeper needs --zookeeper"),
        (["--faults", "lose-controller"], "a fault of zookeeper needs --zookeeper"),
        (["--zookeeper", "--faults", "lose-leader"], "found lose-leader; allowed: lose-controller"),
        (["--zookeeper", "--faults", "fill-leader"], "--zookeeper has no small disks"),
        (["--layout", "mixed", "--peer", "x"], "--layout mixed needs --zookeeper, and --peer"),
        (["--layout", "mixed", "--zookeeper"], "--layout mixed needs --zookeeper, and --peer"),
        (["--layout", "apart", "--zookeeper"], "--zookeeper has no nodes that are only controllers"),
        (["--zookeeper", "--storm-s", "9"], "--storm-s draws its faults for a cluster of KRaft"),
        (
            ["--zookeeper", "--only", "kafka", "--peer", "x"],
            "--zookeeper: found --only kafka; allowed: blumfeld",
        ),
    ],
)
def test_wrong_input_is_refused_with_what_is_allowed(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == BAD_INPUT
    assert said in capsys.readouterr().err


def test_cuts_where_there_are_no_namespaces_are_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With six nodes, three of which are controllers."""

    def namespaces(nodes: int) -> None:
        raise ClusterError(f"{nodes} namespaces: Operation not permitted")

    monkeypatch.setattr(command, "Namespaces", namespaces)
    assert main(["--faults", "cut-leader", "--layout", "apart"]) == BAD_INPUT
    assert "6 namespaces: Operation not permitted" in capsys.readouterr().err


def test_without_a_zookeeper_server_it_is_said_where_one_is_looked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(zookeeper_server, "server_command", lambda *_: None)
    assert main(["--zookeeper", "--folder", str(tmp_path)]) == BAD_INPUT
    assert "no ZooKeeper server: name its jars in BLUMFELD_ZOOKEEPER_JARS" in capsys.readouterr().err


def test_sigterm_stops_the_nodes_and_removes_their_data(tmp_path: Path) -> None:
    campaign = subprocess.Popen(
        [sys.executable, "-c", ENDLESS, str(LINGERING)],
        cwd=ROOT,
        env={"TMPDIR": str(tmp_path)},
        stdout=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 60
    while sum(READY in log.read_text() for log in tmp_path.glob("*/stand-in/*/node.log")) < 3:
        assert time.monotonic() < deadline
        assert campaign.poll() is None
        time.sleep(0.01)
    campaign.terminate()
    assert campaign.wait(60) == TOLD_TO_END
    assert list(tmp_path.iterdir()) == []
    assert _with_word(str(tmp_path)) == []


def _with_word(word: str) -> list[str]:
    """Return the command lines of all processes that name it."""
    command_lines = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):  # a process may end while we look
                command_lines.append((entry / "cmdline").read_text())
    return [line for line in command_lines if word in line]
