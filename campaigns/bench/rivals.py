"""The servers of ``make bench`` and ``python -m campaigns startup``: this build, a bare floor, Apache Kafka."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs

from blumfeld_bench.plan.variants import MANIFEST_FILE, VariantSpec
from blumfeld_bench.running.servers import Server, answers, listens, start_server


@attrs.frozen
class Rival:
    """One server of a comparison."""

    name: str
    command: Sequence[str]
    """Start command; ``{port}`` and ``{folder}`` in it are filled in for a run."""
    warm_up_s: float
    """Seconds of load before the first measured round: a JVM needs it to compile."""
    durability: str
    """Kinds of failure that an acknowledged record survives."""
    files: Mapping[str, str] = attrs.field(factory=dict)
    """Files by name, written to the server's folder before it starts."""
    bare: bool = False
    """The server has the topic from the start, and may answer nothing but Produce."""
    large_requests: bool = True
    """Whether the server takes requests of a megabyte."""

    def start(self, folder: Path) -> Running:
        """Start the server with fresh data below ``folder``; return when it answers ApiVersions.

        :raises ServerError: the server stopped or never answered; the message ends with its output
        """
        ready = listens if self.bare else answers
        return Running(self, start_server(self.name, self.command, folder, files=self.files, is_ready=ready))


@attrs.frozen
class Running:
    """A running rival."""

    rival: Rival
    server: Server

    @property
    def port(self) -> int:
        """Port that it listens on."""
        return self.server.port

    @property
    def ready_s(self) -> float:
        """Time from the start of the process to the first ApiVersions answer."""
        return self.server.ready_s

    def rss_bytes(self) -> int:
        """Resident memory of its processes."""
        return self.server.totals().rss_bytes

    def cpu_s(self) -> float:
        """CPU time that its processes have used."""
        return self.server.totals().cpu_s

    def stop(self) -> None:
        """End its processes by SIGTERM, then SIGKILL, and remove its data."""
        self.server.stop()


def this_build() -> Rival:
    """Return the broker of this checkout, as `blumfeld run` starts it."""
    command = [sys.executable, "-m", "blumfeld.cli.main", "run"]
    command += ["--data-dir", "{folder}/data", "--listen", "127.0.0.1:{port}"]
    return Rival("blumfeld", command, 1.0, "page cache")


def composition(spec: VariantSpec) -> Rival:
    """Return a composition of this build."""
    variant = spec.variant
    files = {} if variant.manifest is None else {MANIFEST_FILE: variant.manifest}
    return Rival(spec.label, variant.command, 1.0, variant.durability or "page cache", files)


def floor(script: Path, large_requests: bool = True) -> Rival:
    """Return a bare server: it cuts frames, checks the CRC, writes the batch and answers."""
    command = [sys.executable, str(script), "{port}"]
    return Rival(script.stem, command, 1.0, "page cache", bare=True, large_requests=large_requests)


def kafka(peer: Path) -> Rival:
    """Return Apache Kafka by its start script. Without warm-up it reaches a sixth of its warm rate."""
    return Rival("kafka", [str(peer), "start", "{folder}/data", "{port}"], 25.0, "page cache")
