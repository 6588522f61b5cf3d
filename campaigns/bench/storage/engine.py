"""The log engine alone, without a network, beside a bare loop of system calls on the same bytes.

``python -m campaigns engine [--rounds 10] [--only append] [--storage storage_local] [--out FILE]``.

A round times both one after the other, then again in reverse order, on fresh files each time; the lesser of two times
counts. Appends and reads count CPU time, the kernel's part included, so that other processes don't matter; later
write-back by the kernel is not included. Shapes that wait for a device count wall time. The ratio is that of the
rates: 1 if the engine cost nothing. Its interval is that of :mod:`blumfeld_bench.statistics.intervals`.
"""

from __future__ import annotations

import gc
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import attrs
from rich.console import Console
from rich.progress import track
from rich.table import Table

from blumfeld_bench.runs.machine import this_machine
from blumfeld_bench.terminal import make_console
from campaigns import figures
from campaigns.bench.storage.engine_contestants import SHAPES, Bare, Contestant, Engine, Shape

STRETCH_S = 0.05
"""Length of the bare loop's stretch: long beside the clock's ticks, short beside a time slice."""
STRETCH_BYTES_MAX = 96 << 20
"""Most dirty bytes of a stretch: beyond them the kernel may make the writer wait for the device."""
WARM_UP_TURNS = 50


@attrs.frozen
class Row:
    """One shape."""

    shape: Shape
    storage: str
    turns: int
    """Turns in a stretch."""
    ours_us: float
    """Time of a turn, median of rounds."""
    bare_us: float
    ratio: float
    """Our rate divided by the bare loop's."""
    interval: tuple[float, float]
    """The 95 % interval."""

    @property
    def megabytes_per_s(self) -> float:
        """Our rate in megabytes a second."""
        return self.shape.turn_bytes / self.ours_us


def main() -> None:
    """Parse arguments, measure, print the table."""
    parser = figures.options("engine", __doc__, peer=False, rounds=10)
    parser.add_argument("--only", default="", metavar="TEXT", help="shapes whose name holds this")
    parser.add_argument("--storage", default="storage_local", metavar="PLUGIN")
    parser.add_argument("--folder", type=Path, help="on the disk to be measured")
    options = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    chosen = [shape for shape in SHAPES if options.only.lower() in shape.name.lower()]
    rows = []
    with tempfile.TemporaryDirectory(prefix="blumfeld-engine-", dir=options.folder) as folder:
        for shape in track(chosen, "Timing", console=Console(stderr=True), transient=True):
            rows.append(measure(shape, Path(folder), options.storage, options.rounds))  # noqa: PERF401
    figures.save(options.out, {"machine": this_machine(), "rounds": options.rounds, "rows": rows})
    make_console().print(table(rows, options.rounds))


def measure(shape: Shape, folder: Path, storage: str, rounds: int, stretch_s: float = STRETCH_S) -> Row:
    """Time one shape, interleaved."""
    clock = time.perf_counter if shape.kind == "sync" else time.process_time
    engine, bare = Engine(shape, folder, storage), Bare(shape, folder)
    try:
        for contestant in (engine, bare):  # the interpreter specialises bytecode in the first few dozen calls
            stretch(contestant, WARM_UP_TURNS if shape.kind == "append" else 3, clock)
        turns = _turns(shape, stretch(bare, 3, clock), stretch_s)
        ours: list[float] = []
        theirs: list[float] = []
        for _ in range(rounds):
            first = stretch(engine, turns, clock)
            theirs.append(min(stretch(bare, turns, clock) for _ in range(2)))
            ours.append(min(first, stretch(engine, turns, clock)))
    finally:
        engine.close()
    return row(shape, storage, turns, ours, theirs)


def _turns(shape: Shape, turn_s: float, stretch_s: float) -> int:
    turns = max(1, round(stretch_s / max(turn_s, 1e-7)))
    return turns if shape.kind == "read" else max(1, min(turns, STRETCH_BYTES_MAX // shape.turn_bytes))


def stretch(contestant: Contestant, turns: int, clock: Callable[[], float]) -> float:
    """Return the seconds of one turn, from ``turns`` turns on fresh files."""
    with contestant.working() as work:
        gc.collect()
        gc.disable()
        try:
            began = clock()
            work(turns)
            return (clock() - began) / turns
        finally:
            gc.enable()


def row(shape: Shape, storage: str, turns: int, ours: Sequence[float], theirs: Sequence[float]) -> Row:
    """Return the result of all rounds."""
    ours_us, bare_us = statistics.median(ours) * 1e6, statistics.median(theirs) * 1e6
    return Row(shape, storage, turns, ours_us, bare_us, *figures.ratio(ours, theirs))


def table(rows: Sequence[Row], rounds: int) -> Table:
    """Return a row for each shape."""
    title = f"The engine beside a bare loop, medians of {rounds} rounds; synced: wall time, others: CPU time"
    columns = ("bare µs", "engine µs", "batches/s", "MB/s", "rate beside bare (95 % interval)")
    shown = figures.table(title, ("shape",), columns)
    for result in rows:
        shape, (low, high) = result.shape, result.interval
        batches = shape.turn_bytes / shape.batch_bytes / result.ours_us * 1e6
        shown.add_row(
            shape.name + (", bare syncs each" if shape.sync_each else ""),
            f"{result.bare_us:,.1f}",
            f"{result.ours_us:,.1f}",
            f"{batches:,.0f}",
            f"{result.megabytes_per_s:,.0f}",
            f"[bold]{result.ratio:.2f}×[/bold] ({low:.2f}–{high:.2f})",
        )
    return shown


if __name__ == "__main__":
    main()
