"""A broker of this build in a process of its own, so that it can be killed."""

from __future__ import annotations

import contextlib
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 60.0
PORTS = range(20_000, 32_000)
"""Ports below the range from which Linux chooses free ports by itself."""
TRIES = 1000


class BrokerProcess:
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
        :param start_timeout_s: time until it must be ready
        """
        self.folder = folder
        self.settings = settings
        self.prefix = prefix
        self.start_timeout_s = start_timeout_s
        self.manifest = manifest
        self.port = port or free_port()
        self.ready_line = ""
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """``host:port`` for a client's ``bootstrap.servers``."""
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """The process id of the last launch."""
        assert self._process is not None
        return self._process.pid

    @property
    def log_path(self) -> Path:
        """The file with the broker's output."""
        return self.folder / "broker.log"

    def start(self) -> None:
        """Start it and wait for its ready line.

        :raises RuntimeError: it stopped, or wasn't ready in time; the message ends with what it printed
        """
        self.await_ready(self.launch())

    def launch(self) -> int:
        """Start the process without waiting. Return where its output begins in the log, for :meth:`await_ready`."""
        arguments = [*self.prefix, sys.executable, "-m", "blumfeld.cli.main", "run"]
        if self.manifest is not None:
            arguments.append(str(self.manifest))
        if not any(setting.startswith("node.data_dirs=") for setting in self.settings):
            arguments += ["--data-dir", str(self.folder / "data")]
        arguments += ["--listen", self.address]
        for setting in self.settings:
            arguments += ["--set", setting]
        mark = self.log_path.stat().st_size if self.log_path.exists() else 0
        with self.log_path.open("ab") as out:
            self._process = subprocess.Popen(arguments, stdout=out, stderr=out)
        return mark

    def await_ready(self, mark: int) -> None:
        """Wait for the ready line of the process that :meth:`launch` started.

        :raises RuntimeError: as :meth:`start`
        """
        assert self._process is not None
        deadline = time.monotonic() + self.start_timeout_s
        while time.monotonic() < deadline:
            printed = self.log_path.read_bytes()[mark:].decode(errors="replace")
            ready = [line for line in printed.splitlines() if "ready" in line]
            if ready:
                self.ready_line = ready[0]
                return
            if self._process.poll() is not None:
                break
            time.sleep(0.01)
        raise RuntimeError(f"the broker did not start:\n{self.log_path.read_text(errors='replace')[-2000:]}")

    def says(self, text: str) -> bool:
        """Return whether the broker's output contains the text, now or within ``START_TIMEOUT_S``: lines may come
        late.
        """
        deadline = time.monotonic() + START_TIMEOUT_S
        while text not in self.log_path.read_text(errors="replace"):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.01)
        return True

    def rss_bytes(self) -> int:
        """Return the broker's resident memory, or 0 where the system has no /proc."""
        return self._status_bytes("VmRSS")

    def peak_rss_bytes(self) -> int:
        """Return the peak of the broker's resident memory, or 0 where the system has no /proc."""
        return self._status_bytes("VmHWM")

    def _status_bytes(self, field: str) -> int:
        status = Path(f"/proc/{self._process.pid}/status") if self._process else None
        if status is None or not status.exists():
            return 0
        line = next(row for row in status.read_text().splitlines() if row.startswith(field))
        return int(line.split()[1]) * 1024

    def kill(self) -> None:
        """Send SIGKILL, and wait for the process to be gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def terminate(self) -> None:
        """Send SIGTERM without waiting."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)

    def wait(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """Wait until the process ends by itself. Return its exit status.

        :raises subprocess.TimeoutExpired: it goes on
        """
        assert self._process is not None
        return self._process.wait(timeout_s)

    def stop(self) -> int:
        """Send SIGTERM, and SIGKILL after ``STOP_TIMEOUT_S``. Return the exit status."""
        if self._process is None or self._process.poll() is not None:
            return self._process.returncode if self._process else 0
        self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            return -9


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
                    probes.enter_context(socket.create_server(("127.0.0.1", port)))
            except OSError:
                continue
            return first
    raise OSError(f"no free port in {TRIES} tries from {PORTS.start} to {PORTS.stop}")
