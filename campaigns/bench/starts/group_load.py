"""Time until a node that ended answers for all groups again, and the memory that their offsets take.

``python -m campaigns group-load --peer kafka-peer --groups 10000 --offsets 100``. Every server gets the same commits
over the wire, and is then started on copies of three data directories: ``empty``, without groups; ``clean``, after a
SIGTERM; ``killed``, after a SIGKILL. The extra time of ``clean`` over ``empty`` is the replay of the groups. The
extra time of ``killed`` over ``clean`` is the recovery of the logs.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import statistics
import tempfile
import time
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from blumfeld_bench.result import Machine
from blumfeld_bench.running.machine import this_machine
from blumfeld_bench.running.servers import Server, free_port, start_server
from campaigns.bench.rivals import Rival, kafka, this_build
from campaigns.bench.starts.group_load_data import Shape, await_all, fill, last_groups

KINDS = ("empty", "clean", "killed")
STOP_TIMEOUT_S = 60.0
QUIET_S = 1.0
"""Pause between the last answer and the reading of the resident set."""


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """One start."""

    server: str
    kind: str
    answers_s: float
    """Time from the start of its process to the first ApiVersions answer."""
    loaded_s: float
    """Time until a group of every partition has had its first OffsetFetch answered."""
    rss_bytes: int
    """Resident set one second later."""
    rss_peak_bytes: int
    cpu_s: float


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """A whole run."""

    machine: Machine
    groups: int
    offsets: int
    starts: list[Start]


class Contender:
    """One rival, with its data directories."""

    def __init__(self, rival: Rival, folder: Path, shape: Shape) -> None:
        self.rival = rival
        self._port = free_port()
        self._folder = folder
        self._shape = shape
        self._count = 0
        self._asked: list[int] = []

    def prepare(self) -> float:
        """Make a directory of each kind; return the seconds that the commits took."""
        empty = Shape(0, self._shape.offsets)
        server = self._start(self._folder / "empty")
        partitions = fill(server.port, empty)
        _end(server, signal.SIGKILL)
        server = self._start(self._folder / "killed")
        began = time.perf_counter()
        fill(server.port, self._shape)
        took_s = time.perf_counter() - began
        _end(server, signal.SIGKILL)
        self._asked = last_groups(self._shape, partitions)
        shutil.copytree(self._folder / "killed", self._folder / "clean")
        server = self._start(self._folder / "clean")
        await_all(server.port, self._shape, self._asked)
        _end(server, signal.SIGTERM)
        return took_s

    def measure(self, kind: str) -> Start:
        """Start the server on a copy of that kind's directory; kill it when all its shards have answered."""
        work = self._folder / "work"
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(self._folder / kind, work)
        os.sync()
        began = time.perf_counter()
        server = self._start(work)
        try:
            await_all(server.port, self._shape, self._asked if kind != "empty" else [])
            loaded_s = time.perf_counter() - began
            time.sleep(QUIET_S)
            used = server.totals()
        finally:
            _end(server, signal.SIGKILL)
        return Start(
            server=self.rival.name,
            kind=kind,
            answers_s=server.ready_s,
            loaded_s=loaded_s,
            rss_bytes=used.rss_bytes,
            rss_peak_bytes=used.rss_max_bytes,
            cpu_s=used.cpu_s,
        )

    def _start(self, data: Path) -> Server:
        command = [part.replace("{folder}/data", str(data)) for part in self.rival.command]
        self._count += 1
        return start_server(self.rival.name, command, self._folder / f"run-{self._count}", port=self._port)


def _end(server: Server, number: signal.Signals) -> None:
    """Send the signal to all processes of the server, and wait until they are gone."""
    os.killpg(server.process.pid, number)
    server.process.wait(STOP_TIMEOUT_S)


def run(rivals: list[Rival], folder: Path, shape: Shape, rounds: int, told: Console) -> Result:
    """Prepare all, then measure in interleaved rounds.

    :raises DriverError, ServerError: a server refused something, or did not come back with what was committed
    """
    contenders = []
    for rival in rivals:
        (folder / rival.name).mkdir(parents=True)
        contender = Contender(rival, folder / rival.name, shape)
        took_s = contender.prepare()
        contenders.append(contender)
        told.print(f"{rival.name}: {shape.groups * shape.offsets} offsets committed in {took_s:.1f} s")
    starts = []
    for number in range(rounds):
        for kind in KINDS:
            for contender in contenders:
                start = contender.measure(kind)
                told.print(f"round {number + 1} {kind} {start.server}: {start.loaded_s:.2f} s")
                starts.append(start)
    return Result(machine=this_machine(), groups=shape.groups, offsets=shape.offsets, starts=starts)


def table(result: Result) -> Table:
    """Return medians, and ratios to the last server."""
    count = result.groups * result.offsets
    title = f"Start with {result.groups} groups × {result.offsets} offsets = {count}"
    found = Table(title=title, title_justify="left")
    for column in ("after", "server", "answers s", "all loaded s", "of the last", "load s", "of the last"):
        found.add_column(column, justify="left" if column in ("after", "server") else "right")
    for column in ("RSS MB", "of the last", "peak MB", "CPU s"):
        found.add_column(column, justify="right")
    names = list(dict.fromkeys(start.server for start in result.starts))
    for kind in KINDS:
        rows = {name: [s for s in result.starts if (s.server, s.kind) == (name, kind)] for name in names}
        last = _medians(rows[names[-1]])
        for name, starts in rows.items():
            found.add_row(kind, name, *_cells(_medians(starts), last))
    return found


def _medians(starts: list[Start]) -> Start:
    fields = ("answers_s", "loaded_s", "rss_bytes", "rss_peak_bytes", "cpu_s")
    values = {name: statistics.median(getattr(start, name) for start in starts) for name in fields}
    return msgspec.structs.replace(starts[0], **values)


def _cells(mine: Start, last: Start) -> list[str]:
    load_s, last_load_s = mine.loaded_s - mine.answers_s, last.loaded_s - last.answers_s
    return [
        f"{mine.answers_s:.2f}",
        f"{mine.loaded_s:.2f}",
        f"{mine.loaded_s / last.loaded_s:.2f}×",
        f"{load_s:.2f}",
        f"{load_s / last_load_s:.2f}×" if last_load_s > 0.01 else "",
        f"{mine.rss_bytes / 1e6:.0f}",
        f"{mine.rss_bytes / last.rss_bytes:.2f}×",
        f"{mine.rss_peak_bytes / 1e6:.0f}",
        f"{mine.cpu_s:.2f}",
    ]


def main() -> None:
    """Parse arguments, run, print the table."""
    parser = argparse.ArgumentParser(description="Time and memory until all groups are loaded.")
    parser.add_argument("--peer", type=Path, help="start script of Apache Kafka: PEER start DIR PORT")
    parser.add_argument("--groups", type=int, default=10_000)
    parser.add_argument("--offsets", type=int, default=100, help="of each group")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="where the data goes; by default a temporary one")
    parser.add_argument("--json", type=Path, help="write all that was measured there")
    options = parser.parse_args()
    rivals = [this_build()] + ([kafka(options.peer.resolve())] if options.peer else [])
    console = Console()
    if options.folder is not None:
        options.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="blumfeld-group-load-", dir=options.folder) as folder:
        shape = Shape(options.groups, options.offsets)
        result = run(rivals, Path(folder), shape, options.rounds, console)
    console.print(table(result))
    if options.json:
        options.json.write_bytes(msgspec.json.format(msgspec.json.encode(result)) + b"\n")


if __name__ == "__main__":
    main()
