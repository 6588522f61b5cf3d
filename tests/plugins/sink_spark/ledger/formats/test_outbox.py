"""Commits in Delta and Iceberg tables: each batch once, wherever delivery is cut short; other readers see its rows."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import attrs
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from blumfeld_sink_spark.errors import ArchiveError
from blumfeld_sink_spark.files.parquet import file_schema, open_writer
from blumfeld_sink_spark.ledger.formats import outbox
from blumfeld_sink_spark.ledger.ledger import Ledger
from blumfeld_sink_spark.records import CommitRecord, FileEntry, OffsetRange
from blumfeld_sink_spark.settings import ArchiveSettings
from blumfeld_sink_spark.stores.contract import ArchiveStore
from blumfeld_sink_spark.tables import Table, tables
from tests.plugins.sink_spark.ledger.ledger_tools import Crash, FailingStore, opened, record_of

pytestmark = pytest.mark.archive

DAY_NS = 86_400_000_000_000
SYMBOLS = ("BTC/USDT", "BTC-27SEP24-100000-C-and-longer")


@pytest.fixture
def store(tmp_path: Path) -> ArchiveStore:
    return opened(tmp_path / "archive")


@pytest.fixture(params=["delta", "iceberg"])
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> ArchiveSettings:
    pytest.importorskip("deltalake" if request.param == "delta" else "pyiceberg.catalog.sql")
    formats = {"delta": True} if request.param == "delta" else {"iceberg": f"sqlite:///{tmp_path}/catalog.db"}
    return ArchiveSettings(root=str(tmp_path / "archive"), topics=("ticks",), **formats)


def quarantine_rows(start: int, count: int) -> list[dict[str, Any]]:
    return [
        {"ts_recv": offset, "decoder": "d", "error": "e", "schema_id": None, "key": None, "value": b"v"}
        | {"k_partition": 0, "k_offset": offset}
        for offset in range(start, start + count)
    ]


def trade_rows(symbol: str, start: int, count: int) -> list[dict[str, Any]]:
    return [
        {"ts_event": DAY_NS + offset, "ts_recv": offset, "venue": "v", "symbol": symbol, "trade_id": offset}
        | {"side": 1, "price": 1, "size": 2, "flags": None, "k_partition": 0, "k_offset": offset}
        for offset in range(start, start + count)
    ]


def write(store: ArchiveStore, path: str, rows: list[dict[str, Any]], symbol: str = "") -> FileEntry:
    table = tables()[path.partition("/")[0]]
    with store.create(path) as file:
        writer = open_writer(file, table, "zstd:3")
        writer.write_table(pa.Table.from_pylist(rows, schema=file_schema(table)))
        writer.close()
    times = [row[table.time_column] for row in rows]
    return FileEntry(
        path=path, table=table.name, date="1970-01-02", symbol=symbol, rows=len(rows), bytes=store.size(path),
        sha256="", ts_min=min(times), ts_max=max(times),
    )  # fmt: skip


def batch(store: ArchiveStore, number: int, *, quarantine: bool = False, query: str = "q") -> CommitRecord:
    """Writes ten trades of each symbol, and three rows of quarantine if asked to; returns their record."""
    start = number * 10
    files = [
        write(
            store, f"trades/date=1970-01-02/{symbol.replace('/', '%2F')}/{query}+{start}.parquet",
            trade_rows(symbol, start, 10), symbol,
        )
        for symbol in SYMBOLS
    ]  # fmt: skip
    if quarantine:
        files.append(
            write(store, f"quarantine/date=1970-01-02/{query}+{start}.parquet", quarantine_rows(start, 3))
        )
    return record_of(query, number, OffsetRange(query, 0, start, start + 10), files=tuple(files))


def archived(store: ArchiveStore, batches: int) -> Ledger:
    ledger = Ledger(store).load()
    for number in range(batches):
        assert ledger.append(batch(store, number, quarantine=number == 1))
    return ledger


def rows_of(settings: ArchiveSettings, table: str) -> list[dict[str, Any]]:
    """Returns a table's rows as the format's own reader gives them, sorted by symbol and offset."""
    if settings.delta:
        from deltalake import DeltaTable

        rows = pa.table(DeltaTable(f"{settings.root}/{table}").to_pyarrow_table()).to_pylist()
    else:
        with catalog_of(settings) as catalog:
            rows = catalog.load_table(f"archive.{table}").scan().to_arrow().to_pylist()
    return sorted(rows, key=lambda row: (row.get("symbol", ""), row["k_offset"]))


class catalog_of:  # noqa: N801
    """A context with the Iceberg catalog; it closes the connections at its end."""

    def __init__(self, settings: ArchiveSettings) -> None:
        from pyiceberg.catalog import load_catalog

        self.catalog: Any = load_catalog("blumfeld", type="sql", uri=settings.iceberg)

    def __enter__(self) -> Any:
        return self.catalog

    def __exit__(self, *exc: object) -> None:
        self.catalog.engine.dispose()


def offsets(settings: ArchiveSettings, symbol: str = SYMBOLS[0]) -> list[int]:
    return [row["k_offset"] for row in rows_of(settings, "trades") if row["symbol"] == symbol]


def test_each_batch_is_committed_once(store: ArchiveStore, settings: ArchiveSettings) -> None:
    ledger = archived(store, 3)
    assert outbox.deliver(store, ledger, settings) == 4
    assert outbox.deliver(store, ledger, settings) == 0
    assert [offsets(settings, symbol) for symbol in SYMBOLS] == [list(range(30))] * 2
    assert [row["k_offset"] for row in rows_of(settings, "quarantine")] == [10, 11, 12]
    for path in list(store.list("_outbox")):
        store.delete(path)
    assert outbox.deliver(store, Ledger(store), settings) == 0
    assert len(offsets(settings)) == 30


def test_a_delivery_that_died_is_caught_up(store: ArchiveStore, settings: ArchiveSettings) -> None:
    ledger = archived(store, 2)
    with pytest.raises(Crash):
        outbox.deliver(FailingStore(store, 0, Crash, after=False), ledger, settings)
    ledger.append(batch(store, 2))
    assert outbox.deliver(store, Ledger(store), settings) > 0
    assert offsets(settings) == list(range(30))


def test_compaction_takes_files_away_and_adds_one(store: ArchiveStore, settings: ArchiveSettings) -> None:
    ledger = archived(store, 3)
    outbox.deliver(store, ledger, settings)
    compacted(store, ledger)
    assert outbox.deliver(store, ledger, settings) == 1
    assert outbox.deliver(store, ledger, settings) == 0
    assert [offsets(settings, symbol) for symbol in SYMBOLS] == [list(range(30))] * 2


def test_a_table_that_is_begun_after_a_compaction_never_names_what_is_gone(
    store: ArchiveStore, settings: ArchiveSettings
) -> None:
    ledger = archived(store, 3)
    compacted(store, ledger)
    outbox.deliver(store, ledger, settings)
    assert [offsets(settings, symbol) for symbol in SYMBOLS] == [list(range(30))] * 2


def compacted(store: ArchiveStore, ledger: Ledger) -> None:
    folder = "trades/date=1970-01-02/BTC%2FUSDT"
    removed = tuple(store.list(folder))
    assert len(removed) == 3
    merged = write(store, f"{folder}/q+all.c1.parquet", trade_rows(SYMBOLS[0], 0, 30), SYMBOLS[0])
    ledger.append(record_of("compact", 0, files=(merged,), removed=removed))
    for path in removed:
        store.delete(path)


def test_two_queries_share_tables(store: ArchiveStore, settings: ArchiveSettings) -> None:
    ledger = archived(store, 2)
    ledger.append(batch(store, 0, query="r"))
    outbox.deliver(store, ledger, settings)
    assert sorted(offsets(settings)) == sorted([*range(20), *range(10)])


def test_a_format_that_refuses_is_named_and_the_next_run_tries_again(
    store: ArchiveStore, settings: ArchiveSettings
) -> None:
    ledger = archived(store, 1)
    path = next(entry.path for entry in (ledger.last("q") or record_of("q", 0)).files)
    if settings.delta:
        blocked = Path(settings.root) / "trades" / "_delta_log"
        blocked.write_bytes(b"")
    else:
        blocked = Path(settings.root) / path
        kept = blocked.rename(blocked.with_suffix(".away"))
    with pytest.raises(ArchiveError, match=r"batch 0 of query q isn't in table trades yet.*tries again"):
        outbox.deliver(store, ledger, settings)
    if settings.delta:
        blocked.unlink()
    else:
        kept.rename(blocked)
    assert outbox.deliver(store, ledger, settings) == 1
    assert offsets(settings) == list(range(10))


def test_without_either_nothing_is_done(store: ArchiveStore) -> None:
    ledger = archived(store, 1)
    plain = ArchiveSettings(root=store.root, topics=("ticks",))
    assert outbox.deliver(store, ledger, plain) == 0
    assert list(store.list("_outbox")) == []


@pytest.fixture
def delta(tmp_path: Path, store: ArchiveStore) -> str:
    pytest.importorskip("deltalake")
    settings = ArchiveSettings(root=store.root, topics=("ticks",), delta=True)
    outbox.deliver(store, archived(store, 2), settings)
    return f"{store.root}/trades"


def test_polars_reads_the_delta_table_with_its_date(delta: str) -> None:
    pl = pytest.importorskip("polars")
    frame = pl.scan_delta(delta).filter(pl.col("symbol") == SYMBOLS[1]).collect()
    assert frame["k_offset"].sort().to_list() == list(range(20))
    assert {str(date) for date in frame["date"]} == {"1970-01-02"}


def test_duckdb_reads_the_delta_table_through_arrow(delta: str) -> None:
    """DuckDB would have to download its Delta extension, so it reads an Arrow dataset."""
    duckdb = pytest.importorskip("duckdb")
    from deltalake import DeltaTable

    ticks = DeltaTable(delta).to_pyarrow_dataset()  # noqa: F841
    with duckdb.connect() as connection:
        sql = "select symbol, count(*), sum(size)::int from ticks where date = '1970-01-02' group by 1 order by 1"
        assert connection.execute(sql).fetchall() == [(symbol, 20, 40) for symbol in sorted(SYMBOLS)]


def test_polars_reads_the_iceberg_table(
    store: ArchiveStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pl = pytest.importorskip("polars")
    pytest.importorskip("pyiceberg.catalog.sql")
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    settings = ArchiveSettings(root=store.root, topics=("ticks",), iceberg=f"sqlite:///{tmp_path}/catalog.db")
    outbox.deliver(store, archived(store, 2), settings)
    with catalog_of(settings) as catalog:
        frame = pl.scan_iceberg(catalog.load_table("archive.trades")).collect()
    assert frame.height == 40
    assert msgspec.json.encode(sorted(set(frame["symbol"]))) == msgspec.json.encode(sorted(SYMBOLS))


def test_the_plain_files_stay_readable_beside_the_logs(delta: str) -> None:
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect() as connection:
        sql = f"select count(*) from read_parquet('{delta}/date=*/**/*.parquet', hive_partitioning = true)"
        assert connection.execute(sql).fetchall() == [(40,)]
    assert pq.read_table(delta, partitioning=None).num_rows == 40


def test_a_table_made_before_a_column_gets_it(
    store: ArchiveStore, settings: ArchiveSettings, monkeypatch: pytest.MonkeyPatch
) -> None:

    import blumfeld_sink_spark.ledger.formats.delta
    import blumfeld_sink_spark.ledger.formats.iceberg  # noqa: F401

    genuine = tables

    def older(precision: int = 38, scale: int = 18) -> dict[str, Table]:
        return {
            name: attrs.evolve(table, schema=pa.schema([f for f in table.schema if f.name != "ts_sent"]))
            for name, table in genuine(precision, scale).items()
        }

    with monkeypatch.context() as patched:
        for module in (
            "blumfeld_sink_spark.ledger.formats.delta",
            "blumfeld_sink_spark.ledger.formats.iceberg",
            __name__,
        ):
            patched.setattr(sys.modules[module], "tables", older)
        ledger = Ledger(store).load()
        ledger.append(batch(store, 0))
        outbox.deliver(store, ledger, settings)
    rows = [{**row, "ts_sent": 7} for row in trade_rows(SYMBOLS[0], 10, 10)]
    path = f"trades/date=1970-01-02/{SYMBOLS[0].replace('/', '%2F')}/q+10.parquet"
    ledger.append(
        record_of("q", 1, OffsetRange("q", 0, 10, 20), files=(write(store, path, rows, SYMBOLS[0]),))
    )
    outbox.deliver(store, ledger, settings)
    times = [row["ts_sent"] for row in rows_of(settings, "trades") if row["symbol"] == SYMBOLS[0]]
    assert times == [None] * 10 + [7] * 10
