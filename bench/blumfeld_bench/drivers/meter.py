"""Counters of a driver process, at the least cost: growing arrays and plain sums."""

from __future__ import annotations

import resource
from array import array

from blumfeld_bench.drivers.spec import Begin, Counts, Done, Lap, pack

SAMPLE = 256
"""Number of a lap's latencies that are sent to the live view."""
FAR_NS = 2**62


class Meter:
    """The counters of one process. Hot paths add to its fields directly."""

    __slots__ = (
        "_lap_acks",
        "_lap_ends",
        "_lap_from_ns",
        "_usage",
        "acks",
        "bytes",
        "ends",
        "error",
        "errors",
        "fetches",
        "idle_ns",
        "late",
        "measure_ns",
        "received_bytes",
        "received_records",
        "records",
        "requests",
    )

    def __init__(self) -> None:
        self.acks = array("q")
        self.ends = array("q")
        self.late = array("q")
        self.measure_ns = FAR_NS
        self.records = self.bytes = self.requests = 0
        self.received_records = self.received_bytes = self.fetches = 0
        self.idle_ns = 0
        self.errors = 0
        self.error: str | None = None
        self._lap_acks = self._lap_ends = self._lap_from_ns = 0
        self._usage = _usage()

    def begin(self, begin: Begin) -> None:
        """Start the counts of a load."""
        self.measure_ns = begin.measure_ns
        self._lap_from_ns = begin.begin_ns
        self._usage = _usage()
        self.idle_ns = 0

    def ack(self, intended_ns: int, now_ns: int) -> None:
        """Record the latency of an answered request."""
        latency = now_ns - intended_ns
        self.acks.append(latency if intended_ns >= self.measure_ns else -latency)

    def end_to_end(self, intended_ns: int, now_ns: int) -> None:
        """Record the latency of an arrived record; one without a stamp (0) does not count."""
        if intended_ns > 0:
            latency = now_ns - intended_ns
            self.ends.append(latency if intended_ns >= self.measure_ns else -latency)

    def fault(self, what: str, count: int = 1) -> None:
        """Count errors; the first one is kept in words."""
        self.errors += count
        if self.error is None and count:
            self.error = what

    def lap(self, now_ns: int, producing: bool) -> Lap:
        """Close a lap: return its counts and reset them."""
        acks, ends = len(self.acks), len(self.ends)
        user_s, system_s = _usage()
        counts = Counts(
            records=self.records,
            bytes=self.bytes,
            requests=self.requests,
            received_records=self.received_records,
            received_bytes=self.received_bytes,
            fetches=self.fetches,
            busy_ns=max(0, now_ns - self._lap_from_ns - self.idle_ns),
            user_s=user_s - self._usage[0],
            system_s=system_s - self._usage[1],
            acks=acks,
            ends=ends,
        )
        source, start, stop = (
            (self.acks, self._lap_acks, acks) if producing else (self.ends, self._lap_ends, ends)
        )
        step = max(1, (stop - start) // SAMPLE)
        lap = Lap(
            from_ns=self._lap_from_ns, to_ns=now_ns, counts=counts, sample=tuple(source[start:stop:step])
        )
        self._lap_acks, self._lap_ends, self._lap_from_ns = acks, ends, now_ns
        self._usage = (user_s, system_s)
        self.records = self.bytes = self.requests = 0
        self.received_records = self.received_bytes = self.fetches = 0
        self.idle_ns = 0
        return lap

    def done(self) -> Done:
        """Return everything that was kept for the end."""
        return Done(
            acks=pack(self.acks),
            ends=pack(self.ends),
            late=pack(self.late),
            errors=self.errors,
            error=self.error,
        )


def _usage() -> tuple[float, float]:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime, used.ru_stime
