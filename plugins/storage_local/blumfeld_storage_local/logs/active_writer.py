"""The writer of a log's active segment. A log at rest gets one when it is first needed.

A node may hold thousands of logs that nobody writes. A log that was closed cleanly is therefore opened without touching
a file: the checkpoint and the size of the active segment say where it ends. The writer reads the end of that segment,
and so finds out whether the checkpoint was right.
"""

from __future__ import annotations

import errno

from blumfeld.config.values import TopicConfig
from blumfeld.log.segments.index import TimestampPosition
from blumfeld_storage_local.directory import LogDirectory
from blumfeld_storage_local.segment_list import SegmentList
from blumfeld_storage_local.segments.scan import REPAIR
from blumfeld_storage_local.segments.segment import Segment
from blumfeld_storage_local.segments.segment_writer import SegmentWriter


class ActiveWriter:
    """Holds the :class:`SegmentWriter` of the active segment, or none while the log is at rest."""

    __slots__ = ("_config", "_home", "_segments", "as_closed", "writer")

    def __init__(self, home: LogDirectory, config: TopicConfig, segments: SegmentList) -> None:
        """:raises OSError: the log is not at rest, and its active segment can't be read"""
        self._home = home
        self._config = config
        self._segments = segments
        self.as_closed = True
        """False once the files turned out to differ from what the last stop left: the next start must recover them."""
        self.writer: SegmentWriter | None = None
        """``None`` while the log is at rest. The append path looks here before it calls :meth:`wake`."""
        if not segments.at_rest:
            self.reopen()

    def wake(self) -> SegmentWriter:
        """Return the writer. For a log at rest, open its files first.

        :raises OSError: the log is not as it was closed; the next start recovers it
        """
        if self.writer is not None:
            return self.writer
        active = self._segments.active
        end_offset = active.next_offset
        try:
            writer = self._made()
            if active.next_offset != end_offset:
                raise OSError(
                    errno.EIO,
                    f"the log ends at {active.next_offset}, and was closed at {end_offset}; {REPAIR}",
                    active.path(),
                )
        except OSError:
            self.as_closed = False
            active.next_offset, active.recent = end_offset, None
            raise
        self.writer = writer
        return writer

    def reopen(self) -> None:
        """Begin anew on the segment that is active now. Raises ``OSError``."""
        self.writer = self._made()

    def copied_to(self, home: LogDirectory, copy: Segment) -> SegmentWriter:
        """Return a writer for a copy of the active segment. Raises ``OSError``."""
        return SegmentWriter(copy, self._config, self._jitter_ms(), home.runtime.now_ms(), home.fail)

    def relocate(self, home: LogDirectory, writer: SegmentWriter) -> None:
        """Go on in the copy of :meth:`copied_to`."""
        self._home, self.writer = home, writer

    def configure(self, config: TopicConfig) -> None:
        """Take the topic's configuration."""
        self._config = config
        if self.writer is not None:
            self.writer.configure(config)

    def distrust(self, segment: Segment) -> None:
        """Damage was found in ``segment``. No start has looked into a log at rest, so the next one must recover it."""
        if segment is self._segments.active and self.writer is None:
            self.as_closed = False

    def highest(self, segment: Segment) -> TimestampPosition:
        """Return the highest timestamp in a segment, -1 if it has none, and the batch that it came with."""
        known = self.known_highest(segment)
        return segment.highest if known is None else known

    def known_highest(self, segment: Segment) -> TimestampPosition | None:
        """Return the same, or ``None`` where only a look into the segment's files could tell."""
        if self.writer is not None and segment is self._segments.active:
            return self.writer.highest
        return segment.known_highest

    def _made(self) -> SegmentWriter:
        writer = self.copied_to(self._home, self._segments.active)
        if self._config.preallocate:
            try:
                writer.reserve()
            except OSError as error:
                self._home.not_reserved(error)
        return writer

    def _jitter_ms(self) -> int:
        jitter_ms = self._config.segment_jitter_ms
        return self._home.runtime.random.randrange(jitter_ms) if jitter_ms > 0 else 0
