"""Raw rows made by hand, and the captures that lie beside the checkout, for the tests of the decoders."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from blumfeld_sink_spark.rows import RAW_ROWS
from tests.shared_facts import shared_path

STAMP_US = 1_723_161_255_030_314


def rows_of(values: Sequence[bytes | str | None], key: bytes | None = b"BTCUSDT") -> Any:
    """Returns a batch of these values, all with one key and one timestamp, at offsets from 100."""
    count = len(values)
    packed = [value.encode() if isinstance(value, str) else value for value in values]
    stamps = pa.array(np.full(count, STAMP_US), pa.int64()).cast(pa.timestamp("us", tz="UTC"))
    columns = [
        pa.array([key] * count, pa.binary()),
        pa.array(packed, pa.binary()),
        pa.repeat("feed", count),
        pa.array([0] * count, pa.int32()),
        pa.array(range(100, 100 + count), pa.int64()),
        stamps,
        pa.array([0] * count, pa.int32()),
    ]
    return pa.record_batch(columns, schema=RAW_ROWS)


def rows_in(decoded: Any, table: str) -> list[dict[str, Any]]:
    """Returns the rows of one table as dicts; no rows if there is no such table."""
    found = decoded.tables.get(table)
    return [] if found is None else found.to_pylist()


def errors(decoded: Any) -> dict[int, str]:
    """Returns the error of each rejected row."""
    return {rejected.row: rejected.error for rejected in decoded.rejected}


def feed(name: str) -> list[bytes]:
    """Returns the messages of a capture of ``ns JSON`` lines."""
    path = shared_path(f"market-data/hftbacktest/{name}.gz")
    with gzip.open(path, "rb") as lines:
        return [line.split(b" ", 1)[1].rstrip(b"\n") for line in lines]


def capture(name: str) -> list[bytes]:
    """Returns what the venue sent, from a capture of ``[address <- ]time: text`` lines. Requests are left out."""
    path = shared_path(f"market-data/cryptofeed/{name}")
    found = []
    for line in path.read_bytes().splitlines():
        head, colon, text = line.partition(b": ")
        if colon and b" <- " not in head and b" <-> " not in line[:400] and text[:1] in b"{[":
            found.append(text)
    return found
