"""The cleaner passes over one log: one at a time, and none that outlives a truncation, a move or a close."""

from __future__ import annotations

from typing import Protocol

from blumfeld.config.values import TopicConfig
from blumfeld.spi.compaction import CompactionAbandonedError, CompactionRequest, CompactionResult
from blumfeld.spi.completion import Completion
from blumfeld_storage_local.compaction.cleaner_pass import CleanerPass
from blumfeld_storage_local.directory import LogDirectory
from blumfeld_storage_local.segment_list import SegmentList


class CleanedLog(Protocol):
    """What the cleaner asks of its log."""

    home: LogDirectory
    directory: str
    config: TopicConfig
    names_unsynced: bool
    written_end_offset: int

    def check(self) -> None:
        """Raise ``OSError`` if the log is closed or its directory offline."""
        ...

    def cleaned_to(self, end_offset: int) -> None:
        """Take down, over restarts too, up to where the log is clean."""
        ...


class CleanerPasses:
    """Runs cleaner passes over one log."""

    __slots__ = ("_log", "_pass", "_segments", "held_off")

    def __init__(self, log: CleanedLog, segments: SegmentList) -> None:
        self._log = log
        self._segments = segments
        self._pass: CleanerPass | None = None
        self.held_off = False
        """A copy of the log is being made in another directory: no pass begins meanwhile."""

    @property
    def is_running(self) -> bool:
        """A pass runs: it may change which segments the log consists of."""
        return self._pass is not None

    def compact(self, request: CompactionRequest) -> Completion[CompactionResult]:
        """Do one pass, as ``SegmentedLog.compact`` says.

        :raises ValueError: one runs already
        """
        log = self._log
        log.check()
        if self._pass is not None:
            raise ValueError(f"{log.directory} is being compacted")
        done: Completion[CompactionResult] = Completion()
        if self.held_off:
            done.fail(CompactionAbandonedError("the log moves to another directory"))
            return done
        self._pass = CleanerPass(
            log.home, self._segments, request, self._swapped, log.config.file_delete_delay_ms
        )
        log.home.runtime.spawn(self._run(self._pass, done), f"compact {log.directory}")
        return done

    def leave(self, offset: int = 0, *, finish: bool = True) -> None:
        """End a pass that works at ``offset`` or above, because something else is about to change the log there.

        A pass that has swapped its segments is finished here and now, blocking. Any other comes to nothing.

        :param finish: False: leave even a swap half done, because the whole directory goes
        :raises OSError: the directory is offline
        """
        if self._pass is not None and offset <= self._pass.end_offset:
            self._pass.leave(finish=finish)

    async def _run(self, pass_: CleanerPass, done: Completion[CompactionResult]) -> None:
        try:
            result = await pass_.run()
        except (OSError, CompactionAbandonedError) as error:
            self._pass = None
            done.fail(error)
        else:
            self._pass = None
            done.complete(result)

    def _swapped(self, result: CompactionResult) -> None:
        log = self._log
        log.names_unsynced = True
        log.cleaned_to(min(result.cleaned_end_offset, log.written_end_offset))
