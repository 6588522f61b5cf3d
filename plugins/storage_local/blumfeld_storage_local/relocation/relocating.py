"""A log's moving half: what a move must know of it, how its writes wait for a moment, and how it goes on elsewhere."""

from __future__ import annotations

import asyncio
import errno

from blumfeld.spi.storage import WriteOutcome
from blumfeld_storage_local.directories.directory import LogDirectory
from blumfeld_storage_local.logs.flusher import Flusher
from blumfeld_storage_local.logs.log_state import Done, LogState
from blumfeld_storage_local.relocation.copying import Original
from blumfeld_storage_local.segments.segment import Segment
from blumfeld_storage_local.segments.segment_writer import SegmentWriter

_ROUNDS_MAX = 100


class MovingHalf(LogState):
    """What a move to another log directory uses. Reads and cuts go on all the time."""

    def layout(self) -> list[Original]:
        """What it consists of now. Raises ``OSError``."""
        active = self._segments.active
        return [
            Original(segment, segment.next_offset, segment.size_bytes, segment is not active)
            for segment in self._segments
        ]

    def watch_aux(self) -> None:
        """Take down which small files change from now on; all of them have, to begin with. Raises ``OSError``."""
        self._aux_directory.touched = set(self._aux_directory.names())

    def take_touched(self) -> list[str]:
        """Those that changed since this was last asked."""
        touched = sorted(self._aux_directory.touched or ())
        self.touch([])
        return touched

    def touch(self, names: list[str]) -> None:
        """To be told of again."""
        self._aux_directory.touched = set(names)

    def unwatch_aux(self) -> None:
        """Nobody asks any more."""
        self._aux_directory.touched = None

    def hold(self) -> None:
        """Write nothing from now on: what is placed waits for :meth:`let_go`. Raises ``OSError``."""
        self._writer.save()
        self._held = []

    def let_go(self) -> None:
        """Write what waits, and tell how it ended, in the order of the writes. Nothing happens without a hold."""
        held, self._held = self._held, None
        if not held:
            return
        if not self.is_open:
            error = OSError(errno.ECANCELED, "the log was closed", self.directory)
            _tell(held, WriteOutcome(self.written_end_offset, error))
        else:
            self.write(lambda outcome: _tell(held, outcome))

    async def settle(self) -> bool:
        """Wait until no sync runs; whether that came. Legal while writes are held. Raises ``OSError``."""
        for _ in range(_ROUNDS_MAX):
            if not self.is_open:
                return False
            if self.is_settled:
                return True
            await self._flusher.flush()
            await asyncio.sleep(0)
        return False

    @property
    def is_compacted_now(self) -> bool:
        """A round of compaction runs, which may change what it consists of."""
        return self._round is not None

    @property
    def is_settled(self) -> bool:
        """No sync runs, nobody waits for one, and it is not being compacted."""
        return self._flusher.is_idle and not self._waiting and self._round is None

    def relocate(self, home: LogDirectory, directory: str) -> list[Segment]:
        """Go on in a copy that is whole and lasts; the segments that it had, whose files are still open.

        Legal while writes are held and it :attr:`is_settled`.

        :raises OSError: the copy can't be read: the log stays where it is
        """
        segments = []
        for old in self._segments:
            segment = Segment(home.files, directory, old.base_offset, old.next_offset)
            segment.size, segment.created_ms = old.size_bytes, old.created_ms
            segments.append(segment)
        active, old = segments[-1], self._segments.active
        writer = SegmentWriter(active, self.config, self._jitter_ms(), self._runtime.now_ms(), home.fail)
        if active.next_offset > old.next_offset or active.size_bytes != old.size_bytes:
            raise OSError(errno.EIO, f"the copy ends at {active.next_offset}", active.path())
        # it may end before: what compaction took the last records of, and a truncation the next
        active.next_offset, active.created_ms = old.next_offset, old.created_ms
        self._flusher.close()
        self._flusher = Flusher(self, home.files, home.rounds())
        self._home, self._writer = home, writer
        self.directory, self.directory_id = directory, home.directory_id
        self._aux_directory.directory = directory
        self.flushed_end_offset, self.names_unsynced = self.appended_end_offset, False
        return self._segments.relocate(home, directory, segments)

    def write(self, done: Done) -> None:
        """See :class:`LocalLog`."""
        raise NotImplementedError


def _tell(held: list[Done], outcome: WriteOutcome) -> None:
    for done in held:
        done(outcome)
