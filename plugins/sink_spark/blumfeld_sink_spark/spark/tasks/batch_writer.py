"""The Arrow stream sink: tasks stage files, then the driver's side publishes the batch.

For each batch Spark makes a new writer, in a process of its own beside the driver. Only the options and the tasks'
commit messages reach it, so it reads the batch's ranges from Spark's checkpoint.
"""

# ruff: noqa: N802 — Spark names these methods

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage

from blumfeld_sink_spark.ledger.formats.outbox import deliver
from blumfeld_sink_spark.ledger.ledger import Ledger
from blumfeld_sink_spark.ledger.publishing.planned_counts import TELLING
from blumfeld_sink_spark.ledger.publishing.publish import publish
from blumfeld_sink_spark.range_counts import LOST
from blumfeld_sink_spark.records import OffsetRange, TaskResult
from blumfeld_sink_spark.settings import ArchiveSettings
from blumfeld_sink_spark.spark.checkpoint import Checkpoint
from blumfeld_sink_spark.spark.runtime.lean import leave_pandas_out
from blumfeld_sink_spark.spark.topics.client import Topics, patience_s
from blumfeld_sink_spark.stores.roots import open_store

SINK = "blumfeld_archive"


@dataclass
class Results(WriterCommitMessage):
    """A task's commit message: one :class:`TaskResult` for each partition, as JSON."""

    encoded: list[bytes]

    def decoded(self) -> list[TaskResult]:
        """Returns the results, decoded."""
        return [msgspec.json.decode(each, type=TaskResult) for each in self.encoded]


class ArchiveSink(DataSource):
    """``df.writeStream.format("blumfeld_archive")``.

    Options: ``settings`` (JSON), ``query`` (the query's name in the ledger), ``fresh`` (of
    :func:`offset_plans.ranges`; empty is ``None``), ``reader`` (see :func:`planned_counts.counts_of`).
    """

    @classmethod
    def name(cls) -> str:
        """Returns the format's name."""
        return SINK

    def streamWriter(self, schema: Any, overwrite: bool) -> ArchiveWriter:
        """Returns a writer for one batch. Spark passes both arguments by keyword, so their names are fixed."""
        fresh = self.options.get("fresh", "")
        reader = self.options.get("reader", "")
        return ArchiveWriter(
            msgspec.json.decode(self.options["settings"], type=ArchiveSettings),
            self.options["query"],
            int(fresh) if fresh else None,
            reader,
        )


class ArchiveWriter(DataSourceStreamArrowWriter):
    """The two-phase commit of a batch: ``write`` stages files, ``commit`` publishes them, ``abort`` removes them.

    A crash between the two leaves staged files that no commit record names. Readers never see them, and
    ``archive vacuum`` removes them.
    """

    def __init__(self, settings: ArchiveSettings, query: str, fresh: int | None, reader: str = "") -> None:
        self._settings = settings
        self._reader = reader
        self._query = query
        self._fresh = fresh

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Results:
        """Decodes and stages raw rows. In the direct mode the source has done so, and its rows are the results."""
        leave_pandas_out()
        from blumfeld_sink_spark.spark.tasks.task import TaskWork

        work = TaskWork(self._settings)
        direct: list[bytes] = []
        try:
            for rows in iterator:
                if rows.schema.names == ["result"]:
                    direct += rows.column(0).to_pylist()
                else:
                    work.add(rows)
            return Results([*direct, *(msgspec.json.encode(result) for result in work.finish())])
        except BaseException:
            work.abort()
            raise

    def commit(self, messages: Sequence[Any], batch_id: int) -> None:
        """Publishes the batch. A batch that is published already stays as it is.

        Spark runs a batch again after a crash between our commit and its own note of it. The ledger knows the batch by
        its query and number, so no record is archived twice.

        :raises ArchiveError: the batch can't be published. Readers see nothing of it, and the next start runs it again
        """
        checkpoint = Checkpoint(self._settings.checkpoint_location)
        planned = checkpoint.planned(batch_id, self._fresh)
        results = sorted(
            (result for message in messages if message is not None for result in message.decoded()),
            key=lambda result: (result.topic, result.partition, result.first_offset),
        )
        store = open_store(self._settings.root)
        ledger = Ledger(store)
        publish(
            store,
            ledger,
            query=self._query,
            batch=batch_id,
            planned=planned,
            lost=self._lost(planned, results),
            results=results,
            settings=self._settings,
            now_ms=time.time_ns() // 1_000_000,
            seconds=checkpoint.seconds_since_planned(batch_id),
            seams=checkpoint.seams() if batch_id == 0 else (),
            reader=self._reader,
        )
        # Last: the ledger decides what is in the archive. Delta and Iceberg follow it, and a crash between the two is
        # mended by the next run's `deliver`.
        deliver(store, ledger, self._settings)

    def abort(self, messages: Sequence[Any], batch_id: int) -> None:
        """Removes the staged files of the tasks that ended well. A task that failed has removed its own."""
        store = open_store(self._settings.root)
        for message in messages:
            for result in message.decoded() if message is not None else ():
                for file in result.files:
                    store.delete(file.staged)

    def _lost(self, planned: Sequence[OffsetRange], results: Sequence[TaskResult]) -> tuple[OffsetRange, ...]:
        """Returns the offsets that the topics no longer had.

        Our own readers report them. Spark's connector doesn't, so the broker is asked for the beginning of each
        partition with rows that began late.
        """
        if self._settings.fail_on_data_loss:
            return ()
        if self._reader in TELLING:
            return told_lost(results)
        first = {(each.topic, each.partition): each.first_offset for each in reversed(results)}
        late = [each for each in planned if first.get((each.topic, each.partition), each.end) > each.start]
        if not late:
            return ()
        begins = Topics(self._settings, patience_s(self._settings)).earliest(
            [(each.topic, each.partition) for each in late]
        )
        return missing(late, first, begins)


def told_lost(results: Sequence[TaskResult]) -> tuple[OffsetRange, ...]:
    """Returns the ranges that the tasks found lost."""
    return tuple(
        OffsetRange(result.topic, result.partition, span.start, span.end)
        for result in results
        for span in result.count.spans
        if span.reason == LOST
    )


def missing(
    late: Sequence[OffsetRange], first: dict[tuple[str, int], int], begins: dict[tuple[str, int], int]
) -> tuple[OffsetRange, ...]:
    """Returns the lost head of each range: up to the partition's beginning or the first row, whichever is lower.

    :param late: the ranges with rows that began late, or without any
    :param first: the first offset seen in each partition
    :param begins: the first offset that each partition still has
    """
    ranges = []
    for each in late:
        place = (each.topic, each.partition)
        end = min(each.end, begins[place], first.get(place, each.end))
        if end > each.start:
            ranges.append(OffsetRange(each.topic, each.partition, each.start, end))
    return tuple(ranges)
