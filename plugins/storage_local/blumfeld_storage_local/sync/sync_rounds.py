"""Group commit: one round of syncs runs at a time, and all logs that ask meanwhile share the next round.

Each log has a flusher, which joins rounds. It takes down what a sync must cover, and moves the flushed end after it.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import islice
from typing import Protocol

from blumfeld.spi.completion import Completion
from blumfeld.spi.histogram import Histogram
from blumfeld.spi.parts import FileRegion
from blumfeld.spi.runtime import File, Files, Runtime, Timer
from blumfeld_storage_local.segments.segment import Segment
from blumfeld_storage_local.sync.new_logs import sync_topic_id
from blumfeld_storage_local.sync.small_file import sync_bytes

LANE_FILES = 8
"""Files that one worker syncs one after the other. Only beyond that a second worker pays.

On ext4 over a virtual disk with a write cache: 4 files take 0.40 ms one after the other and 0.49 ms side by side,
16 files 1.8 and 1.4 ms, 64 files 8.3 and 4.7 ms."""
LANES_MAX = 3
"""Worker threads that one round may use. The runtime has one more, so that a cold read never waits for a round."""
ROUND_LOGS_MAX = 64
"""Logs that one round may cover: each keeps a descriptor open until the round ends."""
DUE_BITE = 32
"""Logs of which one round takes care only because their interval is over. A write that waits for its sync shares the
round with no more than these."""


class Flushed(Protocol):
    """The log, as its flusher uses it: a wall between floors. Log directories stand on this one, and logs on those."""

    directory: str
    flushed_end_offset: int
    names_unsynced: bool
    """Files were made or renamed in the directory after its last sync."""
    topic_id_unsynced: bool
    """No sync of this process has covered ``partition.metadata``."""
    small_unsynced: set[str]
    """Names of small files that were written without a sync. The log and its rounds share the set."""

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


def sync(
    files: Files,
    directory: str,
    logs: Sequence[File],
    indexes: Sequence[Segment],
    *,
    names: bool,
    topic_id: bool,
    small: Iterable[str],
) -> None:
    """Sync these files of one log. Blocks.

    :param indexes: segments whose index files are to be synced
    :param names: sync the names in the directory too, and the directory's own name
    :param topic_id: sync ``partition.metadata`` too. Without it a log that a power cut leaves could be of a deleted
        topic of the same name, so the next start would set it aside.
    :param small: names of small files that are to be synced too
    """
    for log in logs:
        log.fdatasync()
    for segment in indexes:
        segment.sync_indexes()
    if topic_id:
        with suppress(FileNotFoundError):  # somebody removed it: no reason to stop serving
            sync_topic_id(files, directory)
    for name in small:
        with suppress(FileNotFoundError):  # removed, because what it describes is gone
            sync_bytes(files, f"{directory}/{name}")
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
        "small",
        "target",
        "topic_id",
    )

    def __init__(self, flusher: Flusher, log: Flushed, files: Files) -> None:
        self.flusher = flusher
        self.directory = log.directory
        self.target = log.appended_end_offset
        self.names = log.names_unsynced or bool(log.small_unsynced)
        self.topic_id = log.topic_id_unsynced
        self.small = sorted(log.small_unsynced)
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
                small=self.small,
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

    def __init__(self, log: Flushed, files: Files, rounds: SyncRounds) -> None:
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
        if not (unflushed or log.small_unsynced) and self._work is None:
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
        self._log.small_unsynced.clear()
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
            log.small_unsynced |= {*work.small}
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


class SyncRounds:
    """Syncs logs off the loop.

    A round covers all logs that joined before it began, and all bytes that are in their files then. At its end the
    logs are told in the order in which they joined, all in one turn.

    :param failed: called once with the error when a sync fails. Nothing is synced again then: Linux may have dropped
        the bytes that it could not write, and a second sync would succeed without them
    :param times: takes the duration of each round, waiting for a worker included
    """

    __slots__ = (
        "_due",
        "_error",
        "_failed",
        "_next",
        "_ready",
        "_running",
        "_runtime",
        "_timer",
        "_times",
        "rounds",
    )

    def __init__(self, runtime: Runtime, failed: Callable[[OSError], None], times: Histogram) -> None:
        self._runtime = runtime
        self._failed = failed
        self._times = times
        self._next: dict[Flusher, None] = {}
        self._due: dict[Flusher, None] = {}
        """Flushers whose interval ends with the timer."""
        self._ready: dict[Flusher, None] = {}
        """Flushers whose interval is over. No write waits for them."""
        self._timer: Timer | None = None
        self._running = False
        self._error: OSError | None = None
        self.rounds = 0
        """The number of rounds that have begun."""

    def join(self, flusher: Flusher) -> None:
        """Sync this log in the next round. Once a sync has failed, the log fails at once."""
        if self._error is not None:
            flusher.fail(self._error)
            return
        self._next[flusher] = None
        self._run_soon()

    def join_within(self, flusher: Flusher, interval_ms: float) -> None:
        """Sync this log in at most ``interval_ms``, together with all others whose interval ends then."""
        self._due[flusher] = None
        if self._timer is None:
            self._timer = self._runtime.call_later(interval_ms, self._time_is_up)

    def stop(self) -> None:
        """Cancel the timer. May be called twice."""
        self._due.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _time_is_up(self) -> None:
        self._timer = None
        if self._error is None:
            self._ready |= self._due
            self._run_soon()
        self._due = {}

    def _run_soon(self) -> None:
        if not self._running:
            self._running = True
            self._runtime.spawn(self._run(), "sync logs")

    async def _run(self) -> None:
        while self._next or self._ready:
            flushers = dict.fromkeys(islice(self._next, ROUND_LOGS_MAX))
            for flusher in flushers:
                del self._next[flusher]
            for flusher in list(islice(self._ready, DUE_BITE)):
                del self._ready[flusher]
                flushers[flusher] = None
            error = await self._round(list(flushers))
            if error is not None:
                self._fail(error, flushers)
        self._running = False

    async def _round(self, flushers: Sequence[Flusher]) -> OSError | None:
        """Run one round, and return the error that nobody can make good, if there was one."""
        self.rounds += 1
        began_ms = self._runtime.monotonic_ms()
        works: list[SyncWork] = []
        failure: OSError | None = None
        outcomes: list[OSError | None] = []
        try:
            works.extend(work for flusher in flushers if (work := flusher.begin()) is not None)
            outcomes = await self._in_lanes(works)
            self._times.add((self._runtime.monotonic_ms() - began_ms) / 1000.0)
        except OSError as error:
            failure = error
        finally:
            for work in works:
                work.release()
        for work, outcome in zip(works, outcomes, strict=False):
            failure = work.flusher.end(outcome) or failure
        return failure

    async def _in_lanes(self, works: Sequence[SyncWork]) -> list[OSError | None]:
        lanes = max(1, min(LANES_MAX, sum(len(work.logs) for work in works) // LANE_FILES, len(works)))
        # There are no works if all logs that joined were closed meanwhile.
        share = max(1, -(-len(works) // lanes))
        running = [
            self._runtime.offload(_run_all, works[at : at + share]) for at in range(0, len(works), share)
        ]
        return [outcome for lane in running for outcome in await lane]

    def _fail(self, error: OSError, flushers: dict[Flusher, None]) -> None:
        """Fail every log that waits, for this round or the next: it is not known what is on the device."""
        self._error = error
        self._failed(error)
        waiting = flushers | self._next | self._ready
        self._next, self._ready = {}, {}
        for flusher in waiting:
            flusher.fail(error)


def _run_all(works: Sequence[SyncWork]) -> list[OSError | None]:
    return [work.run() for work in works]
