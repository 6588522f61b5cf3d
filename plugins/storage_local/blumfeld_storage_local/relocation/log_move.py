"""Move one log to another log directory (KIP-113).

First the log is copied to ``<topic>-<partition>.<id>-future`` while it serves. Records that arrive meanwhile are copied
in further rounds, until little is left. Then comes the cut-over, while writes wait:

1. the last bytes are copied, and the whole copy is synced;
2. the target's checkpoints take over what the source's say about the log;
3. a mark in the source directory says that the copy counts once it has the log's name;
4. the copy gets that name;
5. the log goes on in the copy;
6. the old directory becomes ``-delete``.

Each step is durable before the next begins. So a start after a crash finds the log in exactly one place, with all that
was ever acknowledged (:mod:`blumfeld_storage_local.directories.directory_start`). After an error before step 5 the log
stays where it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeVar

from blumfeld.log.segments.file_names import DirState, marked_partition_dir, partition_dir
from blumfeld.spi.completion import Completion
from blumfeld.spi.runtime import Timer
from blumfeld.spi.storage import LogMove, TopicPartition
from blumfeld_storage_local.directories.directory_logs import DirectoryLogs
from blumfeld_storage_local.directories.places import MoveEnd, MoveMark
from blumfeld_storage_local.directory import LogDirectory
from blumfeld_storage_local.durability import can_be_undone
from blumfeld_storage_local.logs.partition_log import LocalLog, Original
from blumfeld_storage_local.relocation.log_copy import (
    LogCopy,
    SourceChangedError,
    TargetError,
    TargetSyncError,
)
from blumfeld_storage_local.segments.segment import Segment

T = TypeVar("T")
STEP_BYTES = 4 << 20
"""Bytes that a worker copies before the move looks again at what has changed."""
CUT_OVER_BYTES = 1 << 20
"""The cut-over begins when at most this much is left to copy: writes wait for it."""
CUT_OVER_RETRY_MS = 100
"""Pause before the next attempt at a cut-over that a roll, a truncation or a cleaner pass interrupted."""


class MoveInterruptedError(Exception):
    """The log was closed or deleted, a directory failed, or the move is not wanted any more."""


class Move:
    """One move. It runs on the loop; each call that may wait for a device runs in a worker.

    :param moved: called once, when the log has gone on in its new place, with the segments that it had
    """

    def __init__(
        self,
        log: LocalLog,
        source: DirectoryLogs,
        target: DirectoryLogs,
        path: str,
        bytes_per_second_max: float,
        moved: Callable[[Move, Sequence[Segment]], None],
    ) -> None:
        self.log = log
        self.source = source
        self.target = target
        self.path = path
        """Path of the ``-future`` directory that the copy is written to."""
        self.wanted = True
        """False once the move was given up: its ``-future`` directory is removed at the end."""
        self.interrupted = False
        self.done = False
        """True once the log lies in the target."""
        self.ended: Completion[None] = Completion()
        self._runtime = source.home.runtime
        self._copy = LogCopy(source.home.files, log.directory, path)
        self._name = f"{target.home.path}/{partition_dir(log.partition)}"
        self._bytes_per_second_max = bytes_per_second_max
        self._moved = moved
        self._cut: int | None = None
        self._size_bytes, self._copied_end_offset = 0, log.log_start_offset
        self._sleeping: tuple[Timer, Completion[None]] | None = None

    def info(self) -> LogMove:
        """Return the progress, for DescribeLogDirs."""
        return LogMove(
            partition=self.log.partition,
            from_directory_id=self.source.home.directory_id,
            to_directory_id=self.target.home.directory_id,
            size_bytes=self._size_bytes,
            copied_end_offset=self._copied_end_offset,
        )

    def truncated(self, offset: int) -> None:
        """Remember that the log is about to be truncated: what was copied from ``offset`` on is copied again."""
        self._cut = offset if self._cut is None else min(self._cut, offset)

    def interrupt(self) -> None:
        """End the move soon. If the log has gone on in the copy already, the move still completes."""
        self.interrupted = True
        if self._sleeping is not None:
            timer, over = self._sleeping
            timer.cancel()
            self._sleeping = None
            over.complete(None)

    async def run(self) -> None:
        """Do the move. Errors are logged, and leave the log where it is; nothing is raised."""
        events, log = self.target.home.events, self.log
        events.info("log moves", partition=str(log.partition), to=self.target.home.path)
        try:
            self.log.begin_move()
            await self._off(self._copy.begin)
            self.log.watch_aux()
            while not await self._try_cut_over():
                await self._sleep(CUT_OVER_RETRY_MS)
            events.info("log moved", partition=str(log.partition), to=self.target.home.path)
        except MoveInterruptedError:
            pass
        except OSError as error:
            self.wanted = False
            if isinstance(error, TargetSyncError) or (
                isinstance(error, TargetError) and not can_be_undone(error)
            ):
                self.target.home.fail(error)
            events.error("log not moved", partition=str(log.partition), error=str(error))
        finally:
            self.log.end_move()
            self._copy.close()

    # Copy

    async def _catch_up(self) -> None:
        """Copy until at most ``CUT_OVER_BYTES`` are left and no cleaner pass runs."""
        while True:
            self._check()
            if self._cut is not None:
                offset, self._cut = self._cut, None
                await self._off(self._copy.cut, offset)
                continue
            names, originals = self.log.take_touched(), self.log.layout()
            if names:
                await self._off(self._copy.copy_beside, names)
            if self._copy.bytes_left(originals) <= CUT_OVER_BYTES and self._copy.has_sealed(originals):
                if not self.log.is_compacted_now:
                    return
                await self._sleep(CUT_OVER_RETRY_MS)
                continue
            await self._step(originals)

    async def _step(self, originals: Sequence[Original]) -> None:
        began_ms = self._runtime.monotonic_ms()
        step_bytes = int(max(1, min(STEP_BYTES, self._bytes_per_second_max)))
        try:
            copied = await self._off(self._copy.step, originals, step_bytes)
        except SourceChangedError:
            await self._sleep(CUT_OVER_RETRY_MS)
            return
        self._size_bytes = self._copy.size_bytes
        self._copied_end_offset = self._copy.end_offset(originals)
        due_ms = began_ms + copied * 1000 / self._bytes_per_second_max
        await self._sleep(due_ms - self._runtime.monotonic_ms())

    # Cut over

    async def _try_cut_over(self) -> bool:
        """Let the log go on in the copy. Return False if something changed the log meanwhile: try again."""
        await self._catch_up()
        self.log.hold_writes()
        try:
            done = await self._finish()
        except (OSError, MoveInterruptedError):
            self.log.let_writes_go()
            raise
        self.log.let_writes_go()
        return done

    async def _finish(self) -> bool:
        """Do steps 1 to 6, while writes wait. Return False if something changed the log meanwhile."""
        log = self.log
        if not await log.settle():
            return False
        originals, names = log.layout(), log.take_touched()
        try:
            await self._off(self._copy.complete, originals, names)
        except SourceChangedError:
            log.touch(names)
            return False
        if self._changed(originals):
            return False
        await self._tell_target()
        return await self._switch(originals)

    def _changed(self, originals: Sequence[Original]) -> bool:
        """Return whether anything changed the log since ``originals`` were listed. Raise if the move must end."""
        self._check()
        log = self.log
        if names := log.take_touched():
            log.touch(names)
            return True
        return self._cut is not None or not log.is_settled or log.layout() != originals

    async def _tell_target(self) -> None:
        """Put into the target's checkpoints what the source's say about the log, and wait until they are durable."""
        partition, log = self.log.partition, self.log
        here, there = self.source.checkpoints, self.target.checkpoints
        there.recovery_points[partition] = log.appended_end_offset
        there.log_starts[partition] = log.log_start_offset
        there.cleaner_offsets[partition] = log.cleaned_end_offset
        there.high_watermarks[partition] = here.high_watermarks.get(partition, 0)
        await self.target.save()
        self._check()

    async def _switch(self, originals: Sequence[Original]) -> bool:
        marks, partition, target_id = (
            self.source.checkpoints.moves,
            self.log.partition,
            self.target.home.directory_id,
        )
        marks[partition] = MoveMark(target_id, MoveEnd.DONE)
        try:
            await self.source.save()
            self._check()
            await self._off(_rename, self.target.home, self.path, self._name)
            changed = self._changed(originals)
            if not changed:
                segments = self.log.relocate(self.target.home, self._name)
        except (OSError, MoveInterruptedError):
            await self._take_back()
            raise
        if changed:
            await self._take_back()
            return False
        self.done = True
        self._moved(self, segments)
        await self._leave_source(segments)
        return True

    async def _take_back(self) -> None:
        """Undo steps 3 and 4: the log goes on where it is.

        The mark comes first. If the process dies between the two, the copy still has the log's name, and only the
        mark tells the start that it is stale.
        """
        marks, partition = self.source.checkpoints.moves, self.log.partition
        marks[partition] = MoveMark(self.target.home.directory_id, MoveEnd.GIVEN_UP)
        await _try_to_save(self.source)
        try:
            await self._runtime.offload(_rename_back, self.target.home, self._name, self.path)
        except OSError as error:
            self.target.home.fail(error)
            return  # the mark stays: a later start finds the directory back, with a stale copy
        self.target.checkpoints.forget(partition)
        marks.pop(partition, None)
        await _try_to_save(self.source)

    async def _leave_source(self, segments: Sequence[Segment]) -> None:
        home, partition = self.source.home, self.log.partition
        old = f"{home.path}/{partition_dir(partition)}"
        new = f"{home.path}/{marked_partition_dir(partition, DirState.DELETE, self._runtime.new_uuid())}"
        try:
            await self._runtime.offload(_rename, home, old, new)
        except OSError as error:
            home.fail(error)  # the mark tells the next start that the copy counts
            return
        for segment in segments:
            segment.directory = new  # readers of the old segments find the files under their new path
        self.source.checkpoints.moves.pop(partition, None)
        home.remove_later([new], self.log.config.file_delete_delay_ms, trees=True)
        await _try_to_save(self.source)

    # Helpers

    def _check(self) -> None:
        """Raise ``MoveInterruptedError`` if the move must end."""
        works = self.log.is_open and self.source.online and self.target.online
        if self.interrupted or not works:
            raise MoveInterruptedError

    async def _off(self, work: Callable[..., T], *args: object) -> T:
        try:
            result = await self._runtime.offload(work, *args)
        except OSError:
            self._check()  # a file may be gone because the log was closed or deleted: that is no error
            raise
        self._check()
        return result

    async def _sleep(self, delay_ms: float) -> None:
        self._check()
        if delay_ms <= 0:
            return
        over: Completion[None] = Completion()

        def due() -> None:
            self._sleeping = None
            over.complete(None)

        self._sleeping = self._runtime.call_later(delay_ms, due), over
        await over
        self._check()


async def _try_to_save(at: DirectoryLogs) -> None:
    """Save checkpoints and marks. After an error the directory is offline, or it is full and they are saved later."""
    with suppress(OSError):
        await at.save()


def _rename(home: LogDirectory, old: str, new: str) -> None:
    try:
        home.files.rename(old, new)
        home.files.sync_dir(home.path)
    except OSError as error:
        raise TargetSyncError(error.errno, error.strerror, error.filename) from error


def _rename_back(home: LogDirectory, old: str, new: str) -> None:
    if home.files.exists(old):
        _rename(home, old, new)


def future_path(target: DirectoryLogs, partition: TopicPartition) -> str:
    """Return a path for a new copy. Its name tells a start that a move was under way."""
    name = marked_partition_dir(partition, DirState.FUTURE, target.home.runtime.new_uuid())
    return f"{target.home.path}/{name}"
