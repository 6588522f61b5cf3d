"""Take records out of a log: from its end (truncation) and from its front (retention, DeleteRecords)."""

from __future__ import annotations

from typing import Protocol

from blumfeld.config.values import TopicConfig
from blumfeld_storage_local.directory import LogDirectory
from blumfeld_storage_local.segment_list import SegmentList


class TruncatedLog(Protocol):
    """What a truncation asks of its log."""

    home: LogDirectory
    directory: str
    config: TopicConfig
    log_start_offset: int
    written_end_offset: int
    names_unsynced: bool

    @property
    def appended_end_offset(self) -> int:
        """Everything below it is in the page cache."""
        ...

    def check(self) -> None:
        """Raise ``OSError`` if the log is closed or its directory offline."""
        ...

    def unplace(self) -> None:
        """Forget what is placed and not written."""
        ...

    def truncating(self, offset: int) -> None:
        """Tell the storage that no record from ``offset`` on can be promised any more."""
        ...

    def broken_off(self, error: OSError, offset: int) -> None:
        """A change of the files from ``offset`` on has failed in its middle."""
        ...

    def ends_at(self, offset: int) -> None:
        """Move every end of the log down to ``offset``, and write on there. Raises ``OSError``."""
        ...


class Passes(Protocol):
    """What a truncation asks of the cleaner."""

    def leave(self, offset: int = 0) -> None:
        """End a pass that works at ``offset`` or above."""
        ...


class Truncation:
    """Truncates one log, and drops its oldest segments."""

    __slots__ = ("_cleaner", "_log", "_segments")

    def __init__(self, log: TruncatedLog, segments: SegmentList, cleaner: Passes) -> None:
        self._log = log
        self._segments = segments
        self._cleaner = cleaner

    # From the end

    def truncate_to(self, offset: int) -> None:
        """Drop all batches with an offset ≥ ``offset``."""
        log = self._log
        log.check()
        log.unplace()
        if offset >= log.appended_end_offset:
            return
        self._cleaner.leave(offset)
        if offset <= self._segments.first_offset:
            self.truncate_fully(offset)
            return
        log.truncating(offset)
        try:
            self._cut_to(offset)
        except OSError as error:
            log.broken_off(error, offset)
            raise

    def _cut_to(self, offset: int) -> None:
        log, segments = self._log, self._segments
        at = segments.index_of(offset)
        if segments[at].base_offset == offset:
            at -= 1
        if segments.drop_behind(at + 1, log.config.file_delete_delay_ms):
            # A crash could else bring these segments back behind the cut that follows: a hole where all was flushed.
            log.home.files.sync_dir(log.directory)
        segment = segments.active
        position, size = segment.locate(offset)
        if size:
            offset = min(offset, next(segment.batches(offset)).base_offset)
        segment.offsets.truncate_to(offset)
        segment.times.truncate_to(offset)
        segment.file().truncate(position)
        # A power cut could else bring back what was cut, in front of a newer segment that begins where it ends.
        segment.file().fdatasync()
        segment.was_cut(position)
        segment.save_indexes()
        log.ends_at(offset)

    def truncate_fully(self, start_offset: int) -> None:
        """Drop everything; the log starts at ``start_offset``."""
        log = self._log
        log.check()
        log.unplace()
        self._cleaner.leave()
        log.truncating(start_offset)
        try:
            if self._segments.drop_behind(0, log.config.file_delete_delay_ms):
                # A power cut could else bring them back in front of the new one, where they end as it begins.
                log.home.files.sync_dir(log.directory)
            self._segments.add(start_offset)
        except OSError as error:
            log.broken_off(error, start_offset)
            raise
        log.log_start_offset = start_offset
        log.ends_at(start_offset)
        log.written_end_offset = start_offset

    # From the front

    def advance_log_start(self, offset: int) -> None:
        """Let the log start at ``offset``. Raises ``ValueError`` above the written end."""
        log = self._log
        log.check()
        if offset > log.written_end_offset:
            raise ValueError(f"the log ends at {log.written_end_offset}, and can't start at {offset}")
        log.log_start_offset = max(log.log_start_offset, offset)

    def drop_segments(self, end_offset: int) -> int:
        """Delete sealed segments that end at or below ``end_offset``, and return how many."""
        log, segments = self._log, self._segments
        log.check()
        if segments[0].next_offset <= end_offset:
            self._cleaner.leave()
        count = segments.drop_oldest(end_offset, log.config.file_delete_delay_ms)
        if count:
            log.log_start_offset = max(log.log_start_offset, segments.first_offset)
            log.names_unsynced = True
        return count
