"""A log's cutting half: from behind (truncation) and from the front (retention, DeleteRecords)."""

from __future__ import annotations

from blumfeld_storage_local.logs.log_state import LogState


class CuttingHalf(LogState):
    """What of ``PartitionLog`` takes records away."""

    def truncate_to(self, offset: int) -> None:
        """Drop all batches with an offset ≥ ``offset``."""
        self._check()
        self._unplace()
        if offset >= self.appended_end_offset:
            return
        self._leave_compaction(offset)
        if offset <= self._segments.first_offset:
            self.truncate_fully(offset)
            return
        self._callbacks.truncating(self, offset)
        try:
            self._cut_to(offset)
        except OSError as error:
            # files and memory no longer say the same, or a sync has failed
            self._home.fail(error)
            raise

    def _cut_to(self, offset: int) -> None:
        at = self._segments.index_of(offset)
        if self._segments[at].base_offset == offset:
            at -= 1
        if self._segments.drop_behind(at + 1, self.config.file_delete_delay_ms):
            # or a crash could keep them behind the cut that follows: a hole where all was flushed
            self._home.files.sync_dir(self.directory)
        segment = self._segments.active
        position, size = segment.locate(offset)
        if size:
            offset = min(offset, next(segment.batches(offset)).base_offset)
        segment.offsets.truncate_to(offset)
        segment.times.truncate_to(offset)
        segment.file().truncate(position)
        # or the power could bring back what was cut, in front of a newer segment that begins where it ends
        segment.file().fdatasync()
        segment.was_cut(position)
        segment.save_indexes()
        self._ends_at(offset)

    def truncate_fully(self, start_offset: int) -> None:
        """Drop everything; the log starts at ``start_offset``."""
        self._check()
        self._unplace()
        self._leave_compaction()
        self._callbacks.truncating(self, start_offset)
        try:
            if self._segments.drop_behind(0, self.config.file_delete_delay_ms):
                # or the power could bring them back in front of the new one, if they end where it begins
                self._home.files.sync_dir(self.directory)
            self._segments.add(start_offset)
        except OSError as error:
            self._home.fail(error)
            raise
        self.log_start_offset = start_offset
        self._ends_at(start_offset)
        self.written_end_offset = start_offset

    def _unplace(self) -> None:
        self._placed = []
        self.placed_end_offset = self.appended_end_offset

    def _ends_at(self, offset: int) -> None:
        self._cuts += 1
        self._writer = self._open_writer()
        self._segments.active.next_offset = offset
        self.names_unsynced = True
        self.placed_end_offset = offset
        self.written_end_offset = min(self.written_end_offset, offset)
        self.flushed_end_offset = min(self.flushed_end_offset, offset)
        self.log_start_offset = min(self.log_start_offset, offset)
        self._flusher.truncated(offset)
        for waiting in self._waiting:
            waiting.end_offset = min(waiting.end_offset, offset)
        if self.cleaned_end_offset > offset:
            self.cleaned_end_offset = offset
            self._callbacks.cleaned(self)

    def advance_log_start(self, offset: int) -> None:
        """The log starts at ``offset`` now."""
        self._check()
        if offset > self.written_end_offset:
            raise ValueError(f"the log ends at {self.written_end_offset}, and can't start at {offset}")
        self.log_start_offset = max(self.log_start_offset, offset)

    def drop_segments(self, end_offset: int) -> int:
        """Delete sealed segments that end at or below ``end_offset``."""
        self._check()
        if self._segments[0].next_offset <= end_offset:
            self._leave_compaction()
        count = self._segments.drop_oldest(end_offset, self.config.file_delete_delay_ms)
        if count:
            self.log_start_offset = max(self.log_start_offset, self._segments.first_offset)
            self.names_unsynced = True
        return count
