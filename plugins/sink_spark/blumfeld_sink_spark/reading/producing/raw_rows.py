"""Reads a topic's rows of the table ``raw`` as records, each partition in the order of its offsets."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Any

import attrs
import pyarrow as pa
import pyarrow.compute as pc

from blumfeld_sink_spark.errors import ArchiveError, SettingsError
from blumfeld_sink_spark.files.parquet import opened
from blumfeld_sink_spark.reading.committed_files import Committed
from blumfeld_sink_spark.records import FileEntry, OffsetRange
from blumfeld_sink_spark.tables import RAW

BATCH_ROWS = 2000
"""Rows in memory of each open file; with messages of 50 kB that is 100 MB."""
COLUMNS = ["ts_recv", "timestamp_type", "key", "value", "headers", "k_partition", "k_offset"]
NS_PER_MS = 1_000_000


@attrs.frozen
class RawRecord:
    """One record of the topic, as it was archived."""

    offset: int
    partition: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]] | None


@attrs.frozen
class Hole:
    """Offsets of a partition that a replay can't reproduce."""

    partition: int
    start: int
    end: int
    """Exclusive."""
    why: str

    def __str__(self) -> str:
        return f"partition {self.partition}, offsets {self.start} to {self.end - 1}: {self.why}"


@attrs.define
class RawTopic:
    """The rows of one topic in an archive's table ``raw``."""

    archive: Committed
    topic: str
    _files: dict[int, list[tuple[FileEntry, int, int]]]
    """Partition → (file, first offset, last offset) of its rows."""
    rows: dict[int, int]
    """Number of rows by partition."""

    @classmethod
    def find(cls, archive: Committed, topic: str = "") -> RawTopic:
        """Returns the rows of a topic; without a name those of the only topic.

        :raises SettingsError: no topic is named and there are several
        :raises ArchiveError: there is no table ``raw``, or it has no row of this topic
        """
        entries = archive.files(RAW)
        if not entries:
            raise ArchiveError(
                f"{archive.store.root}: no raw table; a replay needs one: archive with --decoder raw beside the others"
            )
        topics = sorted({entry.topic for entry in entries})
        if not topic and len(topics) > 1:
            raise SettingsError(
                f"topic: none is named, and the raw table has several; allowed: {', '.join(topics)}"
            )
        topic = topic or topics[0]
        if topic not in topics:
            raise ArchiveError(f"the raw table has nothing of {topic}; it has {', '.join(topics)}")
        rows = cls(archive, topic, {}, {})
        for entry in entries:
            if entry.topic == topic:
                rows._add(entry)
        return rows

    def _add(self, entry: FileEntry) -> None:
        with self.archive.open_file(entry) as source:
            table = opened(source).read(columns=["k_partition", "k_offset"])
        grouped = table.group_by("k_partition").aggregate([("k_offset", "min_max"), ("k_offset", "count")])
        for row in grouped.to_pylist():
            partition, bounds = row["k_partition"], row["k_offset_min_max"]
            self._files.setdefault(partition, []).append((entry, bounds["min"], bounds["max"]))
            self.rows[partition] = self.rows.get(partition, 0) + row["k_offset_count"]

    @property
    def partitions(self) -> int:
        """Number of partitions that the archive knows. Partitions at the end without any record may be missing."""
        known = [part.partition for part in self.archive.ranges() if part.topic == self.topic]
        return max([*self._files, *known], default=0) + 1

    def holes(self) -> list[Hole]:
        """Returns the holes that would give a replay other offsets; empty if it keeps the original ones."""
        planned: dict[int, list[OffsetRange]] = {}
        for part in self.archive.ranges():
            if part.topic == self.topic:
                planned.setdefault(part.partition, []).append(part)
        return [hole for partition in sorted(planned) for hole in self._holes(partition, planned[partition])]

    def _holes(self, partition: int, planned: Sequence[OffsetRange]) -> Iterator[Hole]:
        end, covered = 0, 0
        for part in sorted(planned):
            if part.start > end:
                why = "before the archive begins" if not covered else "never archived"
                yield Hole(partition, end, part.start, why)
            covered += max(0, part.end - max(part.start, end))
            end = max(end, part.end)
        if covered > self.rows.get(partition, 0):
            absent = covered - self.rows.get(partition, 0)
            yield Hole(partition, 0, end, f"{absent} have no record (control records, compaction, lost)")

    def records(
        self, start_ns: int | None = None, end_ns: int | None = None, by_time: bool = False
    ) -> Iterator[RawRecord]:
        """Yields all records, each partition in the order of its offsets.

        :param start_ns: only records with this timestamp or a later one
        :param end_ns: only records with an earlier timestamp
        :param by_time: merge the partitions by timestamp; else one follows the other
        """
        parts = [self._partition(partition, start_ns, end_ns) for partition in sorted(self._files)]
        if not by_time:
            for part in parts:
                yield from part
            return
        for due in heapq.merge(*map(_never_back, parts), key=attrgetter("due_ms")):
            yield due.record

    def _partition(self, partition: int, start_ns: int | None, end_ns: int | None) -> Iterator[RawRecord]:
        files = sorted(self._files[partition], key=lambda file: (file[1], file[2], file[0].path))
        for group in _overlapping(files):
            streams = [self._rows(entry, partition, start_ns, end_ns) for entry in group]
            yield from streams[0] if len(streams) == 1 else heapq.merge(*streams, key=attrgetter("offset"))

    def _rows(
        self, entry: FileEntry, partition: int, start_ns: int | None, end_ns: int | None
    ) -> Iterator[RawRecord]:
        if (end_ns is not None and entry.ts_min >= end_ns) or (
            start_ns is not None and entry.ts_max < start_ns
        ):
            return
        with self.archive.open_file(entry) as source:
            for batch in _in_order(opened(source), partition):
                for record in _records(batch):
                    ns = record.timestamp_ms * NS_PER_MS
                    if (start_ns is None or ns >= start_ns) and (end_ns is None or ns < end_ns):
                        yield record


@attrs.frozen
class _Due:
    """A record and its place in the merge by time.

    ``due_ms`` never goes back within a partition: the order of the offsets goes before the timestamps.
    """

    due_ms: int
    record: RawRecord


def _never_back(records: Iterator[RawRecord]) -> Iterator[_Due]:
    latest = -(2**63)
    for record in records:
        latest = max(latest, record.timestamp_ms)
        yield _Due(latest, record)


def _overlapping(files: Sequence[tuple[FileEntry, int, int]]) -> Iterator[list[FileEntry]]:
    """Yields groups of files with overlapping offsets, in their order. A range over midnight gives two such files."""
    group: list[FileEntry] = []
    end = -1
    for entry, first, last in files:
        if group and first > end:
            yield group
            group = []
        group.append(entry)
        end = max(end, last)
    if group:
        yield group


def _in_order(file: Any, partition: int) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a partition by offset. A file in another order is read whole: a compacted one may be sorted by
    time.
    """
    offsets = file.read(columns=["k_partition", "k_offset"])
    mine = pc.equal(offsets["k_partition"], partition)
    own = offsets["k_offset"].filter(mine).combine_chunks()
    if len(own) < 2 or pc.all(pc.less(own[:-1], own[1:])).as_py():
        for batch in file.iter_batches(BATCH_ROWS, columns=COLUMNS):
            yield (
                batch if len(own) == len(offsets) else batch.filter(pc.equal(batch["k_partition"], partition))
            )
        return
    table = file.read(columns=COLUMNS).filter(mine)
    yield from table.sort_by("k_offset").to_batches(BATCH_ROWS)


def _records(batch: pa.RecordBatch) -> Iterator[RawRecord]:
    columns = [batch.column(name).to_pylist() for name in COLUMNS if name != "timestamp_type"]
    for stamp, key, value, headers, partition, offset in zip(*columns, strict=True):
        pairs = [(pair["key"], pair["value"]) for pair in headers] if headers else None
        yield RawRecord(offset, partition, stamp // NS_PER_MS, key, value, pairs)
