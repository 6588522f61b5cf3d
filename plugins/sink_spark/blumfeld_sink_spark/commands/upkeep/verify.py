"""``archive verify``: checks that the archive is whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from blumfeld_sink_spark.commands.common import options
from blumfeld_sink_spark.commands.common.edge import edge
from blumfeld_sink_spark.commands.common.shown import count_lines, counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyarrow import RecordBatch

    from blumfeld_sink_spark.ledger.checking.verify import Found
    from blumfeld_sink_spark.range_counter import Skips
    from blumfeld_sink_spark.records import CommitRecord, OffsetRange


NOT_SHOWN = 3
"""Exit status where nothing is wrong but not every offset is counted."""


@edge
def command(
    root: Annotated[str, typer.Option(help="Where the archive lies: a folder or s3://….")] = "archive",
    deep: Annotated[
        bool,
        typer.Option("--deep", help="Read every file: hashes, rows, lineage, each message that had a row."),
    ] = False,
    bootstrap: Annotated[str, typer.Option(help="Compare with the offsets of these brokers as well.")] = "",
    against: Annotated[
        str, typer.Option(help="Read the topics again from these brokers, and compare messages and CRCs.")
    ] = "",
    command_config: options.CommandConfig = None,
    config: options.Config = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """Check that every offset is accounted for once, and that every file matches its commit.

    Exits with 0 if all is proven, with 1 if something is wrong, and with 3 if nothing is wrong but not all can be
    proven: batches of older versions, offsets that a reader passed without a reason.
    """
    from blumfeld_sink_spark.ledger.checking.verify import verify
    from blumfeld_sink_spark.ledger.ledger import nothing_at
    from blumfeld_sink_spark.stores.roots import open_store

    store = open_store(root)
    verification = verify(store, deep=deep)
    if not verification.records and not verification.problems:
        raise nothing_at(store.root)
    remarks: list[str] = []
    if verification.covered:  # without it no record could be read, and there is nothing to compare
        remarks += _compare(verification, bootstrap, command_config) if bootstrap else []
        remarks += _read_again(verification, against, command_config, config) if against else []
    if as_json:
        _print_json(verification, remarks)
    else:
        _print(verification, remarks, deep)
    if not verification.whole:
        raise typer.Exit(1 if verification.problems else NOT_SHOWN)


def _read_again(
    verification: Found, bootstrap: str, command_config: str | None, config: str | None
) -> list[str]:
    """Compares the archive with the topics, message by message.

    Problems are added to ``verification``; offsets that the topics explain are taken out of it. Returns the remarks.
    """
    import msgspec

    from blumfeld_sink_spark import settings
    from blumfeld_sink_spark.errors import ArchiveError, AwayError
    from blumfeld_sink_spark.ledger.checking.again import compare
    from blumfeld_sink_spark.ledger.publishing.planned_counts import TELLING
    from blumfeld_sink_spark.spark.topics.client import Topics
    from blumfeld_sink_spark.spark.topics.consume import consume_range
    from blumfeld_sink_spark.spark.topics.fetch import read_range

    names = sorted({topic for topic, _ in verification.covered})
    given = settings.load(
        config,
        {
            "bootstrap": bootstrap,
            "command_config": command_config,
            "topics": names,
            "topic_pattern": "",
        },
    )
    earliest: dict[tuple[str, int], int] = {}
    latest: dict[tuple[str, int], int] = {}
    for name in names:
        topics = Topics(msgspec.structs.replace(given, topics=(name,)))
        try:
            places = topics.places()
        except AwayError:
            raise
        except ArchiveError:  # the topic is gone, so its part can't be compared
            continue
        earliest |= topics.earliest(places)
        latest |= topics.latest(places)

    def read(taken: OffsetRange, record: CommitRecord, skips: Skips) -> Iterator[RecordBatch]:
        chosen = msgspec.structs.replace(given, isolation=record.isolation or given.isolation)
        other = consume_range if record.reader in TELLING else read_range
        return other(chosen, taken, skips)

    compared = compare(verification.ranges, earliest, latest, read)
    verification.problems += compared.problems
    for taken in compared.explained:
        verification.unexplained.pop(taken, None)
    same = f"read again: {compared.same:,} of {compared.ranges:,} ranges are the same in the topics, message by message"
    return [*compared.remarks, same]


def _compare(verification: Found, bootstrap: str, command_config: str | None) -> list[str]:
    """Compares the archive's offsets with the broker's. Problems are added to ``verification``; returns the remarks."""
    from blumfeld_sink_spark import settings
    from blumfeld_sink_spark.ledger.checking.verify import against_broker
    from blumfeld_sink_spark.spark.topics.client import Topics

    names = tuple(sorted({topic for topic, _ in verification.covered}))
    given = {"bootstrap": bootstrap, "command_config": command_config, "topics": names}
    topics = Topics(settings.load(None, given))
    places = topics.places()
    lines = list(against_broker(verification.covered, topics.earliest(places), topics.latest(places)))
    verification.problems += [line for wrong, line in lines if wrong]
    return [line for wrong, line in lines if not wrong]


def _print(verification: Found, remarks: list[str], deep: bool) -> None:
    for (topic, partition), (first, last) in verification.covered.items():
        typer.echo(f"{topic}-{partition}: {first}..{last}")
    for line in (
        *_count_lines(verification),
        *remarks,
        *verification.unexplained.values(),
        *verification.uncounted,
    ):
        typer.echo(line)
    for problem in verification.problems:
        typer.echo(problem, err=True)
    read = "every file read" if deep else "files looked at by size"
    typer.echo(
        f"{_verdict(verification)}: {counted(verification.records, 'commit')}, {counted(verification.files, 'file')}, "
        f"{counted(verification.rows, 'row')}, {verification.bytes / 1e6:,.2f} MB, {read}; "
        f"{counted(len(verification.problems), 'problem')}"
    )


def _verdict(verification: Found) -> str:
    if verification.problems:
        return "not whole"
    if verification.uncounted:
        return "not counted"
    return "not explained" if verification.unexplained else "whole"


def _count_lines(verification: Found) -> list[str]:
    """Returns the lines with the counts of offsets."""
    if not verification.offsets:
        return []
    messages = verification.offsets - sum(verification.counts.skipped.values())
    return [
        f"{verification.offsets:,} offsets counted: {messages:,} messages, "
        f"of which {verification.with_rows:,} have rows ({verification.counts.quarantined:,} rejections in quarantine)",
        *count_lines(verification.counts.skipped, verification.counts.passed_over),
    ]


def _print_json(verification: Found, remarks: list[str]) -> None:
    import msgspec

    document = {
        "whole": verification.whole,
        "verdict": _verdict(verification),
        "problems": verification.problems,
        "remarks": remarks,
        "not_counted": verification.uncounted,
        "not_explained": list(verification.unexplained.values()),
        "commits": verification.records,
        "files": verification.files,
        "rows": verification.rows,
        "bytes": verification.bytes,
        "offsets": verification.offsets,
        "with_rows": verification.with_rows,
        "skipped": verification.counts.skipped,
        "passed_over": verification.counts.passed_over,
        "partitions": [
            {"topic": topic, "partition": partition, "first": first, "last": last}
            for (topic, partition), (first, last) in verification.covered.items()
        ],
    }
    typer.echo(msgspec.json.encode(document).decode())
