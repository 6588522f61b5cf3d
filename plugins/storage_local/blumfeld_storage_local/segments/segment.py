"""One segment: its files, which are opened when first needed, and the positions of batches in them; and the budget of
open files that the segments of a log directory share."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import islice

from blumfeld.log.segments.file_names import Mark, Suffix, segment_name
from blumfeld.log.segments.index import CorruptIndex, OffsetIndex, TimeIndex, TimestampPosition
from blumfeld.log.segments.recovery import RecoveredSegment
from blumfeld.spi.parts import FileRegion, Part
from blumfeld.spi.runtime import File, Files, Runtime
from blumfeld.spi.storage import SegmentInfo
from blumfeld.wire.batches.record_batch import MAGIC, RecordBatch
from blumfeld_storage_local.durability import can_be_undone
from blumfeld_storage_local.segments.checked_bytes import (
    MAGIC_AT,
    CheckedBytes,
)
from blumfeld_storage_local.segments.index_files import highest_timestamp, map_indexes, rebuild_indexes
from blumfeld_storage_local.segments.recent import RecentBatches
from blumfeld_storage_local.segments.scan import damaged, read_batches, scan

COPY_BYTES_MAX = 16_384
"""Size up to which an answer gets a copy: a file region takes two more system calls to send, and these cost more."""
SUFFIXES = (Suffix.LOG, Suffix.OFFSET_INDEX, Suffix.TIME_INDEX)
"""Suffixes of the files that make a segment."""
OPEN_FILES_MAX = 8192
"""Budget of a storage that is not told how many files the process may open."""
MAPPED_MAX = 16_384
"""Segments whose indexes may be mapped. Two maps each are half of ``vm.max_map_count`` (65,530 unless raised)."""
SYNCED_AT_ONCE = 32
"""Files that a worker syncs in one job, before they are closed."""
LOOKS_MAX = 64
"""Segments to look at, at most, to find one that can be closed."""
_SOFT_SHARE = 7 / 8
"""Share of the budget from which on unsynced files are synced, so that later ones can be closed without waiting."""


class Segment:
    """A segment in a log's directory: a sealed one, or the active one, which has ``recent`` and grows.

    Every method may raise ``OSError``.
    """

    __slots__ = (
        "_counted",
        "_files",
        "_gone",
        "_highest",
        "_offsets",
        "_synced_bytes",
        "_times",
        "base_offset",
        "checked",
        "created_ms",
        "cuts",
        "directory",
        "index_unsaved",
        "index_unsynced",
        "mark",
        "next_offset",
        "opened",
        "recent",
        "size",
        "touched",
    )

    def __init__(self, files: Files, directory: str, base_offset: int, next_offset: int) -> None:
        self.directory = directory
        self.base_offset = base_offset
        self.next_offset = next_offset
        """One past the last offset. In a sealed segment: the base offset of the next segment."""
        self.size = -1
        """Bytes of the log file; -1 until :attr:`size_bytes` was asked. In the active segment it is always known."""
        self.created_ms = -1
        self.recent: RecentBatches | None = None
        self.mark = Mark.NONE
        """``SWAP`` while the files that a cleaner pass made have not got their final names."""
        self.checked = CheckedBytes()
        """Bytes that are known to be whole batches, so that a reader may have them."""
        self.index_unsynced = False
        """The index files were written after their last sync."""
        self.index_unsaved = False
        """The index files are missing: there was no room for them."""
        self.touched = False
        """The file or an index was used since the budget of open files last looked at this segment."""
        self._files = files
        self.opened: File | None = None
        """The log file while it is open. Only the append path uses it, to save a call; others call :meth:`file`."""
        self._gone = False
        self._counted: OpenFiles | None = None
        self._synced_bytes = -1
        """Bytes that a sync has covered; -1 while this process has not written to the segment."""
        self.cuts = 0
        """The number of truncations of the file."""
        self._offsets: OffsetIndex | None = None
        self._times: TimeIndex | None = None
        self._highest: TimestampPosition | None = None

    def path(self, suffix: Suffix = Suffix.LOG) -> str:
        """Return the path of one of its files."""
        return f"{self.directory}/{segment_name(self.base_offset, suffix, self.mark)}"

    def create(self) -> None:
        """Make an empty log file. Index files are made with their first entries."""
        file = self._open(create=True)
        if file.size():
            file.truncate(0)
        self.size = self._synced_bytes = self.checked.from_here_on = 0
        self.set_indexes(OffsetIndex(self.base_offset), TimeIndex(self.base_offset))

    def file(self) -> File:
        """The log file, open."""
        file = self.opened
        if file is None:
            file = self._open()
        self.touched = True
        return file

    def _open(self, *, create: bool = False) -> File:
        if self._gone:
            raise OSError(errno.EBADF, "the segment is closed", self.path())
        counted = self._counted
        try:
            file = self._files.open(self.path(), create=create)
        except OSError as error:
            if counted is None or error.errno not in (errno.EMFILE, errno.ENFILE):
                raise
            counted.give_way()
            file = self._files.open(self.path(), create=create)
        self.opened = file
        if counted is not None:
            counted.opened(self)
        return file

    def counted_by(self, open_files: OpenFiles) -> None:
        """Count the open file and the maps in this budget, which may close them."""
        self._counted = open_files
        if self.opened is not None:
            open_files.opened(self)

    @property
    def is_gone(self) -> bool:
        """Whether the segment was closed for good."""
        return self._gone

    @property
    def is_open(self) -> bool:
        """Whether the log file is open."""
        return self.opened is not None

    @property
    def size_bytes(self) -> int:
        """Bytes of the log file."""
        if self.size < 0:
            file = self.opened
            if file is not None:
                self.size = file.size()
            else:  # the sizes of all segments may be asked at once: that must not use up the budget of open files
                file = self._files.open(self.path(), write=False)
                try:
                    self.size = file.size()
                finally:
                    file.close()
        return self.size

    def written_bytes(self) -> int:
        """Return how many bytes the file has."""
        return max(self.size, 0)

    @property
    def unsynced(self) -> bool:
        """This process has written bytes that no sync has covered. Recovery cares for bytes of an older process."""
        return 0 <= self._synced_bytes != self.size

    def synced(self, size: int, cuts: int) -> None:
        """Take down that a sync has covered the first ``size`` bytes, unless the file was cut since the sync began."""
        if cuts == self.cuts:
            self._synced_bytes = size

    def was_cut(self, size: int) -> None:
        """Take down that the file was truncated, and synced."""
        self.size = self._synced_bytes = size
        self.checked.cut(size)
        self.cuts += 1

    # Indexes

    @property
    def offsets(self) -> OffsetIndex:
        """The offset index. It is read, or rebuilt, when first needed."""
        if self._offsets is None:
            self._load_indexes()
        assert self._offsets is not None
        return self._offsets

    @property
    def times(self) -> TimeIndex:
        """The time index. It is read, or rebuilt, when first needed."""
        if self._times is None:
            self._load_indexes()
        assert self._times is not None
        return self._times

    def set_indexes(self, offsets: OffsetIndex, times: TimeIndex) -> None:
        """Take indexes that were rebuilt, or that are being written."""
        self._offsets, self._times = offsets, times
        self._highest = None

    def forget_indexes(self) -> None:
        """Give the memory of the indexes back. They are read again from their files when next needed."""
        self._offsets = self._times = None
        if self._counted is not None:
            self._counted.has_unmapped(self)

    def growing_indexes(self) -> tuple[OffsetIndex, TimeIndex]:
        """Return both indexes as copies in memory, because the segment is written from now on."""
        offsets, times = self.offsets, self.times
        if self._synced_bytes < 0:
            self._synced_bytes = self.size_bytes
        offsets.take_copy()
        times.take_copy()
        if self._counted is not None:
            self._counted.has_unmapped(self)
        return offsets, times

    @property
    def has_indexes(self) -> bool:
        """Whether the indexes are in memory, so that a look-up opens no file."""
        self.touched = True
        return self._offsets is not None

    def read_indexes(self) -> RecoveredSegment | tuple[OffsetIndex, TimeIndex]:
        """Map both indexes, or rebuild them. Blocks, and changes nothing of the segment: call it in a worker.

        Hold a region of the file meanwhile, so that its descriptor stays open. On the loop, :meth:`take_indexes` takes
        the result.
        """
        try:
            return map_indexes(self._files, self.path, self.base_offset, self.size_bytes)
        except (FileNotFoundError, CorruptIndex):
            return rebuild_indexes(self.file(), self.size_bytes, self.base_offset)

    def take_indexes(self, read: RecoveredSegment | tuple[OffsetIndex, TimeIndex]) -> None:
        """Take indexes that were read. Save them if they were rebuilt."""
        if isinstance(read, RecoveredSegment):
            self.set_indexes(read.offsets, read.times)
            self.save_rebuilt_indexes()
            return
        self.set_indexes(*read)
        if self._counted is not None:
            self._counted.has_mapped(self)

    def _load_indexes(self) -> None:
        """Read the indexes on the loop. A cold read has had them read by a worker before."""
        self.take_indexes(self.read_indexes())

    def save_indexes(self, offsets_from: int = 0, times_from: int = 0) -> None:
        """Write both index files from these entries on, and cut the files off behind the last entry."""
        for suffix, index, start, entry_bytes in (
            (Suffix.OFFSET_INDEX, self.offsets, offsets_from, 8),
            (Suffix.TIME_INDEX, self.times, times_from, 12),
        ):
            file = self._files.open(self.path(suffix), create=True)
            try:
                data, position = index.encode(start), start * entry_bytes
                if data and file.pwritev([data], position) != len(data):
                    raise OSError(errno.ENOSPC, "short write of an index", file.path)
                cut = file.size() != index.size_bytes
                if cut:
                    file.truncate(index.size_bytes)
                if data or cut:
                    self.index_unsynced = True
            finally:
                file.close()
        self.index_unsaved = False

    def save_rebuilt_indexes(self) -> None:
        """Write both index files. On a full disk they stay in memory alone, and are rebuilt when they are next needed:
        what fits of a file would be taken for the whole."""
        try:
            self.save_indexes()
        except OSError as error:
            if not can_be_undone(error):
                raise
            self.index_unsaved, self.index_unsynced = True, False
            for suffix in (Suffix.OFFSET_INDEX, Suffix.TIME_INDEX):
                with suppress(FileNotFoundError):
                    self._files.unlink(self.path(suffix))

    def sync_indexes(self) -> None:
        """Sync both index files. Blocks."""
        for suffix in (Suffix.OFFSET_INDEX, Suffix.TIME_INDEX):
            file = self._files.open(self.path(suffix))
            try:
                file.fdatasync()
            finally:
                file.close()

    # Look-ups

    def locate(self, offset: int, start: int = -1) -> tuple[int, int]:
        """Return (position, size) of the first batch that ends at ``offset`` or behind.

        That batch contains ``offset``, unless compaction left a hole there. (End of the segment, 0) if there is none.

        :param start: the result of :meth:`position_before`, if the caller has it already
        """
        if offset >= self.next_offset:
            return self.size_bytes, 0
        recent = self.recent
        if recent is not None and offset >= recent.floor:
            return recent.find(offset, self.size)
        if start < 0:
            start = self.offsets.lookup(offset).position
        for batch in scan(self.file(), start, self.size_bytes):
            if batch.last_offset >= offset:
                return batch.position, batch.size_bytes
        return self.size_bytes, 0

    def is_recent(self, offset: int) -> bool:
        """Return whether the position of this offset's batch is remembered, or to come: no file need be looked into."""
        return self.recent is not None and offset >= self.recent.floor

    def position_before(self, offset: int) -> int:
        """Return the position at which a search for the batch that contains ``offset`` begins."""
        return self.offsets.lookup(offset).position

    def part(self, position: int, size: int) -> Part:
        """Return bytes of the log file for an answer.

        :raises OSError: EIO: somebody has cut the file, or it reads as no batch at ``position``
        """
        if size > COPY_BYTES_MAX:
            file = self.file()
            # sendfile would notice only with half of the answer sent, and the connection would have to be closed.
            if (there := file.size()) < position + size:
                raise damaged(file, position, f"{max(there - position, 0)} of {size} bytes are there")
            return file.region(position, size)
        recent = self.recent
        if recent is not None and recent.copied_from == position and len(recent.copy) == size:
            return recent.copy
        data = self.file().pread(size, position)
        if len(data) != size:
            raise damaged(self.file(), position, f"{len(data)} of {size} bytes are there")
        if data[MAGIC_AT] != MAGIC:  # a file that was cut and written again has a hole of zeros
            raise damaged(self.file(), position, f"format {data[MAGIC_AT]}")
        if recent is not None:
            recent.copied_from, recent.copy = position, data
        return data

    def batches(self, offset: int) -> Iterator[RecordBatch]:
        """Yield batches from the one that contains ``offset`` to the present end of the segment."""
        position, _ = self.locate(offset)
        return read_batches(self.file, position, self.size_bytes)

    @property
    def highest(self) -> TimestampPosition:
        """The highest timestamp of a sealed segment (-1 if no record has one), and the batch that it came with."""
        if self._highest is None:
            try:
                self._highest = highest_timestamp(self._files, self.path, self.base_offset, self.next_offset)
            except (FileNotFoundError, CorruptIndex):
                self._highest = self.times.last
        return self._highest

    @property
    def known_highest(self) -> TimestampPosition | None:
        """The same, or ``None`` if only a file could tell."""
        return self._highest

    def learn_highest(self, highest: TimestampPosition | None) -> None:
        """Take the highest timestamp that a worker has read, unless the segment is still written."""
        if self.recent is None:
            self._highest = highest

    def sealed(self, next_offset: int, highest: TimestampPosition) -> None:
        """Seal the segment: it grows no more, and gives back the memory that its writer needed."""
        self.next_offset = next_offset
        self.recent = None
        self.forget_indexes()
        self._highest = highest

    def info(self, max_timestamp_ms: int, *, sealed: bool) -> SegmentInfo:
        """Return what retention and the cleaner decide by."""
        modified_ms = self._files.modified_ms(self.path())
        if max_timestamp_ms < 0 and self.size_bytes:
            max_timestamp_ms = modified_ms
        return SegmentInfo(
            base_offset=self.base_offset,
            next_offset=self.next_offset,
            size_bytes=self.size_bytes,
            max_timestamp_ms=max_timestamp_ms,
            created_ms=self.created_ms if self.created_ms >= 0 else modified_ms,
            modified_ms=modified_ms,
            sealed=sealed,
            files=tuple(self.path(suffix) for suffix in SUFFIXES),
        )

    def close_file(self) -> None:
        """Close the file until it is needed again. Regions in flight keep it open for themselves."""
        if self.opened is not None:
            file, self.opened = self.opened, None
            if self._counted is not None:
                self._counted.closed(self)
            file.close()

    def close(self) -> None:
        """Close file and maps for good. Regions in flight keep the file open for themselves."""
        self._gone = True
        self.forget_indexes()
        self.recent = None
        self.close_file()


class OpenFiles:
    """The budget of open files and mapped indexes of one log directory.

    Ten thousand logs have more files than a process may open. A segment opens its log file when it is first needed, and
    the least recently used file is closed for it. "Recently" is by second chance: a segment stays if it was used since
    the last look at it. So a use costs one flag, and no move in a list.

    **Closing must not lose an error of write-back.** Linux reports a failed write-back to each descriptor that was open
    when it happened, and to the first one opened later. But it forgets the error with the file's inode, which may leave
    memory once no descriptor is open. So a file with unsynced bytes is synced before it is closed, in a worker where
    there is time for that. A failure takes the directory offline, as every failed sync does.

    :param failed: called when a sync before a close fails
    :param descriptors_max: half of these are for log files, half for maps, as each Python map keeps a descriptor
    """

    __slots__ = (
        "_failed",
        "_mapped",
        "_open",
        "_runtime",
        "_soft_max",
        "_syncing",
        "files_max",
        "mapped_max",
    )

    def __init__(
        self,
        runtime: Runtime,
        failed: Callable[[OSError], None],
        descriptors_max: int = OPEN_FILES_MAX,
    ) -> None:
        self.files_max = max(descriptors_max // 2, 8)
        self.mapped_max = max(min(descriptors_max // 4, MAPPED_MAX), 4)
        self._soft_max = int(self.files_max * _SOFT_SHARE)
        self._runtime = runtime
        self._failed = failed
        self._open: dict[Segment, None] = {}
        self._mapped: dict[Segment, None] = {}
        self._syncing = False

    def __len__(self) -> int:
        """The number of open files."""
        return len(self._open)

    @property
    def mapped(self) -> int:
        """The number of segments whose indexes are mapped."""
        return len(self._mapped)

    def opened(self, segment: Segment) -> None:
        """Count a file that was opened. Close the least recently used ones if there are too many.

        :raises OSError: the budget is full of unsynced files, and a sync of one of them has failed
        """
        self._open[segment] = None
        if len(self._open) > self._soft_max:
            self._make_room(segment)

    def closed(self, segment: Segment) -> None:
        """Count a file as closed."""
        self._open.pop(segment, None)

    def has_mapped(self, segment: Segment) -> None:
        """Count mapped indexes. Unmap the least recently used ones if there are too many."""
        self._mapped[segment] = None
        looks = 0
        while len(self._mapped) > self.mapped_max:
            oldest = next(iter(self._mapped))
            del self._mapped[oldest]
            looks += 1
            if oldest is segment or (oldest.touched and looks < LOOKS_MAX):
                oldest.touched = False
                self._mapped[oldest] = None
            else:
                oldest.forget_indexes()

    def has_unmapped(self, segment: Segment) -> None:
        """Count the indexes as not mapped: they were unmapped, or are written now."""
        self._mapped.pop(segment, None)

    def give_way(self) -> None:
        """Make room in a process that can open no more files: close up to half of those that need no sync."""
        clean = (segment for segment in list(self._open) if not segment.unsynced)
        for segment in list(islice(clean, len(self._open) // 2 + 1)):
            segment.close_file()

    def _make_room(self, newest: Segment) -> None:
        for _ in range(LOOKS_MAX):
            if len(self._open) <= self._soft_max:
                return
            oldest = next(iter(self._open))
            if oldest is newest or oldest.touched or oldest.unsynced:
                oldest.touched = False
                self._open[oldest] = self._open.pop(oldest)
            else:
                oldest.close_file()
        if not self._syncing:
            self._syncing = True
            self._runtime.spawn(self._sync_oldest(), "sync files to be closed")
        while len(self._open) > self.files_max:
            self._sync_and_close(newest)

    def _sync_and_close(self, newest: Segment) -> None:
        """Sync and close one file, on the loop: no other way is left.

        This happens only on a node with too few descriptors for the logs that it writes.
        """
        oldest = next(segment for segment in self._open if segment is not newest)
        if oldest.unsynced:
            try:
                oldest.file().fdatasync()
            except OSError as error:
                self._failed(error)
                raise
            oldest.synced(oldest.written_bytes(), oldest.cuts)
        oldest.close_file()

    async def _sync_oldest(self) -> None:
        try:
            while len(self._open) > self._soft_max:
                unsynced = (segment for segment in self._open if segment.unsynced)
                if not (oldest := list(islice(unsynced, SYNCED_AT_ONCE))):
                    return
                await self._sync(oldest)
        except OSError as error:
            self._failed(error)
        finally:
            self._syncing = False

    async def _sync(self, segments: Sequence[Segment]) -> None:
        before = [(segment.written_bytes(), segment.cuts) for segment in segments]
        files: list[File] = []
        held: list[FileRegion] = []
        try:
            for segment in segments:
                files.append(segment.file())
                held.append(files[-1].region(0, 0))
            await self._runtime.offload(_sync_all, files)
        except OSError as error:
            if error.errno == errno.EBADF and not all(segment.is_open for segment in segments):
                return  # one was closed or deleted meanwhile; the others are synced in the next job
            raise
        finally:
            for region in held:
                region.release()
        for segment, (size, cuts) in zip(segments, before, strict=True):
            segment.synced(size, cuts)
            if segment in self._open and not segment.unsynced:
                segment.close_file()


def _sync_all(files: Sequence[File]) -> None:
    for file in files:
        file.fdatasync()
