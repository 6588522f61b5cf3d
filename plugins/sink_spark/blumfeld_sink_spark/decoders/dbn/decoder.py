"""``dbn``: Databento's binary encoding, versions 1 to 3.

| schema | table |
|---|---|
| trades, and records of other schemas with ``action`` T | ``trades``: without an id; DBN's flags from bit 8 on |
| mbp-1, tbbo, bbo-1s, bbo-1m, cmbp-1, tcbbo, cbbo-1s, cbbo-1m | ``bbo`` |
| mbp-10 | ``bbo`` of the best level, ``book_deltas`` of all: a snapshot each |
| mbo | ``orders`` |
| ohlcv-1s, -1m, -1h, -1d | ``ohlcv`` |
| error, symbol mapping, system | skipped |
| definition, imbalance, statistics, status, ohlcv-eod | the message is rejected |

If a message has a header, venue and symbol come from it: its dataset, and the instrument's name on that day. Else they
are ``publisher-<id>`` and the instrument's id. A sampled record (bbo-1s, cbbo-1m…) gets its instant, Databento's
``ts_recv``, as ``ts_event``, because its own ``ts_event`` is the time of the last trade. A record without ``ts_event``
gets its ``ts_recv``, too, and ``ts_event_is_recv`` says so.

DBN has no id of a trade: its ``sequence`` numbers packets, and a packet may hold several trades.

``archive book`` rebuilds a book message by message. So a message should hold one mbp-10 record of an instrument: the
levels of several would count as one snapshot. ``bbo`` and the rows themselves are right either way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np
import pyarrow as pa

from blumfeld.spi.decoders import Continuity, Decoded, PassedOver, Rejected
from blumfeld_sink_spark.decoders.dbn.layout import KINDS, SKIPPED
from blumfeld_sink_spark.decoders.dbn.part import Made, Part
from blumfeld_sink_spark.decoders.dbn.tables import tables_of
from blumfeld_sink_spark.decoders.dbn.walk import Records, walk


class DbnDecoder:
    """Made of nothing; knows nothing of the messages before."""

    name = "dbn"
    version = 2
    tables: Sequence[str] = ("bbo", "book_deltas", "ohlcv", "orders", "trades")
    continuity: Mapping[str, Continuity] = MappingProxyType({})
    """None: venues number packets, of many instruments, and a packet may hold several records."""

    def decode(self, rows: pa.RecordBatch) -> Decoded:
        """The records of each message, in their order."""
        records = walk(rows.column("value"))
        made = Made(dict(records.rejected))
        rtypes = records.rtypes()
        for rtype in np.unique(rtypes).tolist():
            nth = np.flatnonzero(rtypes == rtype)
            tables_of(Part.of(KINDS[rtype], records, nth, made), made)
        tables = made.merged()
        return Decoded(
            tables={name: table for name, table in tables.items() if name != "sequences"},
            sequences=tables.get("sequences"),
            rejected=[Rejected(row, made.rejected[row]) for row in sorted(made.rejected)],
            passed_over=_passed_over(rows.column("value"), records, made, tables),
        )


def _passed_over(
    values: pa.Array, records: Records, made: Made, tables: Mapping[str, pa.Table]
) -> list[PassedOver]:
    """Messages that hold a header alone, or only records of the session, or levels that are all empty."""
    silent = values.is_valid().to_numpy(zero_copy_only=False).copy()
    for name, table in tables.items():
        if name != "sequences":
            silent[np.asarray(table.column("row"))] = False
    silent[list(made.rejected)] = False
    return [
        PassedOver(row, SKIPPED[records.skipped[row]] if row in records.skipped else "without a row")
        for row in np.flatnonzero(silent).tolist()
    ]
