"""A task's work: its result doesn't depend on how Spark cuts the batches."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from blumfeld_sink_spark.records import TaskResult
from blumfeld_sink_spark.rows import RAW_ROWS
from blumfeld_sink_spark.settings import ArchiveSettings
from blumfeld_sink_spark.spark.tasks import task
from tests.everyday import first

MESSAGES = 400
STAMP_US = 1_723_161_256_000_000


def trades() -> pa.RecordBatch:
    values = [
        b'{"e":"trade","E":1723161256322,"T":1723161256322,"s":"BTCUSDT","t":%d,"p":"61800.%d0","q":"0.%03d",'
        b'"X":"MARKET","m":%s}' % (nth, nth % 10, nth, b"true" if nth % 3 else b"false")
        for nth in range(MESSAGES)
    ]
    columns = {
        "key": [b"BTCUSDT"] * MESSAGES,
        "value": values,
        "topic": ["t"] * MESSAGES,
        "partition": [0] * MESSAGES,
        "offset": list(range(MESSAGES)),
        "timestamp": [STAMP_US] * MESSAGES,
        "timestampType": [0] * MESSAGES,
    }
    return pa.RecordBatch.from_pydict(columns, schema=RAW_ROWS)


@pytest.mark.parametrize(
    ("given", "batch_bytes"),
    first(
        4,
        [
            (7, 1),
            (7, task.BATCH_BYTES),
            (MESSAGES, 2_000),
            (MESSAGES, task.BATCH_BYTES),
            (MESSAGES, 1),
            (MESSAGES, 10_000),
            (7, 2_000),
            (7, 10_000),
        ],
    ),
)
def test_results_depend_on_the_rows_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: int, batch_bytes: int
) -> None:
    rows = trades()
    expected = _result(tmp_path / "whole", [rows])
    monkeypatch.setattr(task, "BATCH_BYTES", batch_bytes)
    result = _result(tmp_path / "cut", [rows.slice(start, given) for start in range(0, MESSAGES, given)])
    assert (result.messages, result.first_offset, result.last_offset) == (MESSAGES, 0, MESSAGES - 1)
    assert [file.sha256 for file in result.files] == [file.sha256 for file in expected.files]
    assert (result.bytes_in, result.sequences) == (expected.bytes_in, expected.sequences)


def test_an_aborted_task_leaves_nothing(tmp_path: Path) -> None:
    work = task.TaskWork(ArchiveSettings(root=str(tmp_path), decoders=("binance-usdm",), topics=("t",)))
    work.add(trades())
    work.abort()
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    assert not any(result.files for result in work.finish())


def _result(root: Path, batches: list[pa.RecordBatch]) -> TaskResult:
    work = task.TaskWork(ArchiveSettings(root=str(root), decoders=("binance-usdm",), topics=("t",)))
    for rows in batches:
        work.add(rows)
    [result] = work.finish()
    return result
