"""Starts of a node on data that it left before: how long until it serves all of it again, and its memory.

Each rival is filled over the wire and ended. Then it is started on copies of its data directories, of each kind in
turn, rivals interleaved. ``killed`` was left by SIGKILL, ``clean`` by SIGTERM.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import msgspec
from rich.console import Console
from rich.table import Table

from blumfeld.testing.process import free_port
from blumfeld_bench.plan.variants import VariantSpec
from blumfeld_bench.result import Machine
from blumfeld_bench.runs.machine import this_machine
from blumfeld_bench.runs.servers import Server, ServerError, drop_from_page_cache
from blumfeld_bench.terminal import make_console
from campaigns import figures
from campaigns.bench.rivals import rivals, start

KILLED, CLEAN = "killed", "clean"
STOP_TIMEOUT_S = 300.0


class Data(Protocol):
    """The content of one rival's directories."""

    @property
    def kinds(self) -> Sequence[str]:
        """Kinds of directories in the order in which they are measured; ``killed`` and ``clean`` are among them."""
        ...

    @property
    def quiet_s(self) -> float:
        """Pause between the last answer and the reading of what the server uses."""
        ...

    @property
    def title(self) -> str:
        """The content in words."""
        ...

    def fill(self, port: int, kind: str) -> None:
        """Write the content of a directory that is left by SIGKILL.

        :raises DriverError: the server refused a request
        """
        ...

    def await_all(self, port: int, kind: str) -> None:
        """Return when the server has answered with all of the content.

        :raises DriverError: it answered with something else, or it took too long
        """
        ...

    def copy(self, source: Path, target: Path) -> None:
        """Copy a directory."""
        ...

    def unchanged(self, folder: Path) -> object:
        """Return what no start may change in a directory."""
        ...


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """One start."""

    server: str
    kind: str
    answers_s: float
    """Time from the start of its process to the first ApiVersions answer."""
    served_s: float
    """Time until all of the content is served."""
    rss_bytes: int
    rss_peak_bytes: int
    cpu_s: float

    @property
    def load_s(self) -> float:
        """Time from the first answer until all of the content is served."""
        return self.served_s - self.answers_s


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """A whole run."""

    machine: Machine
    title: str
    cold: bool
    starts: list[Start]


class Contender:
    """One rival, with its data directories below ``folder``."""

    def __init__(self, spec: VariantSpec, folder: Path, data: Data) -> None:
        self._spec, self._folder, self._data = spec, folder, data
        self._port = free_port(adjacent=2)
        self._count = 0
        folder.mkdir(parents=True)

    def prepare(self) -> None:
        """Make a directory of each kind."""
        data, folder = self._data, self._folder
        for kind in data.kinds:
            if kind != CLEAN:
                server = self._start(folder / kind)
                data.fill(server.port, kind)
                server.end(signal.SIGKILL, STOP_TIMEOUT_S)
        data.copy(folder / KILLED, folder / CLEAN)
        server = self._start(folder / CLEAN)
        data.await_all(server.port, CLEAN)
        server.end(timeout_s=STOP_TIMEOUT_S)

    def measure(self, kind: str, *, cold: bool) -> Start:
        """Start the server on a copy of that kind's directory; kill it when it serves all of it.

        :param cold: drop the copy from the page cache first
        :raises ServerError: the start changed what no start may change
        """
        work = self._folder / "work"
        shutil.rmtree(work, ignore_errors=True)
        self._data.copy(self._folder / kind, work)
        before = self._data.unchanged(work)
        if cold:
            drop_from_page_cache(work)
        else:
            os.sync()
        began = time.perf_counter()
        server = self._start(work)
        try:
            self._data.await_all(server.port, kind)
            served_s = time.perf_counter() - began
            time.sleep(self._data.quiet_s)
            used = server.totals()
        finally:
            server.end(signal.SIGKILL, STOP_TIMEOUT_S)
        if self._data.unchanged(work) != before:
            raise ServerError(f"{self._spec.label} changed a log that was sound")
        return Start(
            server=self._spec.label,
            kind=kind,
            answers_s=server.ready_s,
            served_s=served_s,
            rss_bytes=used.rss_bytes,
            rss_peak_bytes=used.rss_max_bytes,
            cpu_s=used.cpu_s,
        )

    def _start(self, data: Path) -> Server:
        self._count += 1
        return start(self._spec, self._folder / f"run-{self._count}", data=data, port=self._port)


def run(
    specs: Sequence[VariantSpec],
    folder: Path,
    make_data: Callable[[], Data],
    rounds: int,
    console: Console,
    *,
    cold: bool = False,
) -> Result:
    """Prepare all rivals, then measure in interleaved rounds.

    :raises DriverError, ServerError: a server refused something, or did not come back with all that it had
    """
    data = make_data()
    contenders = [Contender(spec, folder / spec.label, make_data()) for spec in specs]
    for spec, contender in zip(specs, contenders, strict=True):
        began = time.monotonic()
        contender.prepare()
        console.print(f"{spec.label}: filled, killed, stopped cleanly in {time.monotonic() - began:.1f} s")
    starts = []
    for number in range(rounds):
        for kind in data.kinds:
            for contender in contenders:
                sample = contender.measure(kind, cold=cold)
                console.print(f"round {number + 1} {kind} {sample.server}: {sample.served_s:.2f} s")
                starts.append(sample)
    return Result(machine=this_machine(), title=data.title, cold=cold, starts=starts)


def table(result: Result) -> Table:
    """Return medians, and ratios to the last server."""
    times = ("answers s", "all served s", "of the last", "load s", "of the last")
    sizes = ("RSS MB", "of the last", "peak MB", "of the last", "CPU s")
    title = f"Start with {result.title}, page cache {'dropped' if result.cold else 'warm'}"
    shown = figures.table(title, ("after", "server"), (*times, *sizes))
    names = list(dict.fromkeys(sample.server for sample in result.starts))
    for kind in dict.fromkeys(sample.kind for sample in result.starts):
        rows = [_medians([s for s in result.starts if (s.server, s.kind) == (name, kind)]) for name in names]
        for row in rows:
            shown.add_row(kind, row.server, *_cells(row, rows[-1]))
    return shown


def _medians(starts: Sequence[Start]) -> Start:
    fields = ("answers_s", "served_s", "rss_bytes", "rss_peak_bytes", "cpu_s")
    values = {name: statistics.median(getattr(sample, name) for sample in starts) for name in fields}
    return msgspec.structs.replace(starts[0], **values)


def _cells(mine: Start, last: Start) -> list[str]:
    return [
        f"{mine.answers_s:.2f}",
        f"{mine.served_s:.2f}",
        f"{mine.served_s / last.served_s:.2f}×",
        f"{mine.load_s:.2f}",
        f"{mine.load_s / last.load_s:.2f}×" if last.load_s > 0.01 else "",
        f"{mine.rss_bytes / 1e6:.0f}",
        f"{mine.rss_bytes / last.rss_bytes:.2f}×",
        f"{mine.rss_peak_bytes / 1e6:.0f}",
        f"{mine.rss_peak_bytes / last.rss_peak_bytes:.2f}×",
        f"{mine.cpu_s:.2f}",
    ]


def options(name: str, doc: str | None) -> argparse.ArgumentParser:
    """Return a parser with the options of both campaigns."""
    parser = figures.options(name, doc)
    parser.add_argument("--folder", type=Path, help="where the data goes; by default a temporary one")
    parser.add_argument(
        "--cold", action="store_true", help="drop the data from the page cache before each start"
    )
    return parser


def main(choices: argparse.Namespace, make_data: Callable[[], Data]) -> None:
    """Measure, print the table, write the result."""
    console = make_console()
    if choices.folder is not None:
        choices.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="blumfeld-restarts-", dir=choices.folder) as folder:
        result = run(
            rivals(choices.peer), Path(folder), make_data, choices.rounds, console, cold=choices.cold
        )
    console.print(table(result))
    figures.save(choices.out, result)
