"""Turns one partition's part of a fetch response into batches of raw rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from blumfeld.wire.batches.record_batch import HEADER_BYTES, RecordBatch
from blumfeld.wire.batches.records import DECOMPRESSED_BYTES_MAX
from blumfeld.wire.compression.codec import Codec
from blumfeld.wire.compression.payload import decompress
from blumfeld.wire.errors import BrokerError, CorruptBatch
from blumfeld_sink_spark.errors import ArchiveError
from blumfeld_sink_spark.fetching.aborted_transactions import AbortedTransactions
from blumfeld_sink_spark.fetching.columns import CREATE_TIME, LOG_APPEND_TIME, Section, to_rows
from blumfeld_sink_spark.range_counter import Numbers, Skips
from blumfeld_sink_spark.range_counts import ABORTED, ABSENT, CONTROL
from blumfeld_sink_spark.records import OffsetRange

BATCH_ROWS = 5_000
"""The most rows of a batch."""
GROUP_BYTES = 4 << 20
"""The bytes of records that are read at once. One batch may have more."""


def rows_of(
    batches: Sequence[RecordBatch],
    data: memoryview,
    aborted: Iterable[tuple[int, int]],
    wanted: OffsetRange,
    *,
    with_headers: bool,
    skips: Skips | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yields the wanted rows of a response in the order of their offsets. The rows share no memory with ``data``.

    ``skips`` gets the reason for each other offset up to the last batch's end. The reasons come from the headers of
    batches and records, not from the yielded rows. So a row that gets lost later is still found missing.

    :param data: where the batches stand, one after the other from its start; less than 2 GiB
    :param aborted: producer id and first offset of each aborted transaction, as the response lists them
    :raises ArchiveError: a wrong CRC, or a batch that breaks the format; with topic, partition and offset. Rows of
        batches before it were given
    """
    transactions = AbortedTransactions(aborted)
    skips = Skips() if skips is None else skips
    group = _Group(data, wanted, with_headers, skips)
    at = 0
    ends = -1
    expected = wanted.start
    for batch in batches:
        try:
            batch.verify_crc()
            if batch.base_offset < ends or batch.last_offset_delta < 0:
                raise CorruptBatch(f"offsets {batch.base_offset} to {batch.last_offset} after {ends - 1}")
            hidden = transactions.has(batch)
            codec = batch.codec
        except BrokerError as error:
            yield from group.rows()
            raise _told(wanted, batch.base_offset, error) from error
        skips.add(ABSENT, expected, batch.base_offset)
        if hidden:
            reason = CONTROL if batch.is_control else ABORTED
            skips.add(reason, max(expected, batch.base_offset), batch.next_offset)
        expected = max(expected, batch.next_offset)
        if not hidden and batch.next_offset > wanted.start and batch.base_offset < wanted.end:
            if group.is_full or not group.suits(codec):
                yield from group.rows()
            group.add(batch, codec, at)
        at += batch.size_bytes
        ends = batch.next_offset
    yield from group.rows()


class _Group:
    """Batches that become rows in one go. Those without compression are read where they stand."""

    def __init__(self, data: memoryview, wanted: OffsetRange, with_headers: bool, skips: Skips) -> None:
        self._data = data
        self._skips = skips
        self._wanted = wanted
        self._with_headers = with_headers
        self._clear()

    def _clear(self) -> None:
        self._sections: list[Section] = []
        self._parts: list[bytes] = []
        self._bytes = self._records = 0

    @property
    def is_full(self) -> bool:
        """True where the group has enough bytes or records to be read."""
        return self._bytes >= GROUP_BYTES or self._records >= BATCH_ROWS

    def suits(self, codec: Codec) -> bool:
        """Returns True where a batch of this codec may join the group. A group is compressed or plain, never both."""
        return not self._sections or bool(self._parts) == (codec is not Codec.NONE)

    def add(self, batch: RecordBatch, codec: Codec, at: int) -> None:
        """:param at: where it stands in the data"""
        start, size = at + HEADER_BYTES, batch.size_bytes - HEADER_BYTES
        if size and codec is not Codec.NONE:
            try:
                plain = decompress(codec, batch.records_data, DECOMPRESSED_BYTES_MAX)
            except BrokerError as error:
                raise _told(self._wanted, batch.base_offset, error) from error
            start, size = self._bytes, len(plain)
            self._parts.append(plain)
        if not size and not batch.record_count:
            self._skips.add(ABSENT, batch.base_offset, batch.next_offset)
            return
        append = batch.is_log_append_time
        self._sections.append(
            Section(
                start,
                start + size,
                batch.record_count,
                batch.base_offset,
                batch.last_offset_delta,
                batch.base_timestamp,
                batch.max_timestamp,
                LOG_APPEND_TIME if append else CREATE_TIME,
            )
        )
        self._bytes += size
        self._records += batch.record_count

    def rows(self) -> Iterator[pa.RecordBatch]:
        """Returns the rows that were gathered, cut to the wanted offsets, and empties the group."""
        if not self._sections:
            return
        parts = self._parts
        data = self._data if not parts else memoryview(parts[0] if len(parts) == 1 else b"".join(parts))
        rows = self._rows(data)
        offsets = rows.column("offset").to_numpy()
        self._tell_absent(offsets)
        self._clear()
        first, end = offsets.searchsorted([self._wanted.start, self._wanted.end]).tolist()
        for start in range(first, end, BATCH_ROWS):
            yield rows.slice(start, min(BATCH_ROWS, end - start))

    def _tell_absent(self, offsets: Numbers) -> None:
        """Offsets inside of batches for which there is no record, which is so in compacted logs only."""
        if sum(section.last_offset_delta + 1 for section in self._sections) == len(offsets):
            return
        for section in self._sections:
            end = section.base_offset + section.last_offset_delta + 1
            first, last = offsets.searchsorted([section.base_offset, end]).tolist()
            edges = [section.base_offset - 1], [end]
            self._skips.add_between(ABSENT, np.concatenate([edges[0], offsets[first:last], edges[1]]))

    def _rows(self, data: memoryview) -> pa.RecordBatch:
        try:
            return self._read(data, self._sections)
        except BrokerError as error:
            for section in self._sections:  # which of them was it?
                try:
                    self._read(data, [section])
                except BrokerError as found:
                    raise _told(self._wanted, section.base_offset, found) from found
            raise _told(self._wanted, self._sections[0].base_offset, error) from error

    def _read(self, data: memoryview, sections: Sequence[Section]) -> pa.RecordBatch:
        wanted = self._wanted
        return to_rows(data, sections, wanted.topic, wanted.partition, with_headers=self._with_headers)


def _told(wanted: OffsetRange, offset: int, error: BrokerError) -> ArchiveError:
    return ArchiveError(
        f"{wanted.topic}-{wanted.partition}: the batch at offset {offset} is bad: {error.message}"
    )
