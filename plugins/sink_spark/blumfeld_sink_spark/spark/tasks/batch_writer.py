"""The Arrow stream sink: tasks stage files, the driver's side publishes a batch with the ranges that Spark planned.

Spark makes a new writer for each batch in a process of its own beside the driver; only options and messages reach it.
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

from blumfeld_sink_spark.accounting import LOST
from blumfeld_sink_spark.ledger.counting import TELLING
from blumfeld_sink_spark.ledger.ledger import Ledger
from blumfeld_sink_spark.ledger.outbox import deliver
from blumfeld_sink_spark.ledger.publish import publish
from blumfeld_sink_spark.records import OffsetRange, TaskResult
from blumfeld_sink_spark.settings import ArchiveSettings
from blumfeld_sink_spark.spark.checkpoint import Checkpoint
from blumfeld_sink_spark.spark.runtime.lean import leave_pandas_out
from blumfeld_sink_spark.spark.topics.client import Topics, patience_s
from blumfeld_sink_spark.stores.opening import open_store

SINK = "blumfeld_archive"


@dataclass
class Results(WriterCommitMessage):
    """What a task came to: :class:`TaskResult` each, as JSON."""

    encoded: list[bytes]

    def decoded(self) -> list[TaskResult]:
        """The results."""
        return [msgspec.json.decode(each, type=TaskResult) for each in self.encoded]


class ArchiveSink(DataSource):
    """``df.writeStream.format("blumfeld_archive")``.

    Options: ``settings`` (JSON), ``query`` (the ledger's), ``fresh`` (see :func:`planning.ranges`; empty is ``None``),
    ``reader`` (see :func:`counting.counts_of`).
    """

    @classmethod
    def name(cls) -> str:
        """The format."""
        return SINK

    def streamWriter(self, schema: Any, overwrite: bool) -> ArchiveWriter:
        """A batch's writer. Spark passes both by keyword."""
        fresh = self.options.get("fresh", "")
        reader = self.options.get("reader", "")
        return ArchiveWriter(
            msgspec.json.decode(self.options["settings"], type=ArchiveSettings),
            self.options["query"],
            int(fresh) if fresh else None,
            reader,
        )


class ArchiveWriter(DataSourceStreamArrowWriter):
    """Stages in ``write``, publishes in ``commit``, cleans up in ``abort``."""

    def __init__(self, settings: ArchiveSettings, query: str, fresh: int | None, reader: str = "") -> None:
        self._settings = settings
        self._reader = reader
        self._query = query
        self._fresh = fresh

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Results:
        """Raw rows are decoded and staged; rows of the direct mode say what was staged already."""
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
        """Publishes the batch, or finds that it is published.

        :raises ArchiveError: it can't be; nothing is seen of it, and the same batch is run again at the next start
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
        deliver(store, ledger, self._settings)

    def abort(self, messages: Sequence[Any], batch_id: int) -> None:
        """Removes what the tasks that ended well have staged."""
        store = open_store(self._settings.root)
        for message in messages:
            for result in message.decoded() if message is not None else ():
                for file in result.files:
                    store.delete(file.staged)

    def _lost(self, planned: Sequence[OffsetRange], results: Sequence[TaskResult]) -> tuple[OffsetRange, ...]:
        """What the topics no longer had: as the tasks say, else as the broker says where a range's rows begin late."""
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
    """What the tasks found lost."""
    return tuple(
        OffsetRange(result.topic, result.partition, span.start, span.end)
        for result in results
        for span in result.count.spans
        if span.reason == LOST
    )


def missing(
    late: Sequence[OffsetRange], first: dict[tuple[str, int], int], begins: dict[tuple[str, int], int]
) -> tuple[OffsetRange, ...]:
    """What of these ranges is lost: before the partition's beginning, and before the first row that was seen."""
    found = []
    for each in late:
        place = (each.topic, each.partition)
        end = min(each.end, begins[place], first.get(place, each.end))
        if end > each.start:
            found.append(OffsetRange(each.topic, each.partition, each.start, end))
    return tuple(found)
