"""Servers whose work is counted: instructions by valgrind's callgrind, system calls by strace.

Neither counts time, so the figures hold on a busy machine. A broker is counted between two signals from outside,
which interrupt one of its system calls. A bare server may take such an interruption for its end, so it is counted
from its start to its end.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import attrs

from blumfeld_bench.running.system_calls import calls_by_name

CALLGRIND = ("valgrind", "--tool=callgrind", "--callgrind-out-file=callgrind.out")
"""Counts from the start; the files lie in the server's folder."""
CALLGRIND_LATER = (*CALLGRIND, "--instr-atstart=no")
"""Counts from :meth:`Counted.switch_on`."""
STRACE = ("strace", "-c", "-f")
READY_TIMEOUT_S = 300.0
SETTLE_S = 1.5
"""After it listens, before it is warmed: our broker collects garbage 250 ms after it is ready."""
_TOTALS = re.compile(r"^totals: (\d+)", re.MULTILINE)


class MissingToolError(RuntimeError):
    """valgrind or strace isn't installed."""


@attrs.frozen
class Server:
    """A program that serves Produce on a loopback port."""

    name: str
    command: Sequence[str]
    """Start command; ``{port}`` and ``{folder}`` in it are filled in for a run."""
    bare: bool
    """The server has its topic from the start, may answer nothing but Produce, and may not survive an interrupted
    call.
    """


@attrs.define
class Counted:
    """A running :class:`Server`, under one of the tools or ready for one to attach."""

    process: subprocess.Popen[bytes]
    port: int
    folder: Path
    dumps: int = 0
    """Number of profiles that callgrind has written so far."""

    def switch_on(self) -> None:
        """Start counting under callgrind. Until then the server runs at a quarter of its speed, from then on at a
        fiftieth.
        """
        self._monitor("instrumentation on")

    def instructions(self, work: Callable[[], None]) -> int:
        """Return the instructions that the process executes while ``work`` runs."""
        self._monitor("zero")
        work()
        self._monitor("dump")
        self.dumps += 1
        return total_instructions(self.profile)

    @property
    def profile(self) -> Path:
        """Path of the last dump or, without one, of the file written at the end; input of ``callgrind_annotate``."""
        return self.folder / (f"callgrind.out.{self.dumps}" if self.dumps else "callgrind.out")

    def _monitor(self, command: str) -> None:
        vgdb = ["vgdb", f"--pid={self.process.pid}", *command.split()]
        subprocess.run(vgdb, check=True, capture_output=True, timeout=READY_TIMEOUT_S)

    def system_calls(self, work: Callable[[], None]) -> dict[str, int]:
        """Return the calls of all threads by name while ``work`` runs."""
        out = self.folder / "strace.txt"
        tracer = subprocess.Popen(
            [*STRACE, "-o", str(out), "-p", str(self.process.pid)], stderr=subprocess.PIPE
        )
        assert tracer.stderr is not None
        tracer.stderr.readline()  # strace has attached
        try:
            work()
        finally:
            tracer.send_signal(signal.SIGINT)
            tracer.communicate(timeout=60)
        return calls_by_name(out)

    def stop(self) -> None:
        """End the process: SIGTERM, then SIGKILL after 20 s."""
        self.process.terminate()
        # Under valgrind a server on a ring sees a signal only when a system call returns.
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", self.port), timeout=5).close()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def start(server: Server, folder: Path, under: Sequence[str] = ()) -> Counted:
    """Start a server with fresh data below ``folder``; return when it listens and has settled.

    It shares one core with this process and never preempts it: requests that are sent in one go arrive in one turn.

    :param under: a command to put before the server's: :data:`CALLGRIND` or :data:`STRACE` with options
    :raises MissingToolError: valgrind or strace isn't installed
    :raises RuntimeError: the server did not start; the message ends with its output
    """
    for tool in ("valgrind", "vgdb", "strace"):
        if shutil.which(tool) is None:
            raise MissingToolError(f"{tool} is not installed")
    folder.mkdir(parents=True)
    port = _free_port()
    command = [*under, *(part.format(port=port, folder=folder) for part in server.command)]
    # The server runs in its own folder; `-m` must find the same modules there.
    path = os.pathsep.join(filter(None, [os.getcwd(), os.environ.get("PYTHONPATH")]))
    environment = os.environ | {"PYTHONHASHSEED": "0", "PYTHONPATH": path}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log, env=environment)
    _share_core(process.pid)
    running = Counted(process, port, folder)
    try:
        _await_port(running)
    except RuntimeError as error:
        running.stop()
        raise RuntimeError(f"{server.name}: {error}") from None
    time.sleep(SETTLE_S)
    return running


def whole_instructions(server: Server, folder: Path, work: Callable[[int], None]) -> int:
    """Return the instructions from the server's start to its end, with ``work(port)`` between."""
    running = start(server, folder, CALLGRIND)
    try:
        work(running.port)
    finally:
        running.stop()
    return total_instructions(running.profile)


def whole_system_calls(server: Server, folder: Path, work: Callable[[int], None]) -> dict[str, int]:
    """Return the calls by name from the server's start to its end, with ``work(port)`` between."""
    out = folder / "strace.txt"
    running = start(server, folder, [*STRACE, "-D", "-o", str(out)])
    try:
        work(running.port)
    finally:
        running.stop()
    end = time.monotonic() + 20
    while (
        not (calls := calls_by_name(out)) and time.monotonic() < end
    ):  # strace ends a little later than the server
        time.sleep(0.05)
    return calls


def total_instructions(profile: Path) -> int:
    """Return the sum over all threads in a callgrind profile."""
    return sum(int(total) for total in _TOTALS.findall(profile.read_text()))


def _share_core(process_id: int) -> None:
    os.sched_setaffinity(process_id, {min(os.sched_getaffinity(0))})
    with contextlib.suppress(OSError):  # then some turns are shorter
        os.sched_setscheduler(process_id, os.SCHED_BATCH, os.sched_param(0))


def _await_port(running: Counted) -> None:
    end = time.monotonic() + READY_TIMEOUT_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", running.port), timeout=5).close()
            return
        except OSError:
            if running.process.poll() is not None or time.monotonic() > end:
                printed = (running.folder / "log").read_text(errors="replace")[-2000:]
                raise RuntimeError(f"did not start:\n{printed}") from None
            time.sleep(0.05)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port: int = sock.getsockname()[1]
        return port
