"""Start, account for and stop servers: on loopback, with fresh data, with every process that they fork."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import attrs

from blumfeld.kernel.runtime.process_ends import has_ended
from blumfeld.testing import process as broker_process
from blumfeld_bench.usage import Totals, reset_peak, totals, tree

READY_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 15.0
POLL_S = 0.002
TAIL_CHARS = 2000
"""Characters of a server's output that the error of a failed start shows."""
API_VERSIONS_V0 = bytes.fromhex("0000000a 0012 0000 00000001 ffff".replace(" ", ""))


class ServerError(RuntimeError):
    """A server stopped or never answered; the message ends with its output."""


@attrs.define
class Server:
    """A server that is up. It leads a session of its own, so that all its processes can be found and ended."""

    name: str
    process: subprocess.Popen[bytes]
    port: int
    folder: Path
    ready_s: float = 0.0
    """Time from the start of its process to the first ApiVersions answer."""

    @property
    def address(self) -> str:
        """``host:port`` of its listener."""
        return f"127.0.0.1:{self.port}"

    def pids(self) -> list[int]:
        """Return the ids of all its processes, as of now."""
        return tree(self.process.pid)

    def totals(self) -> Totals:
        """Return what its processes have used so far."""
        return totals(self.pids())

    def totals_by_node(self) -> list[Totals]:
        """Return what it has used so far, in a list as for a cluster with one node."""
        return [self.totals()]

    def reset_peak(self) -> None:
        """Restart the count of the highest resident set."""
        reset_peak(self.pids())

    @property
    def is_up(self) -> bool:
        """Whether its first process still runs."""
        return self.process.poll() is None

    def printed(self) -> str:
        """Return the end of its output."""
        return (self.folder / "log").read_text(errors="replace")[-TAIL_CHARS:]

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """End all its processes: SIGTERM, then SIGKILL after ``timeout_s``. Its data is removed, its output is kept."""
        self.await_end(self.terminate(), timeout_s)

    def end(self, number: signal.Signals = signal.SIGTERM, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Send a signal to all its processes, and wait until the first has ended. Its data is kept.

        :raises subprocess.TimeoutExpired: it goes on
        """
        self._signal(number)
        self.process.wait(timeout_s)

    def terminate(self) -> list[int]:
        """Send SIGTERM to its processes without waiting. Return the ids of all of them, for :meth:`await_end`."""
        pids = self.pids()
        self._signal(signal.SIGTERM)
        return pids

    def await_end(self, pids: Sequence[int], timeout_s: float) -> None:
        """Wait until its processes have ended; SIGKILL follows after ``timeout_s``. Its data is removed then.

        SIGTERM is not sent again: a second one would end a node of this build at once.
        """
        try:
            self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._signal(signal.SIGKILL)
            self.process.wait()
        _await_end([pid for pid in pids if pid != self.process.pid])
        shutil.rmtree(self.folder / "data", ignore_errors=True)

    def await_ready(self, is_ready: Callable[[int], bool], deadline: float) -> None:
        """Wait until ``is_ready`` says so of its port.

        :param deadline: an instant of ``time.perf_counter``
        :raises ServerError: it ended, or the deadline has passed
        """
        while not is_ready(self.port):
            if not self.is_up or time.perf_counter() > deadline:
                raise ServerError(f"{self.name} did not start:\n{self.printed()}")
            time.sleep(POLL_S)

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)


def start_server(
    name: str,
    command: Sequence[str],
    folder: Path,
    *,
    port: int = 0,
    files: Mapping[str, str] | None = None,
    cores: frozenset[int] | None = None,
    is_ready: Callable[[int], bool] | None = None,
) -> Server:
    """Start a server with fresh data below ``folder``; return when it answers ApiVersions.

    :param command: ``{port}`` and ``{folder}`` in it are filled in
    :param port: 0 for any free one
    :param files: written to the folder first
    :param cores: cores that all its processes are bound to
    :param is_ready: tells whether the server on this port is ready; the default asks for ApiVersions
    :raises ServerError: the server did not start
    """
    port = port or free_port()
    filled = [part.replace("{port}", str(port)).replace("{folder}", str(folder)) for part in command]
    began = time.perf_counter()
    server = launch_server(name, filled, folder, port, files=files, cores=cores)
    try:
        server.await_ready(is_ready or answers, began + READY_TIMEOUT_S)
    except BaseException:
        server.stop()
        raise
    server.ready_s = time.perf_counter() - began
    return server


def launch_server(
    name: str,
    command: Sequence[str],
    folder: Path,
    port: int,
    *,
    files: Mapping[str, str] | None = None,
    cores: frozenset[int] | None = None,
) -> Server:
    """Start a server's process with fresh data below ``folder``, without waiting; parameters as of
    :func:`start_server`.

    :raises ServerError: the program is not there
    """
    folder.mkdir(parents=True)
    for file, text in (files or {}).items():
        (folder / file).write_text(text, encoding="utf-8")
    words = list(command)
    if cores is not None:
        words = ["taskset", "-c", ",".join(map(str, sorted(cores))), *words]
    with (folder / "log").open("wb") as out:
        try:
            process = subprocess.Popen(words, cwd=folder, stdout=out, stderr=out, start_new_session=True)
        except OSError as error:
            raise ServerError(f"{name} did not start: {words[0]}: {error.strerror}") from error
    return Server(name, process, port, folder)


def _await_end(pids: Sequence[int]) -> None:
    """Wait for processes that outlive their leader; kill them if they take too long."""
    deadline = time.monotonic() + STOP_TIMEOUT_S
    while not all(map(has_ended, pids)) and time.monotonic() < deadline:
        time.sleep(POLL_S)
    for pid in itertools.filterfalse(has_ended, pids):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def free_port() -> int:
    """Return a loopback port that was free a moment ago; the port after it was free too (for a controller)."""
    return broker_process.free_port(adjacent=2)


def answers(port: int) -> bool:
    """Whether an ApiVersions request to this port is answered now."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as client:
            client.sendall(API_VERSIONS_V0)
            return len(client.recv(4)) == 4
    except OSError:
        return False


def listens(port: int) -> bool:
    """Whether this port accepts a connection now."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False


def drop_from_page_cache(folder: Path) -> int:
    """Write dirty data below ``folder`` to the disk, then drop all of it from the page cache; return the bytes of its
    files.

    Files that a process has mapped (Kafka's indexes) stay cached. A file system in memory has nothing that can be
    dropped.
    """
    total_bytes = 0
    for path in sorted(folder.rglob("*")):
        if not path.is_file():
            continue
        file = os.open(path, os.O_RDONLY)
        try:
            os.fsync(file)
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            total_bytes += os.fstat(file).st_size
        finally:
            os.close(file)
    return total_bytes
