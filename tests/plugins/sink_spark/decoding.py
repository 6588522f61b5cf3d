"""Raw rows made by hand, and the captures that lie beside the checkout, for the tests of the decoders."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from blumfeld_sink_spark.apply import Applied, decode_rows
from blumfeld_sink_spark.decoders import catalog
from blumfeld_sink_spark.reading.producing.captures import messages
from blumfeld_sink_spark.settings import ArchiveSettings
from blumfeld_sink_spark.testing.decoder_messages import STAMP_US, batch
from tests.plugins.sink_spark.archive_tools import DECODE_ROWS, captured
from tests.shared_facts import shared_path

__all__ = ["STAMP_US", "all_of", "decoded", "decoded_rows", "errors", "messages_of", "rows_in", "rows_of"]
SETTINGS = ArchiveSettings(topics=("feed",))


def rows_of(values: Sequence[bytes | str | None], key: bytes | None = b"BTCUSDT") -> pa.RecordBatch:
    """Returns a batch of these values, all with one key."""
    packed = [value.encode() if isinstance(value, str) else value for value in values]
    return batch(packed, [key] * len(packed))


def rows_in(decoded: Any, table: str) -> list[dict[str, Any]]:
    """Returns the rows of one table as dicts; no rows if there is no such table."""
    rows = decoded.tables.get(table)
    return [] if rows is None else rows.to_pylist()


def errors(decoded: Any) -> dict[int, str]:
    return {rejected.row: rejected.error for rejected in decoded.rejected}


def messages_of(path: str) -> list[bytes]:
    """Returns the messages of a capture beside the checkout."""
    return [message.value for message in messages(shared_path(f"market-data/{path}"))]


def decoded(paths: Sequence[Path], decoder: str) -> list[Applied]:
    """Decodes captures. The offsets continue from one capture to the next."""
    return decoded_rows(captured(paths, "feed", symbol="BTCUSDT"), decoder)


def decoded_rows(rows: pa.Table, decoder: str) -> list[Applied]:
    """Decodes raw rows, as many at once as Spark hands over."""
    decoders = [catalog.find(decoder)]
    return [decode_rows(decoders, part, SETTINGS) for part in rows.combine_chunks().to_batches(DECODE_ROWS)]


def all_of(table: str, batches: Sequence[Applied]) -> pa.Table:
    """Returns one table with the rows of all batches."""
    return pa.concat_tables([applied.tables[table] for applied in batches if table in applied.tables])
