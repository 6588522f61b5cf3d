"""The parked fetches of one partition: they are told once a turn what happened to it."""

from __future__ import annotations

from collections.abc import Callable

from blumfeld.broker.replicas.watching.written_bytes import WrittenBytes
from blumfeld.spi.partitions import EndWatcher
from blumfeld.spi.runtime import Phase, Runtime
from blumfeld.spi.storage import LogRead, LogReadOutcome

LOG_END_MOVED = 1
COMMITTED_END_MOVED = 2
CHANGED = 4
_COMPLETE = Phase.COMPLETE


class EndWatchers:
    """The watchers of one partition, and the count of written bytes for those that need it."""

    __slots__ = (
        "_runtime",
        "_woken",
        "committed_end",
        "log_end",
        "low_watermark",
        "shared",
        "shared_by",
        "telling",
        "written_bytes",
    )

    shared: LogRead

    def __init__(self, runtime: Runtime) -> None:
        self.log_end: dict[EndWatcher, None] = {}
        """Watchers that are told when the log end moves, in the order in which they came."""
        self.committed_end: dict[EndWatcher, None] = {}
        """Watchers that are told when the high watermark moves; the last stable offset moves only with it."""
        self.low_watermark: dict[Callable[[], None], None] = {}
        """Called when the low watermark moved, or this node leads the partition no more: DeleteRecords requests wait
        for the followers."""
        self.written_bytes: WrittenBytes | None = None
        """Made for the first parked fetch that counts bytes, so that a produce pays for it only where it is used."""
        self.telling = False
        """Whether the watchers are told right now. Nothing changes in the log meanwhile."""
        self.shared_by: tuple[int, int, int, bool] | None = None
        """Arguments of a read whose outcome other watchers may share, because consumers at the end of a log ask for the
        same bytes; ``None`` while the watchers aren't told."""
        self._runtime = runtime
        self._woken = 0
        """The news for the watchers at the end of this turn: a set of bits."""

    def add(self, watcher: EndWatcher, log_end: bool) -> None:
        """Tell ``watcher`` when the log end moves (``log_end``), or else when the end of what is committed does. Each
        watcher is told of every other change, too."""
        (self.log_end if log_end else self.committed_end)[watcher] = None

    def remove(self, watcher: EndWatcher, log_end: bool) -> None:
        """Take a watcher back. It may be called once more if it is taken back while watchers are told."""
        (self.log_end if log_end else self.committed_end).pop(watcher, None)

    def counted(self, placed_end_offset: int) -> WrittenBytes:
        """Returns the count of bytes that are written, which begins with the first call.

        :param placed_end_offset: the log's placed end now
        """
        if self.written_bytes is None:
            self.written_bytes = WrittenBytes(placed_end_offset)
        return self.written_bytes

    def wake(self, woken: int) -> None:
        """Tell the watchers at the end of this turn.

        :param woken: LOG_END_MOVED, COMMITTED_END_MOVED or CHANGED
        """
        if not self._woken:
            self._runtime.at_end_of_turn(_COMPLETE, self._tell)
        self._woken |= woken

    def share(self, arguments: tuple[int, int, int, bool], outcome: LogReadOutcome) -> None:
        """Keep the outcome of a read for the next watchers, if it may be answered more than once.

        A file region may not: it is released with its answer.
        """
        if isinstance(outcome, LogRead) and all(type(part) is bytes for part in outcome.parts):
            self.shared, self.shared_by = outcome, arguments

    def _tell(self) -> None:
        self.telling = True
        try:
            self._tell_all()
        finally:
            self.telling = False
            if self.shared_by is not None:
                self.shared_by = None
                del self.shared

    def _tell_all(self) -> None:
        """:raises Exception: the last defect of a watcher, once every other watcher is told: it may be a plug-in's"""
        woken, self._woken = self._woken, 0
        defect: Exception | None = None
        if woken >= CHANGED:
            for watcher in [*self.committed_end, *self.log_end]:
                try:
                    watcher.changed()
                except Exception as error:
                    defect = error
        else:
            watchers = list(self.committed_end) if woken & COMMITTED_END_MOVED else []
            if woken & LOG_END_MOVED:
                watchers += self.log_end
            for watcher in watchers:
                try:
                    watcher.moved()
                except Exception as error:
                    defect = error
        if defect is not None:
            raise defect
