"""What a fetch found of offsets without a message, carried to the sink as the last row of a partition.

The reader ``python`` fetches in one process and decodes in another, with Spark's JVM between them: only rows cross.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pyarrow as pa

from blumfeld_sink_spark.records import OffsetRange, Span
from blumfeld_sink_spark.rows import RAW_ROWS, RAW_ROWS_WITH_HEADERS
from blumfeld_sink_spark.tally import Skips

ACCOUNT = -2
"""``timestampType`` of the row, which no record has."""


class Account(msgspec.Struct, frozen=True):
    """The row's value, as JSON."""

    wanted: OffsetRange
    spans: list[Span]


def followed_by_account(
    batches: Iterator[pa.RecordBatch], wanted: OffsetRange, skips: Skips, *, with_headers: bool
) -> Iterator[pa.RecordBatch]:
    """The rows of a range, then the account of its fetch, which is whole once the rows were read."""
    yield from batches
    columns = {
        "key": None,
        "value": msgspec.json.encode(Account(wanted, skips.within(wanted))),
        "topic": wanted.topic,
        "partition": wanted.partition,
        "offset": wanted.end,
        "timestamp": 0,
        "timestampType": ACCOUNT,
        "headers": None,
    }
    schema = RAW_ROWS_WITH_HEADERS if with_headers else RAW_ROWS
    yield pa.RecordBatch.from_pylist([{name: columns[name] for name in schema.names}], schema=schema)


def taken_off(rows: pa.RecordBatch) -> tuple[pa.RecordBatch, Account | None]:
    """The messages of a batch of one partition, and the account that is its last row, if it is there."""
    if not rows.num_rows or rows.column("timestampType")[-1].as_py() != ACCOUNT:
        return rows, None
    account = msgspec.json.decode(rows.column("value")[-1].as_py(), type=Account)
    return rows.slice(0, rows.num_rows - 1), account
