"""Closed-loop produce load at several connection counts, rivals interleaved in one run.

``python -m campaigns closed-loop --loadgen loadgen.c --floor floor_epoll.py --peer kafka-peer``. The
load generator is a C program that takes PORT CONNS SIZE SECONDS and prints one line with req/s, MB/s, p50, p99 and
p99.9.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import attrs
from rich.console import Console
from rich.table import Table

from blumfeld_bench.plan.variants import VariantError, parse_variants
from campaigns.bench.rivals import Rival, Running, composition, floor, kafka, this_build

TOPIC = "t"
WIDTH = 120
"""Width of the table where there is no terminal."""
SMALL_BYTES = 100
BIG_BYTES = 1_000_000
BIG_CONNECTIONS = 4
LINE = re.compile(r"req/s=(\d+) MB/s=([\d.]+) p50=([\d.]+)us p99=([\d.]+)us p99\.9=([\d.]+)us")


@attrs.frozen
class Sample:
    """One round of one rival under one load."""

    requests_per_s: float
    megabytes_per_s: float
    p50_us: float
    p99_us: float
    p999_us: float
    cpu_us_per_request: float


@attrs.frozen
class Load:
    """Number of connections, and size of the one record in each request."""

    connections: int
    size_bytes: int

    def __str__(self) -> str:
        return f"{self.connections} × {self.size_bytes:,} B"


def main() -> None:
    """Parse arguments, run, print the table; write all samples with ``--out``."""
    options = _arguments()
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    try:
        rivals = [composition(spec) for spec in parse_variants(options.variant)] or [this_build()]
    except VariantError as error:
        sys.exit(f"campaigns closed-loop: {error}")
    rivals += [floor(script.resolve()) for script in options.floor]
    rivals += [floor(script.resolve(), large_requests=False) for script in options.small_floor]
    if options.peer:
        rivals.append(kafka(options.peer.resolve()))
    loads = [Load(int(count), SMALL_BYTES) for count in options.connections.split(",")]
    if not options.no_big:
        loads.append(Load(BIG_CONNECTIONS, BIG_BYTES))
    with tempfile.TemporaryDirectory(prefix="blumfeld-bench-") as folder:
        loadgen = _compile(options.loadgen.resolve(), Path(folder))
        samples = _measure(console, rivals, loads, loadgen, Path(folder), options.rounds, options.seconds)
    console.print(_table(rivals, loads, samples, options.rounds, options.seconds))
    for rival in rivals:
        console.print(f"[dim]{rival.name}: {rival.durability}[/dim]")
    if options.out:
        options.out.write_text(json.dumps(_as_json(samples), indent=1))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Closed-loop produce load, rivals interleaved in one run.")
    parser.add_argument("--loadgen", type=Path, required=True, help="C source of the load generator")
    parser.add_argument(
        "--variant", action="append", default=[], help="a composition, as `blumfeld bench` takes it"
    )
    parser.add_argument("--floor", type=Path, action="append", default=[], help="a bare server: SCRIPT PORT")
    parser.add_argument(
        "--small-floor", type=Path, action="append", default=[], help="the same, without the 1 MB requests"
    )
    parser.add_argument("--peer", type=Path, help="start script of Apache Kafka: PEER start DIR PORT")
    parser.add_argument("--connections", default="1,16,128,500")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--no-big", action="store_true", help="leave out the 1 MB requests")
    parser.add_argument("--out", type=Path, help="write every sample as JSON")
    return parser.parse_args()


def _compile(source: Path, folder: Path) -> Path:
    binary = folder / "loadgen"
    subprocess.run(["gcc", "-O2", "-msse4.2", "-w", str(source), "-o", str(binary)], check=True, timeout=120)
    return binary


Samples = dict[tuple[str, Load], list[Sample]]


def _measure(
    console: Console,
    rivals: list[Rival],
    loads: list[Load],
    loadgen: Path,
    folder: Path,
    rounds: int,
    seconds: float,
) -> Samples:
    """Start and warm all rivals, then run the rounds: every load on every rival in turn, in reverse order every other
    round.
    """
    samples: Samples = {(rival.name, load): [] for rival in rivals for load in loads}
    running: list[Running] = []
    try:
        for rival in rivals:
            server = rival.start(folder / rival.name.replace(" ", "-"))
            running.append(server)
            if not rival.bare:
                _create_topic(server.port)
            _load(loadgen, server, Load(16, SMALL_BYTES), rival.warm_up_s)
            console.print(f"[dim]{rival.name} is warm[/dim]")
        for number in range(rounds):
            for load in loads:
                able = [
                    server for server in running if server.rival.large_requests or load.size_bytes < BIG_BYTES
                ]
                for server in able if number % 2 == 0 else reversed(able):
                    sample = _load(loadgen, server, load, seconds)
                    samples[server.rival.name, load].append(sample)
            console.print(f"[dim]round {number + 1} of {rounds}[/dim]")
    finally:
        for server in running:
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


def _load(loadgen: Path, server: Running, load: Load, seconds: float) -> Sample:
    command = [str(loadgen), str(server.port), str(load.connections), str(load.size_bytes), str(seconds)]
    cpu = server.cpu_s()
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 60, check=False)
    found = LINE.search(done.stdout)
    if found is None:
        raise RuntimeError(f"{server.rival.name}, {load}: {done.stdout}{done.stderr}")
    rate, megabytes, p50, p99, p999 = (float(value) for value in found.groups())
    cpu_us = (server.cpu_s() - cpu) * 1e6 / max(1.0, rate * seconds)
    return Sample(rate, megabytes, p50, p99, p999, cpu_us)


def _table(rivals: list[Rival], loads: list[Load], samples: Samples, rounds: int, seconds: float) -> Table:
    title = (
        f"Produce, acks=1: medians of {rounds} interleaved rounds of {seconds:g} s on {platform.machine()}"
    )
    table = Table(title=title, title_justify="left")
    for column in (
        "load",
        "server",
        "requests/s",
        "of the first",
        "MB/s",
        "p50 µs",
        "p99 µs",
        "p99.9 µs",
        "CPU µs",
    ):
        table.add_column(column, justify="left" if column in ("load", "server") else "right")
    for load in loads:
        first = _median(samples[rivals[0].name, load], "requests_per_s")
        for rival in rivals:
            series = samples[rival.name, load]
            if not series:
                continue
            rate = _median(series, "requests_per_s")
            cells = [f"{rate:,.0f}", f"{rate / first:.2f}×", f"{_median(series, 'megabytes_per_s'):,.1f}"]
            cells += [
                f"{_median(series, name):,.0f}"
                for name in ("p50_us", "p99_us", "p999_us", "cpu_us_per_request")
            ]
            table.add_row(str(load) if rival is rivals[0] else "", rival.name, *cells)
        table.add_section()
    return table


def _median(series: list[Sample], name: str) -> float:
    return float(statistics.median(getattr(sample, name) for sample in series))


def _as_json(samples: Samples) -> list[dict[str, object]]:
    return [
        {
            "server": name,
            "connections": load.connections,
            "size_bytes": load.size_bytes,
            **attrs.asdict(sample),
        }
        for (name, load), series in samples.items()
        for sample in series
    ]


if __name__ == "__main__":
    main()
