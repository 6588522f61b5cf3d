"""The work of one task, with every reader the same: rows of partitions in, staged files and results out."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import attrs
import pyarrow as pa
import pyarrow.compute as pc

from blumfeld_sink_spark import apply
from blumfeld_sink_spark.files.writer import TaskWriter
from blumfeld_sink_spark.quality import Summariser, continuity_of
from blumfeld_sink_spark.range_counter import RangeCounter, Skips
from blumfeld_sink_spark.records import OffsetRange, TaskResult
from blumfeld_sink_spark.rows import RAW_ROWS, RAW_ROWS_WITH_HEADERS
from blumfeld_sink_spark.settings import ArchiveSettings
from blumfeld_sink_spark.spark.tasks.skips_row import taken_off
from blumfeld_sink_spark.stores.roots import open_store
from blumfeld_sink_spark.tables import QUARANTINE

BATCH_BYTES = 4 << 20
"""Bytes of rows that are decoded at once. Small batches are put together and big ones are cut.

With fewer bytes the fixed cost of a decoder call is felt. With more, the columns between two steps leave the
processor's cache.
"""


class PartitionWork:
    """Decodes, counts and writes the rows of one partition's range. Batches come in the order of the offsets."""

    def __init__(self, settings: ArchiveSettings, topic: str, partition: int) -> None:
        self._settings = settings
        self._topic, self._partition = topic, partition
        self._decoders = apply.decoders_for(topic, settings)
        self._summariser = Summariser(topic, partition, continuity_of(self._decoders), settings.skew_ms)
        self._writer = TaskWriter(open_store(settings.root), settings, topic, partition)
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0
        self._counter = RangeCounter(topic, partition)
        self._messages = self._bytes_in = self._quarantined = 0
        self._first = self._last = -1
        self._versions: dict[str, int] = {each.name: each.version for each in self._decoders}

    def add(self, rows: pa.RecordBatch) -> None:
        """Takes a batch. Waiting batches are decoded and written as soon as they have ``BATCH_BYTES``."""
        if not rows.num_rows:
            return
        self._waiting.append(rows)
        self._waiting_bytes += rows.nbytes
        if self._waiting_bytes >= BATCH_BYTES:
            self._work()

    def _work(self) -> None:
        """Decodes and writes the waiting batches."""
        rows, size = together(self._waiting), self._waiting_bytes
        self._waiting, self._waiting_bytes = [], 0
        for part in cut(rows, size):
            self._decode(part)

    def _decode(self, rows: pa.RecordBatch) -> None:
        applied = apply.decode_rows(self._decoders, rows, self._settings)
        made = {name: table.num_rows for name, table in applied.tables.items()}
        self._counter.add(rows, applied.has_row, made, applied.fates)
        self._summariser.add(applied.sequences, applied.tables, applied.messages)
        self._writer.write(applied.tables)
        offsets = rows.column("offset")
        if self._first < 0:
            self._first = offsets[0].as_py()
        self._last = offsets[-1].as_py()
        self._messages += rows.num_rows
        self._bytes_in += _bytes(rows.column("key")) + _bytes(rows.column("value"))
        quarantine = applied.tables.get(QUARANTINE)
        self._quarantined += quarantine.num_rows if quarantine is not None else 0

    def finish(self, wanted: OffsetRange | None = None, skips: Skips | None = None) -> TaskResult:
        """Decodes the waiting batches and closes the files. When this returns, they are synced and staged.

        :param wanted: the planned range, where the task knows it
        :param skips: the offsets without a message that the fetch found, where the task has them
        :raises ArchiveError: messages and skipped offsets don't add up to the range
        """
        if self._waiting:
            self._work()
        return TaskResult(
            topic=self._topic,
            partition=self._partition,
            messages=self._messages,
            first_offset=self._first,
            last_offset=self._last,
            bytes_in=self._bytes_in,
            files=self._writer.close(),
            sequences=self._summariser.result(),
            quarantined=self._quarantined,
            decoders=self._versions,
            count=self._counter.count(wanted, skips),
        )

    def abort(self) -> None:
        """Drops the waiting batches and removes the staged files."""
        self._waiting.clear()
        self._writer.abort()


@attrs.define
class TaskWork:
    """The work of one task. A task has one partition; if Spark hands it several, each has its own files and counts."""

    settings: ArchiveSettings
    _parts: dict[tuple[str, int], PartitionWork] = attrs.field(factory=dict, init=False)
    _told: dict[tuple[str, int], tuple[OffsetRange, Skips]] = attrs.field(factory=dict, init=False)

    def add(self, rows: pa.RecordBatch) -> None:
        """Takes a batch from Spark. It may hold several partitions, and as last row of each the skips of its fetch."""
        for topic, partition, part in by_partition(rows):
            messages, skips = taken_off(part)
            self._part(topic, partition).add(messages)
            if skips is not None:
                self.tell(skips.wanted, Skips(skips.spans))

    def tell(self, wanted: OffsetRange, skips: Skips) -> None:
        """Takes the skips of a fetched range. The range then has a result even if no message came."""
        self._part(wanted.topic, wanted.partition)
        self._told[wanted.topic, wanted.partition] = wanted, skips

    def finish(self) -> list[TaskResult]:
        """Returns a result for each partition that had rows or skips.

        :raises ArchiveError: messages and skipped offsets don't add up to the range
        """
        return [self._parts[key].finish(*self._told.get(key, (None, None))) for key in sorted(self._parts)]

    def _part(self, topic: str, partition: int) -> PartitionWork:
        if (topic, partition) not in self._parts:
            self._parts[topic, partition] = PartitionWork(self.settings, topic, partition)
        return self._parts[topic, partition]

    def abort(self) -> None:
        """Removes the staged files of all partitions."""
        for work in self._parts.values():
            work.abort()


def by_partition(rows: pa.RecordBatch) -> Iterator[tuple[str, int, pa.RecordBatch]]:
    """Yields (topic, partition, rows), cut where one of the two changes, in the archive's schema of raw rows."""
    schema = RAW_ROWS_WITH_HEADERS if "headers" in rows.schema.names else RAW_ROWS
    if rows.schema != schema:
        rows = pa.RecordBatch.from_arrays(
            [rows.column(field.name).cast(field.type) for field in schema], schema=schema
        )
    if not rows.num_rows:
        return
    topics, partitions = rows.column("topic"), rows.column("partition")
    changes = pc.or_(pc.not_equal(topics[1:], topics[:-1]), pc.not_equal(partitions[1:], partitions[:-1]))
    cuts = [0, *(place + 1 for place in pc.indices_nonzero(changes).to_pylist()), rows.num_rows]
    for start, end in pairwise(cuts):
        yield topics[start].as_py(), partitions[start].as_py(), rows.slice(start, end - start)


def together(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Joins batches of one schema into one."""
    if len(batches) == 1:
        return batches[0]
    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]


def cut(rows: pa.RecordBatch, size_bytes: int) -> Iterator[pa.RecordBatch]:
    """Cuts a batch of ``size_bytes`` into parts of about ``BATCH_BYTES``, without a copy."""
    parts = max(1, round(size_bytes / BATCH_BYTES))
    step = -(-rows.num_rows // parts)
    for start in range(0, rows.num_rows, step):
        yield rows.slice(start, step)


def _bytes(column: pa.Array) -> int:
    return pc.sum(pc.binary_length(column)).as_py() or 0
