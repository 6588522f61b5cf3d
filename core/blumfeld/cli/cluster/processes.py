"""The processes of a cluster's nodes: started, found again, signalled. It needs Linux's /proc."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from blumfeld.cli.cluster.state import ClusterError, NodeState
from blumfeld.cli.own_command import own_command
from blumfeld.kernel.runtime.process_ends import has_ended
from blumfeld.kernel.supervising.restarts import READY

RUNNING, PAUSED, DEAD, UNKNOWN = "running", "paused", "dead", "unknown"
POLL_S = 0.02
LAST_LINES = 5


def start(node: NodeState, prefix: Sequence[str] = ()) -> int:
    """Start a node that doesn't run. Return the size of its log before: what it says comes after it.

    :param prefix: a command that runs the rest of the line in the node's network
    """
    log = Path(node.log)
    before = log.stat().st_size if log.exists() else 0
    command = [*prefix, *own_command(), "run", node.manifest]
    with log.open("ab") as out:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
        )
    node.pid, node.started_ticks = process.pid, _stat(process.pid)[1]
    process.returncode = 0  # it outlives us, which is no mistake to warn of
    return before


def state_of(node: NodeState) -> str:
    """Return RUNNING, PAUSED or DEAD; UNKNOWN for a node that isn't ours. A process with the node's pid and another
    start time is another one.

    A dead one holds no port and no file any more.
    """
    if not node.is_ours:
        return UNKNOWN
    if node.pid is None:
        return DEAD
    try:
        state, ticks = _stat(node.pid)
    except OSError:
        return DEAD
    if ticks != node.started_ticks or has_ended(node.pid):
        return DEAD
    return PAUSED if state in "Tt" else RUNNING


def send(node: NodeState, number: signal.Signals) -> None:
    """Signal the node's process, and no other.

    :raises ClusterError: it doesn't run
    """
    dead = ClusterError(f"node {node.id} doesn't run")
    if node.pid is None:
        raise dead
    try:
        descriptor = os.pidfd_open(node.pid)
    except OSError:
        raise dead from None
    try:
        # The descriptor stays with the process that it was opened for: the pid can't change hands behind this check.
        if state_of(node) == DEAD:
            raise dead
        signal.pidfd_send_signal(descriptor, number)
    finally:
        os.close(descriptor)


def wait_until_dead(node: NodeState, timeout_s: float) -> bool:
    """Return whether the process ended within this time."""
    return _until(lambda: state_of(node) == DEAD, timeout_s)


def wait_until_ready(node: NodeState, log_from: int, timeout_s: float) -> None:
    """Wait for the line by which a node says that it serves.

    :param log_from: what :func:`start` returned
    :raises ClusterError: the node ended, or said nothing in this time; with the last lines of its log
    """

    def said() -> bool:
        with open(node.log, "rb") as file:
            file.seek(log_from)
            return READY in file.read()

    _until(lambda: said() or state_of(node) == DEAD, timeout_s)
    if said():
        return
    reason = "ended" if state_of(node) == DEAD else f"isn't ready after {timeout_s:g} s"
    with suppress(OSError):
        lines = Path(node.log).read_bytes()[log_from:].decode(errors="replace").splitlines()
        reason += "".join(f"\n  {line}" for line in lines[-LAST_LINES:])
    raise ClusterError(f"node {node.id} {reason}\n  its log is {node.log}")


def _until(condition: Callable[[], bool], timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(POLL_S)
    return True


def _stat(pid: int) -> tuple[str, int]:
    """Return (state, start time in ticks) of a process.

    :raises OSError: there is none
    """
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
        fields = file.read().rpartition(")")[2].split()
    return fields[0], int(fields[19])
