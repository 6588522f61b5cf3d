"""A task's count of its range: its messages, the fate of each, and the offsets that the fetch skipped."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from blumfeld_sink_spark.errors import ArchiveError
from blumfeld_sink_spark.range_counts import (
    HIDDEN,
    KINDS_MAX,
    NO_ROW,
    OTHER,
    SPANS_MAX,
    explained,
    joined,
    named,
)
from blumfeld_sink_spark.records import DecoderCount, OffsetRange, RangeCount, Span

Numbers = npt.NDArray[np.int64]


class Skips:
    """The offsets without a message that a fetch found. The fetch fills it while the range is read."""

    def __init__(self, spans: Iterable[Span] = ()) -> None:
        self._found = [(span.start, span.end, span.reason) for span in spans]

    def add(self, reason: str, start: int, end: int) -> None:
        """Adds the offsets from ``start`` up to ``end``, exclusive."""
        if start < end:
            self._found.append((start, end, reason))

    def add_between(self, reason: str, offsets: Numbers) -> None:
        """Adds the offsets between these ones, which grow."""
        for at in np.flatnonzero(np.diff(offsets) > 1).tolist():
            self.add(reason, int(offsets[at]) + 1, int(offsets[at + 1]))

    def within(self, wanted: OffsetRange) -> list[Span]:
        """Returns the spans inside a range, sorted; adjacent spans of one reason are joined."""
        spans = []
        for start, end, reason in sorted(self._found):
            start, end = max(start, wanted.start), min(end, wanted.end)
            if start < end:
                spans.append(Span(start, end, reason))
        return joined(spans)


@attrs.define
class Fates:
    """The number of a batch's messages by their fate in one decoder."""

    read: int
    quarantined: int
    passed_over: Counter[str]


class RangeCounter:
    """Counts the messages of one range. The result doesn't depend on how they are cut into batches."""

    def __init__(self, topic: str, partition: int) -> None:
        self._topic, self._partition = topic, partition
        self._messages = self._with_rows = 0
        self._first = self._last = -1
        self._gaps: list[Span] = []
        self._rowless: list[Span] = []
        self._rowless_count = 0
        self._rows: Counter[str] = Counter()
        self._read: Counter[str] = Counter()
        self._quarantined: Counter[str] = Counter()
        self._passed_over: dict[str, Counter[str]] = {}
        self._rows_crc = 0
        self._content = (0, 0, 0)

    def add(
        self,
        batch: pa.RecordBatch,
        has_row: npt.NDArray[np.bool_],
        rows: Mapping[str, int],
        fates: Mapping[str, Fates],
    ) -> None:
        """Adds a batch.

        :param has_row: for each message, whether a table has a row of it
        :param rows: number of rows by table
        :raises ArchiveError: a message came twice, or after a later one
        """
        offsets = batch.column("offset").to_numpy()
        if not len(offsets):
            return
        self._follow(offsets)
        self._messages += len(offsets)
        self._content = content_crc(batch, self._content)
        there = offsets[has_row]
        self._with_rows += len(there)
        self._rows_crc = zlib.crc32(np.ascontiguousarray(there).view(np.uint8).data, self._rows_crc)
        if len(there) < len(offsets):
            self._without(offsets[~has_row])
        self._rows.update(rows)
        for name, fate in fates.items():
            self._read[name] += fate.read
            self._quarantined[name] += fate.quarantined
            self._pass_over(self._passed_over.setdefault(name, Counter()), fate.passed_over)

    def _follow(self, offsets: Numbers) -> None:
        steps = np.diff(offsets, prepend=offsets[0] - 1 if self._last < 0 else self._last)
        if (steps < 1).any():
            at = int(np.flatnonzero(steps < 1)[0])
            raise ArchiveError(
                f"{self._topic}-{self._partition}: offset {offsets[at]} came after "
                f"{offsets[at - 1] if at else self._last}. Nothing was published; the batch is run again"
            )
        if self._first < 0:
            self._first = int(offsets[0])
        for at in np.flatnonzero(steps > 1).tolist():
            self._gaps.append(Span(int(offsets[at] - steps[at]) + 1, int(offsets[at]), HIDDEN))
        self._last = int(offsets[-1])

    def _without(self, offsets: Numbers) -> None:
        self._rowless_count += len(offsets)
        if len(self._rowless) > SPANS_MAX:
            return
        cuts = np.flatnonzero(np.diff(offsets) > 1)
        starts, ends = np.append(offsets[:1], offsets[cuts + 1]), np.append(offsets[cuts], offsets[-1:]) + 1
        pairs = zip(starts.tolist(), ends.tolist(), strict=True)
        self._rowless = joined([*self._rowless, *(Span(start, end, NO_ROW) for start, end in pairs)])

    @staticmethod
    def _pass_over(known: Counter[str], more: Mapping[str, int]) -> None:
        for kind, count in more.items():
            known[kind if kind in known or len(known) < KINDS_MAX else OTHER] += count

    def count(self, wanted: OffsetRange | None = None, skips: Skips | None = None) -> RangeCount:
        """Returns the count of the range.

        :param wanted: the planned range; without it the count goes from the first message to the last
        :param skips: the offsets without a message that the fetch found; without it they are ``hidden``
        :raises ArchiveError: messages and skipped offsets don't add up to the range
        """
        start, end = (wanted.start, wanted.end) if wanted else (max(self._first, 0), self._last + 1)
        gaps = joined([*self._edges(start, end), *self._gaps])
        if wanted is not None and skips is not None:
            gaps = explained(gaps, skips.within(wanted), wanted, self._messages)
        return RangeCount(
            topic=self._topic,
            partition=self._partition,
            start=start,
            end=end,
            messages=self._messages,
            with_rows=self._with_rows,
            rows=dict(sorted(self._rows.items())),
            decoders={
                name: DecoderCount(
                    read=self._read[name],
                    quarantined=self._quarantined[name],
                    passed_over=dict(sorted(self._passed_over[name].items())),
                )
                for name in sorted(self._passed_over)
            },
            rows_crc=self._rows_crc,
            content_crc=self._content,
            **named(gaps, self._rowless, self._rowless_count),
        )

    def _edges(self, start: int, end: int) -> Iterator[Span]:
        if not self._messages:
            yield Span(start, end, HIDDEN)
            return
        yield Span(start, self._first, HIDDEN)
        yield Span(self._last + 1, end, HIDDEN)


def content_crc(batch: pa.RecordBatch, before: tuple[int, int, int] = (0, 0, 0)) -> tuple[int, int, int]:
    """Returns ``RangeCount.content_crc`` with one batch more. The cut into batches makes no difference."""
    keys, values, facts = before
    columns = [batch.column("offset"), batch.column("timestamp").view(pa.int64()).fill_null(-1)]
    columns += [
        pc.binary_length(batch.column(name)).cast(pa.int64()).fill_null(-1) for name in ("key", "value")
    ]
    table = np.column_stack([column.to_numpy(zero_copy_only=False) for column in columns])
    return (
        zlib.crc32(_data(batch.column("key")), keys),
        zlib.crc32(_data(batch.column("value")), values),
        zlib.crc32(np.ascontiguousarray(table).view(np.uint8).data, facts),
    )


def _data(column: pa.BinaryArray) -> memoryview:
    """Returns the bytes of all values, one after the other."""
    if column.null_count:  # Arrow allows any bytes under a null, and they would change the CRC
        column = column.drop_null()
    _, bounds, data = column.buffers()
    if not len(column) or bounds is None or data is None:
        return memoryview(b"")
    places = np.frombuffer(bounds, np.int32)
    return memoryview(data)[places[column.offset] : places[column.offset + len(column)]]
