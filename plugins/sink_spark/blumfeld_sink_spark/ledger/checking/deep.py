"""Checks every byte and row of an archive's files against its records."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from blumfeld_sink_spark.files.parquet import opened
from blumfeld_sink_spark.ledger.checking import statistics
from blumfeld_sink_spark.ledger.checking.presence import Presence
from blumfeld_sink_spark.ledger.rules import Partition
from blumfeld_sink_spark.records import FileEntry, OffsetRange, RangeCount
from blumfeld_sink_spark.stores.contract import ArchiveStore

LINEAGE = ["k_partition", "k_offset"]


def problems(
    store: ArchiveStore,
    entries: Sequence[FileEntry],
    ranges: Mapping[Partition, list[OffsetRange]],
    counts: Sequence[RangeCount] = (),
) -> Iterator[str]:
    """Yields a line for each problem:

    * a file has other bytes or another number of rows than its record says
    * a row comes from a partition or offset outside the file's range
    * a message has rows in two files of one table, date and symbol
    * a message had rows when it was committed and has none now, or the reverse
    * a statistic that readers prune by isn't what the rows say (``statistics``)
    """
    presence = Presence(counts)
    folders: dict[tuple[str, str, str, str], list[FileEntry]] = {}
    for entry in entries:
        folders.setdefault((entry.table, entry.date, entry.symbol, entry.topic), []).append(entry)
    for _, together in sorted(folders.items()):
        seen: list[tuple[str, np.ndarray]] = []
        for entry in together:
            data = store.read(entry.path)
            if hashlib.sha256(data).hexdigest() != entry.sha256:
                yield f"{entry.path}: has other bytes than when it was committed (sha256)"
            try:
                file = opened(data)
                rows = file.read(columns=LINEAGE)
                misleading = list(statistics.problems(entry, file))
            except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
                yield f"{entry.path}: can't be read ({str(error).splitlines()[0]})"
                continue
            if rows.num_rows != entry.rows:
                yield f"{entry.path}: has {rows.num_rows:,} rows, its record says {entry.rows:,}"
            yield from misleading
            # Rows of ``gaps`` name the message at which a gap was found. Its own rows are in another table.
            if not entry.topic:
                continue
            messages = _messages(rows)
            for partition in np.unique(messages[:, 0]).tolist():
                presence.saw(entry.topic, partition, messages[messages[:, 0] == partition, 1])
            yield from _outside(entry, messages, ranges)
            yield from _twice(entry, messages, seen)
            seen.append((entry.path, messages))
    yield from presence.problems()


def _messages(rows: pa.Table) -> np.ndarray:
    """Returns (partition, offset) of each message with a row: an int64 array of shape (n, 2), sorted, without
    duplicates.
    """
    pairs = np.column_stack([rows[name].to_numpy().astype(np.int64) for name in LINEAGE])
    return np.unique(pairs, axis=0) if len(pairs) else pairs


def _outside(
    entry: FileEntry, messages: np.ndarray, ranges: Mapping[Partition, list[OffsetRange]]
) -> Iterator[str]:
    for partition in np.unique(messages[:, 0]).tolist():
        if entry.partition not in (-1, partition):
            yield f"{entry.path}: has rows of partition {partition}"
        offsets = messages[messages[:, 0] == partition, 1]
        known = _within(entry, ranges.get((entry.topic, partition), []))
        starts = np.array([span.start for span in known], dtype=np.int64)
        ends = np.array([span.end for span in known], dtype=np.int64)
        place = np.searchsorted(starts, offsets, side="right") - 1
        inside = (place >= 0) & (offsets < ends[np.maximum(place, 0)]) if len(known) else np.zeros(0, bool)
        if not len(known) or not inside.all():
            stray = offsets[~inside][0] if len(known) else offsets[0]
            yield f"{entry.path}: has rows of {entry.topic}-{partition} offset {stray}, which isn't in its range"


def _within(entry: FileEntry, ranges: list[OffsetRange]) -> list[OffsetRange]:
    """Returns the ranges that a file's rows may come from: those within the range in its name, or all if its name has
    none.
    """
    from blumfeld_sink_spark.files.file_names import parse

    name = parse(entry.path)
    if name is None or name.partition < 0:
        return ranges
    return [span for span in ranges if name.start <= span.start and span.end <= name.end]


def _twice(entry: FileEntry, messages: np.ndarray, seen: list[tuple[str, np.ndarray]]) -> Iterator[str]:
    for path, others in seen:
        both = _common(messages, others)
        if len(both):
            partition, offset = both[0].tolist()
            yield (
                f"{entry.path}: rows of {entry.topic}-{partition} offset {offset} and {len(both) - 1} more messages "
                f"are in {path} too"
            )


def _common(first: np.ndarray, other: np.ndarray) -> np.ndarray:
    if (
        not len(first)
        or not len(other)
        or first[0].tolist() > other[-1].tolist()
        or other[0].tolist() > first[-1].tolist()
    ):
        return first[:0]
    kinds = np.dtype([("partition", np.int64), ("offset", np.int64)])
    left, right = (np.ascontiguousarray(pairs).view(kinds).ravel() for pairs in (first, other))
    return first[np.isin(left, right)]
