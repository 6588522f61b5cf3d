"""Tiered storage beside local storage, and Kafka's beside both: what a producer, a tail and a late consumer feel.

``python -m campaigns tiered-bench --peer kafka-peer``. Four servers take turns in interleaved rounds: this build and
Kafka 4.3.1, each without and with tiering. The remote store is a folder on the same disk, by ``file://`` and by
Kafka's LocalTieredStorage. In each turn a server gets a fixed rate of records with a consumer at the end, then a
history, of which a tiered server keeps only the active segments on its disk. When all others are copied and dropped
(ListOffsets −4), one consumer reads the history from offset 0, cold and then warm.
"""

from __future__ import annotations

import math
import re
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import msgspec
from rich.console import Console
from rich.table import Table

from blumfeld.testing.process import free_port
from blumfeld_bench.drivers.contract import DriverError, NoMarks, unseen
from blumfeld_bench.drivers.driver import WireDriver
from blumfeld_bench.drivers.wire_client import EARLIEST_LOCAL, WireClient
from blumfeld_bench.plan.schedule import Turn
from blumfeld_bench.plan.variants import VariantSpec, parse_variant
from blumfeld_bench.result import Machine, Measured
from blumfeld_bench.runs.machine import this_machine
from blumfeld_bench.runs.servers import Server, ServerError
from blumfeld_bench.runs.turn import HOST, Place, Runner
from blumfeld_bench.statistics.cells import (
    END_TO_END_P50,
    END_TO_END_P99,
    PRODUCE_P50,
    PRODUCE_P99,
    open_round,
)
from blumfeld_bench.terminal import make_console
from blumfeld_bench.workload import Consume, Produce, Step, Topic, Workload
from campaigns import figures
from campaigns.bench.rivals import PAGE_CACHE, kafka_text, start, this_build
from campaigns.waits import await_true

LOCAL, TIERED = "local", "tiered"
LIVE, HISTORY = "live", "history"
"""The two topics of a turn."""
PARTITIONS = 4
SEGMENT_BYTES = {LIVE: 8 << 20, HISTORY: 32 << 20}
"""By topic: small enough at the fixed rate that a segment is copied about every second."""
RECORD_BYTES = 1024
KAFKA_WARM_UP_S = 15.0
SETTLE_TIMEOUT_S = 120.0
UPLOAD_PART_BYTES = 8 << 20
"""A multipart upload takes a request for each part of this size, and two more."""
TASKS = {"remote.log.manager.task.interval.ms": 1000, "log.retention.check.interval.ms": 1000}
"""Both brokers look for segments to copy and to drop every second, as kafka-peer sets it for Kafka."""
TIERING = {"remote.storage.enable": "true", "local.retention.bytes": "1"}

WIDTH = 160

PUT_USD, GET_USD = 0.005 / 1000, 0.0004 / 1000
"""Example prices of a request: S3 Standard in us-east-1."""
COUNTER = re.compile(r'^blumfeld_remote_store_requests_total\{operation="(\w+)"\} (\d+)', re.MULTILINE)
PRICES_USD = {"put": PUT_USD, "put_parts": PUT_USD, "list": PUT_USD, "get_range": GET_USD, "head": GET_USD}
"""Price of a request by the store's method; a deletion costs nothing."""


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One round of one server."""

    server: str
    round: int
    records_per_s: float
    ack_p50_us: float
    ack_p99_us: float
    tail_p50_us: float
    tail_p99_us: float
    live_cpu_s: float
    """CPU time of the server in the measured part of the fixed rate."""
    write_cpu_s_per_gb: float
    """From the first byte of the history until all is copied and dropped."""
    settle_s: float
    """Time from the last ack of the history until all but the active segments are copied and dropped."""
    remote_share: float
    """Share of the history's records that lie in the store alone."""
    cold_mb_per_s: float
    cold_cpu_s_per_gb: float
    warm_mb_per_s: float
    warm_cpu_s_per_gb: float
    rss_max_bytes: int
    """Highest resident set of the two reads."""
    copy_calls: dict[str, int] = {}
    """Calls of the store while the history was written, by method. Only this build counts them."""
    cold_calls: dict[str, int] = {}
    warm_calls: dict[str, int] = {}
    load: float
    """Load average of the machine before the turn."""


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """A whole run."""

    machine: Machine
    history_bytes: int
    rate_per_s: float
    samples: tuple[Sample, ...]


def workload(rate_per_s: float, live_s: float, history_bytes: int) -> Workload:
    """Return the load of every turn."""
    produce = Produce(
        connections=4,
        rate_per_s=rate_per_s,
        record_bytes_min=RECORD_BYTES,
        record_bytes_max=RECORD_BYTES,
        batch_records=5,
        in_flight=5,
    )
    history = Consume(start="earliest")
    return Workload(
        name="tiered",
        description="a fixed rate with a consumer at its end, then a history that is read from the start",
        topic=Topic(partitions=PARTITIONS),
        preload_bytes=history_bytes,
        preload_record_bytes=RECORD_BYTES,
        steps=(
            Step(name=LIVE, produce=produce, consume=Consume(), warm_up_s=2.0, measure_s=live_s),
            Step(name="cold", consume=history, page_cache="cold", warm_up_s=0.0, measure_s=90.0),
            Step(name="warm", consume=history, warm_up_s=0.0, measure_s=90.0),
        ),
    )


# Servers


class Contender(msgspec.Struct, frozen=True):
    """A broker without or with tiering."""

    label: str
    tiered: bool
    make: Callable[[Path, int], VariantSpec]
    """Takes the turn's folder and a port for metrics."""
    has_metrics: bool


def contenders(peer: Path | None) -> list[Contender]:
    """Return this build in both ways, and Kafka where its script is given."""
    made = [
        Contender("blumfeld, local", False, _ours, True),
        Contender("blumfeld, tiered", True, _ours_tiered, True),
    ]
    if peer is None:
        return made

    def kafka(tiered: bool) -> Callable[[Path, int], VariantSpec]:
        label = f"Kafka 4.3.1, {TIERED if tiered else LOCAL}"
        text = kafka_text(peer, label=label, version="4.3.1", warm_up_s=KAFKA_WARM_UP_S, tiered=tiered)
        return lambda folder, port: parse_variant(f"{text} {PAGE_CACHE}")

    return [
        *made,
        Contender("Kafka 4.3.1, local", False, kafka(False), False),
        Contender("Kafka 4.3.1, tiered", True, kafka(True), False),
    ]


def _ours(folder: Path, metrics_port: int, *more: str) -> VariantSpec:
    keys = (f'config."{key}"={value}' for key, value in TASKS.items())
    label = f"blumfeld, {TIERED if more else LOCAL}"
    return this_build([*more, *keys, f"metrics.bind={HOST}:{metrics_port}"], label)


def _ours_tiered(folder: Path, metrics_port: int) -> VariantSpec:
    store = (folder / "server" / "store").as_uri()
    return _ours(folder, metrics_port, "storage.plugin=storage_tiered", f"storage.options.store={store}")


@contextmanager
def _running(contender: Contender, folder: Path) -> Iterator[tuple[VariantSpec, Server, Callable[[], str]]]:
    """Yield a server with what reads its metrics; its data and its store are removed afterwards."""
    folder.mkdir(parents=True)
    metrics_port = free_port()
    spec = contender.make(folder, metrics_port)
    server = start(spec, folder / "server")
    try:
        yield spec, server, (lambda: _scrape(metrics_port)) if contender.has_metrics else (lambda: "")
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _scrape(port: int) -> str:
    with urlopen(f"http://{HOST}:{port}/metrics", timeout=10) as answer:
        return str(answer.read(), "utf-8")


# One turn


class Turns:
    """Runs turns, one server at a time."""

    def __init__(self, load: Workload, folder: Path) -> None:
        self._load = load
        self._folder = folder
        self._driver = WireDriver(load)
        self._runner = Runner(load, self._driver, seed=1)

    def measure(self, contender: Contender, nth: int) -> Sample:
        """Run one turn.

        :raises DriverError, ServerError: the server failed, or did not copy in time
        """
        machine = this_machine()
        with _running(contender, self._folder / f"{nth}-{_folder_name(contender.label)}") as running:
            spec, server, metrics = running
            live, history = (self._place(contender, server, topic) for topic in (LIVE, HISTORY))
            self._warm(spec, live, nth)
            at_rate, cold_step, warm_step = self._load.steps
            turn = Turn(round=nth, position=0, variant=contender.label)
            wrote = open_round(self._runner.measure(live, at_rate, turn, unseen))
            written = self._write(contender, history, nth, metrics)
            # The other topic first: a JVM has compiled the code of remote reads when it is measured.
            self._runner.measure(live, warm_step, turn, unseen)
            cold, cold_calls = self._read(history, cold_step, turn, metrics)
            warm, warm_calls = self._read(history, warm_step, turn, metrics)
        return Sample(
            server=contender.label,
            round=nth,
            records_per_s=wrote.measured.records_per_s,
            ack_p50_us=PRODUCE_P50.of(wrote) or math.nan,
            ack_p99_us=PRODUCE_P99.of(wrote) or math.nan,
            tail_p50_us=END_TO_END_P50.of(wrote) or math.nan,
            tail_p99_us=END_TO_END_P99.of(wrote) or math.nan,
            live_cpu_s=wrote.cpu_s or 0.0,
            write_cpu_s_per_gb=written.cpu_s / (self._load.preload_bytes / 1e9),
            settle_s=written.settle_s,
            remote_share=written.remote_share,
            cold_mb_per_s=cold.bytes_per_s / 1e6,
            cold_cpu_s_per_gb=cpu_s_per_gb(cold),
            warm_mb_per_s=warm.bytes_per_s / 1e6,
            warm_cpu_s_per_gb=cpu_s_per_gb(warm),
            rss_max_bytes=max(read.server.rss_max_bytes for read in (cold, warm) if read.server),
            copy_calls=written.calls,
            cold_calls=cold_calls,
            warm_calls=warm_calls,
            load=machine.load_before,
        )

    def _warm(self, spec: VariantSpec, place: Place, nth: int) -> None:
        """Run the first step for as long as the server needs to compile, and measure nothing."""
        if spec.variant.warm_up_s:
            step = msgspec.structs.replace(
                self._load.steps[0], warm_up_s=0.0, measure_s=spec.variant.warm_up_s
            )
            self._runner.run(place, step, nth, NoMarks(), unseen)

    def _place(self, contender: Contender, server: Server, topic: str) -> Place:
        config = {"segment.bytes": str(SEGMENT_BYTES[topic]), **(TIERING if contender.tiered else {})}
        with WireClient(HOST, server.port) as client:
            client.create_topic(topic, PARTITIONS, 1, config)
            client.wait_for_leaders(topic)
        return Place(server.port, topic, server)

    def _write(self, contender: Contender, place: Place, nth: int, metrics: Callable[[], str]) -> _Written:
        """Write the history; return when a tiered server has copied and dropped all that it can."""
        assert place.server is not None
        if contender.tiered:
            self._settle(place._replace(topic=LIVE))
        before, counts = place.server.totals_by_node()[0], calls_of(metrics())
        task = self._runner.task(place, self._load.steps[1], nth)
        self._driver.preload(task, self._load.preload_bytes, RECORD_BYTES)
        began = time.monotonic()
        share = self._settle(place) if contender.tiered else 0.0
        return _Written(
            cpu_s=place.server.totals_by_node()[0].cpu_s - before.cpu_s,
            settle_s=time.monotonic() - began,
            remote_share=share,
            calls=increase(counts, calls_of(metrics())),
        )

    def _settle(self, place: Place) -> float:
        """Wait until each partition has at most one segment on the disk; return the share that only the store has.

        :raises DriverError: it took too long
        """
        with WireClient(HOST, place.port) as client:
            leaders = client.leaders(place.topic)
            ends = client.latest_offsets(place.topic, leaders)
            starts: list[int] = []

            def settled() -> bool:
                starts[:] = client.offsets(place.topic, leaders, EARLIEST_LOCAL)
                return is_settled(starts, ends, SEGMENT_BYTES[place.topic])

            if not await_true(settled, SETTLE_TIMEOUT_S, 0.2):
                raise DriverError(f"{place.topic} is on the disk from {starts} to {ends} still")
        return sum(starts) / sum(ends)

    def _read(
        self, place: Place, step: Step, turn: Turn, metrics: Callable[[], str]
    ) -> tuple[Measured, dict[str, int]]:
        """Read the history.

        :raises DriverError: there were errors, or not all of it came
        """
        before = calls_of(metrics())
        read = self._runner.measure(place, step, turn, unseen)
        got = read.bytes_per_s * read.seconds
        if read.errors or got < self._load.preload_bytes:
            raise DriverError(f"{step.name}: {got:,.0f} bytes of {self._load.preload_bytes:,}, {read.error}")
        return read, increase(before, calls_of(metrics()))


class _Written(msgspec.Struct, frozen=True, kw_only=True):
    cpu_s: float
    settle_s: float
    remote_share: float
    calls: dict[str, int]


def _folder_name(label: str) -> str:
    """Return a name without a comma, which would part Kafka's ``log.dirs``."""
    return re.sub(r"[^a-z0-9.]+", "-", label.lower())


# Figures


def is_settled(local_starts: Sequence[int], ends: Sequence[int], segment_bytes: int) -> bool:
    """Whether no partition has more on the disk than its active segment can hold."""
    return all(
        (end - start) * RECORD_BYTES <= segment_bytes for start, end in zip(local_starts, ends, strict=True)
    )


def calls_of(metrics: str) -> dict[str, int]:
    """Return the calls of the store so far, by method; nothing where none are counted."""
    return {method: int(float(count)) for method, count in COUNTER.findall(metrics)}


def increase(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int]:
    """Return how often each method was called between two scrapes."""
    calls = {method: count - before.get(method, 0) for method, count in after.items()}
    return {method: count for method, count in calls.items() if count}


def requests_in(calls: Mapping[str, int], part_bytes: int) -> dict[str, int]:
    """Return the requests that a store sees: ``put_parts`` is one for each part, and two more.

    :param part_bytes: bytes that went through all ``put_parts`` together
    """
    uploads = calls.get("put_parts", 0)
    seen = dict(calls)
    if uploads:
        seen["put_parts"] = uploads * (2 + math.ceil(part_bytes / uploads / UPLOAD_PART_BYTES))
    return seen


def cost_usd(requests: Mapping[str, int]) -> float:
    """Return what requests cost by the example prices."""
    return sum(count * PRICES_USD.get(method, 0.0) for method, count in requests.items())


def cpu_s_per_gb(read: Measured) -> float:
    """Return the server's CPU time for each GB that was read."""
    assert read.server is not None
    return (read.server.user_s + read.server.system_s) / (read.bytes_per_s * read.seconds / 1e9)


FIGURES: tuple[tuple[str, str, float, str], ...] = (
    ("records_per_s", "records/s", 1, ",.0f"),
    ("ack_p50_us", "ack p50 ms", 1e3, ".2f"),
    ("ack_p99_us", "ack p99 ms", 1e3, ".2f"),
    ("tail_p50_us", "tail p50 ms", 1e3, ".2f"),
    ("tail_p99_us", "tail p99 ms", 1e3, ".2f"),
    ("live_cpu_s", "CPU at this rate, s", 1, ".2f"),
    ("write_cpu_s_per_gb", "history written and copied, CPU s/GB", 1, ".2f"),
    ("settle_s", "copied and dropped after, s", 1, ".1f"),
    ("remote_share", "share in the store alone", 1, ".3f"),
    ("cold_mb_per_s", "catch-up cold, MB/s", 1, ",.0f"),
    ("cold_cpu_s_per_gb", "cold, CPU s/GB", 1, ".2f"),
    ("warm_mb_per_s", "catch-up warm, MB/s", 1, ",.0f"),
    ("warm_cpu_s_per_gb", "warm, CPU s/GB", 1, ".2f"),
    ("rss_max_bytes", "highest RSS of reads, MB", 1e6, ",.0f"),
)
"""Field of a sample, its title, the divisor, the format."""


def table_of(result: Result) -> Table:
    """Return medians of rounds, and the least and the greatest value, a column for each server."""
    servers = list(dict.fromkeys(sample.server for sample in result.samples))
    rounds = max((sample.round for sample in result.samples), default=-1) + 1
    gigabytes, rate = result.history_bytes / 1e9, result.rate_per_s
    title = f"{rate:,.0f} records of 1 KiB a second, then {gigabytes:.1f} GB of history; {rounds} rounds"
    shown = figures.table(title, ("figure: median (least to greatest)",), servers)
    rows = [[sample for sample in result.samples if sample.server == server] for server in servers]
    for field, name, unit, form in FIGURES:
        shown.add_row(name, *(_spread([getattr(s, field) / unit for s in mine], form) for mine in rows))
    for name, field in (("copy", "copy_calls"), ("cold", "cold_calls"), ("warm", "warm_calls")):
        costs = [_requests(mine, field, result.history_bytes) for mine in rows]
        shown.add_row(f"requests a GB, {name}", *costs)
    return shown


def _spread(values: Sequence[float], form: str) -> str:
    if not values:
        return "–"
    return f"{statistics.median(values):{form}} ({min(values):{form}} to {max(values):{form}})"


def _requests(mine: Sequence[Sample], field: str, history_bytes: int) -> str:
    """Return the requests of the last round by method, for each GB, and their price."""
    calls: dict[str, int] = getattr(mine[-1], field) if mine else {}
    if not calls:
        return "–"
    requests = requests_in(calls, round(history_bytes * mine[-1].remote_share))
    gigabytes = history_bytes / 1e9
    words = ", ".join(f"{count / gigabytes:,.0f} {method}" for method, count in sorted(requests.items()))
    return f"{words}: {cost_usd(requests) / gigabytes * 100:.3f} ¢"


def run(rivals: Sequence[Contender], turns: Turns, rounds: int, console: Console) -> Iterator[Sample]:
    """Yield each sample as soon as it is measured. The order turns round with each round."""
    for nth in range(rounds):
        for contender in rivals if nth % 2 == 0 else tuple(reversed(rivals)):
            try:
                sample = turns.measure(contender, nth)
            except (DriverError, ServerError, OSError) as error:
                console.print(f"{contender.label}, round {nth + 1}: {error}", style="red", highlight=False)
                continue
            reads = f"{sample.cold_mb_per_s:,.0f} MB/s cold, {sample.warm_mb_per_s:,.0f} warm"
            console.print(f"round {nth + 1}, {sample.server}: {reads}", style="dim")
            yield sample


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print the table, save the samples."""
    parser = figures.options("tiered-bench", __doc__)
    parser.add_argument(
        "--servers", default="", help="measure those alone whose names have one of these, by comma"
    )
    parser.add_argument("--rate", type=float, default=10_000, help="records of 1 KiB a second")
    parser.add_argument("--live-s", type=float, default=10.0, help="seconds at that rate")
    parser.add_argument("--history-mb", type=int, default=1000, help="bytes of the history")
    parser.add_argument("--folder", type=Path, help="where the data goes; by default a temporary one")
    options = parser.parse_args(arguments)
    wanted = options.servers.split(",")
    rivals = [
        each
        for each in contenders(options.peer.resolve() if options.peer else None)
        if any(word in each.label for word in wanted)
    ]
    load = workload(options.rate, options.live_s, options.history_mb * 1_000_000)
    console, samples, machine = make_console(WIDTH), list[Sample](), this_machine()
    try:
        with tempfile.TemporaryDirectory(prefix="blumfeld-tiered-", dir=options.folder) as folder:
            for sample in run(rivals, Turns(load, Path(folder)), options.rounds, console):
                samples.append(sample)
    finally:
        result = Result(
            machine=machine,
            history_bytes=load.preload_bytes,
            rate_per_s=options.rate,
            samples=tuple(samples),
        )
        figures.save(options.out, result)
    console.print(table_of(result))


if __name__ == "__main__":
    main()
