"""A process whose first thread has ended, while another one lives: for a moment each killed process looks so."""

from __future__ import annotations

import platform
import subprocess
import sys
import time
from pathlib import Path

import pytest

EXIT_OF_A_THREAD = {"x86_64": 60, "aarch64": 93}
"""Linux's number of the system call ``exit``, which ends one thread."""
SECONDS_MAX = 30
PROGRAM = """
import ctypes, threading, time
threading.Thread(target=time.sleep, args=(600,)).start()
ctypes.CDLL(None).syscall(%d, 0)
"""


def process_without_its_first_thread() -> subprocess.Popen[bytes]:
    """Start such a process. Its state in /proc is that of a zombie, and it isn't one. The caller kills it."""
    number = EXIT_OF_A_THREAD.get(platform.machine())
    if sys.platform != "linux" or number is None:
        pytest.skip("the number of the system call isn't known here")
    process = subprocess.Popen([sys.executable, "-c", PROGRAM % number])
    deadline = time.monotonic() + SECONDS_MAX
    while Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
        assert time.monotonic() < deadline, "its first thread didn't end"
        time.sleep(0.01)
    return process
