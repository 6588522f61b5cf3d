"""Events and counts of failed writes: one event with path and errno when a partition's writes begin to fail, one when
they succeed again.

A full disk fails every append of every partition. So a partition is named once until one of its writes succeeds, and
at most :data:`NAMED_MAX` partitions are named in an interval. One line at its end sums up all other failures.
"""

from __future__ import annotations

import errno
from collections.abc import Callable

import msgspec

from blumfeld.spi.hooks import EventLog, Metric
from blumfeld.spi.runtime import Runtime, Timer
from blumfeld.spi.storage import TopicPartition

INTERVAL_MS = 10_000
"""Interval in which at most :data:`NAMED_MAX` partitions are named. A sum of the other failures ends it."""
UNTRIED_MS = 1_000.0
"""Time without a write after which room counts as a write that succeeds."""
NAMED_MAX = 5
"""Partitions that are named in one interval."""


class _Refusal(msgspec.Struct):
    count: int = 0
    """Failures in a row; 0 for a partition that is offline."""
    last_ms: float = 0.0


class RefusedWrites:
    """Failed writes of all hosted partitions: which partitions refuse writes now, and how many writes failed."""

    def __init__(self, runtime: Runtime, events: EventLog) -> None:
        self._runtime = runtime
        self._events = events
        self.watch: Callable[[TopicPartition], None] = lambda _: None
        """Called after each failed write."""
        self._refusing: dict[TopicPartition, _Refusal] = {}
        """Partitions whose last write failed, or that are offline."""
        self._timer: Timer | None = None
        self._named = 0
        self._failed = 0
        """Failed writes of this interval without an event of their own."""
        self.failures_total = 0

    def gauges(self) -> list[Metric]:
        """Returns the metrics: partitions that refuse writes now, and writes that failed since the start."""
        return [
            Metric(
                "blumfeld_partitions_refusing_writes",
                "Partitions whose last write failed and that have found no room since, or that are offline",
                "gauge",
                lambda: len(self),
            ),
            Metric(
                "blumfeld_failed_writes_total",
                "Writes to partitions' logs that failed",
                "counter",
                lambda: self.failures_total,
            ),
        ]

    def __len__(self) -> int:
        """Number of partitions that refuse writes, or are offline."""
        return len(self._refusing)

    def refuses(self, partition: TopicPartition) -> bool:
        """Whether the partition's last write failed, or it is offline."""
        return partition in self._refusing

    def failed(self, partition: TopicPartition, error: OSError) -> None:
        """Count a failed write of this partition, and log an event if it is the first in a row."""
        refusal = self._refusing.get(partition)
        if new := refusal is None:
            refusal = self._refusing[partition] = _Refusal()
        refusal.count += 1
        refusal.last_ms = self._runtime.monotonic_ms()
        self.failures_total += 1
        if self._timer is None:
            self._named = 0
            self._timer = self._runtime.call_later(INTERVAL_MS, self._interval_ended)
        if new and self._named < NAMED_MAX:
            self._named += 1
            number = error.errno or 0
            self._events.error(
                "write failed",
                partition=str(partition),
                path=error.filename,
                errno=errno.errorcode.get(number, str(number)),
                error=str(error),
            )
        else:
            self._failed += 1
        self.watch(partition)

    def succeeded(self, partition: TopicPartition) -> None:
        """Log that writes succeed again. Call it for the first good write after a failed one."""
        refusal = self._refusing.pop(partition, None)
        if refusal is None:
            return  # room was found before
        if self._named < NAMED_MAX or not self._refusing:
            self._named += 1
            self._events.info(
                "writes succeed again",
                partition=str(partition),
                failed=refusal.count,
                still_refusing=len(self._refusing),
            )

    def offline(self, partition: TopicPartition) -> None:
        """Count a partition that is offline until the next start. Its own event has already said so."""
        self._refusing.setdefault(partition, _Refusal())

    def found_room(self, has_room: Callable[[TopicPartition], bool]) -> None:
        """Drop the partitions for which there is room, and that no write has tried for a second: their producers may
        have given up, and then no write would show that it succeeds."""
        before_ms = self._runtime.monotonic_ms() - UNTRIED_MS
        partitions = [
            candidate
            for candidate, refusal in self._refusing.items()
            if refusal.count and refusal.last_ms <= before_ms and has_room(candidate)
        ]
        for partition in partitions:
            del self._refusing[partition]
        if partitions:
            self._events.info("there is room again", partitions=len(partitions), still_refusing=len(self))

    def forget(self, partition: TopicPartition) -> None:
        """Drop a partition that this node doesn't host any more."""
        self._refusing.pop(partition, None)

    def stop(self) -> None:
        """Log no more events: cancel the interval's timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _interval_ended(self) -> None:
        self._timer = None
        self._named = 0
        failed, self._failed = self._failed, 0
        if failed:
            self._events.error(
                "writes keep failing",
                writes=failed,
                seconds=INTERVAL_MS // 1000,
                partitions=len(self._refusing),
            )
            self._timer = self._runtime.call_later(INTERVAL_MS, self._interval_ended)
