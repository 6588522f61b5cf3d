"""Instructions and system calls of one produce request, ours beside the bare servers'.

``python -m campaigns instructions --floor floor_epoll.py [--floor floor_ring.py] [--manifest M] [--set K=V]``. For
each server and number of connections N, then 2N requests are sent in lock-step. (I(2N) - I(N)) / N is the cost of a
request with its share of the turn, without the costs of start-up and of counting. System calls are counted likewise,
on a second server under strace. Counts, unlike times, hold on a busy machine. But instructions differ in time, and
the kernel's work for a system call isn't counted.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

import attrs
from rich.table import Table

from blumfeld_bench.runs.machine import this_machine
from blumfeld_bench.terminal import make_console
from campaigns import figures
from campaigns.bench.counting.lockstep import CatchUp, Load, Produce, Tail, make_topic
from campaigns.bench.counting.programs import (
    CALLGRIND_LATER,
    CountedServer,
    MissingToolError,
    Program,
    start,
    whole_instructions,
    whole_system_calls,
)
from campaigns.bench.counting.transactions import ManyPartitions, OldTransactions, Transactions

T = TypeVar("T")

COMMAND = "blumfeld.cli.main"
RING_IN_BITES = "campaigns.bench.counting.ring_in_bites"
MakeLoad = Callable[[int, int], Load]
"""Constructor of a load: takes the port and the number of connections."""
LOADS: dict[str, MakeLoad] = {
    "produce": Produce,
    "tail": Tail,
    "catch-up": CatchUp,
    "many-partitions": ManyPartitions,
    "transactions": Transactions,
    "transactions-0": OldTransactions,
}


@attrs.frozen
class Cost:
    """Cost of one request, with its share of the turn."""

    server: str
    connections: int
    instructions: float
    system_calls: dict[str, float]
    """System calls for each request by name, most frequent first; below 0.005 left out."""

    @property
    def calls(self) -> float:
        """Sum of all system calls."""
        return sum(self.system_calls.values())


def main() -> None:
    """Parse arguments, count, print the table; write it with ``--out``."""
    parser = figures.options("instructions", __doc__, peer=False, rounds=None)
    parser.add_argument("--manifest", type=Path, help="the composition of this build")
    parser.add_argument("--set", action="append", default=[], metavar="K=V", help="lay a value over it")
    parser.add_argument("--floor", type=Path, action="append", default=[], help="a bare server: SCRIPT PORT")
    parser.add_argument("--connections", default="1,16,128")
    parser.add_argument("--requests", type=int, default=1024, help="N; rounded up to whole turns")
    parser.add_argument("--load", choices=LOADS, default="produce")
    options = parser.parse_args()
    console = make_console()
    programs = [this_build(options.manifest, options.set)]
    if options.load == "produce":
        programs += [bare(script.resolve()) for script in options.floor]
    connections = [int(count) for count in options.connections.split(",")]
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    costs: list[Cost] = []
    with tempfile.TemporaryDirectory(prefix="blumfeld-instructions-") as folder:
        try:
            for at, program in enumerate(programs):
                home = Path(folder) / str(at)
                costs += measure(program, connections, options.requests, home, LOADS[options.load])
                console.print(f"[dim]{program.name} is counted[/dim]")
        except MissingToolError as error:
            sys.exit(str(error))
    console.print(table(costs, options.requests, options.load))
    figures.save(options.out, {"machine": this_machine(), "costs": costs})


def this_build(manifest: Path | None = None, overrides: Sequence[str] = ()) -> Program:
    """Return the broker of this checkout, as `blumfeld run` starts it."""
    command = [sys.executable, "-m", COMMAND, "run"]
    command += [str(manifest.resolve())] if manifest else []
    # Empty metadata records come with the time, which valgrind stretches. They are no cost of a request.
    command += ["--set", 'config."metadata.max.idle.interval.ms"=0']
    command += [part for value in overrides for part in ("--set", value)]
    command += ["--data-dir", "{folder}/data", "--listen", "127.0.0.1:{port}"]
    name = f"blumfeld {manifest.stem}" if manifest else "blumfeld"
    return Program(" ".join([name, *overrides]), command, bare=False)


def bare(script: Path) -> Program:
    """Return a bare server: it cuts frames, checks the CRC, writes the batch and answers."""
    return Program(script.stem, [sys.executable, str(script), "{port}"], bare=True)


def measure(
    program: Program, connections: Sequence[int], requests: int, folder: Path, make: MakeLoad = Produce
) -> list[Cost]:
    """Count instructions and system calls of one server. Bare servers take only
    :class:`~campaigns.bench.counting.lockstep.Produce`.
    """
    counts = [(count, whole_turns(requests, count)) for count in connections]
    totals = (
        _whole_passes(program, counts, folder) if program.bare else _passes(make, program, counts, folder)
    )
    return [
        Cost(program.name, count, instructions, calls)
        for (count, _), (instructions, calls) in zip(counts, totals, strict=True)
    ]


def whole_turns(requests: int, connections: int) -> int:
    """Return ``requests``, rounded up so that each connection has the same number."""
    return -(-requests // connections) * connections


Counts = Sequence[tuple[int, int]]
"""Pairs of connections and N."""
Found = Iterable[tuple[float, dict[str, float]]]
"""Instructions and system calls of one request, for each pair."""


def _passes(make: MakeLoad, program: Program, counts: Counts, folder: Path) -> Found:
    """Count with one process for each tool; the tool is switched on and off."""
    with running_server(_in_bites(program), folder / "valgrind", CALLGRIND_LATER) as running:
        running.switch_on()
        instructions = [difference(make, running, running.instructions, count, n) for count, n in counts]
    with running_server(program, folder / "strace") as running:
        calls = [difference(make, running, running.system_calls, count, n) for count, n in counts]
    for (_, n), (once, twice), (calls_once, calls_twice) in zip(counts, instructions, calls, strict=True):
        yield (twice - once) / n, per_request(calls_once, calls_twice, n)


def _in_bites(program: Program) -> Program:
    """Return a server that valgrind can run: a build on io_uring gets a loop that doesn't wait in the ring."""
    if not any("net_uring" in part for part in program.command):
        return program
    command = [RING_IN_BITES if part == COMMAND else part for part in program.command]
    return attrs.evolve(program, command=command)


@contextmanager
def running_server(program: Program, folder: Path, under: Sequence[str] = ()) -> Iterator[CountedServer]:
    """Run this build with its topic while the block lasts."""
    running = start(program, folder, under)
    try:
        make_topic(running.port)
        yield running
    finally:
        running.stop()


def difference(
    make: MakeLoad, running: CountedServer, count: Callable[[Callable[[], None]], T], connections: int, n: int
) -> tuple[T, T]:
    """Return the cost of N requests, and of 2N."""
    with _warm(make, running.port, connections) as run:
        return count(lambda: run(n)), count(lambda: run(2 * n))


def _whole_passes(program: Program, counts: Counts, folder: Path) -> Found:
    """Count with a process for each count, from its start to its end."""

    def work(connections: int, requests: int, port: int) -> None:
        with _warm(Produce, port, connections) as run:
            run(requests)

    for connections, n in counts:
        home = folder / str(connections)
        once, twice = partial(work, connections, n), partial(work, connections, 2 * n)
        fewer = whole_instructions(program, home / "once", once)
        more = whole_instructions(program, home / "twice", twice)
        calls_once = whole_system_calls(program, home / "calls-once", once)
        calls_twice = whole_system_calls(program, home / "calls-twice", twice)
        yield (more - fewer) / n, per_request(calls_once, calls_twice, n)


@contextmanager
def _warm(make: MakeLoad, port: int, connections: int) -> Iterator[Callable[[int], None]]:
    """Open connections and send a little; yield a function that sends that many requests more."""
    load = make(port, connections)
    try:
        load.run(whole_turns(min(load.warm_up_requests, 32 * connections), connections))
        yield load.run
    finally:
        load.close()


def per_request(once: dict[str, int], twice: dict[str, int], n: int) -> dict[str, float]:
    """Return (C(2N) - C(N)) / N by name, most frequent first, without those that round to nothing."""
    rates = {name: round((count - once.get(name, 0)) / n, 3) for name, count in twice.items()}
    return dict(
        sorted(((k, v) for k, v in rates.items() if v >= 0.005), key=lambda item: (-item[1], item[0]))
    )


def table(costs: Sequence[Cost], requests: int, load: str = "produce") -> Table:
    """Return a row for each number of connections and server; a ratio is the first server's cost divided by this
    row's.
    """
    title = f"One request of {load}, by (I(2N) - I(N)) / N with N = {requests}"
    shown = figures.table(title, ("connections", "server"), ("instructions", "ours is", "calls"))
    shown.add_column("by name")
    ours = {cost.connections: cost for cost in costs if cost.server == costs[0].server}
    for cost in sorted(costs, key=lambda cost: cost.connections):
        first = ours[cost.connections]
        shown.add_row(
            str(cost.connections),
            cost.server,
            f"{cost.instructions:,.0f}",
            "" if cost is first else f"{first.instructions / cost.instructions:.2f}×",
            f"{cost.calls:.2f}",
            ", ".join(f"{name} {rate:.2f}" for name, rate in cost.system_calls.items()),
        )
    return shown


if __name__ == "__main__":
    main()
