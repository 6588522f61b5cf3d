"""The Python stream source. Its rows are the topics' raw rows, or, in the direct mode, the results of whole tasks.

Spark runs the planning methods of the reader in one process beside the driver, and ``read`` in the workers. Offsets
have the form of :mod:`offset_plans`. One task reads one range of one partition.
"""

# ruff: noqa: N802 — Spark names these methods

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from blumfeld_sink_spark.errors import ArchiveError
from blumfeld_sink_spark.records import OffsetRange
from blumfeld_sink_spark.settings import ArchiveSettings
from blumfeld_sink_spark.spark.runtime.lean import leave_pandas_out
from blumfeld_sink_spark.spark.topics import offset_plans
from blumfeld_sink_spark.spark.topics.client import Topics, patience_s
from blumfeld_sink_spark.spark.topics.offset_plans import Offsets

if TYPE_CHECKING:
    from blumfeld_sink_spark.range_counter import Skips

SOURCE = "blumfeld_topics"

_RAW = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"
_HEADERS = ", headers array<struct<key: string, value: binary>>"

BACKWARDS_S = 10.0
"""Time in which a topic's end may lie before the archived offsets. A broker that just came back needs a moment."""

DIRECT = pa.schema([pa.field("result", pa.binary())])
"""Schema of the direct mode: each row is a :class:`TaskResult` as JSON."""


class TopicsSource(DataSource):
    """``spark.readStream.format("blumfeld_topics")``.

    Options: ``settings``, ``starting`` (offsets of every partition there is), ``ending`` (offsets to stop at, or
    empty), all JSON; ``direct`` as ``true`` or ``false``.
    """

    @classmethod
    def name(cls) -> str:
        """Returns the format's name."""
        return SOURCE

    def schema(self) -> str:
        """Returns the schema as DDL: raw rows with the columns of Spark's Kafka source, or results."""
        if self._direct:
            return "result binary"
        return _RAW + (_HEADERS if self._settings.with_headers else "")

    def streamReader(self, schema: Any) -> TopicsReader:
        """Returns a reader with these options."""
        ending = self.options.get("ending", "")
        return TopicsReader(
            self._settings,
            offset_plans.from_json(msgspec.json.decode(self.options["starting"])),
            offset_plans.from_json(msgspec.json.decode(ending)) if ending else None,
            direct=self._direct,
        )

    @property
    def _settings(self) -> ArchiveSettings:
        return msgspec.json.decode(self.options["settings"], type=ArchiveSettings)

    @property
    def _direct(self) -> bool:
        return bool(self.options.get("direct") == "true")


class RangePartition(InputPartition):
    """The range that one task reads."""

    def __init__(self, wanted: OffsetRange) -> None:
        super().__init__((wanted.topic, wanted.partition, wanted.start, wanted.end))

    @property
    def range(self) -> OffsetRange:
        """The range, from the tuple that Spark pickles."""
        return OffsetRange(*self.value)


class TopicsReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans batches by the topics' ends, and reads ranges.

    It opens no connection before the first call: Spark pickles the reader for the workers.
    """

    def __init__(
        self, settings: ArchiveSettings, starting: Offsets, ending: Offsets | None, *, direct: bool
    ) -> None:
        self._settings = settings
        self._starting = starting
        self._ending = ending
        self._direct = direct
        self._target: Offsets | None = None
        self._latest: Offsets = {}
        self._topics: Topics | None = None

    def initialOffset(self) -> dict[str, dict[str, int]]:
        """Returns the offsets that batch 0 begins at. They were resolved before the query and lie in the checkpoint."""
        return offset_plans.to_json(self._starting)

    def getDefaultReadLimit(self) -> ReadLimit:
        """Returns the limit of a batch, ``max_offsets_per_trigger``; 0 is no limit."""
        limit = self._settings.max_offsets_per_trigger
        return ReadMaxRows(limit) if limit else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Fixes the offsets at which the whole run ends. Messages that come later wait for the next run."""
        self._target = self._ends()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, dict[str, int]]:
        """Returns the offsets at which the next batch ends; ``start`` where nothing is new.

        :raises ArchiveError: a topic ends before ``start`` and stays so
        """
        begin = offset_plans.from_json(start)
        if self._target is None:
            self._ends()
        self._check_backwards(begin)
        ends = self._bounded(self._latest) if self._target is None else self._target
        fresh = [place for place in ends if place not in begin]
        earliest = self._client().earliest(fresh)
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return offset_plans.to_json(offset_plans.next_ends(begin, ends, earliest, rows))

    def reportLatestOffset(self) -> dict[str, dict[str, int]] | None:
        """Returns the topics' ends as they were last asked for; Spark shows the lag by them."""
        return offset_plans.to_json(self._latest) if self._latest else None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Returns one range for each partition that has offsets to read."""
        return [
            RangePartition(each)
            for each in offset_plans.ranges(offset_plans.from_json(start), offset_plans.from_json(end))
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yields the raw rows of a range and its skips, or in the direct mode the result of the whole task."""
        leave_pandas_out()
        from blumfeld_sink_spark.range_counter import Skips
        from blumfeld_sink_spark.spark.tasks.skips_row import followed_by_skips
        from blumfeld_sink_spark.spark.topics.fetch import read_range

        wanted, skips = OffsetRange(*partition.value), Skips()
        batches = read_range(self._settings, wanted, skips)
        if self._direct:
            return self._work(batches, wanted, skips)
        return followed_by_skips(batches, wanted, skips, with_headers=self._settings.with_headers)

    def stop(self) -> None:
        """Drops the client. Its connections close with it."""
        self._topics = None

    def _work(
        self, batches: Iterator[pa.RecordBatch], wanted: OffsetRange, skips: Skips
    ) -> Iterator[pa.RecordBatch]:
        from blumfeld_sink_spark.spark.tasks.task import TaskWork

        work = TaskWork(self._settings)
        try:
            for rows in batches:
                work.add(rows)
            work.tell(wanted, skips)
            results = work.finish()
        except BaseException:
            work.abort()
            raise
        encoded = [msgspec.json.encode(result) for result in results]
        yield pa.RecordBatch.from_arrays([pa.array(encoded, pa.binary())], schema=DIRECT)

    def _client(self) -> Topics:
        if self._topics is None:
            self._topics = Topics(self._settings, patience_s(self._settings))
        return self._topics

    def _ends(self) -> Offsets:
        topics = self._client()
        self._latest = topics.latest(topics.places())
        return self._bounded(self._latest)

    def _bounded(self, latest: Offsets) -> Offsets:
        if self._ending is None:
            return latest
        return {place: min(end, latest.get(place, end)) for place, end in sorted(self._ending.items())}

    def _check_backwards(self, start: Mapping[offset_plans.Place, int]) -> None:
        """Waits while a topic ends before ``start``. A broker that just came back may not know its end yet; a topic
        that was deleted and created again stays shorter.

        :raises ArchiveError: the topic is shorter for ``BACKWARDS_S``
        """
        until = time.monotonic() + BACKWARDS_S
        while True:
            shorter = [place for place, offset in start.items() if self._latest.get(place, offset) < offset]
            if not shorter:
                return
            if time.monotonic() > until:
                break
            time.sleep(0.2)
            ends = self._ends()
            self._target = ends if self._target is not None else None
        topic, partition = shorter[0]
        raise ArchiveError(
            f"{topic}-{partition} ends at offset {self._latest[shorter[0]]}, but offsets up to {start[shorter[0]]} "
            "are archived: the topic was deleted and created again, or its log was cut. Archive it under another name"
        )
