"""Archives of many small batches, for the tests of compaction."""

from __future__ import annotations

import pyarrow as pa

from blumfeld_sink_spark.files.writer import TaskWriter
from blumfeld_sink_spark.ledger.ledger import Ledger
from blumfeld_sink_spark.ledger.publishing.publish import publish
from blumfeld_sink_spark.records import OffsetRange, TaskResult
from blumfeld_sink_spark.stores.contract import ArchiveStore
from tests.plugins.sink_spark.feeds import count_of
from tests.plugins.sink_spark.files import tools

SYMBOLS = ("BTCUSDT", "ETH/USDT")


def archive(store: ArchiveStore, *, topics: tuple[str, ...] = ("ticks",), batches: int = 3) -> None:
    """Makes an archive of trades and raw rows. Each batch of each topic has two partitions."""
    for topic in topics:
        for batch in range(batches):
            add_batch(store, topic, batch)


def add_batch(store: ArchiveStore, topic: str, batch: int) -> None:
    settings = tools.settings(row_group_rows=64)
    results = []
    planned = []
    for partition in range(2):
        task = TaskWriter(store, settings, topic, partition)
        task.write(rows_of(partition, batch))
        files = task.close()
        start, end = batch * 100, batch * 100 + 100
        planned.append(OffsetRange(topic, partition, start, end))
        results.append(
            TaskResult(
                topic=topic,
                partition=partition,
                messages=100,
                first_offset=start,
                last_offset=end - 1,
                bytes_in=0,
                files=files,
                sequences={},
                quarantined=0,
                decoders={},
                count=count_of(topic, partition, start, end, files),
            )
        )
    publish(
        store,
        Ledger(store).load(),
        query=topic,
        batch=batch,
        planned=planned,
        lost=(),
        results=results,
        settings=settings,
        now_ms=0,
        seconds=0.0,
    )


def rows_of(partition: int, batch: int) -> dict[str, pa.Table]:
    """Returns rows whose times overlap those of other batches and partitions; some have the same time."""
    made = {}
    start = tools.MIDNIGHT + batch * 50 * 10**9
    for name, rows in (
        ("trades", tools.trades(100, symbols=SYMBOLS, start=start, seed=batch)),
        ("raw", tools.raw(100, seed=batch)),
    ):
        lineage = {
            "k_partition": pa.array([partition] * 100, pa.int32()),
            "k_offset": pa.array([batch * 100 + row for row in range(100)], pa.int64()),
        }
        for column, values in lineage.items():
            place = rows.schema.names.index(column)
            rows = rows.set_column(place, rows.schema.field(column), values)
        made[name] = rows
    return made
