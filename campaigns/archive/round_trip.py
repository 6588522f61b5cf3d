"""Replays an archive into a topic and archives it again: ``raw`` must have the same bytes, all tables the same rows."""

from __future__ import annotations

import hashlib
from contextlib import ExitStack
from pathlib import Path

from blumfeld.feeds.binance import MadeFeed
from campaigns.archive.common.capture import decoder_of, read_capture, write_capture
from campaigns.archive.common.process import Archive, Command, archive_command
from campaigns.archive.common.report import Report
from campaigns.archive.golden import LOAD_S, MADE_MESSAGES, started, step

FIRST, SECOND = "first", "again"
ONCE_S = 300.0
BATCH = 20_000
TABLES = ("raw", "trades", "bbo", "book_deltas", "quarantine", "gaps")


def round_trip(folder: Path, report: Report, *, capture: Path | None, decoder: str, reader: str) -> None:
    """Does a round trip of a capture. Its records have a header (the time of receipt), which must come back, too."""
    path = capture or write_capture(folder / "made.gz", MadeFeed(2).messages(MADE_MESSAGES))
    decoder = decoder or decoder_of(read_capture(path))
    settings = {"decoders": ["raw", decoder], "reader": reader, "recv_header": "ns", "headers": True}
    with ExitStack() as stack:
        bootstrap = started(stack, folder).address
        loading = [str(path), "--topic", FIRST, "--bootstrap", bootstrap, "--recv-header", "ns"]
        loaded = Command([*archive_command("load"), *loading], folder / "load.log").wait(LOAD_S)
        step(report, "archive load, receipt in a header", loaded)
        roots: list[Path] = []
        for topic in (FIRST, SECOND):
            archive = Archive(folder / topic, bootstrap, [topic], **settings)
            if topic == SECOND:
                _replay(folder, report, bootstrap, roots[0])
            outcome = archive.run("once", timeout_s=ONCE_S, max_offsets_per_trigger=BATCH)
            if not step(report, f"archive once: {topic}", outcome):
                return
            roots.append(archive.root)
        _same_files(report, *roots)
        for table in TABLES:
            _same_rows(report, table, *roots)


def _replay(folder: Path, report: Report, bootstrap: str, root: Path) -> None:
    arguments = ["--root", str(root), "--to-topic", SECOND, "--bootstrap", bootstrap, "--speed", "max"]
    replayed = Command([*archive_command("replay"), *arguments], folder / "replay.log").wait(LOAD_S)
    step(report, "archive replay --to-topic, flat out", replayed)


def _same_files(report: Report, first: Path, again: Path) -> None:
    """Compares files by name (without the topic) and sha256. Those of ``raw`` must be the same."""
    for table in TABLES[:-1]:  # names of gaps have the query in them
        one, two = hashes(first, table), hashes(again, table)
        same = sum(two.get(name) == digest for name, digest in one.items())
        told = f"{same} of {len(one)} the same"
        differs = [f"{len(one)} files, then {len(two)}; {same} have the same sha256"] if one != two else []
        if table == "raw":
            report.add("raw: sha256 of files", told, differs or ([] if one else ["there is none"]))
        elif one or two:
            report.numbers[f"{table}: sha256 of files"] = told


def hashes(root: Path, table: str) -> dict[str, str]:
    """Returns the sha256 of a table's files by path below the root, without the topic."""
    found = {}
    for path in sorted((root / table).rglob("*.parquet")):
        name = path.relative_to(root).with_name("topic+" + path.name.partition("+")[2])
        found[str(name)] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def _same_rows(report: Report, table: str, first: Path, again: Path) -> None:
    import duckdb

    if not any((first / table).rglob("*.parquet")) and not any((again / table).rglob("*.parquet")):
        report.numbers[f"{table}: rows"] = "none in either"
        return
    without = " EXCLUDE (topic)" if table == "gaps" else ""
    one, two = (
        f"SELECT *{without} FROM read_parquet('{root}/{table}/**/*.parquet')" for root in (first, again)
    )
    try:
        counts, lost, new = (
            duckdb.sql(query).fetchall()[0]
            for query in (
                f"SELECT (SELECT count(*) FROM ({one})), (SELECT count(*) FROM ({two}))",
                f"SELECT count(*) FROM (({one}) EXCEPT ALL ({two}))",
                f"SELECT count(*) FROM (({two}) EXCEPT ALL ({one}))",
            )
        )
    except duckdb.Error as error:
        report.add(f"{table}: rows", "can't be compared", [str(error)[:200]])
        return
    wrong = [f"{lost[0]} rows are not there again, {new[0]} are new"] if lost[0] or new[0] else []
    report.add(f"{table}: rows, all columns", f"{counts[0]:,} and {counts[1]:,}", wrong)
