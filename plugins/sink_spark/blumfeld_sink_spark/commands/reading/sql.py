"""``archive sql``: prints a script of DuckDB views, or the answer to a query."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from blumfeld_sink_spark.commands.common.edge import edge

if TYPE_CHECKING:
    from collections.abc import Iterable

    from blumfeld_sink_spark.reading.committed_files import Committed

CELL_CHARACTERS = 60
DIGITS_BEHIND_POINT = 8
"""Decimal places of numbers in the printed table; --csv and --json have all of them."""


@edge
def command(
    query: Annotated[str, typer.Argument(help="SQL; without it a script of the views is printed.")] = "",
    root: Annotated[str, typer.Option(help="The archive: a folder or an object store's URL.")] = "archive",
    as_csv: Annotated[bool, typer.Option("--csv", help="All rows as CSV.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="All rows, one JSON object a line.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="Rows of the table that is shown.")] = 100,
    engine: Annotated[str, typer.Option(help="duckdb, or polars (its own SQL).")] = "duckdb",
) -> None:
    """Ask the archive: tables trades, book_deltas, bbo, gaps…; macros ts(), ns(), mid(), spread_bps(), bars_of().

    Without a query it prints a script for any duckdb: `blumfeld archive sql > views.sql; duckdb -init views.sql`.
    """
    from blumfeld_sink_spark.errors import SettingsError
    from blumfeld_sink_spark.reading.committed_files import Committed

    if as_csv and as_json:
        raise SettingsError("--csv and --json; allowed: one of them")
    if engine not in ("duckdb", "polars"):
        raise SettingsError(f"engine: {engine!r}; allowed: duckdb, polars")
    archive = Committed.open(root)
    if engine == "polars":
        _polars(archive, query, as_csv, as_json)
    else:
        _duckdb(archive, query, as_csv, as_json, limit)


def _duckdb(archive: Committed, query: str, as_csv: bool, as_json: bool, limit: int) -> None:
    from contextlib import closing

    from blumfeld_sink_spark.errors import SettingsError
    from blumfeld_sink_spark.reading import views

    if not query:
        if not archive.is_local:
            raise SettingsError(
                "a query is needed: the script of views is only for an archive in a folder, not in an object store"
            )
        typer.echo(views.script(archive), nl=False)
        return
    with closing(views.connect(archive)) as connection:
        rows = views.Rows(connection, query, as_json=as_json)
        if as_json:
            for (line,) in rows:
                typer.echo(line)
        elif as_csv:
            _print_csv(rows.columns, rows)
        else:
            _print_table(rows.columns, rows, limit)


def _polars(archive: Committed, query: str, as_csv: bool, as_json: bool) -> None:
    from blumfeld_sink_spark.errors import SettingsError
    from blumfeld_sink_spark.reading import views

    if not query:
        raise SettingsError("engine polars: a query is needed; only duckdb has a script of views")
    frame = views.polars_rows(archive, query)
    if as_csv:
        typer.echo(frame.write_csv(), nl=False)
    elif as_json:
        typer.echo(frame.write_ndjson(), nl=False)
    else:
        typer.echo(str(frame))


def _print_csv(columns: list[str], rows: Iterable[tuple[str | None, ...]]) -> None:
    import csv
    import sys

    out = csv.writer(sys.stdout, lineterminator="\n")
    out.writerow(columns)
    out.writerows(rows)


def _print_table(columns: list[str], rows: Iterable[tuple[str | None, ...]], limit: int) -> None:
    from itertools import islice

    from rich.table import Table
    from rich.text import Text

    from blumfeld_sink_spark.commands.common.shown import console

    shown = list(islice(rows, limit + 1))
    table = Table()
    numeric = [_all_numbers(row[at] for row in shown) for at in range(len(columns))]
    for name, is_number in zip(columns, numeric, strict=True):
        table.add_column(name, justify="right" if is_number else "left", no_wrap=True)
    for row in shown[:limit]:
        table.add_row(*(Text("NULL", "dim") if cell is None else Text(_cell(cell)) for cell in row))
    console().print(table)
    if not shown:
        typer.echo("no rows")
    if len(shown) > limit:
        typer.echo(f"the first {limit} rows; --limit N for more, --csv or --json for all")


def _cell(text: str | None) -> str:
    text = str(text)
    whole, point, behind = text.partition(".")
    if point and whole.lstrip("-").isdigit() and behind.isdigit():
        return f"{whole}.{behind[:DIGITS_BEHIND_POINT]}".rstrip("0").rstrip(".")
    return text if len(text) <= CELL_CHARACTERS else text[: CELL_CHARACTERS - 1] + "…"


def _all_numbers(cells: Iterable[str | None]) -> bool:
    known = [str(cell) for cell in cells if cell is not None]
    return bool(known) and all(cell.replace(".", "", 1).lstrip("-").isdigit() for cell in known)
