"""What a move does to its log: look what there is to copy, hold the writes for a moment, and go on in the copy."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from typing import Protocol

import msgspec

from blumfeld.spi.storage import WriteOutcome
from blumfeld_storage_local.compaction.cleaner_passes import CleanerPasses
from blumfeld_storage_local.directory import LogDirectory
from blumfeld_storage_local.logs.active_writer import ActiveWriter
from blumfeld_storage_local.logs.aux_files import AuxDirectory
from blumfeld_storage_local.logs.log_flushing import Done, LogFlushing
from blumfeld_storage_local.segment_list import SegmentList
from blumfeld_storage_local.segments.segment import Segment

_SYNCS_MAX = 100


class Original(msgspec.Struct, frozen=True):
    """One segment of the log, as it was when the move listed the segments."""

    segment: Segment
    next_offset: int
    size_bytes: int
    sealed: bool


class CutOverLog(Protocol):
    """What a cut-over asks of its log."""

    directory: str
    is_open: bool
    written_end_offset: int

    def write(self, done: Callable[[WriteOutcome], None]) -> None:
        """Write what is placed."""
        ...

    def lies_in(self, home: LogDirectory, directory: str) -> None:
        """Take another directory for the log's own. What was appended is flushed there."""
        ...


class LogCutOver:
    """Serves one move at a time. The log is read and truncated as usual all the while."""

    __slots__ = ("_active", "_aux", "_cleaner", "_flushing", "_log", "_segments", "held")

    def __init__(
        self,
        log: CutOverLog,
        segments: SegmentList,
        active: ActiveWriter,
        flushing: LogFlushing,
        cleaner: CleanerPasses,
        aux: AuxDirectory,
    ) -> None:
        self._log = log
        self._segments = segments
        self._active = active
        self._flushing = flushing
        self._cleaner = cleaner
        self._aux = aux
        self.held: list[Done] | None = None
        """Writes that wait until the log has moved; ``None`` while writes don't wait for that."""

    # The copy in the making

    def begin(self) -> None:
        """A copy is about to be made: end a cleaner pass, and begin none before :meth:`end`. Raises ``OSError``.

        In the middle of a swap, a file's name doesn't say whose bytes are in it.
        """
        self._cleaner.held_off = True
        self._cleaner.leave()

    def end(self) -> None:
        """The move has ended, one way or the other."""
        self._cleaner.held_off = False
        self._aux.touched = None

    def layout(self) -> list[Original]:
        """Return what the log consists of now. Raises ``OSError``."""
        active = self._segments.active
        return [
            Original(segment, segment.next_offset, segment.size_bytes, segment is not active)
            for segment in self._segments
        ]

    def watch_aux(self) -> None:
        """Take down from now on which small files change. All that exist count as changed. Raises ``OSError``."""
        self._aux.touched = set(self._aux.names())

    def take_touched(self) -> list[str]:
        """Return the names that changed since the last call."""
        touched = sorted(self._aux.touched or ())
        self.touch([])
        return touched

    def touch(self, names: list[str]) -> None:
        """Let the next :meth:`take_touched` return these names, and those that change until then."""
        self._aux.touched = set(names)

    # The cut-over

    def hold(self) -> None:
        """Write nothing from now on: what is placed waits for :meth:`let_go`. Raises ``OSError``."""
        self._active.wake().save()
        self.held = []

    def let_go(self) -> None:
        """Write what waits, and tell the outcomes in the order of the writes. Without a hold this does nothing."""
        log = self._log
        held, self.held = self.held, None
        if not held:
            return
        if not log.is_open:
            error = OSError(errno.ECANCELED, "the log was closed", log.directory)
            _tell(held, WriteOutcome(log.written_end_offset, error))
        else:
            log.write(lambda outcome: _tell(held, outcome))

    async def settle(self) -> bool:
        """Wait until :attr:`is_settled`, and return whether it came to that. Call it while writes are held.

        Raises ``OSError``.
        """
        for _ in range(_SYNCS_MAX):
            if not self._log.is_open:
                return False
            if self.is_settled:
                return True
            await self._flushing.flush()
            await asyncio.sleep(0)
        return False

    @property
    def is_compacted_now(self) -> bool:
        """A cleaner pass runs, which may change what the log consists of."""
        return self._cleaner.is_running

    @property
    def is_settled(self) -> bool:
        """No sync runs, nothing waits for one, and no cleaner pass runs."""
        return self._flushing.is_idle and not self._cleaner.is_running

    def relocate(self, home: LogDirectory, directory: str) -> list[Segment]:
        """Go on in a copy that is whole and flushed. Call it while writes are held and the log :attr:`is_settled`.

        :return: the segments that the log had; their files are still open
        :raises OSError: the copy can't be read: the log stays where it is
        """
        segments = []
        for old in self._segments:
            segment = Segment(home.files, directory, old.base_offset, old.next_offset)
            segment.size, segment.created_ms = old.size_bytes, old.created_ms
            segments.append(segment)
        copy, old = segments[-1], self._segments.active
        writer = self._active.copied_to(home, copy)
        if copy.next_offset > old.next_offset or copy.size_bytes != old.size_bytes:
            raise OSError(errno.EIO, f"the copy ends at {copy.next_offset}", copy.path())
        # The copy may end earlier than the log: compaction took the last records of a segment, and a truncation took
        # the segments behind it. Offsets are not given twice, so the log's own end counts.
        copy.next_offset, copy.created_ms = old.next_offset, old.created_ms
        self._active.writer = writer
        self._aux.directory = directory
        self._log.lies_in(home, directory)
        return self._segments.relocate(home, directory, segments)


def _tell(held: list[Done], outcome: WriteOutcome) -> None:
    for done in held:
        done(outcome)
