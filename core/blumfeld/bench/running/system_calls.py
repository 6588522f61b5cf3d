"""System calls of a server, counted by ``strace -c`` in a pass of its own: tracing slows a server several times over.

The server is held still while the tracer takes hold of it and while it lets go, so that calls and requests are counted
from one instant to another: a client may have its answer before the tracer has seen the call that sent it return.
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

from blumfeld.bench.running.usage import totals

ATTACH_TIMEOUT_S = 20.0
END_TIMEOUT_S = 30.0
HOLD_TIMEOUT_S = 10.0
"""How long the tracer may take to see a held server's last calls; what it hasn't seen by then is not counted."""
LOOK_S = 0.01
_CALLS = re.compile(r"^ *[\d.]+ +[\d.]+ +\d+ +(\d+) +(?:\d+ +)?(\w+)$", re.MULTILINE)


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
        """Let go of it, if that hasn't been done: what it answered until now is counted."""
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

    def _await_held(self, tracer: subprocess.Popen[bytes]) -> None:
        """Wait until every thread is stopped and the tracer sleeps, having seen all of them stop.

        A thread that is stopped for a call looks the same as one that is held, but the tracer wakes up for it. Between
        the one and the other lies an instant, hence two looks at a tracer that has not run between them.
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
    """What ``strace -c`` wrote."""
    found = {name: int(calls) for calls, name in _CALLS.findall(summary.read_text())}
    found.pop("total", None)
    return found


def _is_held(pid: int) -> bool:
    """All threads are stopped, under a tracer; or have ended."""
    try:
        return all(_state(thread) in "tZX" for thread in Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return True


def _state(process: Path) -> str:
    """Its letter in proc_pid_stat(5); X if it is gone."""
    try:
        return (process / "stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"
