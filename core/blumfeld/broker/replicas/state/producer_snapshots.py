"""The ``<offset>.snapshot`` files of one log: which of them are kept, and which one is read at start.

The rules are those of Kafka's ``ProducerStateManager``.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable, Sequence

from blumfeld.log.producers.snapshot import CorruptSnapshot
from blumfeld.log.producers.state import ProducerState
from blumfeld.log.segments.file_names import Suffix, parse_segment_name, segment_name
from blumfeld.spi.hooks import EventLog
from blumfeld.spi.storage import PartitionLog


class ProducerSnapshots:
    """The producer snapshots of a log. Every method that touches a file may raise ``OSError``.

    A removal is not synced. That is safe: the log's next flush makes it durable, too. Until then a crash leads to a
    recovery, which believes no snapshot inside the part that was not flushed.
    """

    __slots__ = ("_log", "offsets")

    def __init__(self, log: PartitionLog, names: Iterable[str]) -> None:
        self._log = log
        files = (parse_segment_name(name) for name in names)
        self.offsets = sorted(
            file.base_offset
            for file in files
            if file is not None and file.suffix is Suffix.PRODUCER_SNAPSHOT and not file.mark
        )

    def use(self, log: PartitionLog) -> None:
        """Go on beside another log with the same files."""
        self._log = log

    @property
    def latest(self) -> int:
        """Offset of the newest snapshot, or -1."""
        return self.offsets[-1] if self.offsets else -1

    def write(self, offset: int, data: bytes) -> None:
        """Write the state below ``offset``. The file is durable when this returns."""
        self._log.aux.write(_name(offset), data)
        self._written(offset)

    def write_unsynced(self, offset: int, data: bytes) -> None:
        """Write the state below ``offset``, where the log rolls. The log's next flush makes the file durable.

        Until then a power cut may take it or tear it. The recovery that follows believes no snapshot there, and one
        that is torn fails its checksum. A sync here would hold the loop for as long as the device takes.
        """
        self._log.aux.write_unsynced(_name(offset), data)
        self._written(offset)

    def _written(self, offset: int) -> None:
        if offset not in self.offsets:
            insort(self.offsets, offset)

    def renew(self, offset: int, data: bytes) -> None:
        """Write a snapshot that exists, only if its content differs."""
        if self._log.aux.read(_name(offset)) != data:
            self.write(offset, data)

    def load(self, producers: ProducerState, at_most: int, events: EventLog) -> bool:
        """Load the newest readable snapshot at or below ``at_most``. Returns False, and changes nothing, without one.

        A snapshot that can't be read (CRC, version, length) is removed, and the next older one is tried.
        """
        while at := bisect_right(self.offsets, at_most):
            offset = self.offsets[at - 1]
            try:
                producers.load(self._log.aux.read(_name(offset)) or b"", offset)
            except CorruptSnapshot as error:
                events.warning("producer snapshot unreadable, removed", file=_name(offset), error=str(error))
                self.remove(offset)
                continue
            return True
        return False

    def remove_above(self, offset: int) -> None:
        """Remove snapshots above ``offset``, the log's end: they describe records that are gone."""
        while self.offsets and self.offsets[-1] > offset:
            self.remove(self.offsets[-1])

    def remove_below(self, offset: int) -> None:
        """Remove snapshots below ``offset``, the base of the oldest segment: no replay begins before it."""
        for old in self.offsets[: bisect_right(self.offsets, offset - 1)]:
            self.remove(old)

    def remove_strays(self, bases: Sequence[int]) -> None:
        """Remove all snapshots but the newest and those at a segment's base: no replay begins from the others."""
        if len(self.offsets) > 1:
            wanted = {*bases, self.offsets[-1]}
            for offset in [offset for offset in self.offsets if offset not in wanted]:
                self.remove(offset)

    def remove(self, offset: int) -> None:
        """Remove the snapshot at this offset."""
        self._log.aux.delete(_name(offset))
        self.offsets.remove(offset)


def _name(offset: int) -> str:
    return segment_name(offset, Suffix.PRODUCER_SNAPSHOT)
