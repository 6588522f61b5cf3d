"""The wire codec beside kio's and kafka-python's, in one process.

``python -m campaigns codec [--rounds 10] [--only Metadata] [--out FILE]``. Before anything is
timed, each rival has encoded the same message to the same bytes (:mod:`campaigns.bench.codec.rivals`).

A round times all codecs one after the other, then again in reverse order. A time is the least of several stretches of
CPU time, so that it excludes interruptions by other processes. Garbage collection is off, as in ``timeit``. That
favours codecs whose objects the collector would have to visit; it need not visit ours. A ratio is taken over the
rounds' ratios; its interval is that of :mod:`blumfeld_bench.statistics.intervals`.
"""

from __future__ import annotations

import gc
import os
import statistics
import time
from collections.abc import Callable, Sequence

import attrs
from rich.console import Console
from rich.progress import track
from rich.table import Table

from blumfeld_bench.runs.machine import this_machine
from blumfeld_bench.terminal import make_console
from campaigns import figures
from campaigns.bench.codec.messages import cases
from campaigns.bench.codec.rivals import Contestant, contestants

STRETCH_S = 0.005
"""Length of a timed stretch: long enough for the CPU clock, short enough to fall between two interruptions."""
STRETCHES = 4
DIRECTIONS = ("encode", "decode")


@attrs.frozen
class Beside:
    """One rival's time for one message in one direction, and its ratio to ours."""

    name: str
    median_us: float
    faster: float
    """Their time divided by ours."""
    interval: tuple[float, float]
    """The 95 % interval."""


@attrs.frozen
class Row:
    """One message in one direction."""

    case: str
    size_bytes: int
    direction: str
    ours_us: float
    rivals: list[Beside]


def main() -> None:
    """Parse arguments, measure, print the table; write it with ``--out``."""
    parser = figures.options("codec", __doc__, peer=False, rounds=10)
    parser.add_argument("--only", default="", metavar="TEXT", help="messages whose name holds this")
    options = parser.parse_args()
    machine = this_machine()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    chosen = [case for case in cases() if options.only.lower() in case.name.lower()]
    rows: list[Row] = []
    missing: list[str] = []
    for case in track(chosen, "Timing", console=Console(stderr=True), transient=True):
        ours, rivals, absent = contestants(case)
        missing += absent
        rows += [measure(case.name, direction, ours, rivals, options.rounds) for direction in DIRECTIONS]
    console = make_console()
    console.print(table(rows, options.rounds))
    for line in missing:
        console.print(f"[dim]{line}[/dim]")
    figures.save(
        options.out, {"machine": machine, "rounds": options.rounds, "missing": missing, "rows": rows}
    )


def measure(name: str, direction: str, ours: Contestant, rivals: Sequence[Contestant], rounds: int) -> Row:
    """Time one message in one direction, interleaved."""
    calls: list[Callable[[], object]] = [getattr(contestant, direction) for contestant in (ours, *rivals)]
    repeats = [_repeats(call) for call in calls]
    times: list[list[float]] = [[] for _ in calls]
    order = list(range(len(calls)))
    gc.collect()
    gc.disable()
    try:
        for _ in range(rounds):
            there = {at: stretch(calls[at], repeats[at]) for at in order}
            back = {at: stretch(calls[at], repeats[at]) for at in reversed(order)}
            for at in order:
                times[at].append(min(there[at], back[at]))
    finally:
        gc.enable()
    size = len(bytes(ours.encode()))
    beside = [
        _beside(contestant.name, times[0], theirs)
        for contestant, theirs in zip(rivals, times[1:], strict=True)
    ]
    return Row(name, size, direction, statistics.median(times[0]) * 1e6, beside)


def _repeats(call: Callable[[], object]) -> int:
    """Return the number of calls that fill a stretch; the first call, which may compile, is not timed."""
    call()
    once = min(stretch(call, 1) for _ in range(3))
    return max(1, round(STRETCH_S / max(once, 1e-7)))


def stretch(call: Callable[[], object], repeats: int) -> float:
    """Return the CPU seconds of one call: the least of several stretches of ``repeats`` calls each."""
    best = float("inf")
    for _ in range(STRETCHES):
        before = time.process_time()
        for _ in range(repeats):
            call()
        best = min(best, time.process_time() - before)
    return best / repeats


def _beside(name: str, ours: Sequence[float], theirs: Sequence[float]) -> Beside:
    return Beside(name, statistics.median(theirs) * 1e6, *figures.ratio(ours, theirs))


def table(rows: Sequence[Row], rounds: int) -> Table:
    """Return a row for each message and direction: each codec's time, and how many times faster ours is."""
    title = f"CPU time of one message, median of {rounds} rounds; ours is faster by (95 % interval)"
    names = list(dict.fromkeys(rival.name for row in rows for rival in row.rivals))
    shown = figures.table(
        title, ("message",), ("bytes", "", "blumfeld µs", *(f"{name} µs" for name in names))
    )
    for row in rows:
        beside = {rival.name: rival for rival in row.rivals}
        cells = [_cell(beside[name]) if name in beside else "–" for name in names]
        shown.add_row(row.case, f"{row.size_bytes:,}", row.direction, f"{row.ours_us:,.2f}", *cells)
    return shown


def _cell(beside: Beside) -> str:
    low, high = beside.interval
    return f"{beside.median_us:,.2f}  [bold]{beside.faster:.2f}×[/bold] ({low:.2f}–{high:.2f})"


if __name__ == "__main__":
    main()
