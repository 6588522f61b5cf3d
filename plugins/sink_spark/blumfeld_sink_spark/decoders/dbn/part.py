"""Records of DBN of one kind, with their times, venue and symbol; and the tables that they become, in pieces."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from blumfeld_sink_spark.decoders.dbn.layout import OHLCV, UNDEF_TIMESTAMP, Kind, gather
from blumfeld_sink_spark.decoders.dbn.metadata import Metadata
from blumfeld_sink_spark.decoders.dbn.walk import Records
from blumfeld_sink_spark.decoders.tables.arrays import chosen, coded

DAY_NS = 86_400 * 1_000_000_000
INT64_MAX = 2**63 - 1
Int64s = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Columns = dict[str, Any]


@attrs.define
class Made:
    """Tables in pieces, each with ``nth``: the record's place in the batch."""

    rejected: dict[int, str]
    pieces: dict[str, list[pa.Table]] = attrs.field(factory=dict)

    def add(self, name: str, columns: Columns) -> None:
        """A piece, if it has rows."""
        table = pa.table({column: columns[column] for column in sorted(columns)})
        if table.num_rows:
            self.pieces.setdefault(name, []).append(table)

    def reject(self, rows: Int64s, error: str) -> None:
        """Messages, for a record in them."""
        for row in np.unique(rows).tolist():
            self.rejected.setdefault(row, error)

    def merged(self) -> dict[str, pa.Table]:
        """Returns the tables in the order of the records, without messages that are rejected."""
        gone = pa.array(list(self.rejected), pa.int32())
        merged_tables = {}
        for name in sorted(self.pieces):
            table = pa.concat_tables(self.pieces[name])
            if len(self.pieces[name]) > 1:
                table = table.take(pc.sort_indices(table.column("nth")))
            if len(gone):
                table = table.filter(pc.invert(pc.is_in(table.column("row"), gone)))
            merged_tables[name] = table.drop_columns("nth")
        return merged_tables


@attrs.frozen
class Part:
    """Records of one kind."""

    kind: Kind
    structs: Any
    row: npt.NDArray[np.int32]
    nth: Int64s
    ts_event: Int64s
    is_recv: Mask
    """True where a record has no time of its event, so that ``ts_event`` is that of receipt."""
    ts_recv: pa.Array | None
    venue: pa.Array
    symbol: pa.Array

    @classmethod
    def of(cls, kind: Kind, records: Records, nth: Int64s, made: Made) -> Part:
        """Returns a part with these records. A record with an impossible time rejects its message."""
        structs = gather(records.data, records.at[nth], kind.struct)
        row, header = records.row[nth], records.header[nth]
        event, received = _times(kind, structs)
        late = (event > INT64_MAX) if received is None else (event > INT64_MAX) | _beyond(received)
        if late.any():
            made.reject(row[late], f"a {kind.schema} record whose time is no time")
            structs, row, nth, header = structs[~late], row[~late], nth[~late], header[~late]
            event, received = _times(kind, structs)
        ts_event = event.astype(np.int64)
        stamp = event if received is None else _known(received, event)
        venue, symbol = _names(structs, stamp, header, records.headers)
        ts_recv = (
            None
            if received is None
            else pa.array(received.astype(np.int64), mask=received == UNDEF_TIMESTAMP)
        )
        timeless = (structs["ts_event"] == UNDEF_TIMESTAMP) & (not kind.sampled)
        return cls(kind, structs, row.astype(np.int32), nth, ts_event, timeless, ts_recv, venue, symbol)

    def rows(self, where: Mask | None = None) -> Columns:
        """The columns that all tables have, of some records."""
        columns = {"row": pa.array(self.row), "nth": pa.array(self.nth), "ts_event": pa.array(self.ts_event)}
        if self.ts_recv is not None:
            columns |= {"ts_recv": self.ts_recv, "ts_event_is_recv": pa.array(self.is_recv)}
        columns |= {"venue": self.venue, "symbol": self.symbol}
        if where is None or where.all():
            return columns
        return {name: column.filter(pa.array(where)) for name, column in columns.items()}


def _times(kind: Kind, structs: Any) -> tuple[Any, Any]:
    """(of the event, of receipt or None), unsigned as they come."""
    event = structs["ts_event"]
    if kind.struct is OHLCV:
        return event, None
    received = structs["ts_recv"]
    return (received if kind.sampled else _known(event, received)), received


def _known(first: Any, second: Any) -> Any:
    return np.where(first == UNDEF_TIMESTAMP, second, first)


def _beyond(stamps: Any) -> Mask:
    mask: Mask = (stamps > INT64_MAX) & (stamps != UNDEF_TIMESTAMP)
    return mask


def _names(
    structs: Any, stamp: Any, header: Int64s, headers: tuple[Metadata, ...]
) -> tuple[pa.Array, pa.Array]:
    """(venue, symbol) of each record."""
    instruments, of_instrument = coded((header << 32) | structs["instrument_id"].astype(np.int64))
    publishers, of_publisher = coded((header << 16) | structs["publisher_id"].astype(np.int64))
    venues = [
        headers[key >> 16].dataset if key >= 0 else f"publisher-{key & 0xFFFF}" for key in publishers.tolist()
    ]
    venue = chosen(venues, of_publisher)
    if not headers:
        return venue, chosen([str(key & 0xFFFFFFFF) for key in instruments.tolist()], of_instrument)
    day = (stamp // DAY_NS).astype(np.int64)
    keys, of_key = coded(of_instrument.astype(np.int64) << 24 | day)
    return venue, chosen(
        [_symbol(int(instruments[key >> 24]), key & 0xFFFFFF, headers) for key in keys.tolist()], of_key
    )


def _symbol(key: int, day: int, headers: tuple[Metadata, ...]) -> str:
    instrument_id = key & 0xFFFFFFFF
    if key < 0:
        return str(instrument_id)
    date = str(np.datetime64(day, "D")).replace("-", "")
    return headers[key >> 32].name(instrument_id, int(date))
