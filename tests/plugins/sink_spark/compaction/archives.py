"""Archives of many small batches, for the tests of compaction."""

from __future__ import annotations

import pyarrow as pa

from blumfeld_sink_spark.records import OffsetRange
from blumfeld_sink_spark.stores.contract import ArchiveStore
from tests.plugins.sink_spark.files import tools
from tests.plugins.sink_spark.results import changed, commit

SYMBOLS = ("BTCUSDT", "ETH/USDT")


def archive(store: ArchiveStore, *, topics: tuple[str, ...] = ("ticks",), batches: int = 3) -> None:
    """Makes an archive of trades and raw rows. Each batch of each topic has two partitions."""
    for topic in topics:
        for batch in range(batches):
            add_batch(store, topic, batch)


def add_batch(store: ArchiveStore, topic: str, batch: int) -> None:
    ranges = [OffsetRange(topic, partition, batch * 100, batch * 100 + 100) for partition in range(2)]
    written = [(taken, rows_of(taken.partition, batch)) for taken in ranges]
    commit(store, tools.settings(row_group_rows=64), batch, *written)


def rows_of(partition: int, batch: int) -> dict[str, pa.Table]:
    """Returns rows whose times overlap those of other batches and partitions; some have the same time."""
    start = tools.MIDNIGHT + batch * 50 * 10**9
    made = {
        "trades": tools.trades(100, symbols=SYMBOLS, start=start, seed=batch),
        "raw": tools.raw(100, seed=batch),
    }
    offsets = pa.array(range(batch * 100, batch * 100 + 100), pa.int64())
    places = {"k_partition": pa.array([partition] * 100, pa.int32()), "k_offset": offsets}
    return {name: changed(rows, **places) for name, rows in made.items()}
