"""``blumfeld bench rebalance``: parse the options, run, save the result and print its table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from blumfeld_bench.terminal import (
    FAILED,
    INTERRUPTED,
    Folder,
    existing,
    make_console,
    need_libraries,
    refuse,
    result_path,
    with_common,
)

if TYPE_CHECKING:
    from blumfeld_bench.plan.variants import VariantSpec
    from blumfeld_bench.rebalance.settings import Settings

ROUNDS = 3
QUICK_SIZES = (100,)
QUICK_HEARTBEAT_MS = 500


def rebalance(
    variants: Annotated[
        list[str],
        typer.Argument(
            help="As for a comparison. In a foreign start command {settings} is replaced by the settings: "
            "\"kafka://127.0.0.1:0 --start 'kafka-peer start {folder}/data {port} {settings}'\"."
        ),
    ],
    quick: Annotated[
        bool, typer.Option("--quick", help="One round of 100 members in two minutes: figures, no verdict.")
    ] = False,
    rounds: Annotated[int, typer.Option(min=1, help="How often each variant is measured.")] = ROUNDS,
    sizes: Annotated[
        list[int] | None,
        typer.Option("--size", min=10, help="Group size; may be repeated. 10, 100 and 1000 if not given."),
    ] = None,
    protocols: Annotated[
        list[str] | None,
        typer.Option("--protocol", help="eager, cooperative or KIP-848; may be repeated. All if not given."),
    ] = None,
    heartbeat_ms: Annotated[
        int | None,
        typer.Option(
            min=100,
            help="Heartbeat interval of all servers; other times are in proportion. 1000, with --quick 500.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of heartbeat times and of the choice of members.")] = 1,
    driver_first: Annotated[
        bool,
        typer.Option(
            "--driver-first", help="Run the driver under SCHED_RR, before the server's threads; needs root."
        ),
    ] = False,
    out: Annotated[
        Path | None, typer.Option("--out", help="The result file; bench-rebalance-TIME.json if not given.")
    ] = None,
    folder: Folder = None,
) -> None:
    """Measure what a rebalance costs in each group protocol: a member is killed, added, leaves; a tenth is added."""
    from blumfeld_bench.drivers.connections import NOT_FIRST, may_go_first
    from blumfeld_bench.plan.variants import VariantError
    from blumfeld_bench.rebalance.settings import PROTOCOLS, Settings

    need_libraries()
    unknown = [name for name in protocols or () if name not in PROTOCOLS]
    if unknown:
        refuse(f"--protocol: found {', '.join(unknown)}; allowed: {', '.join(PROTOCOLS)}")
    interval_ms = heartbeat_ms or (QUICK_HEARTBEAT_MS if quick else Settings().heartbeat_interval_ms)
    settings = Settings(
        sizes=tuple(sizes or (QUICK_SIZES if quick else Settings().sizes)),
        protocols=tuple(protocols or PROTOCOLS),
        session_timeout_ms=6 * interval_ms,
        heartbeat_interval_ms=interval_ms,
        initial_rebalance_delay_ms=interval_ms // 2,
        assignment_interval_ms=interval_ms // 5,
        seed=seed,
    )
    try:
        specs = specs_with(variants, settings)
    except VariantError as error:
        refuse(str(error))
    if driver_first and not may_go_first():
        refuse(NOT_FIRST)
    measured_rounds = 1 if quick else rounds
    _measure(specs, settings, measured_rounds, driver_first, existing(folder), result_path(out, "rebalance"))


def specs_with(texts: Sequence[str], settings: Settings) -> tuple[VariantSpec, ...]:
    """Parse the variants, with the settings laid beneath each one's own overrides.

    :raises VariantError: a variant can't be run
    """
    from blumfeld_bench.plan.variants import VariantError, parse_variant, parse_variants

    specs = parse_variants(texts)
    if several := next((spec.label for spec in specs if spec.variant.nodes > 1), None):
        raise VariantError(f"{several}: bench rebalance measures one node; found --nodes")
    labels = [spec.label for spec in specs]
    return tuple(
        parse_variant(with_common(text, settings.overrides()), label=label)
        for text, label in zip(texts, labels, strict=True)
    )


def _measure(
    specs: Sequence[VariantSpec],
    settings: Settings,
    rounds: int,
    driver_first: bool,
    folder: Path | None,
    path: Path,
) -> None:
    """Run, save and print; the measurements of an interrupted run are saved too."""
    from blumfeld.testing.endings import sigterm_unwinds
    from blumfeld_bench.rebalance.result import save_rebalance
    from blumfeld_bench.rebalance.session import Session
    from blumfeld_bench.rebalance.table import rebalance_table

    console = make_console()
    session = Session(
        specs,
        settings,
        rounds,
        folder,
        lambda line: console.print(line, highlight=False, style="dim"),
        driver_first=driver_first,
    )
    with sigterm_unwinds():
        result = session.run()
    save_rebalance(result, path)
    console.print(rebalance_table(result))
    console.print(f"\n{path}: for a page with plots, blumfeld bench report {path}", highlight=False)
    if result.interrupted:
        raise typer.Exit(INTERRUPTED)
    if not result.samples:
        raise typer.Exit(FAILED)
