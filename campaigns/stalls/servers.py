"""The two servers under attack: this build, and Apache Kafka by its start script."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from blumfeld.testing.process import free_port
from blumfeld.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from campaigns.raw_connection import ConnectionEnded, RawConnection

START_S = 60.0
STOP_S = 20.0
TRIES = 3


class Server:
    """A server in a process of its own on a loopback port; ``{folder}`` and ``{port}`` stand in its command."""

    def __init__(self, label: str, command: Sequence[str], port: int | None = None) -> None:
        self.label = label
        self._command = command
        self._first_port = port
        self.port = 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """``host:port``."""
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """The process's id."""
        assert self._process is not None
        return self._process.pid

    def start(self, folder: Path) -> None:
        """Start it with its data in ``folder``, and wait until it answers.

        It is tried on several ports: another program may take one meanwhile.

        :raises RuntimeError: it ended, or doesn't answer in time
        """
        for left in reversed(range(TRIES)):
            try:
                self._start(folder / f"try-{left}")
            except RuntimeError:
                if not left:
                    raise
            else:
                return

    def _start(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self.port = free_port(2) if self._first_port is None else free_from(self._first_port)
        places = {"folder": str(folder), "port": str(self.port)}
        command = [part.format(**places) for part in self._command]
        with (folder / "server.log").open("ab") as out:
            self._process = subprocess.Popen(command, stdout=out, stderr=out)
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                self.advertised()
            except (OSError, ConnectionEnded):
                time.sleep(0.05)
            else:
                return
        self.stop()
        printed = (folder / "server.log").read_text(errors="replace")
        raise RuntimeError(f"{self.label} did not start on {self.address}; it printed:\n{printed[-2000:]}")

    def advertised(self) -> dict[int, tuple[int, int]]:
        """Key → (lowest, highest) version."""
        with RawConnection(self.address, START_S) as connection:
            answer = connection.ask(ApiVersionsRequest(), 0, ApiVersionsResponse)
        return {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}

    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and self._process.poll() is None

    def peak_rss_bytes(self) -> int:
        """Its resident memory at its highest, 0 where the system doesn't tell."""
        try:
            rows = Path(f"/proc/{self.pid}/status").read_text().splitlines()
            return next(int(row.split()[1]) * 1024 for row in rows if row.startswith("VmHWM"))
        except (OSError, StopIteration):
            return 0

    def stop(self) -> None:
        """SIGTERM, then SIGKILL."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def free_from(first: int) -> int:
    """The first of two adjacent loopback ports from ``first`` on that nobody holds.

    :raises OSError: none of a hundred is free
    """
    for port in range(first, first + 100, 2):
        with contextlib.ExitStack() as probes:
            try:
                for one in (port, port + 1):
                    probes.enter_context(socket.create_server(("127.0.0.1", one)))
            except OSError:
                continue
            return port
    raise OSError(f"no free port from {first} to {first + 99}")


def this_build(port: int | None = None, settings: Sequence[str] = ()) -> Server:
    """The broker of this checkout."""
    command = [sys.executable, "-m", "blumfeld.cli.main", "run"]
    command += ["--data-dir", "{folder}/data", "--listen", "127.0.0.1:{port}"]
    for setting in settings:
        command += ["--set", setting]
    return Server("blumfeld", command, port)


def kafka(peer: Path, port: int | None = None) -> Server:
    """Apache Kafka."""
    return Server("kafka", [str(peer), "start", "{folder}/data", "{port}"], port)
