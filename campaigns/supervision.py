"""The processes of a campaign, one after the other: told to end when we are told to, and ended at a limit of time."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Sequence
from types import FrameType

TIMED_OUT = 124
"""Exit status of a run that took longer than allowed, as of ``timeout`` of the coreutils."""
GRACE_S = 30.0
"""Seconds that a process has after SIGTERM to stop the brokers it started; SIGKILL follows."""


def run_all(lines: Sequence[Sequence[str]], limit_s: float | None = None) -> int:
    """Run each command line to its end; return the status of the first that fails, as a shell has it, else 0.

    SIGTERM is passed on to the running process, and no further one is started. ``limit_s`` bounds all of them
    together; beyond it the running one is ended, and the status is :data:`TIMED_OUT`.
    """
    deadline = None if limit_s is None else time.monotonic() + limit_s
    running: list[subprocess.Popen[bytes]] = []
    is_told = False

    def pass_on(number: int, frame: FrameType | None) -> None:
        nonlocal is_told
        is_told = True
        for process in running:
            process.terminate()

    signal.signal(signal.SIGTERM, pass_on)
    # The terminal sends SIGINT to the process as well. We stay, so that no prompt comes back while brokers are still
    # being stopped. A handler, unlike SIG_IGN, is not inherited.
    signal.signal(signal.SIGINT, lambda *_: None)
    for line in lines:
        running[:] = [subprocess.Popen(line)]
        status = _status_of(running[0], None if deadline is None else max(0.0, deadline - time.monotonic()))
        if status or is_told:
            return 128 - status if status < 0 else status
    return 0


def _status_of(process: subprocess.Popen[bytes], limit_s: float | None) -> int:
    """Wait for a process; end it beyond the limit."""
    try:
        return process.wait(limit_s)
    except subprocess.TimeoutExpired:
        process.terminate()
    try:
        process.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    return TIMED_OUT
