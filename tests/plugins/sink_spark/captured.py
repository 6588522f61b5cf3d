"""Real captures, decoded as the archive decodes them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from blumfeld_sink_spark.apply import Applied, decode_rows
from blumfeld_sink_spark.decoders import catalog
from blumfeld_sink_spark.settings import ArchiveSettings
from tests.plugins.sink_spark.archive_tools import DECODE_ROWS, captured

SETTINGS = ArchiveSettings(topics=("feed",))


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
