"""What the halves of a log share: its place, segments, pen, ends, and whether it still works."""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Callable
from functools import cached_property

import msgspec

from blumfeld.config.values import TopicConfig
from blumfeld.log.segment_index import TimestampPosition
from blumfeld.spi.storage import AuxFiles, LogListener, TopicPartition, WriteOutcome
from blumfeld.wire.record_batch import RecordBatch
from blumfeld_storage_local.compaction.swapping import CompactionRound
from blumfeld_storage_local.directories.directory import LogDirectory
from blumfeld_storage_local.logs.aux_files import AuxDirectory
from blumfeld_storage_local.logs.flusher import Flusher
from blumfeld_storage_local.segments.scan import REPAIR
from blumfeld_storage_local.segments.segment import Segment
from blumfeld_storage_local.segments.segment_list import SegmentList
from blumfeld_storage_local.segments.segment_writer import SegmentWriter

Done = Callable[[WriteOutcome], None]


class Outcome(msgspec.Struct):
    """What becomes of a write once a sync covers it."""

    done: Done
    end_offset: int
    error: OSError | None


class LogCallbacks(msgspec.Struct, frozen=True):
    """What a log calls of its storage."""

    truncating: Callable[[LogState, int], None]
    """Before records from that offset on are dropped."""
    closed: Callable[[LogState], None]
    cleaned: Callable[[LogState], None]
    """``cleaned_end_offset`` has changed: the storage keeps it."""


class OpenedLog(msgspec.Struct, frozen=True, kw_only=True):
    """What a log is made of, once its files are known to be sound."""

    home: LogDirectory
    partition: TopicPartition
    segments: SegmentList
    config: TopicConfig
    listener: LogListener
    callbacks: LogCallbacks
    log_start_offset: int
    flushed_end_offset: int
    cleaned_end_offset: int
    names_unsynced: bool
    """Files were made in its directory that no sync covers yet."""
    topic_id_unsynced: bool
    """Nor is it known that ``partition.metadata`` is on the device."""


class LogState:
    """The state of one log. Only its halves and :class:`LocalLog` use what has an underscore."""

    aux: AuxFiles

    def __init__(self, opened: OpenedLog) -> None:
        home, segments = opened.home, opened.segments
        self.partition = opened.partition
        self.directory = segments.directory
        self.aux = self._aux_directory = AuxDirectory(home.files, segments.directory)
        self.config = opened.config
        self.names_unsynced = opened.names_unsynced
        self.topic_id_unsynced = opened.topic_id_unsynced
        self.is_open = True
        self.directory_id = home.directory_id
        self.clean = False
        """Closed, and every index file is complete."""
        self._home = home
        self._runtime = home.runtime
        self._segments = segments
        self._listener = opened.listener
        self._callbacks = opened.callbacks
        self._placed: list[RecordBatch] = []
        self._waiting: deque[Outcome] = deque()
        """Outcomes of writes that wait for a sync, in the order of the writes."""
        self._held: list[Done] | None = None
        """Those whose writes wait until the log has moved; ``None``: nothing waits for that."""
        self.moving = False
        """A copy of it is being made in another directory: it is not compacted meanwhile."""
        self._round: CompactionRound | None = None
        """Of compaction, while one runs."""
        self._flusher = Flusher(self, home.files, home.rounds())
        self._cuts = 0
        """How often the log was truncated."""
        self._as_closed = True
        if not segments.at_rest:
            self._writer = self._open_writer()
        end_offset = segments.active.next_offset
        self.log_start_offset = max(opened.log_start_offset, segments.first_offset)
        self.placed_end_offset = self.written_end_offset = end_offset
        self.flushed_end_offset = min(opened.flushed_end_offset, end_offset)
        self.cleaned_end_offset = min(opened.cleaned_end_offset, end_offset)

    @cached_property
    def _writer(self) -> SegmentWriter:
        """The pen; of a log at rest it is made, and the files are opened, when it is first needed.

        :raises OSError: the log is not as it was closed; the next start recovers it
        """
        active = self._segments.active
        end_offset = active.next_offset
        try:
            writer = self._open_writer()
            if active.next_offset != end_offset:
                raise OSError(
                    errno.EIO,
                    f"the log ends at {active.next_offset}, and was closed at {end_offset}; {REPAIR}",
                    active.path(),
                )
        except OSError:
            self._as_closed = False
            active.next_offset, active.recent = end_offset, None
            raise
        return writer

    @property
    def _is_awake(self) -> bool:
        return "_writer" in self.__dict__

    def _highest(self, segment: Segment) -> TimestampPosition:
        """The highest timestamp in a segment, -1 if there is none, and the batch it came with."""
        return (
            self._writer.highest if self._is_awake and segment is self._segments.active else segment.highest
        )

    def _open_writer(self) -> SegmentWriter:
        now_ms = self._runtime.now_ms()
        active, fail = self._segments.active, self._home.fail
        writer = SegmentWriter(active, self.config, self._jitter_ms(), now_ms, fail)
        if self.config.preallocate:
            try:
                writer.reserve()
            except OSError as error:
                self._home.not_reserved(error)
        return writer

    def _jitter_ms(self) -> int:
        jitter_ms = self.config.segment_jitter_ms
        return self._runtime.random.randrange(jitter_ms) if jitter_ms > 0 else 0

    def _check(self) -> None:
        self._home.check()
        if not self.is_open:
            raise OSError(9, "the log is closed", self.directory)

    def _leave_compaction(self, offset: int = 0, *, finish: bool = True) -> None:
        """Something is about to happen to what lies at ``offset`` or behind: no round of compaction goes on over it."""
        if self._round is not None and offset <= self._round.end_offset:
            self._round.leave(finish=finish)

    @property
    def appended_end_offset(self) -> int:
        """Everything below it is in the page cache: the written end, unless "written" waits for a sync."""
        return self._segments.active.next_offset

    def unflushed_segments(self) -> list[Segment]:
        """For the flusher."""
        first = self._segments.index_of(self.recovery_point)
        return [self._segments[at] for at in range(first, len(self._segments))]

    @property
    def waits_for_last_sync(self) -> bool:
        """Closed, while a round of syncs ran for it that has not ended yet."""
        last = self._flusher.last_round
        return last is not None and not last.done

    async def last_sync(self) -> None:
        """Wait for that round. Only if it went well, as the sync of the close did, all of the log lasts: the kernel
        tells an error to one of the two.
        """
        last = self._flusher.last_round
        if last is not None and await last and self.clean:
            self._all_synced()

    def _all_synced(self) -> None:
        for segment in self._segments:
            segment.index_unsynced = False
        self.flushed_end_offset = self.appended_end_offset

    def flush_ended(self, error: OSError | None) -> None:
        """For the flusher: the flushed end moved, or never will again."""
        raise NotImplementedError

    @property
    def recovery_point(self) -> int:
        """Everything below it lasts: records, and the indexes of sealed segments, which nobody would check again."""
        return self._segments.lasting(self.flushed_end_offset)
