"""Every command that reads an archive, with an archive in S3."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from blumfeld.testing.embedded import EmbeddedBroker
from tests.plugins.sink_spark.archive_tools import archive, captured, write_capture
from tests.plugins.sink_spark.command import rows_said, run, said
from tests.plugins.sink_spark.s3_server import s3_server
from tests.plugins.sink_spark.spark_tools import read_topic

pytestmark = pytest.mark.archive

pytest.importorskip("obstore")

MESSAGES = 161


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("s3")
    with pytest.MonkeyPatch.context() as patch, s3_server(folder, patch) as url:
        rows = captured([write_capture(folder / "feed.gz")], "ticks")
        archive(url, rows, decoders=("binance-usdm", "raw"), batch_rows=40)
        yield url


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (("status",), "161"),
        (("verify",), "0 problems"),
        (("verify", "--deep"), "every file read; 0 problems"),
        (("gaps",), "no gaps"),
        (("bars", "--interval", "1m"), "2024-08-09"),
        (("book", "--at", "2024-08-09T00:00:01Z", "--symbol", "BTCUSDT"), "60,000.1"),
        (("book", "--write-snapshots", "--every", "10s", "--symbol", "BTCUSDT"), "2024-08-09"),
        (("compact", "--dry-run"), "book_deltas"),
        (("vacuum",), "0 files"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, tuple) else "",
)
def test_it_says_what_it_says_of_a_folder(root: str, words: tuple[str, ...], wanted: str) -> None:
    assert wanted in said(words[0], root, *words[1:])


@pytest.mark.parametrize("engine", ["duckdb", "polars"])
def test_both_engines_answer(root: str, engine: str) -> None:
    query = "SELECT symbol, count(*) AS trades, sum(size) AS size FROM trades GROUP BY symbol"
    row = rows_said("sql", root, "--engine", engine, query)[0]
    assert (row["symbol"], row["trades"], str(row["size"])[:4]) == ("BTCUSDT", 40, "0.19")


def test_dates_and_empty_tables_are_there_and_the_script_is_refused(root: str) -> None:
    dates = said("sql", root, "--csv", "SELECT DISTINCT date FROM trades ORDER BY date")
    assert dates.splitlines() == ["date", "2024-08-08", "2024-08-09"]
    assert said("sql", root, "--csv", "SELECT count(*) AS n FROM quarantine") == "n\n0\n"
    refused = run("sql", root)
    assert (refused.exit_code, "a query is needed" in refused.stderr) == (2, True)


@pytest.mark.parametrize("form", ["tardis", "hftbacktest", "nautilus", "csv"])
def test_it_is_exported(root: str, form: str, tmp_path: Path) -> None:
    assert "rows" in said("export", root, "--format", form, "--out", str(tmp_path / "out"))


def test_all_pictures_are_drawn(root: str, tmp_path: Path) -> None:
    done = run("plot", root, "all", "--out", str(tmp_path))
    assert (done.exit_code, done.stderr) == (0, "")
    assert len(list(tmp_path.glob("*.png"))) == 4


def test_it_is_replayed(root: str) -> None:
    with EmbeddedBroker() as broker:
        where = ("--bootstrap", broker.bootstrap_servers, "--to-topic", "again", "--speed", "max")
        said("replay", root, *where)
        assert len(read_topic(broker.bootstrap_servers, "again", {0: MESSAGES})) == MESSAGES


def test_compacted_it_has_the_same_rows(root: str) -> None:
    query = "SELECT count(*) AS n, sum(size) AS size FROM book_deltas"
    before = said("sql", root, "--csv", query)
    assert "book_deltas" in said("compact", root)
    assert said("sql", root, "--csv", query) == before
    assert "0 problems" in said("verify", root, "--deep")


@pytest.mark.parametrize("command", ["status", "verify", "gaps", "bars", "sql", "compact", "vacuum"])
def test_where_no_archive_is_it_is_said_in_a_line(root: str, command: str) -> None:
    done = run(command, f"{root}-of-nobody", *(("SELECT 1",) if command == "sql" else ()))
    assert "Traceback" not in done.output
    assert (done.exit_code, done.output.count("\n")) in ((1, 1), (0, 1))
