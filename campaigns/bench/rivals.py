"""The servers of ``make bench`` and ``python -m campaigns startup``: this build, a bare floor, Apache Kafka."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs

from blumfeld.bench.plan.variants import MANIFEST_FILE, VariantSpec
from blumfeld.bench.running.servers import Server, answers, listens, start_server


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
    files: Mapping[str, str] = attrs.field(factory=dict)
    """Written to its folder before it starts."""
    bare: bool = False
    """It has the topic from the start, and may answer nothing but Produce."""
    large_requests: bool = True
    """Whether it takes requests of a megabyte."""

    def start(self, folder: Path) -> Running:
        """Start it with fresh data below ``folder``, and return when it answers ApiVersions.

        :raises ServerError: it stopped or never answered; the message ends with what it printed
        """
        ready = listens if self.bare else answers
        return Running(self, start_server(self.name, self.command, folder, files=self.files, is_ready=ready))


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


def this_build() -> Rival:
    """The broker of this checkout, as `blumfeld run` starts it."""
    command = [sys.executable, "-m", "blumfeld.cli.main", "run"]
    command += ["--data-dir", "{folder}/data", "--listen", "127.0.0.1:{port}"]
    return Rival("blumfeld", command, 1.0, "page cache")


def composition(spec: VariantSpec) -> Rival:
    """A composition of this build."""
    variant = spec.variant
    files = {} if variant.manifest is None else {MANIFEST_FILE: variant.manifest}
    return Rival(spec.label, variant.command, 1.0, variant.durability or "page cache", files)


def floor(script: Path, large_requests: bool = True) -> Rival:
    """A bare server: frames cut, CRC checked, batch written, answer sent."""
    command = [sys.executable, str(script), "{port}"]
    return Rival(script.stem, command, 1.0, "page cache", bare=True, large_requests=large_requests)


def kafka(peer: Path) -> Rival:
    """Apache Kafka by its start script. Cold it does a sixth of what it does warm."""
    return Rival("kafka", [str(peer), "start", "{folder}/data", "{port}"], 25.0, "page cache")
