"""Events and counts of failed writes: one event with path and errno when a partition's writes begin to fail, one when
they succeed again.

A full disk fails every append of every partition. So a partition is named once until one of its writes succeeds, and
at most :data:`NAMED_MAX` partitions are named in an interval. One line at its end sums up all other failures.
"""

from __future__ import annotations

import errno

from blumfeld.spi.hooks import EventLog, Metric
from blumfeld.spi.runtime import Runtime, Timer
from blumfeld.spi.storage import TopicPartition

INTERVAL_MS = 10_000
"""Interval in which at most :data:`NAMED_MAX` partitions are named. A sum of the other failures ends it."""
NAMED_MAX = 5
"""Partitions that are named in one interval."""


class RefusedWrites:
    """Failed writes of all hosted partitions: which partitions refuse writes now, and how many writes failed."""

    def __init__(self, runtime: Runtime, events: EventLog) -> None:
        self._runtime = runtime
        self._events = events
        self._refusing: dict[TopicPartition, int] = {}
        """Partitions whose last write failed, each with its number of failures in a row."""
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
                "Partitions whose last write failed, or that are offline",
                "gauge",
                lambda: len(self._refusing),
            ),
            Metric(
                "blumfeld_failed_writes_total",
                "Writes to partitions' logs that failed",
                "counter",
                lambda: self.failures_total,
            ),
        ]

    def failed(self, partition: TopicPartition, error: OSError) -> None:
        """Count a failed write of this partition, and log an event if it is the first in a row."""
        new = partition not in self._refusing
        self._refusing[partition] = self._refusing.get(partition, 0) + 1
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

    def succeeded(self, partition: TopicPartition) -> None:
        """Log that writes succeed again. Call it for the first good write after a failed one."""
        count = self._refusing.pop(partition, 0)
        if self._named < NAMED_MAX or not self._refusing:
            self._named += 1
            self._events.info(
                "writes succeed again",
                partition=str(partition),
                failed=count,
                still_refusing=len(self._refusing),
            )

    def offline(self, partition: TopicPartition) -> None:
        """Count a partition that is offline until the next start. Its own event has already said so."""
        self._refusing.setdefault(partition, 0)

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
