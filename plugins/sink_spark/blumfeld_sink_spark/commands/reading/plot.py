"""``archive plot``: draws pictures of an archive."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from blumfeld_sink_spark.commands.common.edge import edge

if TYPE_CHECKING:
    from blumfeld_sink_spark.reading.committed_files import Committed

KINDS = ("throughput", "spread", "depth", "gaps")
SYMBOLS_MAX = 8
"""Symbols that ``spread`` and ``depth`` draw if none is named."""


@edge
def command(
    what: Annotated[str, typer.Argument(help="throughput, spread, depth, gaps or all.")],
    root: Annotated[str, typer.Option(help="The archive's folder.")] = "archive",
    out: Annotated[Path, typer.Option(help="Folder for the pictures.")] = Path("plots"),
    symbol: Annotated[
        list[str] | None, typer.Option(help="May be repeated; without it the first ones.")
    ] = None,
    start: Annotated[str | None, typer.Option("--from", help="Events then or later.")] = None,
    end: Annotated[str | None, typer.Option("--to", help="Events before then.")] = None,
    svg: Annotated[bool, typer.Option("--svg", help="SVG instead of PNG.")] = False,
) -> None:
    """Draw throughput and lag, the spread, the book's depth as a heat map, and a calendar of gaps."""
    from blumfeld_sink_spark.errors import ArchiveError, SettingsError
    from blumfeld_sink_spark.reading.committed_files import Committed
    from blumfeld_sink_spark.reading.times import ns_of

    if what not in (*KINDS, "all"):
        raise SettingsError(f"plot {what!r}; allowed: {', '.join(KINDS)}, all")
    archive = Committed.open(root)
    kinds = KINDS if what == "all" else (what,)
    for draw in _pictures(archive, kinds, symbol or [], out, svg, ns_of(start), ns_of(end)):
        try:
            typer.echo(str(draw()))
        except ArchiveError as error:
            if what != "all":
                raise
            typer.echo(f"left out: {error}", err=True)


def _pictures(
    archive: Committed,
    kinds: tuple[str, ...],
    symbols: list[str],
    out: Path,
    svg: bool,
    start_ns: int | None,
    end_ns: int | None,
) -> Iterator[Callable[[], Path]]:
    from functools import partial

    from blumfeld_sink_spark.reading.plots import depth, gaps, spread, throughput

    times = {"start_ns": start_ns, "end_ns": end_ns}
    if "throughput" in kinds:
        yield partial(throughput.draw, archive, out, svg)
    for kind, table, draw in (("spread", "bbo", spread.draw), ("depth", "book_deltas", depth.draw)):
        if kind in kinds:
            yield from (
                partial(draw, archive, name, out, svg, **times) for name in _symbols(archive, table, symbols)
            )
    if "gaps" in kinds:
        yield from (partial(gaps.draw, archive, out, svg, name, **times) for name in symbols or [""])


def _symbols(archive: Committed, table: str, symbols: list[str]) -> list[str]:
    from blumfeld_sink_spark.errors import ArchiveError

    known = archive.symbols(table)
    if not symbols and not known:
        raise ArchiveError(f"the archive has no rows in {table}")
    if not symbols and len(known) > SYMBOLS_MAX:
        typer.echo(
            f"{table}: the first {SYMBOLS_MAX} of {len(known)} symbols; --symbol NAME for others", err=True
        )
    return symbols or known[:SYMBOLS_MAX]
