"""Offset index and time index of a segment, over the bytes of ``.index`` and ``.timeindex``.

Pure. A growing index is a ``bytearray``; a sealed one may lie on an ``mmap``. Look-ups read the bytes in
place, and the file holds the same bytes: Kafka's format (``OffsetIndex``, ``TimeIndex``).
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Generic, NamedTuple, TypeAlias, TypeVar

Buffer: TypeAlias = bytes | bytearray | memoryview
Entry = TypeVar("Entry")

RELATIVE_OFFSET_MAX = (1 << 31) - 1
NO_TIMESTAMP = -1
_OFFSET_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")
OFFSET_ENTRY_BYTES = _OFFSET_ENTRY.size
TIME_ENTRY_BYTES = _TIME_ENTRY.size


class CorruptIndex(ValueError):  # noqa: N818 - the noun says what it is
    """An index file is malformed: rebuild it from the log."""


class OffsetPosition(NamedTuple):
    """The batch whose last offset is ``offset`` starts at byte ``position`` of the segment."""

    offset: int
    position: int


class TimestampPosition(NamedTuple):
    """``timestamp_ms`` is the highest timestamp of all records up to ``offset``; the batch that ends at
    ``offset`` has it.
    """

    timestamp_ms: int
    offset: int


class _Index(Generic[Entry]):
    """A run of entries of equal size."""

    __slots__ = ("_data", "_layout", "base_offset")

    def __init__(self, base_offset: int, layout: struct.Struct, data: Buffer | None) -> None:
        self.base_offset = base_offset
        self._layout = layout
        self._data: Buffer = bytearray() if data is None else data
        if len(self._data) % layout.size:
            raise CorruptIndex(
                f"{len(self._data)} bytes are not a whole number of {layout.size}-byte entries"
            )

    def __len__(self) -> int:
        """The number of entries."""
        return len(self._data) // self._layout.size

    @property
    def size_bytes(self) -> int:
        """Bytes in use: the size of the trimmed file."""
        return len(self._data)

    def encode(self, from_entry: int = 0) -> bytes:
        """Returns a copy of the bytes from an entry on: what a file with ``from_entry`` entries lacks."""
        return bytes(self._data[from_entry * self._layout.size :])

    def take_copy(self) -> None:
        """Copy the bytes, so that the map they lie on can be closed."""
        if not isinstance(self._data, bytearray):
            self._data = bytearray(self._data)

    def relative(self, offset: int) -> int:
        """Returns ``offset`` relative to the base.

        :raises ValueError: it doesn't fit into 32 bits: the segment must roll first
        """
        relative = offset - self.base_offset
        if not 0 <= relative <= RELATIVE_OFFSET_MAX:
            raise ValueError(f"offset {offset} doesn't fit into an index with base {self.base_offset}")
        return relative

    def _raw(self, at: int) -> tuple[int, int]:
        first, second = self._layout.unpack_from(self._data, at * self._layout.size)
        return first, second

    def _add(self, first: int, second: int) -> None:
        data = self._data
        if not isinstance(data, bytearray):
            self._data = data = bytearray(data)
        data += self._layout.pack(first, second)

    def _cut(self, entries: int) -> None:
        data = self._data[: entries * self._layout.size]
        self._data = bytearray(data)


class OffsetIndex(_Index[OffsetPosition]):
    """Offset → position of batches in a segment: one entry in every ``index.interval.bytes``.

    :param data: the trimmed bytes of the file, used without a copy; an index over read-only bytes copies
        them when something is first added
    :raises CorruptIndex: not a whole number of entries
    """

    __slots__ = ()

    def __init__(self, base_offset: int, data: Buffer | None = None) -> None:
        super().__init__(base_offset, _OFFSET_ENTRY, data)

    @property
    def last_offset(self) -> int:
        """Last entry's offset; the base offset if the index is empty."""
        return self.base_offset + self._raw(len(self) - 1)[0] if self._data else self.base_offset

    def entry(self, at: int) -> OffsetPosition:
        """Returns entry number ``at``, from 0."""
        relative, position = self._raw(at)
        return OffsetPosition(self.base_offset + relative, position)

    def is_full(self, bytes_max: int) -> bool:
        """Whether no further entry fits into ``segment.index.bytes``: the segment must roll."""
        return len(self) >= bytes_max // OFFSET_ENTRY_BYTES

    def append(self, last_offset: int, position: int) -> None:
        """Add an entry for the batch that ends with ``last_offset`` and starts at ``position``.

        :raises ValueError: the offset is not above the last entry's, or doesn't fit into this index
        """
        data = self._data
        relative = last_offset - self.base_offset
        if data and relative <= _OFFSET_ENTRY.unpack_from(data, len(data) - OFFSET_ENTRY_BYTES)[0]:
            raise ValueError(f"offset {last_offset} is not above the last entry's, {self.last_offset}")
        if type(data) is bytearray and 0 <= relative <= RELATIVE_OFFSET_MAX:
            data += _OFFSET_ENTRY.pack(relative, position)
        else:
            self._add(self.relative(last_offset), position)

    def lookup(self, offset: int) -> OffsetPosition:
        """Returns the last entry at or below ``offset``; (base offset, 0) if there is none.

        The batch that holds ``offset`` starts there or later.
        """
        data, wanted, entry = self._data, offset - self.base_offset, _OFFSET_ENTRY.unpack_from
        floor, low, high = (0, 0), 0, len(data) // OFFSET_ENTRY_BYTES
        if high:
            # Batches of a topic are mostly alike in size, so interpolation mostly hits. Start there and
            # double the distance until the target lies between two probes.
            last = entry(data, (high - 1) * OFFSET_ENTRY_BYTES)
            if last[0] <= wanted:
                return OffsetPosition(self.base_offset + last[0], last[1])
            at, step = max(wanted, 0) * high // (last[0] + 1), 1
            while low <= at < high:
                probe = entry(data, at * OFFSET_ENTRY_BYTES)
                if probe[0] <= wanted:
                    floor, low = probe, at + 1
                    at += step
                else:
                    high = at
                    at -= step
                step += step
        while low < high:
            middle = (low + high) >> 1
            probe = entry(data, middle * OFFSET_ENTRY_BYTES)
            if probe[0] <= wanted:
                floor, low = probe, middle + 1
            else:
                high = middle
        return OffsetPosition(self.base_offset + floor[0], floor[1])

    def copy(self) -> OffsetIndex:
        """Returns an independent copy."""
        return OffsetIndex(self.base_offset, self.encode())

    def truncate_to(self, offset: int) -> None:
        """Forget entries from ``offset`` on."""
        self._cut(bisect_left(range(len(self)), offset - self.base_offset, key=lambda i: self._raw(i)[0]))

    def check(self, log_bytes: int) -> None:
        """Check that offsets and positions are strictly ascending and inside of the log.

        :raises CorruptIndex: they are not; the message says at which entry
        """
        before = (-1, -1)
        for at, entry in enumerate(self._layout.iter_unpack(self._data)):
            if entry[0] <= before[0] or entry[1] <= before[1] or entry[1] >= log_bytes:
                raise CorruptIndex(
                    f"offset index: entry {at} is {entry}, after {before}, of {log_bytes} log bytes"
                )
            before = entry


class TimeIndex(_Index[TimestampPosition]):
    """The highest timestamp so far → the batch that brought it. Parameters as for :class:`OffsetIndex`."""

    __slots__ = ()

    def __init__(self, base_offset: int, data: Buffer | None = None) -> None:
        super().__init__(base_offset, _TIME_ENTRY, data)

    @property
    def last(self) -> TimestampPosition:
        """The last entry; (-1, base offset) if the index is empty."""
        return self.entry(len(self) - 1) if self._data else TimestampPosition(NO_TIMESTAMP, self.base_offset)

    def entry(self, at: int) -> TimestampPosition:
        """Returns entry number ``at``, from 0."""
        timestamp_ms, relative = self._raw(at)
        return TimestampPosition(timestamp_ms, self.base_offset + relative)

    def is_full(self, bytes_max: int) -> bool:
        """Whether ``segment.index.bytes`` has room only for the entry that a roll adds."""
        return len(self) >= bytes_max // TIME_ENTRY_BYTES - 1

    def maybe_append(self, timestamp_ms: int, offset: int) -> bool:
        """Add an entry if its timestamp is above the last entry's. Returns whether it was added.

        :raises ValueError: its offset is below the last entry's, or doesn't fit into this index
        """
        last = self.last
        if timestamp_ms <= last.timestamp_ms:
            return False
        if self._data and offset < last.offset:
            raise ValueError(f"offset {offset} is below the last entry's, {last.offset}")
        self._add(timestamp_ms, self.relative(offset))
        return True

    def lookup(self, timestamp_ms: int) -> TimestampPosition:
        """Returns the last entry at or below ``timestamp_ms``; (-1, base offset) if there is none.

        The first record with this timestamp or a higher one has that offset or a later one.
        """
        at = bisect_right(range(len(self)), timestamp_ms, key=lambda i: self._raw(i)[0])
        return self.entry(at - 1) if at else TimestampPosition(NO_TIMESTAMP, self.base_offset)

    def copy(self) -> TimeIndex:
        """Returns an independent copy."""
        return TimeIndex(self.base_offset, self.encode())

    def truncate_to(self, offset: int) -> None:
        """Forget entries from ``offset`` on."""
        self._cut(bisect_left(range(len(self)), offset - self.base_offset, key=lambda i: self._raw(i)[1]))

    def check(self) -> None:
        """Check that timestamps are strictly ascending and offsets never fall.

        :raises CorruptIndex: they do not comply; the message says at which entry
        """
        before = (NO_TIMESTAMP, 0)
        for at, entry in enumerate(self._layout.iter_unpack(self._data)):
            if entry[0] <= before[0] or entry[1] < before[1]:
                raise CorruptIndex(f"time index: entry {at} is {entry}, after {before}")
            before = entry


class SegmentIndexer:
    """Adds entries to both indexes of a segment, for the writer and for recovery alike.

    :param max_timestamp_ms: with ``max_timestamp_offset`` the present maximum of a segment whose indexes
        were read; the next entry is then due after ``interval_bytes``
    """

    __slots__ = (
        "_interval_bytes",
        "_noted_ms",
        "_since_bytes",
        "max_timestamp_ms",
        "max_timestamp_offset",
        "offsets",
        "times",
    )

    def __init__(
        self,
        offsets: OffsetIndex,
        times: TimeIndex,
        interval_bytes: int,
        max_timestamp_ms: int = NO_TIMESTAMP,
        max_timestamp_offset: int = -1,
    ) -> None:
        self.offsets = offsets
        self.times = times
        self.max_timestamp_ms = max_timestamp_ms
        self.max_timestamp_offset = max_timestamp_offset
        """Last offset of the first batch with the highest timestamp, or -1."""
        self._interval_bytes = interval_bytes
        self._noted_ms = NO_TIMESTAMP
        """Highest timestamp that the time index covers."""
        self._since_bytes = 0

    def add(self, last_offset: int, position: int, size_bytes: int, max_timestamp_ms: int) -> bool:
        """Add a batch of ``size_bytes`` that starts at ``position``. Returns whether it got an entry."""
        if max_timestamp_ms > self.max_timestamp_ms:
            self.max_timestamp_ms = max_timestamp_ms
            self.max_timestamp_offset = last_offset
        due = self._since_bytes > self._interval_bytes
        if due:
            self._add_entry(last_offset, position)
            self._since_bytes = 0
        self._since_bytes += size_bytes
        return due

    def add_run(
        self, last_offsets: Sequence[int], positions: Sequence[int], end: int, timestamps_ms: Sequence[int]
    ) -> bool:
        """:meth:`add` for adjacent batches. Returns whether one of them got an entry.

        :param last_offsets: the last offset of each batch
        :param positions: the position of each
        :param end: the position where the last one ends
        :param timestamps_ms: the highest timestamp of each
        """
        counted_from = positions[0] - self._since_bytes
        indexed, done, count = False, 0, len(positions)
        while done < count:
            due = bisect_right(positions, counted_from + self._interval_bytes, done)
            highest_ms = max(timestamps_ms[done : due + 1])
            if highest_ms > self.max_timestamp_ms:
                self.max_timestamp_ms = highest_ms
                self.max_timestamp_offset = last_offsets[timestamps_ms.index(highest_ms, done)]
            if due < count:
                self._add_entry(last_offsets[due], positions[due])
                indexed, counted_from = True, positions[due]
            done = due + 1
        self._since_bytes = end - counted_from
        return indexed

    def _add_entry(self, last_offset: int, position: int) -> None:
        self.offsets.append(last_offset, position)
        if self.max_timestamp_ms > self._noted_ms:
            self._note_time()

    def seal(self) -> None:
        """Add the final entry of the time index when the segment rolls or is closed. May be called twice."""
        self._note_time()

    def _note_time(self) -> None:
        if self.max_timestamp_offset >= 0:
            self.times.maybe_append(self.max_timestamp_ms, self.max_timestamp_offset)
            self._noted_ms = self.max_timestamp_ms
