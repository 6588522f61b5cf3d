"""``archive gaps``: shows the faults of the feed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from blumfeld_sink_spark.commands.common.edge import edge
from blumfeld_sink_spark.commands.common.shown import counted

if TYPE_CHECKING:
    import pyarrow as pa
    from rich.console import Console

    from blumfeld_sink_spark.reading.committed_files import Committed

FOUND = 1
"""Exit status with ``--fail`` if there are faults."""


@edge
def command(
    root: Annotated[str, typer.Option(help="The archive.")] = "archive",
    kind: Annotated[
        list[str] | None,
        typer.Option(
            help="gap, gap_end, duplicate, out_of_order, reset, unread, crossed, locked, skew, stale, data_loss…"
        ),
    ] = None,
    symbol: Annotated[list[str] | None, typer.Option(help="May be repeated.")] = None,
    start: Annotated[str | None, typer.Option("--from", help="Events then or later.")] = None,
    end: Annotated[str | None, typer.Option("--to", help="Events before then.")] = None,
    limit: Annotated[int, typer.Option(min=0, help="Rows that are shown below the calendar.")] = 20,
    as_json: Annotated[bool, typer.Option("--json", help="All rows, one JSON object a line.")] = False,
    fail: Annotated[
        bool, typer.Option("--fail", help="Exit with 1 if there are any; stale counts where --kind names it.")
    ] = False,
) -> None:
    """Show missing, doubled and late messages, crossed books, skewed clocks and lost offsets, by date and kind."""
    from blumfeld_sink_spark.reading import findings
    from blumfeld_sink_spark.reading.committed_files import Committed
    from blumfeld_sink_spark.reading.times import ns_of

    archive = Committed.open(root)
    rows = findings.read(
        archive, kinds=kind or (), symbols=symbol or (), start_ns=ns_of(start), end_ns=ns_of(end)
    )
    if as_json:
        import msgspec

        for row in rows.to_pylist():
            typer.echo(msgspec.json.encode(row).decode())
    else:
        _print(archive, rows, limit, is_filtered=bool(kind or symbol or start or end))
    if fail and (rows if kind else findings.faults(rows)).num_rows:
        raise typer.Exit(FOUND)


def _print(archive: Committed, rows: pa.Table, limit: int, *, is_filtered: bool) -> None:
    from blumfeld_sink_spark.commands.common.shown import console as shown_on
    from blumfeld_sink_spark.reading import findings
    from blumfeld_sink_spark.tables import QUARANTINE

    console = shown_on()
    if not rows.num_rows:
        if is_filtered:
            console.print("nothing of that kind is recorded")
        elif findings.is_checked(archive):
            console.print("no gaps: every message that the venues number is there once, in order")
        else:
            console.print(
                "nothing is checked: only whole messages are archived, and no decoder reads their numbers"
            )
    else:
        _print_rows(console, rows, limit, is_filtered=is_filtered)
    quarantined = sum(entry.rows for entry in archive.files(QUARANTINE))
    if quarantined and not is_filtered:
        console.print(
            f"messages that a decoder could not read: {quarantined:,}; "
            "SELECT decoder, error, count(*) FROM quarantine GROUP BY ALL shows why (archive sql)"
        )


def _print_rows(console: Console, rows: pa.Table, limit: int, *, is_filtered: bool) -> None:
    console.print(_calendar(rows))
    if not is_filtered:
        console.print(_closed(rows))
    if limit:
        console.print(_list(rows.slice(0, limit).to_pylist()))
    if limit < rows.num_rows:
        console.print(
            f"{min(limit, rows.num_rows)} of {rows.num_rows:,} rows; --limit N for more, --json for all"
        )


def _closed(rows: pa.Table) -> str:
    from blumfeld_sink_spark.reading import findings

    gaps, ends, missing = findings.closed(rows)
    left = max(missing, 0)
    return (
        f"{counted(gaps, 'gap')}, {ends:,} of them closed by messages that came late; "
        f"{counted(left, 'numbered message')} {'is' if left == 1 else 'are'} still missing"
    )


def _calendar(rows: pa.Table) -> Any:
    from rich.table import Table

    from blumfeld_sink_spark.reading import findings

    counts = findings.calendar(rows)
    kinds = sorted({kind for row in counts.values() for kind in row})
    table = Table(title="findings by date and kind")
    table.add_column("date")
    for kind in kinds:
        table.add_column(kind, justify="right")
    for date, row in counts.items():
        table.add_row(date, *(f"{row[kind]:,}" if kind in row else "" for kind in kinds))
    return table


def _list(rows: list[dict[str, Any]]) -> Any:
    from rich.table import Table

    from blumfeld_sink_spark.reading.times import iso_of

    table = Table()
    for name in ("time", "venue", "symbol", "stream", "kind"):
        table.add_column(name, overflow="fold")
    for name in ("expected", "got", "missing", "offset", "before"):
        table.add_column(name, justify="right", overflow="fold")
    table.add_column("topic", overflow="fold")
    for row in rows:
        numbers = (row[name] for name in ("expected", "got", "missing", "k_offset", "offset_before"))
        table.add_row(
            iso_of(row["ts_event"]),
            *(row[name] for name in ("venue", "symbol", "stream", "kind")),
            *("" if number is None else str(number) for number in numbers),
            f"{row['topic']}-{row['k_partition']}",
        )
    return table
