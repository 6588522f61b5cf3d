"""The verbs of ``blumfeld bench``: compare variants (the default verb), report, show, rerun, list workloads.

Every file is checked before a server is started.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from blumfeld_bench.rebalance.command import rebalance
from blumfeld_bench.terminal import (
    FAILED,
    INTERRUPTED,
    Folder,
    Out,
    existing,
    make_console,
    need_libraries,
    refuse,
    result_path,
    with_common,
)

if TYPE_CHECKING:
    from blumfeld_bench.plan.variants import VariantSpec
    from blumfeld_bench.rebalance.result import RebalanceResult
    from blumfeld_bench.result import Result
    from blumfeld_bench.runs.session import Options
    from blumfeld_bench.workload import Workload

RUN = "run"


class RunByDefault(TyperGroup):
    """A command group with a default verb: ``bench A.toml B.toml`` means ``bench run A.toml B.toml``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put ``run`` in front of arguments that begin with no verb."""
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = [RUN, *args]
        return super().parse_args(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the verbs, then the options of the default verb."""
        super().format_help(ctx, formatter)
        run = self.commands[RUN]
        run.format_help(type(ctx)(run, parent=ctx, info_name="[run]"), formatter)


app = typer.Typer(
    name="bench",
    cls=RunByDefault,
    help="Compare compositions, or one with a foreign broker: interleaved rounds, open-loop load, an honest verdict.",
    no_args_is_help=True,
    add_completion=False,
)

app.command()(rebalance)

ResultFile = Annotated[Path, typer.Argument(metavar="RESULT", help="Result file of a run.")]


@app.command(RUN)
def run(
    variants: Annotated[
        list[str],
        typer.Argument(
            help="A manifest, 'default', or one quoted string: 'A.toml --set network.plugin=net_uring --label ring', "
            "\"kafka://127.0.0.1:0 --start 'COMMAND {folder}/data {port}'\"; each with --nodes N for a cluster. "
            "The others are compared with the first."
        ),
    ],
    workload: Annotated[
        str, typer.Option("--workload", "-w", help="A shipped workload, or a TOML file.")
    ] = "ticks",
    quick: Annotated[bool, typer.Option("--quick", help="A verdict in two minutes, with its power.")] = False,
    rounds: Annotated[int | None, typer.Option(min=1, help="How often each variant is measured.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of sizes, keys and send times.")] = 1,
    out: Out = None,
    driver: Annotated[
        str | None, typer.Option(help="wire or librdkafka; the workload's own if not given.")
    ] = None,
    step: Annotated[
        list[str] | None, typer.Option(help="Only this step of the workload; may be repeated.")
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="SECTION.KEY=VALUE", help="Laid over every manifest, beneath its own overrides."
        ),
    ] = None,
    system_calls: Annotated[
        bool, typer.Option(help="Count system calls, apart from the measured rounds.")
    ] = True,
    pin: Annotated[
        bool, typer.Option("--pin", help="The server on the first core, the driver on the others.")
    ] = False,
    driver_first: Annotated[
        bool,
        typer.Option(
            "--driver-first",
            help="Run the driver under SCHED_RR, before the server. Favours a server with one thread; needs root.",
        ),
    ] = False,
    folder: Folder = None,
) -> None:
    """Measure variants in turn and print how they differ. The verb may be left out."""
    need_libraries()
    from blumfeld_bench.plan.variants import VariantError, parse_variants
    from blumfeld_bench.runs.session import Options
    from blumfeld_bench.workload import WorkloadError, load_workload

    try:
        loaded = chosen(load_workload(workload), driver, step or [])
        specs = parse_variants([with_common(text, overrides or []) for text in variants])
    except (VariantError, WorkloadError) as error:
        refuse(str(error))
    path = result_path(out, loaded.name)
    options = Options(
        rounds=rounds,
        quick=quick,
        seed=seed,
        system_calls=system_calls,
        pin=pin,
        driver_first=driver_first,
        folder=existing(folder),
    )
    _measure(loaded, specs, options, path)


@app.command()
def report(
    result: ResultFile,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", help="Folder of the report; RESULT-report, without RESULT's ending, if not given."
        ),
    ] = None,
) -> None:
    """Make an HTML page and PNGs of a result."""
    need_libraries()
    from blumfeld_bench.rebalance.plots import write_rebalance
    from blumfeld_bench.report.page import write_report

    folder = out or result.with_name(f"{result.stem}-report")
    rebalanced = _rebalanced(result)
    try:
        written = (
            write_report(_load(result), folder) if rebalanced is None else write_rebalance(rebalanced, folder)
        )
    except OSError as error:
        refuse(f"{folder}: {error.strerror or error}")
    typer.echo(f"{written[0]} and {len(written) - 1} plots beside it")


@app.command()
def rerun(result: ResultFile, out: Out = None, folder: Folder = None) -> None:
    """Repeat the run of a result file: same variants, workload, seed and rounds, with the manifests stored in the
    file.
    """
    need_libraries()
    from blumfeld_bench.plan.variants import VariantError, specs_of
    from blumfeld_bench.runs.session import Options

    loaded = _load(result)
    try:
        specs = specs_of(loaded)
    except VariantError as error:
        refuse(str(error))
    options = Options(
        rounds=loaded.rounds,
        seed=loaded.seed,
        system_calls=bool(loaded.system_calls),
        pin=loaded.pinned,
        driver_first=loaded.driver_first,
        folder=existing(folder),
    )
    _measure(loaded.workload, specs, options, result_path(out, loaded.workload.name))


@app.command()
def show(result: ResultFile) -> None:
    """Print a result's table and verdict again."""
    need_libraries()
    from blumfeld_bench.rebalance.table import rebalance_table
    from blumfeld_bench.report.table import result_table

    rebalanced = _rebalanced(result)
    shown = result_table(_load(result)) if rebalanced is None else rebalance_table(rebalanced)
    make_console().print(shown)


@app.command()
def workloads() -> None:
    """List the workloads that are shipped."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from blumfeld_bench.workload import parse_workload, shipped

    table = Table(box=None, pad_edge=False, padding=(0, 2, 1, 0), show_header=False)
    table.add_column("name", no_wrap=True, style="bold")
    table.add_column("what it is")
    for name, text in shipped().items():
        workload = parse_workload(text, name)
        steps = "; ".join(step.name for step in workload.steps)
        table.add_row(name, Text.assemble(workload.description, "\n", (f"steps: {steps}", "dim")))
    Console().print(table)


def _measure(workload: Workload, specs: Sequence[VariantSpec], options: Options, path: Path) -> None:
    """Run the session, save the result, print the table.

    The file is written before anything is printed, so that a broken terminal loses no measurement. An interrupted run
    is saved too.
    """
    from blumfeld.testing.endings import sigterm_unwinds
    from blumfeld_bench.drivers.driver import make_driver
    from blumfeld_bench.live import watching
    from blumfeld_bench.report.table import result_table
    from blumfeld_bench.result import save_result
    from blumfeld_bench.runs.session import SessionError, run_session

    console = make_console()
    try:
        with sigterm_unwinds(), watching(console) as watcher:
            result = run_session(specs, workload, make_driver, options, watcher)
    except SessionError as error:
        typer.echo(f"blumfeld: {error}", err=True)
        raise typer.Exit(FAILED) from error
    if result.measured:
        save_result(result, path)
        console.print(result_table(result))
        console.print(f"\n{path}: for a page with plots, blumfeld bench report {path}", highlight=False)
    else:
        typer.echo("blumfeld: nothing was measured", err=True)
    if result.interrupted:
        raise typer.Exit(INTERRUPTED)
    if not result.measured:
        raise typer.Exit(FAILED)


def chosen(workload: Workload, driver: str | None, steps: Sequence[str]) -> Workload:
    """Return the workload with this driver, reduced to the named steps; no names keep all steps.

    :raises WorkloadError: the workload has no such step, or there is no such driver
    """
    import msgspec

    from blumfeld_bench.workload import WorkloadError

    names = [step.name for step in workload.steps]
    unknown = [name for name in steps if name not in names]
    if unknown:
        raise WorkloadError(f"{workload.name} has no step {', '.join(unknown)}; allowed: {', '.join(names)}")
    if driver not in (None, "wire", "librdkafka"):
        raise WorkloadError(f"--driver: found {driver}; allowed: wire, librdkafka")
    if driver is not None and workload.driver == "transactions":
        raise WorkloadError(
            f"--driver: found {driver}; {workload.name} has transactions, and a driver of its own"
        )
    kept = tuple(step for step in workload.steps if step.name in steps or not steps)
    return msgspec.structs.replace(workload, driver=driver or workload.driver, steps=kept)


def _rebalanced(path: Path) -> RebalanceResult | None:
    """Return the result of ``bench rebalance`` in a file, or None if the file holds something else."""
    from blumfeld_bench.rebalance.result import load_rebalance

    try:
        return load_rebalance(path.read_bytes())
    except (OSError, ValueError):
        return None


def _load(path: Path) -> Result:
    from blumfeld_bench.result import load_result

    try:
        return load_result(path)
    except OSError as error:
        refuse(f"{path}: {error.strerror}; allowed: a result file")
    except ValueError as error:
        refuse(str(error))
