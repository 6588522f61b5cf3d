"""Event arrays for hftbacktest (version 2): ``data`` in ``<venue>_<symbol>_<date>.npz``, a file for each UTC day of
receipt.

hftbacktest reads the array in two orders: events flagged for the exchange by ``exch_ts``, events flagged for the
consumer by ``local_ts``. An event that was overtaken on its way stands twice, once for each order. ``local_ts`` must
not lie before ``exch_ts``. Where the consumer's clock was behind, all its times are shifted by the worst difference:
also ``exch_ts`` of events for which the venue gave no time (``ts_event_is_recv``).

The book is ordered by the venue's ids, see ``books``.
"""

from __future__ import annotations

import tempfile
import zipfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from blumfeld_sink_spark.files.file_names import encode_symbol
from blumfeld_sink_spark.reading.exports import books, numbers
from blumfeld_sink_spark.reading.exports.selection import Exported, Selection
from blumfeld_sink_spark.reading.market.trades import of_market
from blumfeld_sink_spark.tables import BOOK_DELTAS, TRADES

DEPTH, TRADE, CLEAR, SNAPSHOT = 1, 2, 3, 4
AT_EXCHANGE, AT_LOCAL, BUY, SELL = 1 << 31, 1 << 30, 1 << 29, 1 << 28
EVENT = np.dtype(
    [
        ("ev", "<u8"),
        ("exch_ts", "<i8"),
        ("local_ts", "<i8"),
        ("px", "<f8"),
        ("qty", "<f8"),
        ("order_id", "<u8"),
        ("ival", "<i8"),
        ("fval", "<f8"),
    ]
)
"""hftbacktest's event, 64 bytes without padding."""
DAY_NS = 86_400 * 10**9
CHUNK = 1 << 17


def export(selection: Selection, out: Path) -> Iterator[Exported]:
    """Writes the files of each symbol, and yields each file once it is written.

    :raises ArchiveError: there are no rows
    :raises SettingsError: a symbol has several venues and none is named
    """
    for symbol in selection.symbols_of([TRADES, BOOK_DELTAS]):
        venue = selection.one_venue([TRADES, BOOK_DELTAS], symbol)
        shift = max(0, -_least_latency(selection, symbol, venue))
        events = merged([book_events(selection, symbol, venue), trade_events(selection, symbol, venue)])
        yield from _days(events, shift, out, f"{venue}_{encode_symbol(symbol)}")


def _least_latency(selection: Selection, symbol: str, venue: str) -> int:
    latencies = [
        pc.min(pc.subtract(rows["ts_recv"], rows["ts_event"])).as_py()
        for name in (TRADES, BOOK_DELTAS)
        for rows in selection.rows(name, symbol, ["ts_event", "ts_recv"], venue)
    ]
    return min(latencies, default=0)


def trade_events(selection: Selection, symbol: str, venue: str) -> Iterator[Any]:
    """Yields the trades as arrays of ``EVENT``, by ``local_ts``."""
    columns = ["ts_event", "ts_event_is_recv", "ts_recv", "side", "price", "size", "flags"]
    for rows in map(of_market, selection.rows(TRADES, symbol, columns, venue)):
        if rows.num_rows:
            yield _events(rows, TRADE)


def book_events(selection: Selection, symbol: str, venue: str) -> Iterator[Any]:
    """Yields the book as arrays of ``EVENT``, by ``local_ts``."""
    for part in books.parts(selection, symbol, venue):
        yield _snapshot(part.rows) if part.is_snapshot else _events(part.rows, DEPTH)


def _events(rows: pa.Table, kind: int) -> Any:
    """Returns events. ``ival`` is 1 where ``exch_ts`` is the consumer's time, until ``_days`` has used it."""
    made = np.zeros(rows.num_rows, EVENT)
    side = rows["side"].to_numpy()
    made["ev"] = kind | np.where(side > 0, BUY, np.where(side < 0, SELL, 0))
    made["exch_ts"], made["local_ts"] = rows["ts_event"].to_numpy(), rows["ts_recv"].to_numpy()
    made["ival"] = pc.fill_null(rows["ts_event_is_recv"], False).to_numpy()
    made["px"], made["qty"] = numbers.floats(rows["price"]), numbers.floats(rows["size"])
    return made


def _snapshot(rows: pa.Table) -> Any:
    """Returns for each side an event that clears it down to its deepest level, then its levels, best first."""
    levels = _events(rows, SNAPSHOT)
    parts = []
    for flag in (BUY, SELL):
        side = levels[levels["ev"] & flag != 0]
        if len(side):
            clear = side[:1].copy()
            clear["ev"], clear["px"], clear["qty"] = CLEAR | flag, side["px"][-1], 0
            parts += [clear, side]
    return np.concatenate(parts)


def merged(streams: list[Iterator[Any]]) -> Iterator[Any]:
    """Merges streams of arrays by ``local_ts``. Each stream must be in that order."""
    heads = [next(stream, None) for stream in streams]
    while any(head is not None for head in heads):
        limit = min(int(head["local_ts"][-1]) for head in heads if head is not None)
        parts = []
        for at, head in enumerate(heads):
            if head is None:
                continue
            count = int(np.searchsorted(head["local_ts"], limit, side="right"))
            parts.append(head[:count])
            heads[at] = head[count:] if count < len(head) else next(streams[at], None)
        rows = np.concatenate(parts)
        yield rows[np.argsort(rows["local_ts"], kind="stable")]


def _days(events: Iterator[Any], shift: int, out: Path, prefix: str) -> Iterator[Exported]:
    current: DayFile | None = None
    try:
        for rows in events:
            rows["local_ts"] += shift
            rows["exch_ts"] += shift * rows["ival"]
            rows["ival"] = 0
            days = rows["local_ts"] // DAY_NS
            for day in np.unique(days).tolist():
                if current is None or day != current.day:
                    if current is not None:
                        yield current.finish(out / f"{prefix}_{_date(current.day)}.npz")
                    current = DayFile(day)
                current.add(rows[days == day])
        if current is not None:
            yield current.finish(out / f"{prefix}_{_date(current.day)}.npz")
    finally:
        if current is not None:
            current.close()


def _member() -> zipfile.ZipInfo:
    """Returns the archive member's header. It has a fixed date, so the same events give the same file."""
    member = zipfile.ZipInfo("data.npy")
    member.compress_type = zipfile.ZIP_DEFLATED
    return member


def _date(day: int) -> str:
    return f"{datetime.fromtimestamp(day * 86_400, UTC):%Y%m%d}"


@attrs.define
class DayFile:
    """The events of one day. They wait in temporary files, because the final file begins with their number."""

    day: int
    rows: int = 0
    _latest: int = -(2**63)
    """Greatest ``exch_ts`` so far."""
    _main: IO[bytes] = attrs.field(factory=tempfile.TemporaryFile)
    _overtaken: IO[bytes] = attrs.field(factory=tempfile.TemporaryFile)

    def add(self, rows: Any) -> None:
        """Adds events that are sorted by ``local_ts`` and follow those before."""
        rows = rows.copy()
        before = np.maximum.accumulate(np.concatenate([[self._latest], rows["exch_ts"]]))
        late = rows["exch_ts"] < before[:-1]
        self._latest = int(before[-1])
        copies = rows[late]
        copies["ev"] |= np.uint64(AT_EXCHANGE)
        rows["ev"] |= np.where(late, AT_LOCAL, AT_LOCAL | AT_EXCHANGE).astype(np.uint64)
        self._main.write(rows.tobytes())
        self._overtaken.write(copies.tobytes())
        self.rows += len(rows) + len(copies)

    def finish(self, path: Path) -> Exported:
        """Writes the file."""
        try:
            with (
                zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive,
                archive.open(_member(), "w", force_zip64=True) as out,
            ):
                header = {
                    "descr": np.lib.format.dtype_to_descr(EVENT),
                    "fortran_order": False,
                    "shape": (self.rows,),
                }
                np.lib.format.write_array_header_1_0(out, header)
                for rows in self._in_both_orders():
                    out.write(rows.tobytes())
        finally:
            self.close()
        return Exported(path, self.rows)

    def close(self) -> None:
        """Removes the temporary files."""
        self._main.close()
        self._overtaken.close()

    def _in_both_orders(self) -> Iterator[Any]:
        """Yields all events. The exchange's copy of an overtaken event goes before the first one with a later
        ``exch_ts``.
        """
        self._overtaken.seek(0)
        late = np.frombuffer(self._overtaken.read(), EVENT)
        late = late[np.argsort(late["exch_ts"], kind="stable")]
        self._main.seek(0)
        latest, done = -(2**63), 0
        while data := self._main.read(CHUNK * EVENT.itemsize):
            rows = np.frombuffer(data, EVENT)
            there = np.where(rows["ev"] & AT_EXCHANGE != 0, rows["exch_ts"], -(2**63))
            highest = np.maximum(np.maximum.accumulate(there), latest)
            latest = int(highest[-1])
            count = int(np.searchsorted(late["exch_ts"], latest, side="left"))
            due = late[done:count]
            done = max(done, count)
            yield np.insert(rows, np.searchsorted(highest, due["exch_ts"], side="right"), due)
        yield late[done:]
