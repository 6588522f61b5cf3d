"""``archive status``: shows the state of an archive, from its ledger."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from blumfeld_sink_spark.commands.common.edge import edge
from blumfeld_sink_spark.commands.common.shown import count_lines

if TYPE_CHECKING:
    from blumfeld_sink_spark.ledger.upkeep.status import Status


@edge
def command(
    root: Annotated[str, typer.Option(help="Where the archive lies: a folder or s3://….")] = "archive",
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
    watch: Annotated[float, typer.Option(help="Show it again every so many seconds.")] = 0.0,
) -> None:
    """Show archived messages, running writers and lag. It needs neither Spark nor a broker."""
    from blumfeld_sink_spark.ledger.ledger import nothing_at
    from blumfeld_sink_spark.ledger.upkeep.status import status
    from blumfeld_sink_spark.stores.roots import open_store

    store = open_store(root)
    while True:
        archive_status = status(store, time.time_ns() // 1_000_000)
        if not archive_status.queries and not watch:
            raise nothing_at(store.root)
        _show(archive_status, as_json, clear=bool(watch))
        if not watch:
            return
        time.sleep(watch)


def _show(archive_status: Status, as_json: bool, *, clear: bool) -> None:
    if as_json:
        import msgspec

        typer.echo(msgspec.json.encode(archive_status).decode())
        return
    from blumfeld_sink_spark.commands.common.shown import console as shown_on

    console = shown_on()
    if clear:
        console.clear()
    for part in (
        _queries(archive_status),
        _tables(archive_status),
        _partitions(archive_status),
        *_lines(archive_status),
    ):
        console.print(part)


def _queries(archive_status: Status) -> Any:
    shown = _grid("query", "last batch", "committed", "messages", "msg/s", "gaps", "quarantined")
    for query in archive_status.queries:
        shown.add_row(
            query.query,
            str(query.batch),
            _when(query.committed_ms),
            f"{query.messages:,}",
            f"{query.messages_per_s:,.0f}",
            f"{query.gaps:,}",
            f"{query.quarantined:,}",
        )
    return shown


def _tables(archive_status: Status) -> Any:
    shown = _grid("table", "rows", "files", "MB", "B/row", "first", "last")
    for name, table in archive_status.tables.items():
        shown.add_row(
            name,
            f"{table.rows:,}",
            f"{table.files:,}",
            f"{table.bytes / 1e6:,.2f}",
            f"{table.bytes / table.rows:.2f}" if table.rows else "",
            _when(table.ts_min // 1_000_000),
            _when(table.ts_max // 1_000_000),
        )
    return shown


def _partitions(archive_status: Status) -> Any:
    shown = _grid("partition", "archived offsets", "lag")
    lag = {
        (topic, partition): behind
        for topics in archive_status.lag.values()
        for topic, partitions in topics.items()
        for partition, behind in partitions.items()
    }
    for span in archive_status.covered:
        behind = lag.get((span.topic, str(span.partition)))
        shown.add_row(
            f"{span.topic}-{span.partition}",
            f"{span.start:,}..{span.end - 1:,}",
            "" if behind is None else f"{behind:,}",
        )
    return shown


def _lines(archive_status: Status) -> list[str]:
    lines = [
        f"{archive_status.messages:,} messages of {archive_status.bytes_in / 1e6:,.2f} MB "
        f"in {archive_status.bytes / 1e6:,.2f} MB of files: {archive_status.ratio:.1f} to 1"
    ]
    lines += count_lines(archive_status.skipped, archive_status.passed_over)
    if archive_status.uncounted:
        lines.append(
            f"{archive_status.uncounted:,} batches of an older version don't count what they passed over or skipped"
        )
    lines += [
        f"{writer['name']} is being written by process {writer['pid']}"
        f" on {writer['host']} since {_when(writer['since_ms'])}"
        for writer in archive_status.writers
    ]
    if archive_status.begun and not archive_status.writers:
        lines.append(
            f"a batch of {', '.join(archive_status.begun)} was begun and not committed: run it again"
        )
    return lines


def _grid(*columns: str) -> Any:
    from rich.table import Table

    shown = Table()
    for nth, name in enumerate(columns):
        shown.add_column(name, justify="right" if nth else "left", overflow="fold")
    return shown


def _when(ms: int) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S") if ms else ""
