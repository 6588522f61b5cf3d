"""Start after a kill and after a clean stop on a full data directory: time until all partitions serve, peak memory.

``python -m campaigns recovery --peer kafka-peer --size-mb 10000 --partitions 1000``. Every server is filled with the
same batches over the wire, killed with SIGKILL, and started on copies of its data directory; rivals interleaved.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from blumfeld_bench.result import Machine
from blumfeld_bench.running.machine import this_machine
from blumfeld_bench.running.page_cache import drop
from blumfeld_bench.running.servers import Server, ServerError, free_port, start_server
from campaigns.bench.rivals import Rival, kafka, this_build
from campaigns.bench.starts.recovery_data import Shape, await_all, copy_tree, fill, log_bytes

KINDS = ("killed", "clean")
STOP_TIMEOUT_S = 300.0


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """One start."""

    server: str
    kind: str
    """Kind of the stop before it: ``killed`` or ``clean``."""
    ready_s: float
    """Time from the start of its process until every partition has a leader that reports the end offset that was
    written.
    """
    answers_s: float
    """Time until the first ApiVersions answer."""
    rss_peak_bytes: int
    cpu_s: float


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """A whole run."""

    machine: Machine
    size_bytes: int
    partitions: int
    batch_bytes: int
    idempotent: bool
    cold: bool
    starts: list[Start]


class Contender:
    """One rival, with its data directories."""

    def __init__(self, rival: Rival, folder: Path, shape: Shape) -> None:
        self.rival = rival
        self.port = free_port()
        self._folder = folder
        self._shape = shape
        self._count = 0

    def prepare(self) -> None:
        """Fill the server, kill it and keep that directory; recover it, stop it cleanly and keep that directory too."""
        server = self._start(self._folder / "work")
        fill(server.port, self._shape)
        _end(server, signal.SIGKILL)
        (self._folder / "work").rename(self._folder / "killed")
        copy_tree(self._folder / "killed", self._folder / "clean")
        server = self._start(self._folder / "clean")
        await_all(server.port, self._shape)
        _end(server, signal.SIGTERM)

    def measure(self, kind: str, *, cold: bool) -> Start:
        """Start the server on a copy of that stop's directory; kill it when it is ready."""
        work = self._folder / "work"
        subprocess.run(["rm", "-rf", str(work)], check=True)
        copy_tree(self._folder / kind, work)
        before = log_bytes(work)
        if cold:
            drop(work)
        else:
            os.sync()
        began = time.perf_counter()
        server = self._start(work)
        try:
            await_all(server.port, self._shape)
            ready_s, used = time.perf_counter() - began, server.totals()
        finally:
            _end(server, signal.SIGKILL)
        if log_bytes(work) != before:
            raise ServerError(f"{self.rival.name} changed a log that was sound")
        return Start(
            server=self.rival.name,
            kind=kind,
            ready_s=ready_s,
            answers_s=server.ready_s,
            rss_peak_bytes=used.rss_max_bytes,
            cpu_s=used.cpu_s,
        )

    def _start(self, data: Path) -> Server:
        command = [part.replace("{folder}/data", str(data)) for part in self.rival.command]
        self._count += 1
        return start_server(self.rival.name, command, self._folder / f"run-{self._count}", port=self.port)


def _end(server: Server, number: signal.Signals) -> None:
    """Send the signal to all processes of the server, and wait until they are gone."""
    os.killpg(server.process.pid, number)
    server.process.wait(STOP_TIMEOUT_S)


def run(rivals: list[Rival], folder: Path, shape: Shape, rounds: int, *, cold: bool, told: Console) -> Result:
    """Prepare all, then measure in interleaved rounds."""
    contenders = []
    for rival in rivals:
        (folder / rival.name).mkdir(parents=True)
        contender = Contender(rival, folder / rival.name, shape)
        contender.prepare()
        contenders.append(contender)
        told.print(f"{rival.name}: filled, killed, stopped cleanly")
    starts = []
    for number in range(rounds):
        for kind in KINDS:
            for contender in contenders:
                start = contender.measure(kind, cold=cold)
                told.print(f"round {number + 1} {kind} {start.server}: {start.ready_s:.2f} s")
                starts.append(start)
    return Result(
        machine=this_machine(),
        size_bytes=shape.batches * shape.batch_bytes * shape.partitions,
        partitions=shape.partitions,
        batch_bytes=shape.batch_bytes,
        idempotent=shape.idempotent,
        cold=cold,
        starts=starts,
    )


def table(result: Result) -> Table:
    """Return medians, and ratios to the last server."""
    size = f"{result.size_bytes / 1e9:.2f} GB in {result.partitions} partitions, {result.batch_bytes}-byte batches"
    kind = " of idempotent producers" if result.idempotent else ""
    title = f"Start on {size}{kind}, page cache {'dropped' if result.cold else 'warm'}"
    found = Table(title=title, title_justify="left")
    for column in (
        "after",
        "server",
        "all partitions s",
        "of the last",
        "peak RSS MB",
        "of the last",
        "CPU s",
    ):
        found.add_column(column, justify="left" if column in ("after", "server") else "right")
    names = list(dict.fromkeys(start.server for start in result.starts))
    for kind in KINDS:
        rows = {
            name: [start for start in result.starts if (start.server, start.kind) == (name, kind)]
            for name in names
        }
        last_s, last_rss, _ = _medians(rows[names[-1]])
        for name, starts in rows.items():
            ready_s, rss, cpu_s = _medians(starts)
            found.add_row(
                "SIGKILL" if kind == "killed" else "clean stop",
                name,
                f"{ready_s:.2f}",
                f"{ready_s / last_s:.2f}×",
                f"{rss / 1e6:.0f}",
                f"{rss / last_rss:.2f}×",
                f"{cpu_s:.2f}",
            )
    return found


def _medians(starts: list[Start]) -> tuple[float, float, float]:
    return (
        statistics.median(start.ready_s for start in starts),
        statistics.median(start.rss_peak_bytes for start in starts),
        statistics.median(start.cpu_s for start in starts),
    )


def main() -> None:
    """Parse arguments, run, print the table."""
    parser = argparse.ArgumentParser(description="Time and memory of a start on a full data directory.")
    parser.add_argument("--peer", type=Path, help="start script of Apache Kafka: PEER start DIR PORT")
    parser.add_argument("--size-mb", type=int, default=200)
    parser.add_argument("--partitions", type=int, default=50)
    parser.add_argument("--batch-bytes", type=int, default=16_384)
    parser.add_argument(
        "--idempotent", action="store_true", help="batches as an idempotent producer sends them"
    )
    parser.add_argument(
        "--cold", action="store_true", help="drop the data from the page cache before each start"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--folder", type=Path, help="where the data goes, three times its size; by default a temporary one"
    )
    parser.add_argument("--json", type=Path, help="write all that was measured there")
    options = parser.parse_args()
    rivals = [this_build()] + ([kafka(options.peer.resolve())] if options.peer else [])
    shape = Shape(options.size_mb * 1_000_000, options.partitions, options.batch_bytes, options.idempotent)
    console = Console()
    if options.folder is not None:
        options.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="blumfeld-recovery-", dir=options.folder) as folder:
        result = run(rivals, Path(folder), shape, options.rounds, cold=options.cold, told=console)
    console.print(table(result))
    if options.json:
        options.json.write_bytes(msgspec.json.format(msgspec.json.encode(result)) + b"\n")


if __name__ == "__main__":
    main()
