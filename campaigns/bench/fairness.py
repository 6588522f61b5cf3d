"""Does the bench favour a server? One load in four settings, with Kafka's own tool beside our driver in each.

``python -m campaigns fairness --peer kafka-peer``. The settings are: the driver under SCHED_RR or not, server and
driver bound to cores of their own or not. In each round every server is started once unbound and once bound. It gets
the step of ``ticks`` from our driver, then the same rate from ProducerPerformance, both ways of the scheduler.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs
import msgspec
from rich.console import Console
from rich.table import Table

from blumfeld_bench.drivers.connections import NOT_FIRST, may_go_first
from blumfeld_bench.drivers.contract import DriverError, unseen
from blumfeld_bench.drivers.driver import make_driver
from blumfeld_bench.drivers.wire_client import WireClient
from blumfeld_bench.plan.schedule import Turn
from blumfeld_bench.plan.variants import VariantSpec, parse_variants
from blumfeld_bench.result import Machine, Placement
from blumfeld_bench.runs.machine import this_machine
from blumfeld_bench.runs.servers import ServerError
from blumfeld_bench.runs.session import SessionError, placed
from blumfeld_bench.runs.turn import HOST, Place, Runner, server_of
from blumfeld_bench.statistics.cells import PRODUCE_P50, PRODUCE_P99, open_round
from blumfeld_bench.terminal import make_console
from blumfeld_bench.usage import placement_of
from blumfeld_bench.workload import Step, Workload, load_workload
from campaigns import figures
from campaigns.bench.compare import VERSIONS
from campaigns.bench.rivals import kafka_text

KAFKA_WARM_UP_S = 20.0
TOOL = "org.apache.kafka.tools.ProducerPerformance"
TOOL_TOPIC = "tool"
TOOL_WARM_UP_S = 4
"""Warm-up of the tool, whose first seconds are those of a cold JVM. Its second line of figures leaves them out."""
TOOL_MEASURED_S = 6
TOOL_RECORD_BYTES = 132
"""Record size of the tool, which sends one size only: half-way between the least and the most of ``ticks``."""
TOOL_TIMEOUT_S = 90.0
TOOL_LINE = re.compile(
    r"([\d.]+) ms avg latency, [\d.]+ ms max latency, (\d+) ms 50th, \d+ ms 95th, (\d+) ms 99th"
)
WIDTH = 130


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One round of one server in one setting."""

    server: str
    round: int
    driver_first: bool
    pinned: bool
    driver_placement: Placement | None
    server_placement: Placement | None
    records_per_s: float
    p50_us: float
    p99_us: float
    late_us_p99: float
    """p99 delay with which our driver sent for want of a core."""
    tool_p50_ms: float
    tool_p99_ms: float
    """p99 in whole milliseconds, as the tool prints it."""


class Fairness(msgspec.Struct, frozen=True, kw_only=True):
    """A whole run."""

    machine: Machine
    workload: str
    step: str
    samples: tuple[Sample, ...]


@attrs.frozen
class Plan:
    """Options of a run."""

    specs: Sequence[VariantSpec]
    workload: Workload
    step: Step
    peer: Path
    rounds: int


def measured(plan: Plan, folder: Path, say: Console) -> Iterator[Sample]:
    """Yield each sample as soon as it is measured. A server or a tool that fails loses its own samples, and is
    named.
    """
    for nth in range(plan.rounds):
        for pinned in (False, True):
            specs = plan.specs if nth % 2 == 0 else tuple(reversed(plan.specs))
            for position, spec in enumerate(specs):
                where = folder / f"{nth}-{int(pinned)}-{position}"
                try:
                    yield from _of_server(plan, spec, nth, pinned, where)
                except (DriverError, ServerError, OSError, subprocess.SubprocessError) as error:
                    say.print(f"{spec.label}, round {nth + 1}: {error}", style="red", highlight=False)


def _of_server(plan: Plan, spec: VariantSpec, nth: int, pinned: bool, folder: Path) -> Iterator[Sample]:
    with placed(pinned) as cores, server_of(spec, plan.workload, folder, cores) as place:
        assert place.server is not None
        _warm(plan, spec, place, nth)
        with WireClient(HOST, place.port) as client:
            client.create_topic(TOOL_TOPIC, plan.workload.topic.partitions)
            client.wait_for_leaders(TOOL_TOPIC)
        for first in (False, True) if nth % 2 == 0 else (True, False):
            driver = make_driver(plan.workload, first)
            try:
                turn = Turn(round=nth, position=0, variant=spec.label)
                seen = Runner(plan.workload, driver, seed=1).measure(place, plan.step, turn, unseen)
            finally:
                driver.close()
            own = open_round(seen)
            tool_p50_ms, tool_p99_ms = _tool(plan, place.port, first)
            yield Sample(
                server=spec.label,
                round=nth,
                driver_first=first,
                pinned=pinned,
                driver_placement=seen.driver.placement,
                server_placement=placement_of(place.server.pid),
                records_per_s=seen.records_per_s,
                p50_us=PRODUCE_P50.of(own) or 0.0,
                p99_us=PRODUCE_P99.of(own) or 0.0,
                late_us_p99=seen.driver.late_us_p99,
                tool_p50_ms=tool_p50_ms,
                tool_p99_ms=tool_p99_ms,
            )


def _warm(plan: Plan, spec: VariantSpec, place: Place, nth: int) -> None:
    driver = make_driver(plan.workload)
    try:
        Runner(plan.workload, driver, seed=1).prepare(spec, place, nth)
    finally:
        driver.close()


def _tool(plan: Plan, port: int, first: bool) -> tuple[float, float]:
    """Run ProducerPerformance; return its p50 and p99 in ms without its warm-up. Each record is sent alone (linger 0).

    :raises ServerError: the tool failed, or printed something else
    """
    assert plan.step.produce is not None
    rate = int(plan.step.produce.rate_per_s)
    command = ["chrt", "-r", "1"] if first else []
    command += [str(plan.peer), "tool", TOOL, "--topic", TOOL_TOPIC, "--record-size", str(TOOL_RECORD_BYTES)]
    command += ["--num-records", str(rate * (TOOL_WARM_UP_S + TOOL_MEASURED_S)), "--throughput", str(rate)]
    command += ["--warmup-records", str(rate * TOOL_WARM_UP_S), "--command-property"]
    command += [f"bootstrap.servers={HOST}:{port}", "linger.ms=0", "acks=1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TOOL_TIMEOUT_S, check=False)
    lines = TOOL_LINE.findall(done.stdout)
    if done.returncode or not lines:
        raise ServerError(f"{TOOL} failed ({done.returncode}): {(done.stderr or done.stdout)[-300:]}")
    _, p50, p99 = lines[-1]
    return float(p50), float(p99)


def table_of(fairness: Fairness) -> Table:
    """Return medians of rounds. A ratio is a server's p99 divided by the first server's in the same setting."""
    driver = ("ack p50 µs", "ack p99 µs", "over ours", "driver late p99 µs")
    tool = ("tool p50 ms", "tool p99 ms", "over ours")
    title = f"{fairness.workload}, {fairness.step}: medians of rounds"
    table = figures.table(title, ("setting", "server"), (*driver, *tool))
    servers = list(dict.fromkeys(sample.server for sample in fairness.samples))
    for pinned in (False, True):
        for first in (False, True):
            rows = [s for s in fairness.samples if s.pinned == pinned and s.driver_first == first]
            base: tuple[float, float] | None = None
            for server in servers:
                mine = [row for row in rows if row.server == server]
                if not mine:
                    continue
                p99, tool_p99 = (figures.median(mine, field) for field in ("p99_us", "tool_p99_ms"))
                base = base or (p99, tool_p99)
                table.add_row(
                    setting_words(pinned=pinned, first=first),
                    server,
                    f"{figures.median(mine, 'p50_us'):,.0f}",
                    f"{p99:,.0f}",
                    f"{p99 / base[0]:.2f}×" if base[0] else "",
                    f"{figures.median(mine, 'late_us_p99'):,.0f}",
                    f"{figures.median(mine, 'tool_p50_ms'):.0f}",
                    f"{tool_p99:.0f}",
                    f"{tool_p99 / base[1]:.2f}×" if base[1] else "",
                )
    return table


def setting_words(*, pinned: bool, first: bool) -> str:
    """Return a setting in words; ``blumfeld bench`` uses the fair one by default."""
    words = ["driver first (SCHED_RR)" if first else "nobody first", "own cores" if pinned else "all cores"]
    return ", ".join(words) + ("" if pinned or first else " (the default)")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print the table, save the samples."""
    parser = figures.options("fairness", __doc__)
    parser.add_argument("--versions", default=",".join(VERSIONS), help="of Kafka, beside this build")
    parser.add_argument("--workload", default="ticks")
    parser.add_argument("--step", default="5,000/s")
    parser.set_defaults(out=Path("bench-fairness.json"))
    options = parser.parse_args(arguments)
    if not options.peer:
        parser.error("--peer: the script that starts Kafka and runs its tools")
    if not may_go_first():
        sys.exit(NOT_FIRST)
    workload = load_workload(options.workload)
    peer = options.peer.resolve()
    texts = ["default --label blumfeld"]
    texts += [
        kafka_text(peer, label=f"Kafka {version}", version=version, warm_up_s=KAFKA_WARM_UP_S)
        for version in options.versions.split(",")
    ]
    step = next(step for step in workload.steps if step.name == options.step)
    plan = Plan(parse_variants(texts), workload, step, peer, options.rounds)
    console = make_console(WIDTH)
    samples: list[Sample] = []
    try:
        with tempfile.TemporaryDirectory(prefix="blumfeld-fairness-") as folder:
            for sample in measured(plan, Path(folder), console):
                samples.append(sample)
                words = setting_words(pinned=sample.pinned, first=sample.driver_first)
                console.print(f"{sample.server}, {words}: p99 {sample.p99_us:,.0f} µs", style="dim")
    except SessionError as error:
        sys.exit(str(error))
    finally:
        fairness = Fairness(
            machine=this_machine(), workload=workload.name, step=step.name, samples=tuple(samples)
        )
        figures.save(options.out, fairness)
    console.print(table_of(fairness))
    console.print(f"samples: {options.out}")


if __name__ == "__main__":
    main()
