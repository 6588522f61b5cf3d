"""The skips of a fetch: the offsets that gave no message, carried to the sink as the last row of a range.

The reader ``python`` fetches in one process and decodes in another. Spark's JVM stands between them and passes only
rows, so the skips travel as a row.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pyarrow as pa

from blumfeld_sink_spark.range_counter import Skips
from blumfeld_sink_spark.records import OffsetRange, Span
from blumfeld_sink_spark.rows import RAW_ROWS, RAW_ROWS_WITH_HEADERS

SKIPS_ROW = -2
"""``timestampType`` that marks this row. Records have -1, 0 or 1."""


class SkipsRow(msgspec.Struct, frozen=True):
    """The skips of one range. The row's value is its JSON."""

    wanted: OffsetRange
    spans: list[Span]


def followed_by_skips(
    batches: Iterator[pa.RecordBatch], wanted: OffsetRange, skips: Skips, *, with_headers: bool
) -> Iterator[pa.RecordBatch]:
    """Yields the batches of a range, then one batch with the skips of its fetch."""
    yield from batches
    # Only now: the fetch fills `skips` while its rows are read.
    columns = {
        "key": None,
        "value": msgspec.json.encode(SkipsRow(wanted, skips.within(wanted))),
        "topic": wanted.topic,
        "partition": wanted.partition,
        "offset": wanted.end,
        "timestamp": 0,
        "timestampType": SKIPS_ROW,
        "headers": None,
    }
    schema = RAW_ROWS_WITH_HEADERS if with_headers else RAW_ROWS
    yield pa.RecordBatch.from_pylist([{name: columns[name] for name in schema.names}], schema=schema)


def taken_off(rows: pa.RecordBatch) -> tuple[pa.RecordBatch, SkipsRow | None]:
    """Returns the messages of a batch of one partition, and the skips if the last row is one."""
    if not rows.num_rows or rows.column("timestampType")[-1].as_py() != SKIPS_ROW:
        return rows, None
    skips = msgspec.json.decode(rows.column("value")[-1].as_py(), type=SkipsRow)
    return rows.slice(0, rows.num_rows - 1), skips
