"""Reads the table ``gaps``."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from blumfeld_sink_spark.errors import SettingsError
from blumfeld_sink_spark.files.parquet import opened
from blumfeld_sink_spark.quality.books import CHECKSUM
from blumfeld_sink_spark.quality.chain import DUPLICATE, GAP, GAP_END, MORE, OUT_OF_ORDER, RESET, UNREAD
from blumfeld_sink_spark.quality.runs import BAD_RECV, CROSSED, LOCKED, SKEW, STALE
from blumfeld_sink_spark.quality.stitch import DATA_LOSS
from blumfeld_sink_spark.reading.committed_files import Committed
from blumfeld_sink_spark.reading.times import iso_of
from blumfeld_sink_spark.tables import DERIVED, GAPS, QUARANTINE, RAW, tables

KINDS = (
    *(GAP, GAP_END, DUPLICATE, OUT_OF_ORDER, RESET, UNREAD, DATA_LOSS, STALE, MORE),
    *(f"{kind}{end}" for kind in (BAD_RECV, CHECKSUM, SKEW, LOCKED, CROSSED) for end in ("", "_end")),
)


def read(
    archive: Committed,
    *,
    kinds: Sequence[str] = (),
    symbols: Sequence[str] = (),
    start_ns: int | None = None,
    end_ns: int | None = None,
) -> pa.Table:
    """Returns rows of ``gaps``, sorted by time, topic, partition and offset. An empty selection takes all.

    :param end_ns: exclusive
    :raises SettingsError: there is no such kind
    :raises ArchiveError: a symbol isn't archived
    """
    for kind in kinds:
        if kind not in KINDS:
            raise SettingsError(f"kind {kind!r}; allowed: {', '.join(KINDS)}")
    archive.expect(symbols)
    parts = [tables()[GAPS].schema.empty_table()]
    for entry in archive.select(GAPS, start_ns=start_ns, end_ns=end_ns):
        if symbols and entry.symbol not in symbols:
            continue
        with archive.open_file(entry) as file:
            parts.append(opened(file).read().cast(parts[0].schema))
    rows = pa.concat_tables(parts)
    if kinds:
        rows = rows.filter(pc.is_in(rows.column("kind"), pa.array(kinds)))
    if start_ns is not None:
        rows = rows.filter(pc.greater_equal(rows.column("ts_event"), start_ns))
    if end_ns is not None:
        rows = rows.filter(pc.less(rows.column("ts_event"), end_ns))
    order = ("ts_event", "topic", "k_partition", "k_offset", "stream", "kind")
    return rows.sort_by([(name, "ascending") for name in order])


def faults(rows: pa.Table) -> pa.Table:
    """Returns the rows that a check of the feed fails by: all but what a venue always sends again as a subscription
    begins.
    """
    return rows.filter(pc.not_equal(rows.column("kind"), STALE))


def is_checked(archive: Committed) -> bool:
    """Returns whether a table has rows that a decoder read: whole messages alone have no numbers to check."""
    return any(archive.files(name) for name in tables() if name not in (RAW, QUARANTINE, *DERIVED))


def calendar(rows: pa.Table) -> dict[str, dict[str, int]]:
    """Returns the number of findings by date and kind, sorted by date. A row ``more`` counts all that it stands for."""
    counts: dict[str, dict[str, int]] = {}
    for ts, kind, missing in zip(
        *(rows.column(name).to_pylist() for name in ("ts_event", "kind", "missing")), strict=True
    ):
        day = counts.setdefault(iso_of(ts)[:10], {})
        day[kind] = day.get(kind, 0) + (missing or 1 if kind == MORE else 1)
    return counts


def closed(rows: pa.Table) -> tuple[int, int, int]:
    """Returns (gaps, gaps that late messages closed, ids that are still missing).

    Ids are counted where the venue numbers without holes. Where messages name only the one before, a gap says that
    something is missing, not how much.
    """
    numbered = rows.filter(
        pc.not_equal(rows.column("symbol"), "")
    )  # the others are of a partition's messages
    kinds = numbered.column("kind")
    gaps, ends = (pc.sum(pc.is_in(kinds, pa.array(some))).as_py() or 0 for some in ([GAP, UNREAD], [GAP_END]))
    counted = numbered.filter(pc.is_in(kinds, pa.array([GAP, UNREAD, OUT_OF_ORDER, RESET])))
    return gaps, ends, pc.sum(counted.column("missing")).as_py() or 0
