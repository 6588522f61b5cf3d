"""The trades that count as trades of the market."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from blumfeld_sink_spark.decoders.tables.parts import NOT_MARKET


def of_market(trades: pa.Table) -> pa.Table:
    """Leaves out what a venue sends among its trades and isn't one of the market: trades of the insurance fund, ADL,
    messages of no trade, whose price and size are 0.
    """
    flags = pc.fill_null(trades.column("flags"), 0)
    kept = pc.equal(pc.bit_wise_and(flags, NOT_MARKET), 0)
    return trades.filter(kept) if pc.any(pc.invert(kept)).as_py() else trades
