"""Each command says what is wrong, with a status, and changes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from blumfeld_sink_spark.commands import app
from tests.plugins.sink_spark.archive_tools import MIDNIGHT_S
from tests.plugins.sink_spark.command import refused

pytestmark = pytest.mark.archive

pytest.importorskip("duckdb")

BTC = ("--symbol", "BTCUSDT")
MIDNIGHT = str(MIDNIGHT_S * 10**9)
NEW = ("--out", "new")
"""A folder that isn't there yet."""
REFUSALS = [
    ("bars", ("--interval", "7m"), 2, "allowed: an interval that divides a day"),
    ("bars", ("--symbol", "OTHER"), 1, "symbols: BTCUSDT"),
    ("book", (*BTC, "--at", str((MIDNIGHT_S - 20) * 10**9 - 1)), 1, "has no snapshot of BTCUSDT"),
    ("book", ("--symbol", "ETHUSDT", "--at", MIDNIGHT), 1, "there are: BTCUSDT"),
    ("book", (*BTC, "--topic", "other", "--at", MIDNIGHT), 1, "of the topic other"),
    ("book", (*BTC, "--at", MIDNIGHT, "--write-snapshots"), 2, "both are given; allowed: one of them"),
    ("book", BTC, 2, "neither is given; allowed: one of them"),
    ("book", (*BTC, "--at", "noon"), 2, "noon"),
    ("book", (*BTC, "--write-snapshots", "--every", "7s"), 2, "7s"),
    ("compact", ("--before", "yesterday"), 2, "--before yesterday: allowed: YYYY-MM-DD"),
    ("compact", ("--compression", "zip"), 2, "zip"),
    ("compact", ("--table", "trade"), 2, "allowed: agg_trades, bars, bbo"),
    ("compact", ("--today", "--before", "2024-08-10"), 2, "--today"),
    ("export", ("--format", "xlsx", *NEW), 2, "tardis, hftbacktest, nautilus, csv"),
    ("export", ("--format", "csv", "--out", "full"), 1, "isn't empty"),
    ("export", ("--format", "csv", *NEW, "--from", "2030-01-01"), 1, "nothing to export"),
    ("gaps", ("--kind", "hole"), 2, "allowed: gap, gap_end, duplicate"),
    ("gaps", ("--symbol", "BTCUSD", "--fail"), 1, "symbols: BTCUSDT"),
    ("plot", ("pie", *NEW), 2, "throughput, spread, depth, gaps, all"),
    ("sql", ("SELECT",), 1, "duckdb"),
    ("sql", ("--csv", "--json"), 2, "one of them"),
    ("sql", ("--engine", "sqlite"), 2, "duckdb, polars"),
    ("sql", ("--engine", "polars"), 2, "query is needed"),
    ("vacuum", ("--older-than", "5"), 2, "allowed: a number with s, m, h or d"),
]


@pytest.mark.parametrize(("verb", "words", "status", "error"), REFUSALS)
def test_what_is_wrong_is_said_with_a_status(
    small_archive: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    verb: str,
    words: tuple[str, ...],
    status: int,
    error: str,
) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    monkeypatch.chdir(tmp_path)
    before = sorted(small_archive.rglob("*"))
    exit_code, text = refused(verb, small_archive, *words)
    assert (exit_code, error in text) == (status, True), text
    assert sorted(small_archive.rglob("*")) == before


@pytest.mark.parametrize(
    "verb",
    [
        "status",
        "verify",
        "gaps",
        "compact",
        "bars",
        "sql",
        "replay --to-topic t",
        "export --format csv",
        "plot all",
        "book --write-snapshots",
    ],
)
def test_no_archive_is_said_once_and_with_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    """The default root is called `archive`, as the command is. Its folder isn't made."""
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, verb.split())
    assert done.exit_code == 1
    assert done.stderr == (
        f"blumfeld archive: {tmp_path}/archive: no archive is there (no commit record under _commits)\n"
    )
    assert not (tmp_path / "archive").exists()
