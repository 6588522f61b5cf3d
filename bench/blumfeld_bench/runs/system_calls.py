"""Count a server's system calls by ``strace -c``, in a pass of its own: tracing slows a server several times over.

The server is stopped while the tracer attaches and while it detaches, so that calls and requests are counted over the
same interval. Otherwise a client could have its answer before the tracer has seen the send call return.
"""

from __future__ import annotations

import contextlib
import os
import re
import selectors
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from blumfeld_bench.usage import totals

ATTACH_TIMEOUT_S = 20.0
END_TIMEOUT_S = 30.0
HOLD_TIMEOUT_S = 10.0
"""Longest wait until the tracer has seen a stopped server's last calls. Calls that it sees later are not counted."""
LOOK_S = 0.01
_CALLS = re.compile(r"^ *[\d.]+ +[\d.]+ +\d+ +(\d+) +(?:\d+ +)?(\w+)$", re.MULTILINE)


class TracerError(Exception):
    """The tracer could not attach to the server; the message says why."""


def missing() -> str:
    """Return why system calls can't be counted here; empty if they can."""
    return "" if shutil.which("strace") else "strace is not installed"


class Tracer:
    """Counts system calls between the marks of a driver."""

    def __init__(self, pids: Sequence[int], summary: Path) -> None:
        self._pids = list(pids)
        self._summary = summary
        self._process: subprocess.Popen[bytes] | None = None
        self.error = ""
        """The reason why it counted nothing; empty if it did."""

    def measuring_begins(self) -> None:
        """Attach to the server: all its threads, and those that it starts later."""
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
        """Detach from the server."""
        self.close()

    def close(self) -> None:
        """Detach, unless that is done already; calls up to now are counted."""
        process, self._process = self._process, None
        if process is None:
            return
        self._signal(signal.SIGSTOP)
        try:
            if not self.error:
                self._await_held(process)
            process.send_signal(signal.SIGINT)
            try:
                process.communicate(timeout=END_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
        finally:
            self._signal(signal.SIGCONT)

    def calls(self) -> dict[str, int]:
        """Return calls by name, most frequent first.

        :raises TracerError: nothing was counted
        """
        if self.error or not self._summary.exists():
            raise TracerError(self.error or "strace wrote no summary")
        counts = calls_by_name(self._summary)
        return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))

    def _await_attached(self) -> str:
        """Wait until strace has reported each process; return what went wrong, or an empty string."""
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

    def _await_held(self, tracer: subprocess.Popen[bytes]) -> None:
        """Wait until every thread is stopped and the tracer sleeps, having seen all of them stop.

        A thread that is stopped for a call looks the same as one that is held, but the tracer wakes up for the
        former. A short moment lies between the stop and the wake-up. So the tracer must be seen asleep twice without
        having run in between.
        """
        deadline = time.monotonic() + HOLD_TIMEOUT_S
        before: int | None = None
        while tracer.poll() is None and time.monotonic() < deadline:
            stopped = _state(Path(f"/proc/{tracer.pid}")) == "S" and all(map(_is_held, self._pids))
            now = totals([tracer.pid])
            switches = now.voluntary_switches + now.involuntary_switches
            if stopped and switches == before:
                return
            before = switches if stopped else None
            time.sleep(LOOK_S)

    def _signal(self, number: signal.Signals) -> None:
        for pid in self._pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)


def calls_by_name(summary: Path) -> dict[str, int]:
    """Return calls by name from a summary of ``strace -c``."""
    counts = {name: int(calls) for calls, name in _CALLS.findall(summary.read_text())}
    counts.pop("total", None)
    return counts


def _is_held(pid: int) -> bool:
    """Whether all threads of a process are stopped under a tracer, or have ended."""
    try:
        return all(_state(thread) in "tZX" for thread in Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return True


def _state(process: Path) -> str:
    """Return the state letter of proc_pid_stat(5); X if the process is gone."""
    try:
        return (process / "stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"
