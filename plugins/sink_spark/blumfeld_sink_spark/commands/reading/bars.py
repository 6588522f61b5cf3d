"""``archive bars``: makes bars from the archived trades."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from blumfeld_sink_spark.commands.common.edge import edge

if TYPE_CHECKING:
    from blumfeld_sink_spark.reading.market.bars import Covered


@edge
def command(
    root: Annotated[str, typer.Option(help="The archive.")] = "archive",
    interval: Annotated[str, typer.Option(help="1s, 1m, 15m, 1h, 1d; it must divide a day.")] = "1m",
    symbol: Annotated[list[str] | None, typer.Option(help="May be repeated; all without it.")] = None,
    start: Annotated[str | None, typer.Option("--from", help="From the date of this time on.")] = None,
    end: Annotated[str | None, typer.Option("--to", help="Up to the date of this time, with it.")] = None,
    through: Annotated[
        bool, typer.Option("--through", help="Also bars at the end that may still change.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="A line of JSON for each file.")] = False,
) -> None:
    """Write the table bars: open, high, low, close, volume, VWAP of each interval, for whole dates.

    Made again, a file has the same bytes. It is replaced in one step.
    """
    from blumfeld_sink_spark.reading.committed_files import Committed
    from blumfeld_sink_spark.reading.market import bars
    from blumfeld_sink_spark.reading.market.intervals import interval_ns
    from blumfeld_sink_spark.reading.times import iso_of, ns_of

    span = interval_ns(interval)
    first, last = (ns_of(text) for text in (start, end))
    made = bars.make(
        Committed.open(root),
        span,
        symbols=symbol or (),
        start="" if first is None else iso_of(first)[:10],
        end="" if last is None else iso_of(last)[:10],
        through=through,
    )
    if as_json:
        import attrs
        import msgspec

        for covered in made:
            typer.echo(msgspec.json.encode(attrs.asdict(covered)).decode())
    else:
        _print(list(made), interval)


def _print(made: list[Covered], interval: str) -> None:
    from rich.table import Table

    from blumfeld_sink_spark.commands.common.shown import console as shown_on
    from blumfeld_sink_spark.reading.times import iso_of

    table = Table(title=f"bars of {interval}")
    for name in ("date", "symbol", "trades", "bars", "until"):
        table.add_column(name, justify="right" if name in ("trades", "bars") else "left")
    for covered in made:
        until = "the end of the date" if covered.whole else iso_of(covered.until_ns)
        table.add_row(covered.date, covered.symbol, f"{covered.trades:,}", f"{covered.bars:,}", until)
    shown_on().print(table if made else "no trades are archived for that")
