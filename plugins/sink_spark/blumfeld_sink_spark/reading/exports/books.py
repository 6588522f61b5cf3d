"""A book's snapshots and changes in an order that a reader can apply.

The archive holds book messages as they came. ``book.sync`` orders them by the venue's ids:

* Rows before the first snapshot are left out, and so are changes that a snapshot already has.
* Changes that a late REST snapshot lacks come again behind it.
* An export with a start begins with a snapshot of the book at that time.
"""

from __future__ import annotations

from collections.abc import Iterator

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from blumfeld_sink_spark.book.change import Change
from blumfeld_sink_spark.book.ladder import Ladder
from blumfeld_sink_spark.book.sync import Sync
from blumfeld_sink_spark.errors import ArchiveError
from blumfeld_sink_spark.reading.exports.selection import Selection
from blumfeld_sink_spark.tables import BOOK_DELTAS

COLUMNS = (
    "ts_event", "ts_event_is_recv", "ts_recv", "first_id", "last_id", "prev_id", "side", "price", "size",
    "is_snapshot", "depth", "k_partition", "k_offset", "venue", "symbol",
)  # fmt: skip


@attrs.frozen
class Part:
    """A run of whole messages."""

    rows: pa.Table
    """Columns ``COLUMNS``. ``ts_recv`` never goes back, from part to part either."""
    is_snapshot: bool
    """Whether the rows are a whole book: bids from the best down, then asks from the best up."""


def parts(selection: Selection, symbol: str, venue: str) -> Iterator[Part]:
    """Yields the book of a symbol; no part where there is no snapshot.

    :raises ArchiveError: the book lies in several partitions, which have no order among them
    """
    sync, begin, latest = Sync(), _Begin(selection.start_ns), -(2**63)
    for rows in _messages(attrs.evolve(selection, start_ns=None), symbol, venue):
        for change in sync.feed(rows):
            for part in begin.take(change):
                stamps = np.maximum(np.maximum.accumulate(part.rows["ts_recv"].to_numpy()), latest)
                latest = int(stamps[-1])
                at = part.rows.schema.get_field_index("ts_recv")
                yield Part(
                    part.rows.set_column(at, part.rows.schema.field(at), pa.array(stamps)), part.is_snapshot
                )


def _messages(selection: Selection, symbol: str, venue: str) -> Iterator[pa.Table]:
    """Yields chunks of whole messages by offset."""
    held = partition = None
    for rows in selection.rows(BOOK_DELTAS, symbol, COLUMNS, venue, key="k_offset"):
        partition = rows["k_partition"][0] if partition is None else partition
        if not pc.all(pc.equal(rows["k_partition"], partition)).as_py():
            raise ArchiveError(
                f"the book of {symbol} lies in several partitions, which have no order among them; key the messages "
                "by symbol"
            )
        rows = rows if held is None else pa.concat_tables([held, rows])
        count = pc.sum(pc.not_equal(rows["k_offset"], rows["k_offset"][-1])).as_py() or 0
        held = rows.slice(count)  # the last message may go on in the next chunk
        if count:
            yield rows.slice(0, count).combine_chunks()
    if held is not None:
        yield held.combine_chunks()


class _Begin:
    """Builds the book up to the export's start, and gives it out there as a snapshot."""

    def __init__(self, start_ns: int | None) -> None:
        self._start_ns = start_ns
        self._ladder: Ladder | None = None if start_ns is None else Ladder()

    def take(self, change: Change) -> Iterator[Part]:
        """Yields the parts of a change that belong in the export."""
        if not change.rows.num_rows:
            return
        if self._ladder is None or self._start_ns is None:
            yield Part(_sorted(change.rows) if change.replaces else change.rows, change.replaces)
            return
        early = pc.less(change.rows["ts_event"], self._start_ns).to_numpy(zero_copy_only=False)
        if early.all():
            self._ladder.take([change])
            return
        ladder, self._ladder = self._ladder, None
        if change.replaces:
            yield Part(_sorted(change.rows), True)
            return
        offsets = change.rows["k_offset"].to_numpy()
        edge = int(np.searchsorted(offsets, offsets[np.argmin(early)]))
        ladder.take([attrs.evolve(change, rows=change.rows.slice(0, edge))])
        rest = change.rows.slice(edge)
        yield from self._opening(ladder, rest)
        yield Part(rest, False)

    def _opening(self, ladder: Ladder, rest: pa.Table) -> Iterator[Part]:
        """Yields the present book as a snapshot, with the export's start as event time and the next row's receipt."""
        ladder.settle()
        if ladder.levels is None or not ladder.levels.num_rows:
            return
        levels = ladder.levels
        first = rest.slice(0, 1)
        fixed = {"ts_event": pa.scalar(self._start_ns, pa.int64()), "is_snapshot": pa.scalar(True)}
        fixed["ts_event_is_recv"] = pa.scalar(False)
        fixed |= {name: pa.scalar(None, pa.int64()) for name in ("first_id", "last_id", "prev_id")}
        columns = {
            name: levels[name]
            if name in levels.column_names
            else pa.repeat(fixed.get(name, first[name][0]), levels.num_rows)
            for name in COLUMNS
        }
        yield Part(_sorted(pa.table(columns).cast(rest.select(list(COLUMNS)).schema)), True)


def _sorted(rows: pa.Table) -> pa.Table:
    bids = rows.filter(pc.equal(rows["side"], 1)).sort_by([("price", "descending")])
    asks = rows.filter(pc.not_equal(rows["side"], 1)).sort_by("price")
    return pa.concat_tables([bids, asks]).combine_chunks()
