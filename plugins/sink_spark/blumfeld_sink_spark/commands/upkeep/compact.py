"""``archive compact``: merges many small files into few sorted ones."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from blumfeld_sink_spark.commands.common.edge import edge
from blumfeld_sink_spark.errors import SettingsError
from blumfeld_sink_spark.settings import COMPACTION

if TYPE_CHECKING:
    from blumfeld_sink_spark.compaction.compaction import Compaction, Done
    from blumfeld_sink_spark.ledger.writers.lease import Lease
    from blumfeld_sink_spark.settings import ArchiveSettings
    from blumfeld_sink_spark.stores.contract import ArchiveStore

RENEW_SECONDS = 15.0
"""Pause between two renewals, a quarter of the lease."""


@edge
def command(
    root: Annotated[str, typer.Option(help="The archive: a folder or an object store's URL.")] = "archive",
    before: Annotated[
        str, typer.Option(help="Dates before this one, YYYY-MM-DD; by default today's, UTC.")
    ] = "",
    today: Annotated[bool, typer.Option("--today", help="Also today's files, though more may come.")] = False,
    table: Annotated[str, typer.Option(help="Only this table.")] = "",
    iceberg: Annotated[str, typer.Option(help="The archive's pyiceberg catalog, where it has one.")] = "",
    target_mb: Annotated[int, typer.Option(help="Size of new files; files of half of it stay.", min=1)] = 256,
    compression: Annotated[str, typer.Option(help="Codec of the new files, CODEC:LEVEL.")] = "zstd:3",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be merged.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a group.")] = False,
) -> None:
    """Merge the small files of each closed date, symbol and topic into few, sorted by time.

    Old files go only after their rows were compared with the new ones. On a
    local file system a reader of the files sees a symbol's folder either as
    before or as after. On an object store it sees rows twice for a moment,
    unless it reads through the ledger (archive sql). After a crash, run it again.
    """
    if today and before:
        raise SettingsError("--today, --before; allowed: one of them")
    before = before or (datetime.now(UTC) + timedelta(days=today)).date().isoformat()
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", before):
        raise SettingsError(f"--before {before}: allowed: YYYY-MM-DD")
    compaction, lease = _open(root, table, target_mb << 20, compression, iceberg)
    compactions = _compact(compaction, lease, before, table, dry_run)
    if as_json:
        for done in compactions:
            typer.echo(json.dumps(_facts(done)))
    elif not _print(compactions, dry_run):
        typer.echo(_nothing(compaction.left_alone(before=before, table=table), before, target_mb))


def _open(
    root: str, table: str, target_bytes: int, compression: str, iceberg: str
) -> tuple[Compaction, Lease]:
    from blumfeld_sink_spark.compaction.compaction import Compaction
    from blumfeld_sink_spark.ledger.formats import outbox
    from blumfeld_sink_spark.ledger.ledger import Ledger
    from blumfeld_sink_spark.ledger.writers.lease import Lease
    from blumfeld_sink_spark.stores.roots import open_store
    from blumfeld_sink_spark.tables import tables

    if table and table not in tables():
        raise SettingsError(f"--table {table}: allowed: {', '.join(sorted(tables()))}")
    store = open_store(root)
    ledger = Ledger(store).load_some()
    lease = Lease(store, COMPACTION)
    formats = _formats(store, root, iceberg)
    compaction = Compaction(
        store,
        ledger,
        target_bytes=target_bytes,
        compression=compression,
        now_ms=lambda: time.time_ns() // 1_000_000,
        alive=_renewing(lease),
        deliver=lambda: outbox.deliver(store, ledger, formats),
    )
    return compaction, lease


def _compact(compaction: Compaction, lease: Lease, before: str, table: str, dry_run: bool) -> Iterator[Done]:
    from blumfeld_sink_spark.compaction.compaction import Done

    if dry_run:
        yield from (Done(group) for group in compaction.groups(before=before, table=table))
        return
    with lease:
        mended = compaction.recover()
        if mended:
            typer.echo(f"a compaction that was cut short is {mended}", err=True)
        yield from compaction.run(compaction.groups(before=before, table=table))


def _nothing(left: Mapping[str, int], before: str, target_mb: int) -> str:
    """Returns a sentence for people on why no files were merged."""
    from blumfeld_sink_spark.compaction.groups import ALONE, LARGE, OPEN, UNNUMBERED

    meanings = {
        ALONE: "alone in their table, date, symbol and topic",
        OPEN: f"of {before} or later, to which more may come (--today takes today's)",
        LARGE: f"of {target_mb / 2:g} MB or more (--target-mb)",
        UNNUMBERED: "of gaps, which is never merged",
    }
    reasons = [f"{left[reason]:,} {meaning}" for reason, meaning in meanings.items() if reason in left]
    return f"nothing to merge. Files that stay: {'; '.join(reasons) or 'none'}"


def _formats(store: ArchiveStore, root: str, iceberg: str) -> ArchiveSettings:
    """Returns settings with the table formats that the archive is committed to: they must replace the files as well.

    :raises SettingsError: the archive is committed to Iceberg and no catalog is named
    """
    from blumfeld_sink_spark.ledger.formats.outbox import OUTBOX
    from blumfeld_sink_spark.settings import ArchiveSettings

    used = store.folders(OUTBOX)
    if "iceberg" in used and not iceberg:
        raise SettingsError(
            f"{root} is committed to Iceberg too; give --iceberg CATALOG, so that its table gets the new files"
        )
    return ArchiveSettings(root=root, delta="delta" in used, iceberg=iceberg)


def _renewing(lease: Lease) -> Callable[[], None]:
    """Returns a function that renews the lease, every ``RENEW_SECONDS`` at most."""
    last = time.monotonic()

    def alive() -> None:
        nonlocal last
        if time.monotonic() - last > RENEW_SECONDS:
            lease.renew()
            last = time.monotonic()

    return alive


def _facts(done: Done) -> dict[str, object]:
    group = done.group
    return {
        "table": group.table,
        "date": group.date,
        "symbol": group.symbol,
        "topic": group.topic,
        "rows": group.rows,
        "files_before": len(group.entries),
        "bytes_before": group.bytes,
        "files": done.files,
        "bytes": done.bytes,
        "skipped": done.skipped,
    }


def _print(compactions: Iterable[Done], dry_run: bool) -> int:
    """Prints the groups as a table, if there are any, and returns their number."""
    from rich.table import Table

    from blumfeld_sink_spark.commands.common.shown import console as shown_on

    shown = Table()
    for name in ("table", "date", "symbol", "topic"):
        shown.add_column(name)
    for name in ("rows", "files", "MB", "new files", "new MB"):
        shown.add_column(name, justify="right")
    groups = 0
    for done in compactions:
        groups += 1
        facts = _facts(done)
        new = ("", "") if dry_run else (str(done.files), f"{done.bytes / 1e6:.2f}")
        shown.add_row(
            *(str(facts[name]) for name in ("table", "date", "symbol", "topic")),
            f"{done.group.rows:,}",
            str(len(done.group.entries)),
            f"{done.group.bytes / 1e6:.2f}",
            *((done.skipped, "") if done.skipped else new),
        )
    if groups:
        shown_on().print(shown)
    return groups
