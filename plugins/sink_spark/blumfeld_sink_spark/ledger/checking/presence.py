"""Compares the offsets that have rows in the files with the offsets that the commits counted."""

from __future__ import annotations

import zlib
from bisect import bisect_right
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from blumfeld_sink_spark.range_counts import joined, without
from blumfeld_sink_spark.records import RangeCount, Span

STRETCHES = 5
"""Number of stretches of offsets that a line names."""


class Presence:
    """The offsets with rows in all counted ranges. Each takes one bit, so that a large archive fits in memory."""

    def __init__(self, counts: Sequence[RangeCount]) -> None:
        self._counts = sorted(counts, key=lambda entry: (entry.topic, entry.partition, entry.start))
        self._bits: dict[int, npt.NDArray[np.uint8]] = {}
        self._places: dict[tuple[str, int], _Places] = {}
        for nth, count in enumerate(self._counts):
            self._places.setdefault((count.topic, count.partition), _Places(nth)).add(count)

    def saw(self, topic: str, partition: int, offsets: npt.NDArray[np.int64]) -> None:
        """Notes that these offsets have a row; they are in ascending order."""
        places = self._places.get((topic, partition))
        if places is not None and len(offsets):
            for nth in places.between(int(offsets[0]), int(offsets[-1])):
                self._mark(nth, offsets)

    def _mark(self, nth: int, offsets: npt.NDArray[np.int64]) -> None:
        """Sets the bits of those offsets that lie in one range."""
        count = self._counts[nth]
        first, end = offsets.searchsorted([count.start, count.end]).tolist()
        if first == end:
            return
        flags = np.zeros(count.end - count.start, np.bool_)
        flags[offsets[first:end] - count.start] = True
        packed = np.packbits(flags)
        self._bits[nth] = self._bits[nth] | packed if nth in self._bits else packed

    def problems(self) -> Iterator[str]:
        """Yields a line for each range whose rows belong to other messages than were counted, with the offsets."""
        for nth, count in enumerate(self._counts):
            there = self._offsets(nth, count)
            crc = zlib.crc32(there.astype("<i8", copy=False).tobytes())
            if (len(there), crc) != (count.with_rows, count.rows_crc):
                yield _difference(count, there)

    def _offsets(self, nth: int, count: RangeCount) -> npt.NDArray[np.int64]:
        bits = self._bits.get(nth)
        if bits is None:
            return np.zeros(0, np.int64)
        return np.flatnonzero(np.unpackbits(bits, count=count.end - count.start)) + count.start


class _Places:
    """The ranges of one partition, sorted by start. A partition has a range for each batch, so each file finds its own
    by bisection.
    """

    def __init__(self, first: int) -> None:
        self._first = first
        self._starts: list[int] = []
        self._ends: list[int] = []
        """Greatest end up to each range. A damaged ledger may have overlapping ranges; bisection needs ends that don't
    decrease.
    """

    def add(self, count: RangeCount) -> None:
        """Adds the next range."""
        self._starts.append(count.start)
        self._ends.append(max(count.end, self._ends[-1]) if self._ends else count.end)

    def between(self, low: int, high: int) -> range:
        """Returns the indices of the ranges that may have offsets from ``low`` to ``high``, both inclusive."""
        return range(
            self._first + bisect_right(self._ends, low), self._first + bisect_right(self._starts, high)
        )


def _difference(count: RangeCount, there: npt.NDArray[np.int64]) -> str:
    """Returns a line that names missing rows and rows that weren't counted. It is exact if the record names all offsets
    without a row.
    """
    known = [Span(span.start, span.end, "") for span in count.spans]
    missing = list(without(count.start, count.end, joined([*_stretches(there), *known])))
    extra = []
    for span in known:
        first, end = there.searchsorted([span.start, span.end]).tolist()
        extra += [(stretch.start, stretch.end) for stretch in _stretches(there[first:end])]
    said = (
        f"{count.topic}-{count.partition} {count.start}..{count.end}: {count.with_rows:,} of its messages had rows "
        f"when it was committed, {len(there):,} have rows now"
    )
    if missing:
        some = "" if not count.unnamed else f", of which {count.unnamed:,} never had one"
        said += f"; no row of offsets {_text(missing)}{some}"
    if extra:
        said += f"; rows of offsets {_text(extra)}, which had none"
    return said


def _stretches(offsets: npt.NDArray[np.int64]) -> list[Span]:
    if not len(offsets):
        return []
    cuts = np.flatnonzero(np.diff(offsets) > 1)
    starts, ends = np.append(offsets[:1], offsets[cuts + 1]), np.append(offsets[cuts], offsets[-1:]) + 1
    return [Span(start, end, "") for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]


def _text(stretches: Sequence[tuple[int, int]]) -> str:
    said = ", ".join(f"{start}..{end}" for start, end in stretches[:STRETCHES])
    more = sum(end - start for start, end in stretches[STRETCHES:])
    return said + (f" and {more:,} more" if more else "")
