"""An archive of an older version: read by every command, continued by this version, and compacted.

``tests/data/archive/before-ts_sent.tar.xz`` was written by the version before tables had the column ``ts_sent``,
symbols' folders had bare names, and aggregate trades had a table of their own. It holds the feed of
``archive_tools.write_capture`` with an aggregate for each trade, by the decoders binance-usdm and raw, in batches of
100 messages.
"""

from __future__ import annotations

import tarfile
from pathlib import Path

import pyarrow.compute as pc
import pytest

from blumfeld_sink_spark.commands.upkeep.verify import NOT_SHOWN
from blumfeld_sink_spark.files.file_names import is_old_place
from blumfeld_sink_spark.reading.committed_files import Committed
from blumfeld_sink_spark.reading.producing.load import LoadPlan, Record, records
from blumfeld_sink_spark.reading.producing.raw_rows import RawTopic
from blumfeld_sink_spark.reading.views import Rows, connect, polars_rows
from tests.plugins.sink_spark.archive_tools import MIDNIGHT_S, archive, rows_of, write_capture
from tests.plugins.sink_spark.command import refused, said

pytestmark = pytest.mark.archive

OLD = Path(__file__).resolve().parents[3] / "data" / "archive" / "before-ts_sent.tar.xz"
OLD_MESSAGES = 201
SECONDS = 30


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "archive"
    with tarfile.open(OLD) as packed:
        packed.extractall(folder, filter="data")
    return folder


@pytest.fixture
def mixed(root: Path, tmp_path: Path) -> Path:
    """The old archive with another half minute of the same feed, archived by this version."""
    feed = write_capture(tmp_path / "more.gz", seconds=SECONDS, start_s=MIDNIGHT_S + 20, done=40)
    rows = rows_of(records(LoadPlan(files=[feed]), 1), "ticks", start=OLD_MESSAGES, headers=True)
    archive(root, rows, decoders=("binance-usdm", "raw"), batch_rows=50, query="later")
    return root


def verify(root: Path) -> None:
    """Nothing is wrong with it. Its old commits don't count passed-over messages, which the command says (status 3)."""
    status, _ = refused("verify", root, "--deep")
    assert status == NOT_SHOWN


def counts(root: Path) -> list[tuple[str | None, ...]]:
    """Returns rows, dates, and rows with ``ts_sent`` of each table, by DuckDB's view."""
    query = " UNION ALL ".join(
        f"SELECT count(*), count(DISTINCT date), count(ts_sent), count(DISTINCT symbol) FROM {table}"
        for table in ("trades", "book_deltas", "bbo")
    )
    with connect(Committed.open(str(root))) as connection:
        return list(Rows(connection, query))


def test_views_have_old_and_new_rows(root: Path, mixed: Path) -> None:
    """40 trades and 40 aggregates of them; 3 levels a second and a snapshot of 40; two quotes a second."""
    assert is_old_place(Committed.open(str(root)).files("trades")[0].path)
    assert counts(mixed) == [
        (str(80 + SECONDS), "2", str(SECONDS), "1"),
        (str(160 + 3 * SECONDS), "2", str(3 * SECONDS), "1"),
        (str(80 + 2 * SECONDS), "2", str(2 * SECONDS), "1"),
    ]
    frame = polars_rows(
        Committed.open(str(mixed)), "SELECT count(*) AS n, count(ts_sent) AS sent FROM trades"
    )
    assert frame.row(0) == (80 + SECONDS, SECONDS)
    rows = Committed.open(str(mixed)).dataset("trades").to_table()
    assert (rows.num_rows, rows["ts_sent"].null_count) == (80 + SECONDS, 80)
    assert pc.unique(rows["symbol"]).to_pylist() == ["BTCUSDT"]


@pytest.mark.parametrize("continued", [False, True])
def test_every_command_reads_it(
    root: Path, tmp_path: Path, continued: bool, request: pytest.FixtureRequest
) -> None:
    if continued:
        request.getfixturevalue("mixed")
    verify(root)
    said("status", root)
    said("gaps", root, "--fail")
    said("bars", root, "--interval", "10s", "--through")
    with connect(Committed.open(str(root))) as connection:
        (bars,) = Rows(connection, "SELECT sum(trades), count(*) FROM bars")
    # The aggregates among the old files' trades don't count.
    assert bars == (str(40 + SECONDS * continued), str(4 + 3 * continued))
    said("book", root, "--at", "2024-08-09T00:00:10Z", "--symbol", "BTCUSDT")
    for form in ("csv", "tardis", "nautilus", "hftbacktest"):
        said("export", root, "--format", form, "--out", str(tmp_path / form))
    assert RawTopic.find(Committed.open(str(root))).holes() == []
    before = counts(root)
    said("compact", root, "--before", "2024-08-10")
    assert counts(root) == before
    verify(root)
    folders = {
        path.rpartition("/")[0]
        for path in (entry.path for entry in Committed.open(str(root)).files("trades"))
    }
    assert any(is_old_place(f"{folder}/x") for folder in folders)


def test_aggregates_have_a_table_of_their_own_and_stand_in_where_there_is_nothing_else(
    tmp_path: Path,
) -> None:
    """A sum over `trades` counts each trade once; bars and exports of a symbol that has aggregates alone are made of
    them.
    """
    trade = '{"e":"trade","E":1723161600020,"T":1723161600019,"s":"BTCUSDT","t":%d,"p":"61800.20","q":"0.5","m":false}'
    aggregate = trade.replace('"trade"', '"aggTrade"').replace('"t":', '"a":')
    lone = aggregate.replace("BTCUSDT", "ETHUSDT")
    values = [text % nth for nth in range(4) for text in (trade, aggregate, lone)]
    sent = [
        Record(value=value.encode(), key=None, timestamp_ms=0, partition=-1, headers=None, stream="")
        for value in values
    ]
    archive(tmp_path, rows_of(sent, "ticks"), decoders=("binance-usdm",))
    root = tmp_path
    said("bars", root, "--interval", "10s", "--through")
    with connect(Committed.open(str(tmp_path))) as connection:
        assert list(Rows(connection, "SELECT sum(size)::INT, count(*) FROM trades")) == [("2", "4")]
        assert list(Rows(connection, "SELECT count(*) FROM agg_trades")) == [("8",)]
        bars = list(Rows(connection, "SELECT symbol, volume::INT FROM bars ORDER BY symbol"))
    assert bars == [("BTCUSDT", "2"), ("ETHUSDT", "2")]
    output = said("export", root, "--format", "tardis", "--json", "--out", str(tmp_path / "tardis"))
    assert output.count('"rows": 4') + output.count('"rows":4') == 2
