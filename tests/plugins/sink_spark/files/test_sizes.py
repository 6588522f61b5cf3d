"""Sizes of real feeds on disk, lineage included. They hold the encodings to their aims."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.plugins.sink_spark.archive_tools import archive, captured
from tests.shared_facts import shared_path

pytestmark = pytest.mark.archive

PERPETUAL = "market-data/hftbacktest/usdm/btcusdt_20240808.gz"


@pytest.mark.parametrize(
    ("messages_per_batch", "allowed"),
    [
        (1_000_000, {"book_deltas": 4.12, "trades": 5.65, "bbo": 9.2}),
        (20_000, {"book_deltas": 4.7, "trades": 6.9, "bbo": 11.1}),
    ],
    ids=["one batch", "five batches"],
)
def test_the_perpetual_takes_few_bytes(
    tmp_path: Path, messages_per_batch: int, allowed: dict[str, float]
) -> None:
    """The aim is 4 B a book level and 5.5 B a trade. The column ``ts_sent`` takes 0.08 B a level, 0.8 B a trade and 1 B
    a quote. Small files each have their own dictionaries and footers.
    """
    rows = captured([shared_path(PERPETUAL)], "t", symbol="BTCUSDT", recv_header="")
    records = archive(tmp_path, rows, batch_rows=messages_per_batch, decoders=("binance-usdm",))
    row_bytes: dict[str, float] = {}
    for table in allowed:
        files = [file for record in records for file in record.files if file.table == table]
        row_bytes[table] = sum(file.bytes for file in files) / sum(file.rows for file in files)
    assert {table: row_bytes[table] <= limit for table, limit in allowed.items()} == dict.fromkeys(
        allowed, True
    ), row_bytes
