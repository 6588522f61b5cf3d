"""Sizes of real feeds on disk, lineage included. They hold the encodings to their aims."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from blumfeld_sink_spark import apply
from blumfeld_sink_spark.files.writer import TaskWriter
from blumfeld_sink_spark.reading.producing.captures import messages
from blumfeld_sink_spark.records import StagedFile
from blumfeld_sink_spark.rows import RAW_ROWS
from tests.plugins.sink_spark.files import tools
from tests.shared_facts import shared_path

pytestmark = pytest.mark.archive

PERPETUAL = "market-data/hftbacktest/usdm/btcusdt_20240808.gz"
BATCH_ROWS = 5_000


def archived(
    root: Path, capture: Path, decoder: str, *, messages_per_batch: int
) -> tuple[list[StagedFile], int]:
    """Archives a capture from one partition in batches of so many messages. Returns the number of batches, too."""
    settings = tools.settings(decoders=(decoder,))
    decoders = apply.decoders_for("t", settings)
    found = list(messages(capture))
    files: list[StagedFile] = []
    batches = range(0, len(found), messages_per_batch)
    for start in batches:
        task = TaskWriter(tools.FolderStore(root), settings, "t", 0)
        for first in range(start, min(start + messages_per_batch, len(found)), BATCH_ROWS):
            part = found[first : min(first + BATCH_ROWS, start + messages_per_batch)]
            rows = pa.RecordBatch.from_pydict(
                {
                    "key": pa.nulls(len(part), pa.binary()),
                    "value": [message.value for message in part],
                    "topic": ["t"] * len(part),
                    "partition": [0] * len(part),
                    "offset": list(range(first, first + len(part))),
                    "timestamp": [message.received_ns // 1_000_000 * 1000 for message in part],
                    "timestampType": [0] * len(part),
                },
                schema=RAW_ROWS,
            )
            task.write(apply.decode_rows(decoders, rows, settings).tables)
        files += task.close()
    return files, len(batches)


def bytes_per_row(files: list[StagedFile]) -> dict[str, float]:
    """Returns the sizes by table."""
    found = {}
    for table in sorted({file.table for file in files}):
        mine = [file for file in files if file.table == table]
        found[table] = sum(file.bytes for file in mine) / sum(file.rows for file in mine)
    return found


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
    files, _ = archived(
        tmp_path, shared_path(PERPETUAL), "binance-usdm", messages_per_batch=messages_per_batch
    )
    found = bytes_per_row(files)
    assert {table: found[table] <= limit for table, limit in allowed.items()} == dict.fromkeys(
        allowed, True
    ), found
