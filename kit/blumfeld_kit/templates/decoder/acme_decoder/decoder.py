"""``acme-decoder``: a message is a trade, ``SYMBOL PRICE SIZE``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal

import pyarrow as pa
from blumfeld.spi.decoders import Continuity, Decoded, Rejected

MESSAGE = re.compile(
    rb"([A-Z0-9]{1,20}) ([0-9]{1,9}(?:\.[0-9]{1,9})?) ([0-9]{1,9})"
)  # WRITE HERE: your format
TRADES = pa.schema(
    [
        pa.field("row", pa.int32()),
        pa.field("ts_event", pa.int64()),
        pa.field("ts_event_is_recv", pa.bool_()),
        pa.field("venue", pa.string()),
        pa.field("symbol", pa.string()),
        pa.field("side", pa.int8()),
        pa.field("price", pa.decimal128(30, 12)),
        pa.field("size", pa.decimal128(30, 12)),
    ]
)


class AcmeDecoder:
    """Is used in Spark's workers: the same bytes give the same rows, whatever came before."""

    name = "acme-decoder"
    version = 1
    tables: Sequence[str] = ("trades",)
    continuity: Mapping[str, Continuity] = {}

    def decode(self, rows: pa.RecordBatch) -> Decoded:
        """Return a row for each message, or its rejection. Message by message is slow: see ``pyarrow.compute``."""
        trades: list[dict[str, object]] = []
        rejected: list[Rejected] = []
        for row, value in enumerate(rows.column("value").to_pylist()):
            if value is None:
                continue
            fields = MESSAGE.fullmatch(value)
            if fields is None:
                rejected.append(Rejected(row, "not SYMBOL PRICE SIZE"))
                continue
            symbol, price, size = (field.decode() for field in fields.groups())
            trades.append(
                {
                    "row": row,
                    "ts_event": 0,
                    "ts_event_is_recv": True,  # the message has no time: the archive puts that of its receipt
                    "venue": "acme-decoder",
                    "symbol": symbol,
                    "side": 0,
                    "price": Decimal(price),
                    "size": Decimal(size),
                }
            )
        return Decoded(tables={"trades": pa.Table.from_pylist(trades, TRADES)}, rejected=rejected)
