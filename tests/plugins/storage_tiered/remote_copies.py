"""Remote segments that are copies of a local log's sealed segments, and a store of them in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from blumfeld.log.producers.aborted_transactions import encode_aborted
from blumfeld.spi.compaction import AbortedTransaction
from blumfeld.spi.completion import Completion
from blumfeld.spi.leader_epochs import EpochEntry
from blumfeld.spi.object_store import StoreUnavailableError
from blumfeld.spi.runtime import Files
from blumfeld_kit.storage_driver.node import Log, make_batch
from blumfeld_storage_tiered.catalog.catalog import Served
from blumfeld_storage_tiered.catalog.segment import RemoteSegment, SegmentState, TopicIdPartition
from blumfeld_storage_tiered.objects.names import SegmentFile
from blumfeld_storage_tiered.objects.segments import FilePiece
from tests.plugins.storage_local.local_node import new_node

PARTITION = TopicIdPartition(bytes(range(16, 32)), 0, "topic")


class CopiedFiles:
    """``RemoteFiles`` in memory."""

    def __init__(self) -> None:
        self.files: dict[tuple[bytes, SegmentFile], bytes] = {}
        self.requests: list[tuple[SegmentFile, int]] = []
        """(file, start) of every request."""
        self.files_of: Files | None = None
        """The disk where logs lie as files that are read in place; ``None``: their bytes come."""
        self.away = False
        self.gate: Completion[None] = Completion.of(None)
        """Requests wait for it."""

    async def read_range(self, segment: RemoteSegment, start: int, size: int) -> bytes | FilePiece:
        self.requests.append((SegmentFile.LOG, start))
        await self.gate
        if self.away:
            raise StoreUnavailableError("away")
        log = self.files[segment.segment_id, SegmentFile.LOG]
        if self.files_of is not None:
            path = f"/store/{segment.segment_id.hex()}"
            self.files_of.make_dirs("/store")
            if not self.files_of.exists(path):
                self.files_of.write_atomically(path, log)
            return FilePiece(
                path, start, min(size, len(log) - start), len(log), self.files_of.modified_ms(path)
            )
        return log[start : start + size]

    async def read_file(self, segment: RemoteSegment, kind: SegmentFile) -> bytes | None:
        self.requests.append((kind, 0))
        await self.gate
        if self.away:
            raise StoreUnavailableError("away")
        return self.files.get((segment.segment_id, kind))


class CopiedHistory:
    """``History`` whose segments all belong to the log."""

    def __init__(self) -> None:
        self.copies: list[RemoteSegment] = []
        self.ends: dict[bytes, int] = {}
        """End offsets of segments that go on in another history."""

    def find(self, offset: int) -> Served | None:
        found = next((s for s in self.copies if s.start_offset <= offset <= s.end_offset), None)
        return None if found is None else Served(found, offset, self._end(found))

    def lineage(self, offset: int) -> Iterator[Served]:
        for segment in self.copies:
            if segment.end_offset >= offset:
                yield Served(segment, max(offset, segment.start_offset), self._end(segment))

    def next_with_transactions(self, offset: int) -> RemoteSegment | None:
        marked = (s for s in self.copies if s.end_offset >= offset and not s.txn_index_empty)
        return next(marked, None)

    def _end(self, segment: RemoteSegment) -> int:
        return self.ends.get(segment.segment_id, segment.end_offset + 1)


def log_of(batches: Sequence[Sequence[int]], *, segment_bytes: int) -> Log:
    """A log with one batch for each of these timestamps, and index entries for nearly every batch."""
    log = new_node().open(index_interval_bytes=64, segment_bytes=segment_bytes)
    for number, timestamps in enumerate(batches):
        log.append(make_batch(seed=number, timestamps=timestamps))
    return log


def copy_of(log: Log, aborted: Sequence[AbortedTransaction] = ()) -> tuple[CopiedFiles, CopiedHistory]:
    """Copy the sealed segments of a log."""
    files, history = CopiedFiles(), CopiedHistory()
    for info in log.log.segments():
        if not info.sealed:
            continue
        segment_id = info.base_offset.to_bytes(16, "big")
        of_segment = [a for a in aborted if info.base_offset <= a.last_offset < info.next_offset]
        for path in info.files:
            files.files[segment_id, SegmentFile(path.rpartition(".")[2])] = log.node.runtime.files.read_bytes(
                path
            )
        files.files[segment_id, SegmentFile.TRANSACTION_INDEX] = encode_aborted(of_segment)
        history.copies.append(
            RemoteSegment(
                partition=PARTITION,
                segment_id=segment_id,
                start_offset=info.base_offset,
                end_offset=info.next_offset - 1,
                broker_id=1,
                max_timestamp_ms=info.max_timestamp_ms,
                event_timestamp_ms=0,
                leader_epochs=(EpochEntry(0, info.base_offset),),
                size_bytes=info.size_bytes,
                state=SegmentState.COPY_FINISHED,
                txn_index_empty=not of_segment,
            )
        )
    return files, history
