"""The schema of raw rows. It is that of Spark's Kafka source, and every reader here gives it."""

from __future__ import annotations

import pyarrow as pa

HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))

RAW_ROWS = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("us", tz="UTC")),
        pa.field("timestampType", pa.int32()),
    ]
)
"""Raw rows without headers. Reading headers costs a third of the rate."""

RAW_ROWS_WITH_HEADERS = RAW_ROWS.append(pa.field("headers", HEADERS))
