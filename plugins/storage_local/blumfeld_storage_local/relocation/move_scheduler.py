"""Run the moves of a storage: a few at a time, the others wait; one that a stop interrupted begins again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from blumfeld.log.segments.file_names import DirState
from blumfeld.spi.runtime import Runtime
from blumfeld.spi.storage import LogMove, TopicPartition
from blumfeld_storage_local.directories.directory_logs import DirectoryLogs
from blumfeld_storage_local.directories.directory_start import Wanted
from blumfeld_storage_local.logs.partition_log import LocalLog
from blumfeld_storage_local.relocation.log_move import Move, future_path
from blumfeld_storage_local.segments.segment import Segment


class MoveScheduler:
    """Runs at most one move for each log, and ``running_max`` moves at a time, in the order of the requests.

    :param where: returns the directory in which a log lies now
    :param moved: called within the cut-over, when the log goes on in its new place
    :param notify: called for the same, in a later turn
    """

    def __init__(
        self,
        runtime: Runtime,
        running_max: int,
        bytes_per_second_max: float,
        where: Callable[[TopicPartition], DirectoryLogs | None],
        moved: Callable[[LocalLog, DirectoryLogs], None],
        notify: Callable[[TopicPartition, bytes], None],
    ) -> None:
        self._runtime = runtime
        self._running_max = running_max
        self._bytes_per_second_max = bytes_per_second_max
        self._where = where
        self._moved = moved
        self._notify = notify
        self._moves: dict[TopicPartition, Move] = {}
        self._running = 0
        self._waiting: dict[TopicPartition, Move] = {}
        """Moves that have not begun. They are in ``_moves`` too."""
        self._interrupted: dict[TopicPartition, Wanted] = {}
        """Moves that begin anew when their log is opened."""
        self._old_segments: dict[int, Sequence[Segment]] = {}
        """Old segments of logs that have moved. Their files stay open for readers that are still in them."""
        self._old_number = 0
        self._stopped = False

    def found(self, wanted: dict[TopicPartition, Wanted]) -> None:
        """Take the moves that a start found interrupted."""
        self._interrupted = wanted

    def infos(self) -> Sequence[LogMove]:
        """Return all moves that are wanted, for DescribeLogDirs."""
        return tuple(move.info() for move in self._moves.values() if move.wanted)

    def target(self, partition: TopicPartition) -> DirectoryLogs | None:
        """Return the directory that a log is moving to, if it is moving."""
        move = self._moves.get(partition)
        return None if move is None else move.target

    def opened(self, log: LocalLog, at: DirectoryLogs) -> None:
        """Begin the log's interrupted move anew, if it has one, now that the log is open."""
        wanted = self._interrupted.pop(log.partition, None)
        if wanted is None or not wanted.to.online:
            return
        if wanted.to is at:
            self._remove(wanted)
        else:
            self._add(log, at, wanted)

    def begin(self, log: LocalLog, source: DirectoryLogs, target: DirectoryLogs) -> None:
        """Move a log. A move of the same log to another directory is given up."""
        running = self._moves.get(log.partition)
        if running is not None and running.wanted and running.target is target:
            return
        wanted = Wanted(target, future_path(target, log.partition))
        if running is not None:
            self.give_up(log.partition)
            self._interrupted[log.partition] = wanted
            self._make(wanted)
            running.ended.when_done(lambda _: self._begin_again(log))
        else:
            self._make(wanted)
            self._add(log, source, wanted)

    def _begin_again(self, log: LocalLog) -> None:
        """Begin the move for which another one was given up. That one has ended, maybe in its target."""
        at = self._where(log.partition)
        if log.is_open and at is not None and not self._stopped:
            self.opened(log, at)

    def _make(self, wanted: Wanted) -> None:
        """Make the ``-future`` directory now, so that a restart finds the move even before the copy has begun."""
        with suppress(OSError):  # the copy will meet the same error, and report it
            wanted.to.home.files.make_dirs(wanted.path)

    def give_up(self, partition: TopicPartition) -> None:
        """Give a log's move up. If the log has gone on in the copy already, the move still completes."""
        wanted = self._interrupted.pop(partition, None)
        if wanted is not None:
            self._remove(wanted)
        self._interrupt(partition, wanted=False)

    def closed(self, partition: TopicPartition) -> None:
        """Interrupt the move of a log that was closed. It begins anew when the log is opened again."""
        self._interrupt(partition, wanted=True)

    def _interrupt(self, partition: TopicPartition, *, wanted: bool) -> None:
        move = self._moves.get(partition)
        if move is None:
            return
        move.wanted = move.wanted and wanted
        move.interrupt()
        if self._waiting.pop(partition, None) is not None:
            self._end(move)

    def truncated(self, partition: TopicPartition, offset: int) -> None:
        """Tell the log's move that the log is about to be truncated."""
        move = self._moves.get(partition)
        if move is not None:
            move.truncated(offset)

    async def ended(self, partition: TopicPartition) -> None:
        """Wait until no move works on a log of this name."""
        move = self._moves.get(partition)
        if move is not None:
            await move.ended

    async def stop(self) -> None:
        """Interrupt all moves, and wait until they have ended."""
        self._stopped = True
        for partition in list(self._moves):
            self.closed(partition)
        for move in list(self._moves.values()):
            await move.ended
        for number in list(self._old_segments):
            self._close_old(number)

    def _add(self, log: LocalLog, source: DirectoryLogs, wanted: Wanted) -> None:
        move = Move(log, source, wanted.to, wanted.path, self._bytes_per_second_max, self._gone_on)
        self._moves[log.partition] = self._waiting[log.partition] = move
        self._start_some()

    def _start_some(self) -> None:
        while self._waiting and self._running < self._running_max and not self._stopped:
            partition = next(iter(self._waiting))
            move = self._waiting.pop(partition)
            self._running += 1
            self._runtime.spawn(self._run(move), f"move {partition}")

    async def _run(self, move: Move) -> None:
        await move.run()
        self._running -= 1
        self._end(move)
        self._start_some()

    def _end(self, move: Move) -> None:
        partition = move.log.partition
        del self._moves[partition]
        left = Wanted(move.target, move.path)
        if not move.wanted:
            self._remove(left)
        elif not move.done:
            self._interrupted.setdefault(partition, left)
        move.ended.complete(None)

    def _gone_on(self, move: Move, segments: Sequence[Segment]) -> None:
        """The log lies in its new place. Readers may still be in the old files, so these stay open for a while."""
        self._moved(move.log, move.target)
        self._old_number += 1
        number = self._old_number
        self._old_segments[number] = segments
        delay_ms = move.log.config.file_delete_delay_ms
        self._runtime.call_later(delay_ms, lambda: self._close_old(number))
        partition, directory_id = move.log.partition, move.target.home.directory_id
        self._runtime.call_later(0, lambda: self._notify(partition, directory_id))

    def _close_old(self, number: int) -> None:
        for segment in self._old_segments.pop(number, ()):
            segment.close()

    def _remove(self, left: Wanted) -> None:
        """Remove a copy that is not wanted. It is renamed at once, or the next start would take the move up again."""
        home = left.to.home
        partition_name = left.path.rpartition("/")[2].rpartition(".")[0]
        if home.error is not None:
            return
        try:
            if home.files.exists(left.path):
                gone = f"{home.path}/{partition_name}.{home.runtime.new_uuid().hex()}-{DirState.DELETE.value}"
                home.files.rename(left.path, gone)
                home.remove_later([gone], 0, trees=True)
        except OSError as error:
            home.fail(error)
