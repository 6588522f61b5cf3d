"""Processes of a cluster: found again by pid and start time, and no other is touched."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from blumfeld.cli.cluster import processes
from blumfeld.cli.cluster.processes import DEAD, PAUSED, RUNNING, send, state_of, wait_until_dead
from blumfeld.cli.cluster.state import ClusterError, NodeState
from tests.thread_ends import process_without_its_first_thread

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
SECONDS_MAX = 30


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-I", "-S", "-c", "import signal; signal.pause()"])
    yield process
    process.kill()
    process.wait()


def node_of(pid: int | None, ticks_off: int = 0) -> NodeState:
    ticks = 0 if pid is None else processes._stat(pid)[1]
    return NodeState(
        id=3, roles=(), host="h", port=1, manifest="", log="", pid=pid, started_ticks=ticks + ticks_off
    )


def test_a_process_is_paused_resumed_and_killed(sleeper: subprocess.Popen[bytes]) -> None:
    node = node_of(sleeper.pid)
    assert state_of(node) == RUNNING
    send(node, signal.SIGSTOP)
    assert processes._until(lambda: state_of(node) == PAUSED, SECONDS_MAX)
    send(node, signal.SIGCONT)
    assert processes._until(lambda: state_of(node) == RUNNING, SECONDS_MAX)
    assert not wait_until_dead(node, 0)
    send(node, signal.SIGKILL)
    assert wait_until_dead(node, SECONDS_MAX), "also while nobody has waited for it"
    with pytest.raises(ClusterError, match="node 3 doesn't run"):
        send(node, signal.SIGKILL)


def test_a_process_whose_first_thread_has_ended_still_runs() -> None:
    """After a SIGKILL it looks so for a moment, while another thread still holds the ports of all."""
    process = process_without_its_first_thread()
    try:
        node = node_of(process.pid)
        assert state_of(node) == RUNNING
        send(node, signal.SIGKILL)
        assert wait_until_dead(node, SECONDS_MAX)
    finally:
        process.kill()
        process.wait()


def test_a_pid_that_another_process_has_now_is_left_alone(sleeper: subprocess.Popen[bytes]) -> None:
    node = node_of(sleeper.pid, ticks_off=-1)
    assert state_of(node) == DEAD
    with pytest.raises(ClusterError, match="node 3 doesn't run"):
        send(node, signal.SIGKILL)
    assert sleeper.poll() is None


def test_a_node_that_never_ran() -> None:
    assert state_of(node_of(None)) == DEAD
    with pytest.raises(ClusterError, match="doesn't run"):
        send(node_of(None), signal.SIGTERM)


def test_a_node_that_ends_instead_of_serving_says_why(tmp_path: Path) -> None:
    log = tmp_path / "node.log"
    log.write_text("an old run: x ready on y\nblumfeld: could not start: x\n")
    node = node_of(None)
    node.log = str(log)
    with pytest.raises(ClusterError, match=r"node 3 ended\n  blumfeld: could not start: x\n  its log is "):
        processes.wait_until_ready(node, len("an old run: x ready on y\n"), SECONDS_MAX)
    processes.wait_until_ready(node, 0, SECONDS_MAX)
