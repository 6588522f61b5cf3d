"""One segment: its files, opened when first needed, and where in them a batch is found."""

from __future__ import annotations

import errno
from collections.abc import Iterator

from blumfeld.log.segments.file_names import Mark, Suffix, segment_name
from blumfeld.log.segments.index import CorruptIndex, OffsetIndex, TimeIndex, TimestampPosition
from blumfeld.log.segments.recovery import RecoveredSegment
from blumfeld.spi.parts import Part
from blumfeld.spi.runtime import File, Files
from blumfeld.spi.storage import SegmentInfo
from blumfeld.wire.record_batch import MAGIC, RecordBatch
from blumfeld_storage_local.segments.checking import (
    MAGIC_AT,
    CheckedBytes,
)
from blumfeld_storage_local.segments.index_files import highest_timestamp, map_indexes, rebuild_indexes
from blumfeld_storage_local.segments.open_files import OpenFiles
from blumfeld_storage_local.segments.recent import RecentBatches
from blumfeld_storage_local.segments.scan import damaged, read_batches, scan

COPY_BYTES_MAX = 16_384
"""Up to here to read bytes costs less than the two more system calls that a file region takes to send."""
SUFFIXES = (Suffix.LOG, Suffix.OFFSET_INDEX, Suffix.TIME_INDEX)
"""Of the files that make a segment."""


class Segment:
    """A segment in a log's directory. Sealed, or the active one, which has ``recent`` and grows.

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
        """One past the last offset; of a sealed segment the base of the next."""
        self.size = -1
        """Bytes of the log file; -1 until somebody asked :attr:`size_bytes`. Always known of the active segment."""
        self.created_ms = -1
        self.recent: RecentBatches | None = None
        self.mark = Mark.NONE
        """``SWAP`` while the files that compaction made have not got their names yet."""
        self.checked = CheckedBytes()
        """Which of its bytes a reader may have."""
        self.index_unsynced = False
        """The index files were written since they were last synced."""
        self.touched = False
        """As of ``open_files.Opener``."""
        self._files = files
        self.opened: File | None = None
        """The log file while it is open, for who writes to it often: others ask :meth:`file`."""
        self._gone = False
        self._counted: OpenFiles | None = None
        self._synced_bytes = -1
        """-1: this process has not written to it."""
        self.cuts = 0
        self._offsets: OffsetIndex | None = None
        self._times: TimeIndex | None = None
        self._highest: TimestampPosition | None = None

    def path(self, suffix: Suffix = Suffix.LOG) -> str:
        """Of one of its files."""
        return f"{self.directory}/{segment_name(self.base_offset, suffix, self.mark)}"

    def create(self) -> None:
        """Make the log file, empty; index files come with their first entries."""
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
        """From now on its open file and its maps count there, and may be closed from there."""
        self._counted = open_files
        if self.opened is not None:
            open_files.opened(self)

    @property
    def is_gone(self) -> bool:
        """Whether it was closed for good."""
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
            else:  # who only asks for sizes, of all segments maybe, shall not use up descriptors
                file = self._files.open(self.path(), write=False)
                try:
                    self.size = file.size()
                finally:
                    file.close()
        return self.size

    def written_bytes(self) -> int:
        """As of ``open_files.Opener``."""
        return max(self.size, 0)

    @property
    def unsynced(self) -> bool:
        """Bytes were written by this process that no sync has covered. What an older one left is recovery's."""
        return 0 <= self._synced_bytes != self.size

    def synced(self, size: int, cuts: int) -> None:
        """A sync has covered the first ``size`` bytes, which began when there had been so many :attr:`cuts`."""
        if cuts == self.cuts:
            self._synced_bytes = size

    def was_cut(self, size: int) -> None:
        """Its file was truncated, and synced."""
        self.size = self._synced_bytes = size
        self.checked.cut(size)
        self.cuts += 1

    # Indexes

    @property
    def offsets(self) -> OffsetIndex:
        """The offset index, read or rebuilt when first needed."""
        if self._offsets is None:
            self._load_indexes()
        assert self._offsets is not None
        return self._offsets

    @property
    def times(self) -> TimeIndex:
        """The time index, likewise."""
        if self._times is None:
            self._load_indexes()
        assert self._times is not None
        return self._times

    def set_indexes(self, offsets: OffsetIndex, times: TimeIndex) -> None:
        """They were rebuilt, or are being written."""
        self._offsets, self._times = offsets, times
        self._highest = None

    def forget_indexes(self) -> None:
        """Read them again from the files when next needed: a sealed segment's need no memory of ours."""
        self._offsets = self._times = None
        if self._counted is not None:
            self._counted.has_unmapped(self)

    def growing_indexes(self) -> tuple[OffsetIndex, TimeIndex]:
        """Both indexes, in memory of their own: it is written from now on."""
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
        """Whether they are here, so that a look-up opens no file."""
        self.touched = True
        return self._offsets is not None

    def read_indexes(self) -> RecoveredSegment | tuple[OffsetIndex, TimeIndex]:
        """Map both indexes, or make them anew. Blocks, and changes nothing: for a worker, while a region of the file
        is held; :meth:`take_indexes` is for the loop.
        """
        try:
            return map_indexes(self._files, self.path, self.base_offset, self.size_bytes)
        except (FileNotFoundError, CorruptIndex):
            return rebuild_indexes(self.file(), self.size_bytes, self.base_offset)

    def take_indexes(self, read: RecoveredSegment | tuple[OffsetIndex, TimeIndex]) -> None:
        """They were read; what was made anew is saved."""
        if isinstance(read, RecoveredSegment):
            self.set_indexes(read.offsets, read.times)
            self.save_indexes()
            return
        self.set_indexes(*read)
        if self._counted is not None:
            self._counted.has_mapped(self)

    def _load_indexes(self) -> None:
        """Here and now. Readers have them read off the loop before."""
        self.take_indexes(self.read_indexes())

    def save_indexes(self, offsets_from: int = 0, times_from: int = 0) -> None:
        """Write both index files from these entries on, and cut off what lies behind."""
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

    def sync_indexes(self) -> None:
        """They last. Blocks."""
        for suffix in (Suffix.OFFSET_INDEX, Suffix.TIME_INDEX):
            file = self._files.open(self.path(suffix))
            try:
                file.fdatasync()
            finally:
                file.close()

    # Look-ups

    def locate(self, offset: int, start: int = -1) -> tuple[int, int]:
        """(position, size) of the first batch that ends at ``offset`` or behind: the one that contains it, if there
        is one. (End of the segment, 0) if all end before.

        :param start: what :meth:`position_before` gave, where it was asked already
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
        """Whether it is known where the batch with this offset stands, or will stand: it needs no look into files."""
        return self.recent is not None and offset >= self.recent.floor

    def position_before(self, offset: int) -> int:
        """Where a look for the batch that contains ``offset`` begins."""
        return self.offsets.lookup(offset).position

    def part(self, position: int, size: int) -> Part:
        """Bytes of the log file for an answer.

        :raises OSError: EIO: somebody has cut the file, or it reads as no batch at ``position``
        """
        if size > COPY_BYTES_MAX:
            file = self.file()
            # Here, because sendfile would find out with half of the answer under way, and the connection would go.
            if (there := file.size()) < position + size:
                raise damaged(file, position, f"{max(there - position, 0)} of {size} bytes are there")
            return file.region(position, size)
        recent = self.recent
        if recent is not None and recent.copied_from == position and len(recent.copy) == size:
            return recent.copy
        data = self.file().pread(size, position)
        if len(data) != size:
            raise damaged(self.file(), position, f"{len(data)} of {size} bytes are there")
        if data[MAGIC_AT] != MAGIC:  # a file that was cut and then written has a hole of zeros
            raise damaged(self.file(), position, f"format {data[MAGIC_AT]}")
        if recent is not None:
            recent.copied_from, recent.copy = position, data
        return data

    def batches(self, offset: int) -> Iterator[RecordBatch]:
        """Batches from the one that contains ``offset`` to the end of the segment as it is now."""
        position, _ = self.locate(offset)
        return read_batches(self.file, position, self.size_bytes)

    @property
    def highest(self) -> TimestampPosition:
        """Of a sealed segment: its highest timestamp (-1 if no record has one), and the batch it came with."""
        if self._highest is None:
            try:
                self._highest = highest_timestamp(self._files, self.path, self.base_offset, self.next_offset)
            except (FileNotFoundError, CorruptIndex):
                self._highest = self.times.last
        return self._highest

    @property
    def known_highest(self) -> TimestampPosition | None:
        """The same, unless a file would have to be read for it."""
        return self._highest

    def learn_highest(self, highest: TimestampPosition | None) -> None:
        """A worker has read it. Of no use to a segment that is written."""
        if self.recent is None:
            self._highest = highest

    def sealed(self, next_offset: int, highest: TimestampPosition) -> None:
        """It grows no more: what was kept to write it is not needed."""
        self.next_offset = next_offset
        self.recent = None
        self.forget_indexes()
        self._highest = highest

    def info(self, max_timestamp_ms: int, *, sealed: bool) -> SegmentInfo:
        """For who decides what to keep."""
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
        """Give the descriptor back until it is needed again; regions in flight keep theirs."""
        if self.opened is not None:
            file, self.opened = self.opened, None
            if self._counted is not None:
                self._counted.closed(self)
            file.close()

    def close(self) -> None:
        """For good: give the descriptor and the maps back; regions in flight keep theirs."""
        self._gone = True
        self.forget_indexes()
        self.recent = None
        self.close_file()
