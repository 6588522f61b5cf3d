"""Closed-loop produce load at several connection counts, rivals interleaved in one run.

``python -m campaigns closed-loop --loadgen loadgen.c --floor floor_epoll.py --peer kafka-peer``. The
load generator is a C program that takes PORT CONNS SIZE SECONDS and prints one line with req/s, MB/s, p50, p99 and
p99.9.
"""

from __future__ import annotations

import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import attrs
from rich.console import Console
from rich.table import Table

from blumfeld_bench.plan.variants import VariantError, VariantSpec, parse_variants
from blumfeld_bench.runs.servers import Server
from blumfeld_bench.terminal import make_console
from campaigns import figures
from campaigns.bench.rivals import floor, kafka, start, this_build

TOPIC = "t"
SMALL_BYTES = 100
BIG_BYTES = 1_000_000
BIG_CONNECTIONS = 4
LINE = re.compile(r"req/s=(\d+) MB/s=([\d.]+) p50=([\d.]+)us p99=([\d.]+)us p99\.9=([\d.]+)us")


@attrs.frozen
class Load:
    """Number of connections, and size of the one record in each request."""

    connections: int
    size_bytes: int

    def __str__(self) -> str:
        return f"{self.connections} × {self.size_bytes:,} B"


@attrs.frozen
class Sample:
    """One round of one rival under one load."""

    server: str
    load: Load
    requests_per_s: float
    megabytes_per_s: float
    p50_us: float
    p99_us: float
    p999_us: float
    cpu_us_per_request: float


@attrs.frozen
class Rival:
    """One server of the comparison."""

    spec: VariantSpec
    bare: bool = False
    """The server has the topic from the start, and may answer nothing but Produce."""
    large_requests: bool = True
    """Whether the server takes requests of a megabyte."""

    def takes(self, load: Load) -> bool:
        """Whether the server can be put under a load."""
        return self.large_requests or load.size_bytes < BIG_BYTES


def main() -> None:
    """Parse arguments, run, print the table; write all samples with ``--out``."""
    parser = figures.options("closed-loop", __doc__)
    parser.add_argument("--loadgen", type=Path, required=True, help="C source of the load generator")
    parser.add_argument(
        "--variant", action="append", default=[], help="a composition, as `blumfeld bench` takes it"
    )
    parser.add_argument("--floor", type=Path, action="append", default=[], help="a bare server: SCRIPT PORT")
    parser.add_argument(
        "--small-floor", type=Path, action="append", default=[], help="the same, without the 1 MB requests"
    )
    parser.add_argument("--connections", default="1,16,128,500")
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--no-big", action="store_true", help="leave out the 1 MB requests")
    options = parser.parse_args()
    console = make_console()
    try:
        rivals = [Rival(spec) for spec in parse_variants(options.variant) or (this_build(),)]
    except VariantError as error:
        sys.exit(f"campaigns closed-loop: {error}")
    rivals += [Rival(floor(script.resolve()), bare=True) for script in options.floor]
    rivals += [
        Rival(floor(script.resolve()), bare=True, large_requests=False) for script in options.small_floor
    ]
    if options.peer:
        rivals.append(Rival(kafka(options.peer.resolve())))
    loads = [Load(int(count), SMALL_BYTES) for count in options.connections.split(",")]
    if not options.no_big:
        loads.append(Load(BIG_CONNECTIONS, BIG_BYTES))
    with tempfile.TemporaryDirectory(prefix="blumfeld-bench-") as folder:
        loadgen = _compile(options.loadgen.resolve(), Path(folder))
        samples = _measure(console, rivals, loads, loadgen, Path(folder), options.rounds, options.seconds)
    console.print(_table(samples, options.rounds, options.seconds))
    for rival in rivals:
        console.print(f"[dim]{rival.spec.label}: {rival.spec.variant.durability}[/dim]")
    figures.save(options.out, samples)


def _compile(source: Path, folder: Path) -> Path:
    binary = folder / "loadgen"
    subprocess.run(["gcc", "-O2", "-msse4.2", "-w", str(source), "-o", str(binary)], check=True, timeout=120)
    return binary


def _measure(
    console: Console,
    rivals: Sequence[Rival],
    loads: Sequence[Load],
    loadgen: Path,
    folder: Path,
    rounds: int,
    seconds: float,
) -> list[Sample]:
    """Start and warm all rivals, then run the rounds: every load on every rival in turn, in reverse order every other
    round.
    """
    samples: list[Sample] = []
    running: list[tuple[Rival, Server]] = []
    try:
        for rival in rivals:
            label, warm_up_s = rival.spec.label, rival.spec.variant.warm_up_s or 1.0
            server = start(rival.spec, folder / label.replace(" ", "-"), bare=rival.bare)
            running.append((rival, server))
            if not rival.bare:
                _create_topic(server.port)
            _load(loadgen, server, Load(16, SMALL_BYTES), warm_up_s)
            console.print(f"[dim]{label} is warm[/dim]")
        for number in range(rounds):
            for load in loads:
                able = [server for rival, server in running if rival.takes(load)]
                order = able if number % 2 == 0 else reversed(able)
                samples += [_load(loadgen, server, load, seconds) for server in order]
            console.print(f"[dim]round {number + 1} of {rounds}[/dim]")
    finally:
        for _, server in running:
            server.stop()
    return samples


def _create_topic(port: int) -> None:
    """Create the topic, and return when it takes records: the load generator does not retry."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}"})
    admin.create_topics([NewTopic(TOPIC, 4, 1)])[TOPIC].result(timeout=20)
    producer = Producer({"bootstrap.servers": f"127.0.0.1:{port}"})
    producer.produce(TOPIC, b"ready", partition=0)
    producer.flush(20)


def _load(loadgen: Path, server: Server, load: Load, seconds: float) -> Sample:
    command = [str(loadgen), str(server.port), str(load.connections), str(load.size_bytes), str(seconds)]
    cpu_s = server.totals().cpu_s
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 60, check=False)
    match = LINE.search(done.stdout)
    if match is None:
        raise RuntimeError(f"{server.name}, {load}: {done.stdout}{done.stderr}")
    rate, megabytes, p50, p99, p999 = (float(value) for value in match.groups())
    cpu_us = (server.totals().cpu_s - cpu_s) * 1e6 / max(1.0, rate * seconds)
    return Sample(server.name, load, rate, megabytes, p50, p99, p999, cpu_us)


def _table(samples: Sequence[Sample], rounds: int, seconds: float) -> Table:
    title = (
        f"Produce, acks=1: medians of {rounds} interleaved rounds of {seconds:g} s on {platform.machine()}"
    )
    columns = ("requests/s", "of the first", "MB/s", "p50 µs", "p99 µs", "p99.9 µs", "CPU µs")
    table = figures.table(title, ("load", "server"), columns)
    for load in dict.fromkeys(sample.load for sample in samples):
        first = 0.0
        for name in dict.fromkeys(sample.server for sample in samples):
            series = [sample for sample in samples if (sample.server, sample.load) == (name, load)]
            if not series:
                continue
            rate = figures.median(series, "requests_per_s")
            head, first = "" if first else str(load), first or rate
            cells = [
                f"{figures.median(series, field):,.0f}"
                for field in ("p50_us", "p99_us", "p999_us", "cpu_us_per_request")
            ]
            megabytes = f"{figures.median(series, 'megabytes_per_s'):,.1f}"
            table.add_row(head, name, f"{rate:,.0f}", f"{rate / first:.2f}×", megabytes, *cells)
        table.add_section()
    return table


if __name__ == "__main__":
    main()
