"""Log compaction beside Apache Kafka's cleaner, on copies of the same log, interleaved.

``python -m campaigns compaction --peer kafka-peer``. In a round a server with an idle cleaner starts on a fresh copy
of the directory. Once it is at rest the log is released, and the round ends when the server's
``cleaner-offset-checkpoint`` says that the log is clean. The figures are the log's bytes divided by the time that the
cleaner reports, and the CPU time and memory of all the server's processes. The remaining records are read from the
disk; both servers must keep the same ones.
"""

from __future__ import annotations

import re
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import attrs
from rich.table import Table

from blumfeld_bench.runs.servers import Server, start_server
from blumfeld_bench.terminal import make_console
from campaigns import figures
from campaigns.bench.rivals import start, this_build
from campaigns.bench.storage.compacted_log import (
    MIB,
    SHAPES,
    Shape,
    cleaned_end_offset,
    log_files,
    release,
    survivors,
    write,
)

CLEAN_TIMEOUT_S = 600.0
STOP_TIMEOUT_S = 60.0
POLL_S = 0.05
SETTLE_S = 4.0
"""Time from the start until the log is released to the cleaner; by then the resident set is stable."""
BACKOFF_MS = 500
_KAFKA_SECONDS = re.compile(r"cleaned[- ]?\d*-?.*?MB of log processed in ([\d,.]+) seconds", re.DOTALL)
_OUR_SECONDS = re.compile(r"log cleaned.*?seconds[\"=: ]+([\d.]+)")


class BenchError(RuntimeError):
    """A cleaner did not finish, or kept other records than its rival."""


@attrs.frozen
class Cleaner:
    """A server with its cleaner on."""

    name: str
    command: Sequence[str]
    data: str
    """Path of its log directory, below a round's folder."""
    seconds: Callable[[str], float | None]
    """Function that finds the duration of a cleaning in the server's output."""


@attrs.frozen
class Sample:
    """One round."""

    log_bytes: int
    seconds: float
    cpu_s: float
    rest_bytes: int
    """Resident set of all its processes before cleaning."""
    peak_bytes: int
    """Highest resident set during cleaning."""
    records: int
    digest: str

    @property
    def mb_per_s(self) -> float:
        """Megabytes of log a second."""
        return self.log_bytes / 1e6 / self.seconds

    @property
    def above_rest_bytes(self) -> int:
        """Highest resident set beyond the one before cleaning."""
        return self.peak_bytes - self.rest_bytes


def ours() -> Cleaner:
    """Return this build."""
    command = this_build([f'config."log.cleaner.backoff.ms"={BACKOFF_MS}']).variant.command
    return Cleaner("blumfeld", command, "data", _seconds(_OUR_SECONDS))


def kafka(peer: Path) -> Cleaner:
    """Return Apache Kafka by its start script, which keeps its log below ``data/data``."""
    command = [str(peer), "start", "{folder}/data", "{port}", f"log.cleaner.backoff.ms={BACKOFF_MS}"]
    return Cleaner("kafka", command, "data/data", _seconds(_KAFKA_SECONDS))


def _seconds(pattern: re.Pattern[str]) -> Callable[[str], float | None]:
    def found(printed: str) -> float | None:
        match = pattern.search(printed)
        return float(match[1].replace(",", "")) if match else None

    return found


def written(shape: Shape, folder: Path) -> Path:
    """Return the data directory of a broker that wrote the topic and was stopped cleanly; its cleaner was off."""
    server = start(this_build(['config."log.cleaner.enable"=false']), folder)
    try:
        write(shape, server.port)
    finally:
        server.end(timeout_s=STOP_TIMEOUT_S)
    return folder / "data"


def measure(cleaner: Cleaner, data: Path, folder: Path) -> Sample:
    """Run one round on a copy of ``data``.

    :raises BenchError: the cleaner did not finish
    """
    copy = folder / cleaner.data
    wrapped = ["sh", "-c", f'mkdir -p "{copy.parent}" && cp -r "{data}" "{copy}" && exec "$@"', "-"]
    log_bytes = sum(file.stat().st_size for file in log_files(data)[:-1])
    server = start_server(cleaner.name, [*wrapped, *cleaner.command], folder)
    try:
        time.sleep(SETTLE_S)
        before = server.totals()
        server.reset_peak()
        began = time.perf_counter()
        release(server.port)
        peak = _await_clean(cleaner, server, copy)
        waited = time.perf_counter() - began
        after = server.totals()
        seconds = cleaner.seconds((folder / "log").read_text(errors="replace")) or waited
        count, digest = survivors(copy)
        return Sample(log_bytes, seconds, after.cpu_s - before.cpu_s, before.rss_bytes, peak, count, digest)
    finally:
        server.stop()


def _await_clean(cleaner: Cleaner, server: Server, copy: Path) -> int:
    """Wait until the checkpoint has the log; return the highest resident set meanwhile."""
    peak, deadline = 0, time.monotonic() + CLEAN_TIMEOUT_S
    while not cleaned_end_offset(copy):
        peak = max(peak, server.totals().rss_max_bytes)
        if time.monotonic() > deadline or not server.is_up:
            raise BenchError(
                f"{cleaner.name} cleaned nothing in {CLEAN_TIMEOUT_S:.0f} s:\n{server.printed()}"
            )
        time.sleep(POLL_S)
    peak = max(peak, server.totals().rss_max_bytes)
    # Kafka prints its figures after the checkpoint; both servers remove old segments after it.
    time.sleep(SETTLE_S)
    return peak


def run(shape: Shape, cleaners: Sequence[Cleaner], rounds: int) -> dict[str, list[Sample]]:
    """Run all rounds of one shape; return samples by cleaner.

    :raises BenchError: the log fits into one segment, or the cleaners keep different records
    """
    with tempfile.TemporaryDirectory(prefix="blumfeld-compaction-") as folder:
        data = written(shape, Path(folder) / "written")
        if len(log_files(data)) < 2:
            raise BenchError(f"{shape.name}: all of it is in the active segment, which no cleaner takes")
        samples: dict[str, list[Sample]] = {cleaner.name: [] for cleaner in cleaners}
        for number in range(rounds):
            for cleaner in cleaners:
                work = Path(folder) / f"{cleaner.name}-{number}"
                samples[cleaner.name].append(measure(cleaner, data, work))
                shutil.rmtree(work)
    kept = {(s.records, s.digest) for series in samples.values() for s in series}
    if len(kept) != 1:
        raise BenchError(f"{shape.name}: different records are left: {sorted(kept)}")
    return samples


def table(results: dict[str, dict[str, list[Sample]]], rounds: int) -> Table:
    """Return a row for each shape and cleaner: medians, and our ratio to the last cleaner."""
    columns = ("MB", "s", "MB/s", "of the last", "CPU s", "MB above rest", "records left")
    out = figures.table(f"Compaction, medians of {rounds} interleaved rounds", ("log", "cleaner"), columns)
    for shape, samples in results.items():
        last = figures.median(list(samples.values())[-1], "mb_per_s")
        for name, series in samples.items():
            rate = figures.median(series, "mb_per_s")
            out.add_row(
                shape,
                name,
                f"{series[0].log_bytes / 1e6:,.0f}",
                f"{figures.median(series, 'seconds'):.2f}",
                f"{rate:.0f}",
                f"{rate / last:.2f}×",
                f"{figures.median(series, 'cpu_s'):.2f}",
                f"{figures.median(series, 'above_rest_bytes') / 1e6:.0f}",
                f"{series[0].records:,} ({series[0].digest[:8]})",
            )
    return out


def main() -> None:
    """Parse arguments, run, print the table."""
    parser = figures.options("compaction", __doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="part of the records and keys of each shape")
    options = parser.parse_args()
    shapes = [
        attrs.evolve(
            shape,
            records=int(shape.records * options.scale),
            keys=int(shape.keys * options.scale),
            segment_bytes=max(MIB, int(shape.segment_bytes * min(1.0, options.scale * 4))),
        )
        for shape in SHAPES
    ]
    cleaners = [ours()] + ([kafka(options.peer.resolve())] if options.peer else [])
    samples: dict[str, dict[str, list[Sample]]] = {}
    for shape in shapes:
        samples[shape.name] = run(shape, cleaners, options.rounds)
        make_console().print(table({shape.name: samples[shape.name]}, options.rounds))
        figures.save(options.out, samples)


if __name__ == "__main__":
    main()
