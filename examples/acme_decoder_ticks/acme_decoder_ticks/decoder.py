"""``acme-ticks``: ``time|number|symbol|side|price|size``, a trade a message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from blumfeld.spi.decoders import Continuity, Decoded, Rejected

_INT64 = r"[0-9]{1,18}|[1-8][0-9]{18}"
_NUMBER = r"[0-9]{1,18}(?:\.[0-9]{1,12})?"
LINE = (
    rf"\A(?P<ts_event>{_INT64})\|(?P<trade_id>{_INT64})\|(?P<symbol>[A-Z0-9./-]{{1,20}})"
    rf"\|(?P<side>[BSN])\|(?P<price>{_NUMBER})\|(?P<size>{_NUMBER})\n?\z"
)
"""What a message is, so that each field fits its column."""
EXACT = pa.decimal128(30, 12)
VENUE = "acme"


class TicksDecoder:
    """Trades of a feed that numbers those of each symbol without holes."""

    name = "acme-ticks"
    version = 1
    tables: Sequence[str] = ("trades",)
    continuity: Mapping[str, Continuity] = {"trade": Continuity.CONSECUTIVE}

    def decode(self, rows: pa.RecordBatch) -> Decoded:
        """A row for each message that is such a line."""
        values = rows.column("value")
        fields = pc.extract_regex(values, LINE)
        read = pc.is_valid(fields)
        places = pa.array(range(rows.num_rows), pa.int32())
        row, fields = places.filter(read), fields.filter(read)
        return Decoded(
            tables={"trades": _trades(row, fields)},
            sequences=_sequences(row, fields),
            rejected=[
                Rejected(place, "not time|number|symbol|side|price|size")
                for place in places.filter(pc.and_not(pc.is_valid(values), read)).to_pylist()
            ],
        )


def _field(fields: pa.StructArray, name: str) -> pa.Array:
    return pc.struct_field(fields, name).cast(pa.string())


def _trades(row: pa.Array, fields: pa.StructArray) -> pa.Table:
    sides = pc.index_in(_field(fields, "side"), pa.array(["S", "N", "B"]))
    return pa.table(
        {
            "row": row,
            "ts_event": _field(fields, "ts_event").cast(pa.int64()),
            "ts_event_is_recv": pa.repeat(False, len(row)),
            "venue": pa.repeat(VENUE, len(row)),
            "symbol": _field(fields, "symbol"),
            "trade_id": _field(fields, "trade_id").cast(pa.int64()),
            "side": pc.subtract(sides, 1).cast(pa.int8()),
            "price": _field(fields, "price").cast(EXACT),
            "size": _field(fields, "size").cast(EXACT),
        }
    )


def _sequences(row: pa.Array, fields: pa.StructArray) -> pa.Table:
    number = _field(fields, "trade_id").cast(pa.int64())
    return pa.table(
        {
            "row": row,
            "venue": pa.repeat(VENUE, len(row)),
            "symbol": _field(fields, "symbol"),
            "stream": pa.repeat("trade", len(row)),
            "first_id": number,
            "last_id": number,
            "ts_event": _field(fields, "ts_event").cast(pa.int64()),
        }
    )
