"""When a log is flushed, and the outcomes of writes that wait for a sync."""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Callable
from typing import Protocol

import msgspec

from blumfeld.config.values import TopicConfig
from blumfeld.spi.completion import Completion
from blumfeld.spi.runtime import Timer
from blumfeld.spi.storage import WriteOutcome
from blumfeld_storage_local.directory import LogDirectory
from blumfeld_storage_local.segment_list import SegmentList
from blumfeld_storage_local.sync.flusher import Flushed, Flusher, sync

Done = Callable[[WriteOutcome], None]

FLUSH_NEVER_MS = 1 << 53
"""A ``flush.ms`` from here on is no interval: Kafka's default is 2**63-1."""

_NEVER = 1 << 62


class FlushedLog(Flushed, Protocol):
    """What the flushing asks of its log."""

    home: LogDirectory
    config: TopicConfig
    is_open: bool
    written_end_offset: int

    def unplace(self) -> None:
        """Forget what is placed and not written."""
        ...


class _Waiting(msgspec.Struct):
    """The outcome of a write, until a sync covers the write."""

    done: Done
    end_offset: int
    error: OSError | None


class LogFlushing:
    """Flushes one log as its durability mode and its topic ask, and tells the outcomes of writes in their order."""

    __slots__ = ("_flusher", "_log", "_segments", "_timer", "after_sync", "asked", "waiting", "write_error")

    def __init__(self, log: FlushedLog, segments: SegmentList) -> None:
        self._log = log
        self._segments = segments
        self._timer: Timer | None = None
        self._flusher = Flusher(log, log.home.files, log.home.rounds())
        self.waiting: deque[_Waiting] = deque()
        """Outcomes of writes that wait for a sync, in the order of the writes."""
        self.write_error: OSError | None = None
        """A write has failed, and its outcome waits for the outcomes before it. Until then nothing is written."""
        self.after_sync = False
        """Records count as written only after a sync (``flush = "every"``)."""
        self.asked = False
        """Somebody wants this log flushed. If not, a write need not look any further."""
        self.configure()

    def configure(self) -> None:
        """Take the topic's configuration. What the write path asks is worked out here, once."""
        config, durability = self._log.config, self._log.home.durability
        self.after_sync = durability.acks_after_sync
        flushes = config.flush_messages < _NEVER or config.flush_ms < FLUSH_NEVER_MS
        self.asked = flushes or durability.mode != "never"
        self._cancel_timer()

    @property
    def is_idle(self) -> bool:
        """No sync runs, and nothing waits for one."""
        return self._flusher.is_idle and not self.waiting

    def flush(self) -> Completion[int]:
        """Flush what is written now; completes with the flushed end."""
        return self._flusher.flush()

    # Outcomes of writes

    def tell(self, done: Done, error: OSError | None) -> None:
        """Tell the outcome of a write: now, or after the sync that must cover it.

        A failed write waits too while others wait before it: outcomes come in the order of the writes.
        """
        log = self._log
        end_offset = log.appended_end_offset
        unflushed = end_offset - log.flushed_end_offset
        if self.waiting or (unflushed > 0 and (self.after_sync or unflushed >= log.config.flush_messages)):
            self.waiting.append(_Waiting(done, end_offset, error))
            if error is not None:
                self.write_error = error
            self._flusher.request()
            return
        if unflushed > 0:
            self._flush_later()
        done(WriteOutcome(log.written_end_offset, error))

    def _flush_later(self) -> None:
        log = self._log
        if log.home.durability.mode == "interval":
            log.home.syncs.join_within(self._flusher, log.home.durability.interval_ms)
        if log.config.flush_ms < FLUSH_NEVER_MS and self._timer is None:
            self._timer = log.home.runtime.call_later(log.config.flush_ms, self._due)

    def _due(self) -> None:
        self._timer = None
        if self._log.is_open and self._log.home.error is None:
            self._flusher.request()

    def ended(self, error: OSError | None) -> None:
        """A sync has ended: the flushed end moved, or with an error it never will again."""
        log, waiting = self._log, self.waiting
        if self.after_sync:
            log.written_end_offset = max(log.written_end_offset, log.flushed_end_offset)
        while waiting and (error is not None or waiting[0].end_offset <= log.flushed_end_offset):
            self._tell(waiting.popleft(), error)
        if waiting:
            self._flusher.request()

    def _tell(self, outcome: _Waiting, error: OSError | None) -> None:
        end_offset, error = outcome.end_offset, error or outcome.error
        if error is not None:
            # The caller takes all that it placed behind a failed write for lost, so the log must forget it too.
            self.write_error = None
            self._log.unplace()
            end_offset = min(end_offset, self._log.flushed_end_offset)
        outcome.done(WriteOutcome(end_offset, error))

    # The log changes

    def truncated(self, offset: int) -> None:
        """The log was cut at ``offset``: a sync that runs proves nothing about what is written there next."""
        self._flusher.truncated(offset)
        for waiting in self.waiting:
            waiting.end_offset = min(waiting.end_offset, offset)

    def moved(self) -> None:
        """The log lies in another directory now, where other syncs count."""
        log = self._log
        self._flusher.close()
        self._flusher = Flusher(log, log.home.files, log.home.rounds())

    # The end

    def stop(self) -> None:
        """Flush no more. Outcomes still wait, for :meth:`tell_the_rest`."""
        self._flusher.close()
        self._cancel_timer()

    def sync_all(self) -> None:
        """Sync all of a log that is being closed. Blocks. Raises ``OSError``."""
        log = self._log
        syncing = self._flusher.is_syncing
        dirty = log.flushed_end_offset < log.appended_end_offset or log.names_unsynced or syncing
        files = [segment.file() for segment in log.unflushed_segments()] if dirty else []
        indexes = [segment for segment in self._segments if segment.index_unsynced]
        if files or indexes:
            topic_id = log.topic_id_unsynced
            sync(log.home.files, log.directory, files, indexes, names=True, topic_id=topic_id)
        # The kernel reports an error of write-back once. Where a sync runs beside this one, it may be the other that
        # hears of it: only when both went well all of the log lasts (see last_sync).
        if not syncing:
            self._all_synced()

    def tell_the_rest(self, error: OSError | None) -> None:
        """Tell the outcomes that no sync will cover any more."""
        waiting = list(self.waiting)
        self.waiting.clear()
        for outcome in waiting:
            if error is None and outcome.end_offset > self._log.flushed_end_offset:
                error = OSError(
                    errno.ECANCELED, "the log was closed before the sync had ended", self._log.directory
                )
            self._tell(outcome, error)

    @property
    def waits_for_last_sync(self) -> bool:
        """The log was closed while a sync of it ran, and that sync has not ended yet."""
        last = self._flusher.last_round
        return last is not None and not last.done

    async def last_sync(self, *, clean: bool) -> None:
        """Wait for that sync. If it and the sync of the close went well, all of the log lasts.

        :param clean: whether the log was closed without an error
        """
        last = self._flusher.last_round
        if last is not None and await last and clean:
            self._all_synced()

    def _all_synced(self) -> None:
        for segment in self._segments:
            segment.index_unsynced = False
        self._log.flushed_end_offset = self._log.appended_end_offset

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
