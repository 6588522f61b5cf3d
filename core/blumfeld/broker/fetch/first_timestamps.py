"""Timestamps of the first batch in each sealed segment. ``max.compaction.lag.ms`` counts from them."""

from __future__ import annotations

from collections.abc import Container, Sequence

from blumfeld.broker.replicas.partition import Partition
from blumfeld.spi.completion import Completion
from blumfeld.spi.parts import FileRegion, Part, release
from blumfeld.spi.storage import LogRead, OffsetOutOfRangeError, SegmentInfo, TopicPartition
from blumfeld.wire.batches.record_batch import HEADER_BYTES, RecordBatch
from blumfeld.wire.errors import BrokerError

READ_AT_ONCE = 16
"""Batches of one log that one call reads, so that a log with many segments doesn't hold the loop. The next call
continues with the segments that are still unknown."""

Key = tuple[int, int]
"""Base offset and size of a segment. The size tells a compacted segment from the one that it replaced."""


class FirstTimestamps:
    """First timestamps of the dirty segments of compacted logs. Each segment is read once.

    Bytes that are not in the page cache are read off the loop; their timestamp is known at a later call.
    """

    def __init__(self) -> None:
        self._known: dict[TopicPartition, dict[Key, int]] = {}

    def of(self, partition: Partition, segments: Sequence[SegmentInfo]) -> dict[int, int]:
        """Returns the timestamps (ms) known so far, by the segment's base offset. A few calls make them complete.

        :raises OSError: the partition's log can't be read
        """
        before = self._known.get(partition.partition, {})
        known = self._known[partition.partition] = {}
        unread: list[SegmentInfo] = []
        for segment in segments:
            key = (segment.base_offset, segment.size_bytes)
            if key in before:
                known[key] = before[key]
            else:
                unread.append(segment)
        for segment in unread[:READ_AT_ONCE]:
            _read(partition, segment, known)
        return {base_offset: timestamp_ms for (base_offset, _), timestamp_ms in known.items()}

    def keep(self, partitions: Container[TopicPartition]) -> None:
        """Forget all partitions but these: the others were deleted, or their topics are not compacted any more."""
        self._known = {
            partition: known for partition, known in self._known.items() if partition in partitions
        }


def _read(partition: Partition, segment: SegmentInfo, known: dict[Key, int]) -> None:
    log = partition.log
    key = (segment.base_offset, segment.size_bytes)

    def found(read: LogRead) -> None:
        if read.parts:
            known[key] = _timestamp_ms(read.parts[0])
        release(read.parts)

    def arrived(done: Completion[LogRead]) -> None:
        if done.error is None:
            found(done.result())

    try:
        answer = log.read(max(segment.base_offset, log.log_start_offset), 1, log.written_end_offset, True)
    except OffsetOutOfRangeError:
        return
    if isinstance(answer, Completion):
        answer.when_done(arrived)
    else:
        found(answer)


def _timestamp_ms(part: Part) -> int:
    header = part[:HEADER_BYTES] if isinstance(part, (bytes, bytearray, memoryview)) else _header(part)
    try:
        return RecordBatch.peek(memoryview(header)).max_timestamp
    except BrokerError:
        return -1  # damaged: the cleaner reports it when its pass reads the segment


def _header(region: FileRegion) -> bytes:
    return region.pread(0, HEADER_BYTES)
