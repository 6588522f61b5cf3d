"""The command ``blumfeld archive compact``."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from blumfeld_sink_spark.commands.upkeep import compact
from blumfeld_sink_spark.ledger.checking.verify import verify
from blumfeld_sink_spark.ledger.formats import outbox
from blumfeld_sink_spark.ledger.ledger import Ledger
from blumfeld_sink_spark.ledger.writers.lease import Lease
from blumfeld_sink_spark.stores.local import LocalStore
from tests.plugins.sink_spark.command import rows_said, run
from tests.plugins.sink_spark.compaction.archives import archive
from tests.plugins.sink_spark.files import tools

pytestmark = pytest.mark.archive


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    store = LocalStore(str(tmp_path / "archive"))
    archive(store)
    return store


def files(store: LocalStore) -> list[str]:
    return [path for path in store.list("") if path.endswith(".parquet")]


def test_it_merges_and_says_what(store: LocalStore) -> None:
    result = run("compact", store.root)
    assert result.exit_code == 0, result.output
    assert "trades" in result.output
    assert len(files(store)) == 3
    assert verify(store, deep=True).problems == []
    assert run("compact", store.root).output == (
        "nothing to merge. Files that stay: 3 alone in their table, date, symbol and topic\n"
    )


def test_a_script_gets_a_line_for_each_group(store: LocalStore) -> None:
    rows = rows_said("compact", store.root, "--table", "raw")
    assert [(row["table"], row["rows"], row["files_before"], row["files"]) for row in rows] == [
        ("raw", 600, 6, 1)
    ]
    assert rows[0]["bytes"] == sum(
        entry.stat().st_size for entry in Path(store.root, "raw").rglob("*.parquet")
    )


def test_a_dry_run_changes_nothing(store: LocalStore) -> None:
    before = list(store.list(""))
    result = run("compact", store.root, "--dry-run")
    assert result.exit_code == 0
    assert "BTCUSDT" in result.output
    assert list(store.list("")) == before


def test_open_dates_stay(store: LocalStore) -> None:
    assert run("compact", store.root, "--before", "2024-08-09").output == (
        "nothing to merge. Files that stay: 18 of 2024-08-09 or later, to which more may come (--today takes today's)\n"
    )


def test_today_is_merged_where_that_is_asked_for(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    class Then(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Then:
            return cls(2024, 8, 9, 12, tzinfo=tz)

    monkeypatch.setattr(compact, "datetime", Then)
    assert run("compact", store.root).output.startswith(
        "nothing to merge. Files that stay: 18 of 2024-08-09 or later"
    )
    assert run("compact", store.root, "--today").exit_code == 0
    assert len(files(store)) == 3


def test_two_at_once_are_one_too_many(store: LocalStore) -> None:
    with Lease(store, "compact"):
        result = run("compact", store.root)
    assert result.exit_code == 1
    assert "compact is being written by" in result.output


def test_delta_tables_follow(store: LocalStore) -> None:
    deltalake = pytest.importorskip("deltalake")
    settings = tools.settings(delta=True)
    outbox.deliver(store, Ledger(store).load(), settings)
    before = deltalake.DeltaTable(f"{store.root}/trades").to_pyarrow_table().num_rows
    result = run("compact", store.root)
    assert result.exit_code == 0, result.output
    table = deltalake.DeltaTable(f"{store.root}/trades")
    assert table.to_pyarrow_table().num_rows == before == 600
    assert all(".c1." in path for path in table.file_uris())


def test_a_catalog_that_nobody_named_is_asked_for(store: LocalStore) -> None:
    store.put("_outbox/iceberg/ticks.json", b'{"batch":2}')
    result = run("compact", store.root)
    assert result.exit_code == 2
    assert "give --iceberg CATALOG" in result.output
