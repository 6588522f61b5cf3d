"""A process has ended when its last thread has: tests/cli/cluster/test_processes.py ends its first one alone."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from blumfeld.kernel.runtime.process_ends import has_ended

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
SECONDS_MAX = 30


def test_a_process_that_runs_has_not_ended() -> None:
    assert not has_ended(os.getpid())


def test_one_that_nobody_has_waited_for_has_ended_and_so_has_one_that_is_gone() -> None:
    process = subprocess.Popen([sys.executable, "-I", "-S", "-c", ""])
    deadline = time.monotonic() + SECONDS_MAX
    while not has_ended(process.pid):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.wait()
    assert has_ended(process.pid)
