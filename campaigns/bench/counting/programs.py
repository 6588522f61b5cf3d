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
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import attrs

from blumfeld.testing.process import free_port
from blumfeld_bench.runs.servers import Server
from blumfeld_bench.runs.system_calls import Tracer, calls_by_name

CALLGRIND = ("valgrind", "--tool=callgrind", "--callgrind-out-file=callgrind.out")
"""Counts from the start; the files lie in the server's folder."""
CALLGRIND_LATER = (*CALLGRIND, "--instr-atstart=no")
"""Counts from :meth:`Counted.switch_on`."""
STRACE = ("strace", "-c", "-f", "-D")
READY_TIMEOUT_S = 300.0
STOP_TIMEOUT_S = 20.0
SETTLE_S = 1.5
"""After it listens, before it is warmed: our broker collects garbage 250 ms after it is ready."""
_TOTALS = re.compile(r"^totals: (\d+)", re.MULTILINE)


class MissingToolError(RuntimeError):
    """valgrind or strace isn't installed."""


@attrs.frozen
class Program:
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
    """A process under callgrind, or ready for strace to attach; its profiles lie in ``folder``."""

    pid: int
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
        vgdb = ["vgdb", f"--pid={self.pid}", *command.split()]
        subprocess.run(vgdb, check=True, capture_output=True, timeout=READY_TIMEOUT_S)

    def system_calls(self, work: Callable[[], None]) -> dict[str, int]:
        """Return the calls of all threads by name while ``work`` runs.

        :raises TracerError: nothing was counted
        """
        tracer = Tracer([self.pid], self.folder / "strace.txt")
        tracer.measuring_begins()
        try:
            work()
        finally:
            tracer.close()
        return tracer.calls()


class CountedServer(Counted):
    """A running :class:`Program`."""

    def __init__(self, server: Server) -> None:
        super().__init__(server.pid, server.folder)
        self.server = server
        self.port = server.port

    def stop(self) -> None:
        """End the process: SIGTERM, then SIGKILL after 20 s."""
        self.server.terminate()
        # Under valgrind a server on a ring sees a signal only when a system call returns.
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", self.port), timeout=5).close()
        self.server.await_end(STOP_TIMEOUT_S)


def start(program: Program, folder: Path, under: Sequence[str] = ()) -> CountedServer:
    """Start a server with fresh data below ``folder``; return when it listens and has settled.

    It shares one core with this process and never preempts it: requests that are sent in one go arrive in one turn.

    :param under: a command to put before the server's: :data:`CALLGRIND` or :data:`STRACE` with options
    :raises MissingToolError: valgrind or strace isn't installed
    :raises ServerError: the server did not start; the message ends with its output
    """
    for tool in ("valgrind", "vgdb", "strace"):
        if shutil.which(tool) is None:
            raise MissingToolError(f"{tool} is not installed")
    port = free_port(adjacent=2)
    words = [part.replace("{port}", str(port)).replace("{folder}", str(folder)) for part in program.command]
    # The server runs in its own folder; `-m` must find the same modules there.
    path = os.pathsep.join(filter(None, [os.getcwd(), os.environ.get("PYTHONPATH")]))
    environment = ["env", "PYTHONHASHSEED=0", f"PYTHONPATH={path}"]
    server = Server(program.name, [*environment, *under, *words], folder, port, bare=True)
    server.launch()
    _share_core(server.pid)
    try:
        server.await_ready(READY_TIMEOUT_S)
    except BaseException:
        server.stop()
        raise
    time.sleep(SETTLE_S)
    return CountedServer(server)


def whole_instructions(program: Program, folder: Path, work: Callable[[int], None]) -> int:
    """Return the instructions from the server's start to its end, with ``work(port)`` between."""
    running = start(program, folder, CALLGRIND)
    try:
        work(running.port)
    finally:
        running.stop()
    return total_instructions(running.profile)


def whole_system_calls(program: Program, folder: Path, work: Callable[[int], None]) -> dict[str, int]:
    """Return the calls by name from the server's start to its end, with ``work(port)`` between."""
    out = folder / "strace.txt"
    running = start(program, folder, [*STRACE, "-o", str(out)])
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
