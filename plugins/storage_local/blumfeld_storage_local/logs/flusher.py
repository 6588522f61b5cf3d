"""Flushes one log: who wants it, what a sync has to cover, and what is flushed after it."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol

from blumfeld.spi.completion import Completion
from blumfeld.spi.parts import FileRegion
from blumfeld.spi.runtime import File, Files
from blumfeld_storage_local.directories.new_logs import sync_topic_id
from blumfeld_storage_local.segments.segment import Segment


class Flushed(Protocol):
    """The log that is flushed."""

    directory: str
    flushed_end_offset: int
    names_unsynced: bool
    """Files were made or renamed in the directory since it was last synced."""
    topic_id_unsynced: bool
    """No sync of this process has covered ``partition.metadata``."""

    @property
    def appended_end_offset(self) -> int:
        """Everything below it is in the page cache."""
        ...

    def unflushed_segments(self) -> list[Segment]:
        """Segments with something written behind the flushed end, oldest first."""
        ...

    def flush_ended(self, error: OSError | None) -> None:
        """The flushed end moved, or never will again. May ask for another flush."""
        ...


class Rounds(Protocol):
    """Where flushers take turns: :class:`blumfeld_storage_local.sync.sync_rounds.SyncRounds`."""

    def join(self, flusher: Flusher) -> None:
        """Sync it in the next round. Once a sync has failed, it fails at once."""
        ...


def sync(
    files: Files,
    directory: str,
    logs: Sequence[File],
    indexes: Sequence[Segment],
    *,
    names: bool,
    topic_id: bool,
) -> None:
    """Make it all last. Blocks.

    :param indexes: segments whose index files are to be synced
    :param names: sync the directory's names too, and its own
    :param topic_id: sync ``partition.metadata`` too. Without it a log that a power cut leaves could be of a deleted
        topic of the same name, so the next start would set it aside.
    """
    for log in logs:
        log.fdatasync()
    for segment in indexes:
        segment.sync_indexes()
    if topic_id:
        with suppress(FileNotFoundError):  # somebody removed it: that is no reason to stop serving
            sync_topic_id(files, directory)
    if names:
        files.sync_dir(directory)
        files.sync_dir(directory.rpartition("/")[0] or "/")  # a new log's own name


class SyncWork:
    """What one sync of one log has to cover, taken down when its round begins."""

    __slots__ = (
        "_files",
        "before",
        "directory",
        "flusher",
        "held",
        "indexes",
        "logs",
        "names",
        "segments",
        "target",
        "topic_id",
    )

    def __init__(self, flusher: Flusher, log: Flushed, files: Files) -> None:
        self.flusher = flusher
        self.directory = log.directory
        self.target = log.appended_end_offset
        self.names = log.names_unsynced
        self.topic_id = log.topic_id_unsynced
        self._files = files
        self.segments = segments = log.unflushed_segments()
        self.before = [(segment.written_bytes(), segment.cuts) for segment in segments]
        self.indexes = [segment for segment in segments[:-1] if segment.index_unsynced]
        self.logs: list[File] = []
        self.held: list[FileRegion] = []
        """Keep the descriptors from being closed, and reused, under the worker."""
        try:
            for segment in segments:
                file = segment.file()
                self.held.append(
                    file.region(0, 0)
                )  # before the next is opened, for which this one may be closed
                self.logs.append(file)
        except OSError:
            self.release()
            raise

    def run(self) -> OSError | None:
        """In a worker: sync; what went wrong."""
        try:
            sync(
                self._files,
                self.directory,
                self.logs,
                self.indexes,
                names=self.names,
                topic_id=self.topic_id,
            )
        except OSError as error:
            return error
        return None

    def release(self) -> None:
        """It ran."""
        for region in self.held:
            region.release()


class Flusher:
    """Flushes one log off the loop, in the rounds that it takes part in."""

    __slots__ = ("_closed", "_files", "_last", "_log", "_rounds", "_served", "_waiters", "_work")

    def __init__(self, log: Flushed, files: Files, rounds: Rounds) -> None:
        self._log = log
        self._files = files
        self._rounds = rounds
        self._waiters: list[Completion[int]] = []
        self._served: list[Completion[int]] = []
        """Those whose round runs."""
        self._work: SyncWork | None = None
        self._closed = False
        self._last: Completion[bool] | None = None

    @property
    def is_syncing(self) -> bool:
        """A round runs that it takes part in."""
        return self._work is not None

    @property
    def is_idle(self) -> bool:
        """No round runs that it takes part in, and nobody waits for one."""
        return self._work is None and not self._waiters and not self._served

    def flush(self) -> Completion[int]:
        """Make what is written now last; completes with the flushed end."""
        log = self._log
        unflushed = log.flushed_end_offset < log.appended_end_offset or log.names_unsynced
        if not unflushed and self._work is None:
            return Completion.of(log.flushed_end_offset)
        waiter: Completion[int] = Completion()
        self._waiters.append(waiter)
        self._rounds.join(self)
        return waiter

    def request(self) -> None:
        """As :meth:`flush`; the log's ``flush_ended`` tells."""
        self._rounds.join(self)

    def truncated(self, offset: int) -> None:
        """What is synced now is worth nothing from ``offset`` on."""
        if self._work is not None:
            self._work.target = min(self._work.target, offset)

    def close(self) -> None:
        """The log is closed, and whoever closed it syncs what there is: nothing of it is touched any more."""
        self._closed = True
        if self._work is not None and self._last is None:
            self._last = Completion()

    @property
    def last_round(self) -> Completion[bool] | None:
        """The round that ran when it was closed, if one did: completes with its end; whether nothing went wrong."""
        return self._last

    # For the rounds

    def begin(self) -> SyncWork | None:
        """A round begins: what it is to sync; ``None`` if the log was closed.

        :raises OSError: a file could not be opened
        """
        self._served += self._waiters
        self._waiters = []
        if self._closed:
            self._tell(None)
            return None
        self._work = SyncWork(self, self._log, self._files)
        self._log.names_unsynced = self._log.topic_id_unsynced = False
        return self._work

    def end(self, error: OSError | None) -> OSError | None:
        """The round has ended: move the flushed end and tell who waits, or say what nobody can make good."""
        work, self._work = self._work, None
        assert work is not None
        log = self._log
        if error is not None:
            log.names_unsynced |= work.names
            log.topic_id_unsynced |= work.topic_id
            gone = self._closed or any(not segment.is_open for segment in work.segments)
            if not gone or error.errno not in (errno.EBADF, errno.ENOENT):
                self._round_was_last(went_well=False)
                return error  # also of a log that was closed meanwhile: its own sync may not be told a second time
            if not self._closed:
                self._rounds.join(self)  # segments went away meanwhile: it must be done again
                return None
        elif not self._closed:
            for segment in work.indexes:
                segment.index_unsynced = False
            for segment, (size, cuts) in zip(work.segments, work.before, strict=True):
                segment.synced(size, cuts)
            log.flushed_end_offset = max(log.flushed_end_offset, work.target)
        self._tell(None)
        self._round_was_last(went_well=True)
        return None

    def fail(self, error: OSError) -> None:
        """A sync has failed, this log's or another's of its round: nothing is ever synced again."""
        self._work = None
        self._served += self._waiters
        self._waiters = []
        self._tell(error)
        self._round_was_last(went_well=False)

    def _round_was_last(self, *, went_well: bool) -> None:
        if self._last is not None and not self._last.done:
            self._last.complete(went_well)

    def _tell(self, error: OSError | None) -> None:
        served, self._served = self._served, []
        if not self._closed:
            self._log.flush_ended(error)
        for waiter in served:
            if error is None:
                waiter.complete(self._log.flushed_end_offset)
            else:
                waiter.fail(error)
