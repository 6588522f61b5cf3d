"""System calls of a server, counted by ``strace -c`` in a pass of its own: tracing slows a server several times over.

The server is held still while the tracer takes hold of it, so that calls and requests are counted from one instant on.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from blumfeld.bench.counted import calls_by_name

ATTACH_TIMEOUT_S = 20.0
END_TIMEOUT_S = 30.0


class TracerError(Exception):
    """The tracer could not take hold of the server; the message says why."""


def missing() -> str:
    """Why nothing can be counted here; empty if it can."""
    return "" if shutil.which("strace") else "strace is not installed"


class Tracer:
    """Counts between the marks of a driver."""

    def __init__(self, pids: Sequence[int], summary: Path) -> None:
        self._pids = list(pids)
        self._summary = summary
        self._process: subprocess.Popen[bytes] | None = None
        self.error = ""
        """Why it counted nothing; empty if it did."""

    def measuring_begins(self) -> None:
        """Take hold of the server: all its threads, and those to come."""
        command = ["strace", "-c", "-f", "-o", str(self._summary)]
        for pid in self._pids:
            command += ["-p", str(pid)]
        self._signal(signal.SIGSTOP)
        try:
            self._process = subprocess.Popen(command, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
            self.error = self._await_attached()
        finally:
            self._signal(signal.SIGCONT)

    def measuring_ended(self) -> None:
        """Let go of it."""
        self.close()

    def close(self) -> None:
        """Let go of it, if that hasn't been done."""
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(signal.SIGINT)
        try:
            process.communicate(timeout=END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()

    def calls(self) -> dict[str, int]:
        """Calls by name, most first.

        :raises TracerError: nothing was counted
        """
        if self.error or not self._summary.exists():
            raise TracerError(self.error or "strace wrote no summary")
        found = calls_by_name(self._summary)
        return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))

    def _await_attached(self) -> str:
        """Wait for a line for each process: empty, or what went wrong."""
        assert self._process is not None
        assert self._process.stderr is not None
        stream = self._process.stderr
        deadline = time.monotonic() + ATTACH_TIMEOUT_S
        said = b""
        with selectors.DefaultSelector() as selector:
            selector.register(stream, selectors.EVENT_READ)
            while said.count(b"attached") < len(self._pids):
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    return f"strace did not attach within {ATTACH_TIMEOUT_S:.0f} s"
                data = os.read(stream.fileno(), 4096)
                if not data:
                    return said.decode(errors="replace").strip() or "strace ended at once"
                said += data
        return ""

    def _signal(self, number: signal.Signals) -> None:
        for pid in self._pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
