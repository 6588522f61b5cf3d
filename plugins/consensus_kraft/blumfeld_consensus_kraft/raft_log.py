"""The metadata log of the only voter: placed, written, flushed, and by that committed.

Appends of one turn are written together and flushed together (group commit); what comes in while a flush is under way
waits for the next one. Kafka flushes its raft log before it counts itself, and so do we: a committed record survives
a power cut. With more voters, the flushed end becomes this voter's own vote for the high watermark, and nothing else
here changes.
"""

from __future__ import annotations

from collections.abc import Callable

from blumfeld.log.leader_epochs import FILE_NAME as EPOCHS_NAME
from blumfeld.log.leader_epochs import LeaderEpochCache
from blumfeld.spi.completion import Completion
from blumfeld.spi.runtime import Phase, Runtime
from blumfeld.spi.storage import PartitionLog, WriteOutcome
from blumfeld.wire.batches.record_batch import RecordBatch


class RaftLog:
    """Appends to a :class:`PartitionLog` and says what is committed.

    :param committed: called with the new committed end, each time it moved
    :param failed: called when a write failed (everything behind the written end is gone) or, with ``True``, a flush
        (the log takes no more)
    """

    def __init__(
        self,
        runtime: Runtime,
        log: PartitionLog,
        committed: Callable[[int], None],
        failed: Callable[[OSError, bool], None],
    ) -> None:
        self.log = log
        self.committed_end = 0
        self.epochs = LeaderEpochCache()
        self._runtime = runtime
        self._committed = committed
        self._failed = failed
        self._write_is_due = False
        self._writing = 0
        """Writes whose outcome is to come: a storage may sync first."""
        self._flushing = False
        self._epochs_changed = False
        self._settled: list[Completion[None]] = []
        data = log.aux.read(EPOCHS_NAME)
        if data is not None:
            self.epochs = LeaderEpochCache.decode(data)

    @property
    def end_offset(self) -> int:
        """The offset that the next batch gets."""
        return self.log.placed_end_offset

    def append(self, data: bytearray, epoch: int) -> int:
        """Place a batch; its base offset. It is written at the end of this turn."""
        base_offset = self.log.place(RecordBatch(memoryview(data)), epoch)
        if self.epochs.assign(epoch, base_offset):
            self._epochs_changed = True
        if not self._write_is_due:
            self._write_is_due = True
            self._runtime.at_end_of_turn(Phase.WRITE, self._write)
        return base_offset

    async def settle(self) -> None:
        """Return when all that was placed is committed, or has failed."""
        if self.committed_end < self.log.placed_end_offset and (
            self._write_is_due or self._writing or self._flushing
        ):
            done: Completion[None] = Completion()
            self._settled.append(done)
            await done

    def _write(self) -> None:
        self._write_is_due = False
        self._writing += 1
        self.log.write(self._written)

    def _written(self, outcome: WriteOutcome) -> None:
        self._writing -= 1
        if outcome.error is not None:
            self.epochs.truncate_from_end(outcome.written_end_offset)
            self._epochs_changed = False
            self._failed(outcome.error, False)
            self._wake()
        elif self._epochs_changed:
            self._epochs_changed = False
            try:
                self.log.aux.write(EPOCHS_NAME, self.epochs.encode())
            except OSError as error:
                self._failed(error, True)
                self._wake()
                return
        self._flush()

    def _flush(self) -> None:
        if not self._flushing and self.committed_end < self.log.written_end_offset:
            try:
                flushing = self.log.flush()
            except OSError as error:  # the directory went offline meanwhile
                self._failed(error, True)
                self._wake()
                return
            self._flushing = True
            flushing.when_done(self._flushed)

    def _flushed(self, done: Completion[int]) -> None:
        self._flushing = False
        if isinstance(done.error, OSError):
            self._failed(done.error, True)
            self._wake()
            return
        end_offset = done.result()
        if end_offset > self.committed_end:
            self.committed_end = end_offset
            self._committed(end_offset)
        if self.committed_end >= self.log.placed_end_offset:
            self._wake()
        self._flush()

    def _wake(self) -> None:
        waiting, self._settled = self._settled, []
        for completion in waiting:
            completion.complete(None)
