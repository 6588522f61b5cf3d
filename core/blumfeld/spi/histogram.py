"""Durations counted in buckets: what a metric of the kind ``histogram`` reads."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence


class Histogram:
    """Counts of durations. Only one thread may add to it; a scrape reads it.

    :param bounds_s: upper bounds of the buckets, ascending; a bound belongs to its bucket. One more bucket holds what
        took longer
    """

    __slots__ = ("bounds_s", "counts", "total_s")

    def __init__(self, bounds_s: Sequence[float]) -> None:
        self.bounds_s = tuple(bounds_s)
        self.counts = [0] * (len(self.bounds_s) + 1)
        self.total_s = 0.0

    def add(self, seconds: float) -> None:
        """Count one duration."""
        self.counts[bisect_left(self.bounds_s, seconds)] += 1
        self.total_s += seconds
