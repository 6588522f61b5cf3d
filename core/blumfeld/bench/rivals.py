"""Servers that a bench starts, warms and stops: this build, a bare floor, Apache Kafka. Each on loopback with
fresh data.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import attrs

READY_TIMEOUT_S = 60.0
API_VERSIONS_V0 = bytes.fromhex("0000000a 0012 0000 00000001 ffff".replace(" ", ""))


@attrs.frozen
class Rival:
    """One server of a comparison."""

    name: str
    command: Sequence[str]
    """``{port}`` and ``{folder}`` stand for what a run gives it."""
    warm_up_s: float
    """Load before the first measured round: a JVM needs it to compile."""
    durability: str
    """What an acknowledged record survives."""

    def start(self, folder: Path) -> Running:
        """Start it with fresh data below ``folder``, and return when it answers ApiVersions.

        :raises RuntimeError: it stopped or never answered; the message ends with what it printed
        """
        folder.mkdir(parents=True)
        port = free_port()
        command = [part.format(port=port, folder=folder) for part in self.command]
        began = time.perf_counter()
        with (folder / "log").open("wb") as out:
            process = subprocess.Popen(command, cwd=folder, stdout=out, stderr=out, start_new_session=True)
        running = Running(self, process, port, folder)
        while not answers(port):
            if process.poll() is not None or time.perf_counter() - began > READY_TIMEOUT_S:
                running.stop()
                printed = (folder / "log").read_text(errors="replace")[-2000:]
                raise RuntimeError(f"{self.name} did not start:\n{printed}")
            time.sleep(0.002)
        running.ready_s = time.perf_counter() - began
        return running


@attrs.define
class Running:
    """A rival that is up."""

    rival: Rival
    process: subprocess.Popen[bytes]
    port: int
    folder: Path
    ready_s: float = 0.0
    """From the start of the process to the first ApiVersions answer."""

    def rss_bytes(self) -> int:
        """Resident memory of the server's process."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmRSS"))

    def cpu_s(self) -> float:
        """CPU time that it has used."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        """SIGTERM, then SIGKILL after 15 s; its data is removed."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGTERM)
            try:
                self.process.wait(15)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()
        shutil.rmtree(self.folder / "data", ignore_errors=True)


def this_build(manifest: Path | None = None) -> Rival:
    """The broker of this checkout, as `blumfeld run` starts it."""
    given = [str(manifest.resolve())] if manifest else []
    command = [sys.executable, "-m", "blumfeld.cli.main", "run", *given]
    command += ["--data-dir", "{folder}/data", "--listen", "127.0.0.1:{port}"]
    name = f"blumfeld {manifest.stem}" if manifest else "blumfeld"
    return Rival(name, command, 1.0, "page cache")


def floor(script: Path) -> Rival:
    """A bare server: frames cut, CRC checked, batch written, answer sent."""
    return Rival(script.stem, [sys.executable, str(script), "{port}"], 1.0, "page cache")


def kafka(peer: Path) -> Rival:
    """Apache Kafka by its start script. Cold it does a sixth of what it does warm."""
    return Rival("kafka", [str(peer), "start", "{folder}/data", "{port}"], 25.0, "page cache")


def free_port() -> int:
    """A loopback port that was free a moment ago, with its successor free too (a controller's)."""
    while True:
        with socket.create_server(("127.0.0.1", 0)) as first:
            port: int = first.getsockname()[1]
            try:
                with socket.create_server(("127.0.0.1", port + 1)):
                    return port
            except OSError:
                continue


def answers(port: int) -> bool:
    """Whether an ApiVersions request is answered there now."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as client:
            client.sendall(API_VERSIONS_V0)
            return len(client.recv(4)) == 4
    except OSError:
        return False
