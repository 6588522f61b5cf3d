"""Raw rows made by hand, and the captures that lie beside the checkout, for the tests of the decoders."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from blumfeld_sink_spark.reading.producing.captures import messages
from blumfeld_sink_spark.testing.decoder_messages import STAMP_US, batch
from tests.shared_facts import shared_path

__all__ = ["STAMP_US", "errors", "messages_of", "rows_in", "rows_of"]


def rows_of(values: Sequence[bytes | str | None], key: bytes | None = b"BTCUSDT") -> pa.RecordBatch:
    """Returns a batch of these values, all with one key."""
    packed = [value.encode() if isinstance(value, str) else value for value in values]
    return batch(packed, [key] * len(packed))


def rows_in(decoded: Any, table: str) -> list[dict[str, Any]]:
    """Returns the rows of one table as dicts; no rows if there is no such table."""
    found = decoded.tables.get(table)
    return [] if found is None else found.to_pylist()


def errors(decoded: Any) -> dict[int, str]:
    return {rejected.row: rejected.error for rejected in decoded.rejected}


def messages_of(path: str) -> list[bytes]:
    """Returns the messages of a capture beside the checkout."""
    return [message.value for message in messages(shared_path(f"market-data/{path}"))]
