"""Nodes in processes of their own, so that they can be killed, paused and started again on the same data."""

from __future__ import annotations

import contextlib
import os
import secrets
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from blumfeld.client.blocking_connection import BlockingConnection
from blumfeld.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from blumfeld.wire.messages.metadata import MetadataRequest, MetadataResponse
from blumfeld.wire.primitives import DecodeError

START_TIMEOUT_S = 90.0
STOP_TIMEOUT_S = 60.0
"""Time that a node has to stop in good order."""
ASK_S = 2.0
"""Longest wait for an answer of a node that may be paused or cut off."""
POLL_S = 0.002
METADATA_VERSION = 8
PRINTED_CHARS = 2000
LOOPBACK = "127.0.0.1"
PORTS = range(20_000, 32_000)
"""Ports below the range from which Linux chooses free ports by itself."""
TRIES = 1000


class NodeError(RuntimeError):
    """A node did not start, or was never started; the message ends with its output."""


class NodeProcess:
    """A command that runs a node. Its processes make a group of their own, so that a signal reaches all of them."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log_path: Path,
        address: tuple[str, int],
        start_timeout_s: float = START_TIMEOUT_S,
    ) -> None:
        """Nothing is started yet.

        :param log_path: gets the command line and the output of each launch
        :param address: host and port of the listener that answers once the node is ready
        :param start_timeout_s: time until it must be ready
        """
        self.name = name
        self.command = tuple(command)
        self.log_path = log_path
        self.host, self.port = address
        self.start_timeout_s = start_timeout_s
        self.ready_s = 0.0
        """Time from the launch of its process until it was ready, to 2 ms."""
        self._process: subprocess.Popen[bytes] | None = None
        self._launched_s = 0.0
        self._launched_at = 0
        """Size of the log at the last launch."""

    @property
    def address(self) -> str:
        """``host:port`` for a client's ``bootstrap.servers``."""
        return f"{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        """The id of its first process.

        :raises NodeError: it was never started
        """
        if self._process is None:
            raise NodeError(f"{self.name} was never started")
        return self._process.pid

    @property
    def is_up(self) -> bool:
        """Whether its first process runs, be it paused or not."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start it, and wait until it is ready.

        :raises NodeError: as :meth:`await_ready`
        """
        self.launch()
        self.await_ready()

    def launch(self) -> None:
        """Start its process without waiting."""
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        with self.log_path.open("ab") as out:
            out.write(f"$ {shlex.join(self.command)}\n".encode())
            out.flush()
            self._launched_at = out.tell()
            self._launched_s = time.monotonic()
            self._process = subprocess.Popen(self.command, stdout=out, stderr=out, start_new_session=True)

    def await_ready(self, timeout_s: float | None = None, brokers: int = 0) -> None:
        """Wait until the node that :meth:`launch` started is ready.

        :param brokers: it is ready when it names so many brokers; unless that is given, when it answers
        :raises NodeError: it ended, or wasn't ready in time
        """
        limit_s = self.start_timeout_s if timeout_s is None else timeout_s
        deadline = time.monotonic() + limit_s
        while not (self.names(brokers) if brokers else self.answers()):
            if not self.is_up or time.monotonic() > deadline:
                not_yet = f"did not name {brokers} brokers" if brokers else "was not ready"
                why = f"{not_yet} within {limit_s:.0f} s" if self.is_up else "ended"
                raise NodeError(f"{self.name} {why}; {self.log_path} ends with:\n{self.printed()}")
            time.sleep(POLL_S)
        self.ready_s = time.monotonic() - self._launched_s

    def answers(self) -> bool:
        """Whether it answers ApiVersions now."""
        with contextlib.suppress(OSError, DecodeError), self.connect() as connection:
            connection.ask(ApiVersionsRequest(), ApiVersionsResponse, 0)
            return True
        return False

    def names(self, brokers: int) -> bool:
        """Whether its metadata names so many brokers now."""
        with contextlib.suppress(OSError, DecodeError), self.connect() as connection:
            answer = connection.ask(MetadataRequest(topics=[]), MetadataResponse, METADATA_VERSION)
            return len(answer.brokers) == brokers
        return False

    def connect(self, timeout_s: float = ASK_S) -> BlockingConnection:
        """Return a new connection to its listener.

        :raises OSError: there is no answer
        """
        return BlockingConnection(self.host, self.port, "blumfeld-testing", timeout_s)

    def printed(self) -> str:
        """Return the end of its output."""
        return self.log_path.read_text(errors="replace")[-PRINTED_CHARS:]

    def said_ready(self) -> str:
        """Return the line by which a node of this build has said since its last launch that it serves; else nothing."""
        lines = self.log_path.read_bytes()[self._launched_at :].decode(errors="replace").splitlines()
        return next((line for line in lines if "ready" in line), "")

    def says(self, text: str) -> bool:
        """Whether its output has the text, now or within the time of a start: lines may come late."""
        deadline = time.monotonic() + self.start_timeout_s
        while text not in self.log_path.read_text(errors="replace"):
            if time.monotonic() > deadline:
                return False
            time.sleep(POLL_S)
        return True

    def traceback(self) -> str:
        """Return the first traceback of its output; empty without one."""
        printed = self.log_path.read_text(errors="replace") if self.log_path.exists() else ""
        begin = printed.find("Traceback")
        return "" if begin < 0 else f"{self.name} printed a traceback:\n{printed[begin : begin + 1500]}"

    def rss_bytes(self) -> int:
        """Return its first process's resident memory, or 0 where the system has no /proc."""
        try:
            rows = Path(f"/proc/{self.pid}/status").read_text().splitlines()
            return next(int(row.split()[1]) * 1024 for row in rows if row.startswith("VmRSS"))
        except (OSError, StopIteration, NodeError):
            return 0

    def kill(self) -> None:
        """Send SIGKILL to all its processes, and wait until the first one has ended."""
        self._signal_all(signal.SIGKILL)
        if self._process is not None:
            self._process.wait()

    def pause(self) -> None:
        """Send SIGSTOP to all its processes."""
        self._signal_all(signal.SIGSTOP)

    def resume(self) -> None:
        """Send SIGCONT to all its processes."""
        self._signal_all(signal.SIGCONT)

    def terminate(self) -> None:
        """Send SIGTERM to its first process without waiting."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)

    def wait(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """Wait until it ends by itself. Return its exit status.

        :raises subprocess.TimeoutExpired: it goes on
        """
        assert self._process is not None
        return self._process.wait(timeout_s)

    def await_end(self, timeout_s: float = STOP_TIMEOUT_S) -> bool:
        """Wait until it has ended after :meth:`terminate`; return whether it did so by itself. After the time-out it
        is killed.

        SIGTERM is not sent again: a second one would end a node of this build at once.
        """
        if self._process is None:
            return True
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            return False
        return True

    def stop(self) -> int:
        """Send SIGTERM, and SIGKILL after ``STOP_TIMEOUT_S``. Return the exit status; 0 if it was never started."""
        self.terminate()
        self.await_end()
        return 0 if self._process is None else self._process.returncode

    def _signal_all(self, number: signal.Signals) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)


def start_together(nodes: Sequence[NodeProcess], brokers: Sequence[NodeProcess]) -> None:
    """Start the nodes of a cluster at the same time. Return when each answers, and each broker names all brokers.

    A node may answer only when it has a controller, and a controller needs a majority. So no node waits for another.

    :raises NodeError: a node did not; those that run go on
    """
    for node in nodes:
        node.launch()
    for node in nodes:
        node.await_ready()
    for node in brokers:
        node.await_ready(brokers=len(brokers))


class BrokerProcess(NodeProcess):
    """``blumfeld run MANIFEST`` on a free loopback port. Data and log lie below ``folder``."""

    def __init__(
        self,
        folder: Path,
        manifest: Path | None = None,
        port: int | None = None,
        settings: Sequence[str] = (),
        prefix: Sequence[str] = (),
        start_timeout_s: float = START_TIMEOUT_S,
    ) -> None:
        """Nothing is started yet.

        :param settings: laid over the manifest, each a ``section.key=value`` of ``--set``. With ``node.data_dirs``
            among them the data is there, not below ``folder``.
        :param prefix: a command that runs the broker's command and keeps its process id, such as ``strace -D``
        """
        port = port or free_port()
        command = [*prefix, sys.executable, "-m", "blumfeld.cli.main", "run"]
        command += [] if manifest is None else [str(manifest)]
        if not any(setting.startswith("node.data_dirs=") for setting in settings):
            command += ["--data-dir", str(folder / "data")]
        command += ["--listen", f"{LOOPBACK}:{port}"]
        command += [word for setting in settings for word in ("--set", setting)]
        super().__init__("the broker", command, folder / "broker.log", (LOOPBACK, port), start_timeout_s)
        self.folder = folder
        self.ready_line = ""
        """The line by which it said that it serves."""

    def answers(self) -> bool:
        """Whether it has printed its ready line since the last launch."""
        self.ready_line = self.said_ready()
        return bool(self.ready_line)


def free_port(adjacent: int = 1) -> int:
    """Return the first of ``adjacent`` loopback ports that were free a moment ago.

    The kernel gives none of them to a client or to a bind to port 0. Only another call of this function may choose the
    same.
    """
    for _ in range(TRIES):
        first = secrets.choice(PORTS)
        with contextlib.ExitStack() as probes:
            try:
                for port in range(first, first + adjacent):
                    probes.enter_context(socket.create_server((LOOPBACK, port)))
            except OSError:
                continue
            return first
    raise OSError(f"no free port in {TRIES} tries from {PORTS.start} to {PORTS.stop}")
