"""Real captures, decoded as the archive decodes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

import pyarrow as pa

from blumfeld_sink_spark.apply import Applied, decode_rows
from blumfeld_sink_spark.decoders import catalog
from blumfeld_sink_spark.reading.producing.captures import CapturedMessage, messages, symbol_of
from blumfeld_sink_spark.rows import RAW_ROWS
from blumfeld_sink_spark.settings import ArchiveSettings

SETTINGS = ArchiveSettings(topics=("feed",), decimal="38,18")


def raw_rows(captured: Sequence[CapturedMessage], start: int, key: bytes | None = None) -> pa.RecordBatch:
    """Returns raw rows as a broker gives them, from an offset on."""
    count = len(captured)
    return pa.RecordBatch.from_arrays(
        [
            pa.array([symbol_of(one) or key for one in captured], pa.binary()),
            pa.array([one.value for one in captured], pa.binary()),
            pa.repeat("feed", count),
            pa.repeat(pa.scalar(0, pa.int32()), count),
            pa.array(range(start, start + count), pa.int64()),
            pa.array([one.received_ns // 1000 for one in captured], pa.timestamp("us", tz="UTC")),
            pa.repeat(pa.scalar(0, pa.int32()), count),
        ],
        schema=RAW_ROWS,
    )


def decoded(
    paths: Sequence[Path],
    decoder: str,
    key: bytes | None = None,
    batch: int = 5000,
    keep: Callable[[CapturedMessage], bool] = lambda message: True,
) -> Iterator[Applied]:
    """Decodes captures. The offsets continue from one capture to the next."""
    feed = (message for path in paths for message in messages(path) if keep(message))
    yield from decoded_messages(feed, decoder, key, batch)


def decoded_messages(
    feed: Iterable[CapturedMessage], decoder: str, key: bytes | None = None, batch: int = 5000
) -> Iterator[Applied]:
    """Decodes messages at growing offsets."""
    decoders, feed, start = [catalog.find(decoder)], iter(feed), 0
    while part := list(islice(feed, batch)):
        yield decode_rows(decoders, raw_rows(part, start, key), SETTINGS)
        start += len(part)


def all_of(table: str, applied: Sequence[Applied]) -> pa.Table:
    """Returns one table with the rows of all batches."""
    return pa.concat_tables([one.tables[table] for one in applied if table in one.tables])
