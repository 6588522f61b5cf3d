"""Rows of tables, results of tasks and batches of them, made by hand."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from blumfeld_sink_spark.files.writer import TaskWriter
from blumfeld_sink_spark.ledger.ledger import Ledger
from blumfeld_sink_spark.ledger.publishing.publish import publish
from blumfeld_sink_spark.records import (
    CommitRecord,
    DecoderCount,
    OffsetRange,
    RangeCount,
    StagedFile,
    TaskResult,
)
from blumfeld_sink_spark.settings import ArchiveSettings
from blumfeld_sink_spark.stores.contract import ArchiveStore
from blumfeld_sink_spark.tables import tables

PLAIN: dict[str, Any] = {
    "ts_event": 0,
    "ts_recv": 0,
    "venue": "test",
    "symbol": "BTCUSDT",
    "side": 1,
    "price": Decimal(1),
    "size": Decimal(1),
    "is_snapshot": False,
    "k_partition": 0,
}
"""Values of the columns that a test doesn't give. Columns that aren't here are null."""


def table_of(name: str, rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Returns rows of a table of the archive, by default at growing offsets."""
    filled = [{**PLAIN, "k_offset": at, **row} for at, row in enumerate(rows)]
    return pa.Table.from_pylist(filled, schema=tables()[name].schema)


def changed(rows: Any, **columns: Any) -> Any:
    """Returns the rows with these columns in place of theirs, each an array or a list of values."""
    for name, values in columns.items():
        field = rows.schema.field(name)
        array = values if isinstance(values, pa.Array) else pa.array(values, field.type)
        rows = rows.set_column(rows.schema.get_field_index(name), field.with_type(array.type), array)
    return rows


def count_of(wanted: OffsetRange, files: Sequence[StagedFile] = (), quarantined: int = 0) -> RangeCount:
    """Returns the count of a range with a message at each offset and a row of each message."""
    messages, rows = wanted.end - wanted.start, Counter[str]()
    for file in files:
        rows[file.table] += file.rows
    return RangeCount(
        topic=wanted.topic,
        partition=wanted.partition,
        start=wanted.start,
        end=wanted.end,
        messages=messages,
        with_rows=messages,
        rows=dict(rows),
        rows_crc=zlib.crc32(np.arange(wanted.start, wanted.end, dtype="<i8").tobytes()),
        decoders={"raw": DecoderCount(read=messages - quarantined, quarantined=quarantined)},
    )


def task_result(wanted: OffsetRange, files: Sequence[StagedFile] = (), **fields: Any) -> TaskResult:
    """Returns the result of a task that read a message at each offset of a range."""
    given = {
        "messages": wanted.end - wanted.start,
        "first_offset": wanted.start,
        "last_offset": wanted.end - 1,
        "bytes_in": 0,
        "sequences": {},
        "quarantined": 0,
        "decoders": {},
        **fields,
    }
    count = count_of(wanted, files, given["quarantined"])
    return TaskResult(
        topic=wanted.topic, partition=wanted.partition, files=tuple(files), count=count, **given
    )


def commit(
    store: ArchiveStore,
    settings: ArchiveSettings,
    batch: int,
    *written: tuple[OffsetRange, dict[str, pa.Table]],
) -> CommitRecord:
    """Writes tables for each range as a task does, and publishes them as a batch of the query with the topic's name."""
    results = []
    for wanted, rows in written:
        task = TaskWriter(store, settings, wanted.topic, wanted.partition)
        task.write(rows)
        results.append(task_result(wanted, task.close()))
    planned = [wanted for wanted, _ in written]
    query = planned[0].topic
    return publish(
        store,
        Ledger(store).load(),
        query=query,
        batch=batch,
        planned=planned,
        lost=(),
        results=results,
        settings=settings,
        now_ms=0,
        seconds=0.0,
    )
