"""``archive verify``: whether the archive is whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from blumfeld_sink_spark.commands.edge import edge

if TYPE_CHECKING:
    from blumfeld_sink_spark.ledger.verify import Found


@edge
def command(
    root: Annotated[str, typer.Option(help="Where the archive lies: a folder or s3://….")] = "archive",
    deep: Annotated[bool, typer.Option("--deep", help="Read every file: hashes, rows, lineage.")] = False,
    bootstrap: Annotated[str, typer.Option(help="Compare with the offsets of these brokers as well.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """Check that no offset is missing or archived twice, and that every file is what its commit says. A line for each
    problem; exits with 1 if there is one.
    """
    from blumfeld_sink_spark.errors import ArchiveError
    from blumfeld_sink_spark.ledger.store import open_store
    from blumfeld_sink_spark.ledger.verify import verify

    found = verify(open_store(root), deep=deep)
    if not found.records and not found.problems:
        raise ArchiveError(f"{root}: no archive is there (no commit record under _commits)")
    remarks = _compare(found, bootstrap) if bootstrap else []
    if as_json:
        _print_json(found, remarks)
    else:
        _print(found, remarks, deep)
    if found.problems:
        raise typer.Exit(1)


def _compare(found: Found, bootstrap: str) -> list[str]:
    """Adds what is a problem to ``found``; returns the rest."""
    from blumfeld_sink_spark.ledger.verify import against_broker
    from blumfeld_sink_spark.settings import ArchiveSettings
    from blumfeld_sink_spark.spark.client import Topics

    names = tuple(sorted({topic for topic, _ in found.covered}))
    topics = Topics(ArchiveSettings(bootstrap=bootstrap, topics=names))
    places = topics.places()
    lines = list(against_broker(found.covered, topics.earliest(places), topics.latest(places)))
    found.problems += [line for wrong, line in lines if wrong]
    return [line for wrong, line in lines if not wrong]


def _print(found: Found, remarks: list[str], deep: bool) -> None:
    for (topic, partition), (first, last) in found.covered.items():
        typer.echo(f"{topic}-{partition}: {first}..{last}")
    for line in remarks:
        typer.echo(line)
    for problem in found.problems:
        typer.echo(problem, err=True)
    read = "every file read" if deep else "files looked at by size"
    typer.echo(
        f"{'not whole' if found.problems else 'whole'}: {found.records:,} commits, {found.files:,} files, "
        f"{found.rows:,} rows, {found.bytes / 1e6:,.2f} MB, {read}; {len(found.problems)} problem(s)"
    )


def _print_json(found: Found, remarks: list[str]) -> None:
    import msgspec

    document = {
        "whole": not found.problems,
        "problems": found.problems,
        "remarks": remarks,
        "commits": found.records,
        "files": found.files,
        "rows": found.rows,
        "bytes": found.bytes,
        "partitions": [
            {"topic": topic, "partition": partition, "first": first, "last": last}
            for (topic, partition), (first, last) in found.covered.items()
        ],
    }
    typer.echo(msgspec.json.encode(document).decode())
