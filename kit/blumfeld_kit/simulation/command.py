"""``blumfeld simulate``: many machines on virtual time, by seed. A seed that fails is reduced and shown."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from blumfeld.plugging.errors import ManifestError
from blumfeld_kit.simulation.cluster.workload import Cluster
from blumfeld_kit.simulation.seeds import seeds_of
from blumfeld_kit.simulation.swarm import FaultClass, Shape, SwarmFailure, SwarmReport
from blumfeld_kit.simulation.swarm.faults import OF_ZOOKEEPER
from blumfeld_kit.simulation.swarm.reduction import RUNS_MAX, Tell, shrunk
from blumfeld_kit.simulation.swarm.shape import KRAFT, SETTLE_S, ZOOKEEPER
from blumfeld_kit.simulation.swarm.totals import Totals
from blumfeld_kit.simulation.sweep import Result, sweep
from blumfeld_kit.simulation.workloads import (
    WORKLOADS,
    MakeWorkload,
    UnknownWorkloadError,
    run_shape,
    workload_of,
)

FAILED, REFUSED = 1, 2
"""Exit statuses."""
NONE, ALL = "none", "all"
PROGRESS_S = 5.0
"""Real time between two lines about a reduction."""

app = typer.Typer(name="simulate", add_completion=False)


@app.command("simulate")
def simulate(
    seeds: Annotated[str, typer.Option(help="3, 0-19 or 1,5,7-9.")] = "0-9",
    nodes: Annotated[int, typer.Option(min=1, max=200, help="Machines, each with one node.")] = 3,
    clients: Annotated[int, typer.Option(min=1, max=200, help="Clients, each on a machine of its own.")] = 12,
    seconds: Annotated[float, typer.Option(min=1, help="Virtual time under faults.")] = 300.0,
    settle: Annotated[float, typer.Option(min=1, help="Virtual time to converge after the heal.")] = SETTLE_S,
    consensus: Annotated[
        str,
        typer.Option(
            help="kraft, or zookeeper: the nodes of a cluster keep their metadata in a simulated one."
        ),
    ] = KRAFT,
    storage: Annotated[str, typer.Option(help="The storage plug-in of every node.")] = "storage_local",
    workload: Annotated[str, typer.Option(help=f"{', '.join(WORKLOADS)}, or module:attribute.")] = "brokers",
    faults: Annotated[
        str, typer.Option(help="Classes that a seed may turn on, with commas; all, or none.")
    ] = ALL,
    minutes: Annotated[
        float | None, typer.Option(min=0, help="Real time after which no other seed begins.")
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, max=64, help="Processes that run seeds side by side.")] = 1,
    shrink: Annotated[bool, typer.Option(help="Reduce a seed that fails.")] = True,
    report: Annotated[
        Path | None, typer.Option(help="File for the totals as JSON, rewritten after each seed.")
    ] = None,
) -> None:
    """Run nodes and clients on virtual time under faults that each seed draws, and check every promise.

    After the faults everything heals, and must be well within --settle. The first seed that fails is reduced; its last
    events, what escaped, and the command that repeats it are printed.
    """
    try:
        wanted = seeds_of(seeds)
        make = workload_of(workload)
        shape = Shape(
            nodes=nodes,
            clients=clients,
            seconds=seconds,
            settle_s=settle,
            storage=storage,
            consensus=_consensus(consensus, make),
            workload=workload,
            faults=classes_of(faults, consensus),
        )
        results = sweep(shape, wanted, make, jobs=jobs, minutes=minutes)
        _show_all(results, make, shrink=shrink, report=report)
    except (ValueError, ManifestError) as error:
        if isinstance(error, (UnknownWorkloadError, ManifestError, UnknownFaultError, UnknownConsensusError)):
            typer.echo(f"blumfeld: {error}", err=True)
        else:
            typer.echo(f"blumfeld: --seeds: {seeds!r}; allowed is 3, 0-19 or 1,5,7-9", err=True)
        raise typer.Exit(REFUSED) from None


class UnknownConsensusError(ValueError):
    """No consensus has this name, or the workload has no cluster of it."""


def _consensus(name: str, make: MakeWorkload) -> str:
    if name not in (KRAFT, ZOOKEEPER):
        raise UnknownConsensusError(f"--consensus: {name!r}; allowed are {KRAFT} and {ZOOKEEPER}")
    if name == ZOOKEEPER and not (isinstance(make, type) and issubclass(make, Cluster)):
        raise UnknownConsensusError(
            "--consensus: a ZooKeeper is for clusters; allowed with it are the workloads cluster, transactions, "
            "tiered and secured, and those that are made of Cluster"
        )
    return name


class UnknownFaultError(ValueError):
    """No class of faults has this name, or the consensus knows no such fault."""


def classes_of(text: str, consensus: str) -> tuple[FaultClass, ...] | None:
    """Parse ``--faults``. ``None`` means all that the workload survives.

    :raises UnknownFaultError: an unknown name, or a fault of a ZooKeeper where there is none
    """
    if text in (ALL, NONE):
        return None if text == ALL else ()
    known = {fault_class.value: fault_class for fault_class in FaultClass}
    names = text.split(",")
    unknown = [name for name in names if name not in known]
    if unknown:
        raise UnknownFaultError(f"--faults: {unknown[0]!r}; allowed are {', '.join(known)}, {ALL} and {NONE}")
    if consensus != ZOOKEEPER and (without := [name for name in names if known[name] in OF_ZOOKEEPER]):
        raise UnknownFaultError(f"--faults: {without[0]} needs --consensus {ZOOKEEPER}")
    return tuple(known[name] for name in names)


def _show_all(results: Iterator[Result], make: MakeWorkload, *, shrink: bool, report: Path | None) -> None:
    console = Console(soft_wrap=True, highlight=False)
    console.print(
        f"{'seed':>6} {'progress':>9} {'messages':>9} {'healed s':>8} {'real s':>6}  trace and faults"
    )
    totals = Totals()
    began_s = time.monotonic()
    for seed, outcome, took_s in results:
        if isinstance(outcome, SwarmFailure):
            _fail(console, outcome, make, took_s, shrink=shrink)
        assert isinstance(outcome, SwarmReport)
        totals.add(outcome)
        if report is not None:
            report.write_bytes(msgspec.json.format(msgspec.json.encode(totals.plain())) + b"\n")
        fault_counts = " ".join(f"{name}:{count}" for name, count in outcome.faults.items())
        console.print(
            f"{seed:>6} {outcome.progress:>9} {outcome.delivered:>9} {outcome.converged_s:>8.1f} "
            f"{took_s:>6.1f}  {outcome.digest} {fault_counts}",
            markup=False,
        )
    _sum(console, totals, time.monotonic() - began_s)


def _sum(console: Console, totals: Totals, took_s: float) -> None:
    faults = Table(title="faults by class")
    for title in ("class", "faults", "seeds"):
        faults.add_column(title, justify="left" if title == "class" else "right")
    for name, count in sorted(totals.faults.items()):
        faults.add_row(name, str(count), str(totals.on[name]))
    console.print(faults)
    console.print(_counts(totals.counts))
    if totals.without_faults:
        console.print(
            f"no fault of the classes {', '.join(totals.without_faults)}: they were on, and say nothing"
        )
    console.print(f"longest time from a heal to the end: {totals.converged_s_max:.1f} s")
    console.print(
        f"{totals.seeds} seeds, {totals.virtual_hours:.2f} virtual hours in {took_s:.1f} s, "
        f"{totals.delivered} messages ({totals.delivered / max(took_s, 1e-9):.0f} a second), no promise broken"
    )


def _counts(counts: Mapping[str, int]) -> Table:
    table = Table(title="the workload's numbers")
    table.add_column("number of")
    table.add_column("", justify="right")
    for name, count in sorted(counts.items()):
        table.add_row(name, str(count))
    return table


def _fail(
    console: Console, failure: SwarmFailure, make: MakeWorkload, took_s: float, *, shrink: bool
) -> None:
    console.print(f"{failure.shape.seed:>6} FAILED: {failure.error!r}", markup=False)
    if shrink:
        console.print(
            f"reducing it: {RUNS_MAX} runs at most, of about {took_s:.1f} s or less each; --no-shrink leaves this out",
            markup=False,
        )

        def again(shape: Shape) -> SwarmFailure | None:
            outcome = run_shape(shape, make)
            return outcome if isinstance(outcome, SwarmFailure) else None

        command = failure.shape.command()
        smallest, runs = shrunk(failure, again, RUNS_MAX, _progress(console))
        console.print(
            f"reduced in {runs} runs, from {failure.events} events to {smallest.events}; as found: {command}",
            markup=False,
        )
        failure = smallest
    console.print(failure.told(), markup=False)
    raise typer.Exit(FAILED)


def _progress(console: Console) -> Tell:
    """Returns what prints how far a reduction is, a line every :data:`PROGRESS_S`; a run is not interrupted for it."""
    began_s = told_s = time.monotonic()

    def tell(run: int, smallest: SwarmFailure) -> None:
        nonlocal told_s
        now_s = time.monotonic()
        if now_s - told_s >= PROGRESS_S:
            told_s = now_s
            console.print(
                f"  {now_s - began_s:.0f} s, run {run} begins; smallest so far: {smallest.events} events, "
                f"{smallest.shape.command()}",
                markup=False,
            )

    return tell
