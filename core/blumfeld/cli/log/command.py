"""``blumfeld log``: the command."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer
from rich.console import Console

from blumfeld.cli.log.directory import (
    foreign_to_kafka,
    is_data_directory,
    is_locked,
    overview,
    partition_overview,
    partition_records,
)
from blumfeld.cli.log.files import Window, file_listing
from blumfeld.cli.log.listing import Listing, show
from blumfeld.cli.log.repair import mend, take
from blumfeld.cli.log.verify import LogReport, findings_listing, partition_paths, verify_partition

DAMAGED = 1
UNREADABLE = 2
PIPED_COLUMNS = 200
"""Table width when the output is no terminal."""


def log(
    path: Annotated[
        str | None,
        typer.Argument(
            help="A data directory, a partition's directory in it, or any file of theirs; "
            "none is the first data directory of the built-in manifest."
        ),
    ] = None,
    records: Annotated[
        bool, typer.Option(help="Show records with keys and values, for a .log file or a partition.")
    ] = False,
    from_offset: Annotated[
        int, typer.Option("--from", help="First offset to show, for batches and records.")
    ] = 0,
    limit: Annotated[int, typer.Option(min=1, help="Most rows to show, for batches and records.")] = 100,
    verify: Annotated[
        bool,
        typer.Option(help="Check every byte: batches by CRC, indexes against batches; exit 1 on damage."),
    ] = False,
    deep: Annotated[bool, typer.Option(help="With --verify: decompress and walk the records too.")] = False,
    repair: Annotated[
        bool,
        typer.Option(help="Mend what --verify finds. Damaged bytes are set aside; every whole batch stays."),
    ] = False,
    yes: Annotated[bool, typer.Option(help="With --repair: don't ask.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="JSON Lines instead of tables.")] = False,
) -> None:
    """Inspect a data directory, ours or Kafka's: logs, segments, batches, records, indexes, producers,
    epochs.
    """
    console = Console() if sys.stdout.isatty() else Console(width=PIPED_COLUMNS)
    path = os.path.abspath(_built_in_directory() if path is None else path)
    try:
        if repair:
            raise typer.Exit(_repair(path, console, deep=deep, sure=yes, as_json=as_json))
        if verify or deep:
            listings, sound = _verify(path, deep=deep)
            show(listings, console, as_json=as_json)
            raise typer.Exit(0 if sound else DAMAGED)
        show(_look(path, Window(from_offset, limit, records)), console, as_json=as_json)
    except OSError as error:
        typer.echo(f"blumfeld: {error.filename or path}: {error.strerror or error}", err=True)
        raise typer.Exit(UNREADABLE) from None
    except ValueError as error:
        typer.echo(f"blumfeld: {path}: {error}", err=True)
        raise typer.Exit(UNREADABLE) from None


def _built_in_directory() -> str:
    """Returns the first data directory of an artefact's own manifest.

    :raises typer.BadParameter: this Blumfeld is no artefact
    """
    from blumfeld.cli.manifest import BUILT_IN, load_manifest, source_name

    if source_name(None) != BUILT_IN:
        raise typer.BadParameter("missing: only an artefact of `blumfeld build` knows its data directory")
    return load_manifest(None).node.directories[0]


def _look(path: str, window: Window) -> list[Listing]:
    if not os.path.isdir(path):
        return file_listing(path, window)
    if is_data_directory(path):
        if window.records:
            raise ValueError("--records takes a partition's directory or a .log file")
        return overview(path)
    return [partition_records(path, window)] if window.records else partition_overview(path)


def _verify(path: str, *, deep: bool, locked_here: bool = False) -> tuple[list[Listing], bool]:
    """Returns what was found, and whether all of it is sound.

    :param locked_here: this process holds the directory's lock, so no broker runs on it
    """
    reports = _reports(path, deep=deep)
    listing = findings_listing(reports)
    if not locked_here and is_locked(_data_directory(path)):
        listing.notes.append(
            "a broker runs on it: damage at the end of an active segment may be a write on its way"
        )
    return [listing], all(report.is_sound for report in reports)


def _reports(path: str, *, deep: bool) -> list[LogReport]:
    if not os.path.isdir(path):
        raise ValueError("--verify and --repair take a data directory or a partition's, not a file")
    foreign = foreign_to_kafka(path)
    if foreign:
        raise ValueError(foreign)
    return [verify_partition(partition, deep=deep) for partition in partition_paths(path)]


def _data_directory(path: str) -> str:
    return path if is_data_directory(path) else os.path.dirname(path) or "."


def _repair(path: str, console: Console, *, deep: bool, sure: bool, as_json: bool) -> int:
    """Repair while brokers are locked out. Returns the exit status."""
    give_back = take(_data_directory(path))
    try:
        reports = _reports(path, deep=deep)
        show([findings_listing(reports)], console, as_json=as_json)
        wanting = [report for report in reports if not report.is_sound]
        if not wanting:
            return 0
        if not sure and not typer.confirm("Mend these?"):
            return DAMAGED
        done = Listing("mended", ("log", "what"))
        for report in wanting:
            for line in mend(report):
                done.add(report.path.rpartition("/")[2], line)
        after, sound = _verify(path, deep=deep, locked_here=True)
        show([done, *after], console, as_json=as_json)
        return 0 if sound else DAMAGED
    finally:
        give_back()
