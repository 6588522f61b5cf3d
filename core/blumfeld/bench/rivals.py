"""The servers of ``make bench`` and ``make startup``: this build, a bare floor, Apache Kafka."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import attrs

from blumfeld.bench.servers import Server, start_server


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

        :raises ServerError: it stopped or never answered; the message ends with what it printed
        """
        return Running(self, start_server(self.name, self.command, folder))


@attrs.frozen
class Running:
    """A rival that is up."""

    rival: Rival
    server: Server

    @property
    def port(self) -> int:
        """Where it listens."""
        return self.server.port

    @property
    def ready_s(self) -> float:
        """From the start of the process to the first ApiVersions answer."""
        return self.server.ready_s

    def rss_bytes(self) -> int:
        """Resident memory of its processes."""
        return self.server.totals().rss_bytes

    def cpu_s(self) -> float:
        """CPU time that they have used."""
        return self.server.totals().cpu_s

    def stop(self) -> None:
        """SIGTERM, then SIGKILL; its data is removed."""
        self.server.stop()


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
