"""The four readers' tallies of the same small files, without an archive."""

from __future__ import annotations

from collections import defaultdict
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from blumfeld.feeds.binance import MadeFeed, Message
from campaigns.archive.common.expected import differences, expected_of, rows_of
from campaigns.archive.common.tallies import READERS

pytestmark = pytest.mark.archive

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
NUMBERS = {"price", "size", "bid", "bid_size", "ask", "ask_size"}


def _write(root: Path, messages: list[Message]) -> None:
    """Writes files as an archive does, in two parts, with a level of a snapshot that no reader may count."""
    rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for offset, message in enumerate(messages):
        data = message.parsed().get("data", {})
        table, found = rows_of(data) if data else ("", [])
        rows[table] += [{"ts_event": data["T"] * 1_000_000, "k_offset": offset, **row} for row in found]
    for row in rows["book_deltas"]:
        row["is_snapshot"] = False
    rows["book_deltas"].append({**rows["book_deltas"][0], "is_snapshot": True})
    for table in ("trades", "bbo", "book_deltas"):
        names = list(rows[table][0])
        types = [pa.decimal128(38, 18) if n in NUMBERS else pa.int64() for n in names]
        types = [pa.bool_() if n == "is_snapshot" else kind for n, kind in zip(names, types, strict=True)]
        for part in range(2):
            columns = {
                name: pa.array(
                    [row[name] if kind != pa.int64() else int(row[name]) for row in rows[table][part::2]],
                    kind,
                )
                for name, kind in zip(names, types, strict=True)
            }
            folder = root / table / "date=2024-08-08" / "BTCUSDT"
            folder.mkdir(parents=True, exist_ok=True)
            pq.write_table(pa.table(columns), folder / f"{part}.parquet")


@pytest.mark.parametrize(
    "reader", [pytest.param(name, marks=pytest.mark.spark if name == "spark" else ()) for name in READERS]
)
def test_a_reader_sums_what_the_json_says(reader: str, tmp_path: Path) -> None:
    """The tallies are exact to the last digit of a decimal, and leave out the rows of snapshots."""
    messages = MadeFeed(5).messages(300)
    _write(tmp_path, messages)
    expected = expected_of(messages)
    found = READERS[reader](tmp_path)
    assert differences(expected, found, reader) == []
    found["bbo"]["ask_size"] += Decimal("0.000000000000000001")
    assert len(differences(expected, found, reader)) == 1


def test_a_table_without_files_has_no_rows(tmp_path: Path) -> None:
    assert READERS["duckdb"](tmp_path)["trades"]["rows"] == 0
