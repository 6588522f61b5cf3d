"""Flush one log in sync rounds: take down what a sync must cover, and move the flushed end after it."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol

from blumfeld.spi.completion import Completion
from blumfeld.spi.parts import FileRegion
from blumfeld.spi.runtime import File, Files
from blumfeld_storage_local.segments.segment import Segment
from blumfeld_storage_local.sync.new_logs import sync_topic_id


class Flushed(Protocol):
    """What a flusher asks of its log."""

    directory: str
    flushed_end_offset: int
    names_unsynced: bool
    """Files were made or renamed in the directory after its last sync."""
    topic_id_unsynced: bool
    """No sync of this process has covered ``partition.metadata``."""

    @property
    def appended_end_offset(self) -> int:
        """Everything below it is in the page cache."""
        ...

    def unflushed_segments(self) -> list[Segment]:
        """Segments that a sync must cover, oldest first."""
        ...

    def flush_ended(self, error: OSError | None) -> None:
        """The flushed end moved, or with an error it never will again. The log may ask for another flush."""
        ...


class Rounds(Protocol):
    """Rounds that flushers join: :class:`blumfeld_storage_local.sync.sync_rounds.SyncRounds`."""

    def join(self, flusher: Flusher) -> None:
        """Sync this log in the next round. Once a sync has failed, the log fails at once."""
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
    """Sync these files of one log. Blocks.

    :param indexes: segments whose index files are to be synced
    :param names: sync the names in the directory too, and the directory's own name
    :param topic_id: sync ``partition.metadata`` too. Without it a log that a power cut leaves could be of a deleted
        topic of the same name, so the next start would set it aside.
    """
    for log in logs:
        log.fdatasync()
    for segment in indexes:
        segment.sync_indexes()
    if topic_id:
        with suppress(FileNotFoundError):  # somebody removed it: no reason to stop serving
            sync_topic_id(files, directory)
    if names:
        files.sync_dir(directory)
        files.sync_dir(directory.rpartition("/")[0] or "/")  # the name of a new log's directory


class SyncWork:
    """The files that one sync of one log must cover, taken down when the round begins."""

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
        """Regions that keep the descriptors open: a closed one could be reused for another file under the worker."""
        try:
            for segment in segments:
                file = segment.file()
                # Before the next file is opened: to make room for that, this one may be closed.
                self.held.append(file.region(0, 0))
                self.logs.append(file)
        except OSError:
            self.release()
            raise

    def run(self) -> OSError | None:
        """Sync, in a worker, and return the error if it failed."""
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
        """Let the descriptors be closed again."""
        for region in self.held:
            region.release()


class Flusher:
    """Flushes one log in workers, in the sync rounds that it joins."""

    __slots__ = ("_closed", "_files", "_last", "_log", "_rounds", "_served", "_waiters", "_work")

    def __init__(self, log: Flushed, files: Files, rounds: Rounds) -> None:
        self._log = log
        self._files = files
        self._rounds = rounds
        self._waiters: list[Completion[int]] = []
        self._served: list[Completion[int]] = []
        """Waiting flushes whose round runs. :attr:`_waiters` wait for the next one."""
        self._work: SyncWork | None = None
        self._closed = False
        self._last: Completion[bool] | None = None

    @property
    def is_syncing(self) -> bool:
        """A round of this log runs."""
        return self._work is not None

    @property
    def is_idle(self) -> bool:
        """No round of this log runs, and no flush waits for one."""
        return self._work is None and not self._waiters and not self._served

    def flush(self) -> Completion[int]:
        """Flush all that is written now; completes with the flushed end."""
        log = self._log
        unflushed = log.flushed_end_offset < log.appended_end_offset or log.names_unsynced
        if not unflushed and self._work is None:
            return Completion.of(log.flushed_end_offset)
        waiter: Completion[int] = Completion()
        self._waiters.append(waiter)
        self._rounds.join(self)
        return waiter

    def request(self) -> None:
        """Do the same without a completion: the log's ``flush_ended`` is called."""
        self._rounds.join(self)

    def truncated(self, offset: int) -> None:
        """The log was cut: the sync that runs proves nothing about offsets from ``offset`` on."""
        if self._work is not None:
            self._work.target = min(self._work.target, offset)

    def close(self) -> None:
        """Touch the log no more. Closing the log syncs it."""
        self._closed = True
        if self._work is not None and self._last is None:
            self._last = Completion()

    @property
    def last_round(self) -> Completion[bool] | None:
        """The round that ran at the close, if one did: completes at its end, with whether it went well."""
        return self._last

    # For the rounds

    def begin(self) -> SyncWork | None:
        """Begin a round: return the files to sync, or ``None`` if the log was closed.

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
        """End a round: move the flushed end, and complete the flushes. Return an error that nobody can make good.

        A file that is gone because its segment was dropped meanwhile is no such error: the log joins another round.
        """
        work, self._work = self._work, None
        assert work is not None
        log = self._log
        if error is not None:
            log.names_unsynced |= work.names
            log.topic_id_unsynced |= work.topic_id
            gone = self._closed or any(not segment.is_open for segment in work.segments)
            if not gone or error.errno not in (errno.EBADF, errno.ENOENT):
                self._round_was_last(went_well=False)
                # Also for a log that was closed meanwhile: the kernel tells each error only once, so the close may have
                # heard of none.
                return error
            if not self._closed:
                self._rounds.join(self)  # segments were dropped meanwhile: sync the others again
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
        """Fail all flushes, because a sync of this log or of another in its round has failed."""
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
