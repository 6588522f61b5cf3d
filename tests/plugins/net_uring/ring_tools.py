"""What the tests of the ring share: a skip with the reason where there is none, and rings that are closed."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import pytest

from blumfeld_net_uring.io_uring.ring import Ring, RingUnavailable

Completion = tuple[int, int]


def _why_no_ring() -> str | None:
    try:
        Ring(8, 16).close()
    except RingUnavailable as refusal:
        return refusal.reason
    return None


WHY_NO_RING = _why_no_ring()
needs_ring = pytest.mark.skipif(WHY_NO_RING is not None, reason=f"no io_uring here: {WHY_NO_RING}")


@contextmanager
def open_ring(sq_entries: int = 8, cq_entries: int = 16, without: Iterable[str] = ()) -> Iterator[Ring]:
    """A small ring, which wraps around soon. At its end nothing may be left in flight that can't be cancelled."""
    ring = Ring(sq_entries, cq_entries, without)
    try:
        yield ring
    finally:
        assert ring.close()


class Told:
    """A token that notes its completions."""

    def __init__(self, ring: Ring) -> None:
        self.completions: list[Completion] = []
        self.token = ring.attach(lambda result, flags: self.completions.append((result, flags)))

    @property
    def results(self) -> list[int]:
        return [result for result, _ in self.completions]


def run_until(ring: Ring, done: Callable[[], bool], seconds_max: float = 5.0) -> None:
    """Turn after turn until it is done, or the test fails."""
    deadline = time.monotonic() + seconds_max
    while not done():
        assert time.monotonic() < deadline, "it never completed"
        ring.enter(20_000_000)
        ring.reap()


def turn(ring: Ring) -> int:
    """Submit, and reap what has completed by now; how many that were."""
    ring.enter(0)
    return ring.reap()


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def descriptors_without_garbage() -> int:
    """The same, for a first count: what other tests left may be closed by the collector at any time after it."""
    gc.collect()
    return open_descriptors()


def ring_mappings() -> int:
    """Pieces of this process's memory that are an io_uring's."""
    with open("/proc/self/maps", encoding="ascii") as maps:
        return sum("io_uring" in line for line in maps)
