"""Messages as they came."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from blumfeld.spi.decoders import Continuity, Decoded
from blumfeld_sink_spark.rows import HEADERS
from blumfeld_sink_spark.tables import RAW


class RawDecoder:
    """``raw``: a row for each message in the table ``raw``, tombstones (null values) too; rejects nothing."""

    name = "raw"
    version = 1
    tables: Sequence[str] = (RAW,)
    continuity: Mapping[str, Continuity] = {}

    def __reduce__(self) -> Any:
        return (type(self), ())

    def decode(self, rows: Any) -> Decoded:
        """See :class:`blumfeld.spi.decoders.Decoder`."""
        count = rows.num_rows
        columns = {
            "row": pa.array(np.arange(count, dtype=np.int32)),
            "timestamp_type": rows.column("timestampType").cast(pa.int8()),
            "key": rows.column("key"),
            "value": rows.column("value"),
        }
        if "headers" in rows.schema.names:
            columns["headers"] = rows.column("headers").cast(HEADERS)
        return Decoded({RAW: pa.table(columns)})
