"""``archive vacuum``: removes the files that runs which died left behind."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from blumfeld_sink_spark.commands.common.edge import edge
from blumfeld_sink_spark.commands.common.shown import counted

UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


@edge
def command(
    root: Annotated[str, typer.Option(help="Where the archive lies: a folder or s3://….")] = "archive",
    older_than: Annotated[
        str, typer.Option(help="Only files that weren't changed for this time: 90s, 10m, 1h, 2d.")
    ] = "1h",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be removed.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON lines.")] = False,
) -> None:
    """Remove staged files of runs that died, files that no commit names, and files that a compaction has replaced.

    While a writer is at work, only staged files older than the writer go.
    """
    from blumfeld_sink_spark.errors import ArchiveError
    from blumfeld_sink_spark.ledger.upkeep.vacuum import plan, vacuum
    from blumfeld_sink_spark.stores.roots import open_store

    store, older_than_ms = open_store(root), milliseconds(older_than)
    if not store.folders(""):
        raise ArchiveError(f"{store.root}: nothing is there; --root takes the archive's folder or URL")
    do = plan if dry_run else vacuum
    leftovers = do(store, now_ms=time.time_ns() // 1_000_000, older_than_ms=older_than_ms)
    for item in leftovers.items:
        if as_json:
            import msgspec

            typer.echo(
                msgspec.json.encode({"path": item.path, "why": item.why, "bytes": item.bytes}).decode()
            )
        else:
            typer.echo(f"{item.path}: {item.why}")
    if as_json:
        return
    for held in leftovers.writers:
        typer.echo(
            f"{held.name} is being written by {held.owner}: only staging older than that was looked at"
        )
    done = "would be removed" if dry_run else "removed"
    size = sum(item.bytes for item in leftovers.items) / 1e6
    typer.echo(f"{counted(len(leftovers.items), 'file')}, {size:,.2f} MB {done}")


def milliseconds(text: str) -> int:
    """Parses a time with its unit to ms.

    :raises SettingsError: it isn't one
    """
    from blumfeld_sink_spark.errors import SettingsError

    number, unit = text[:-1], text[-1:]
    if not number.isdigit() or unit not in UNITS_S:
        raise SettingsError(f"--older-than {text}: allowed: a number with s, m, h or d")
    return int(number) * UNITS_S[unit] * 1000
