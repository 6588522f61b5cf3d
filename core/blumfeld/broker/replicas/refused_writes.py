"""Partitions whose writes fail: told in the log with path and errno, counted, and told again when it is over.

A full disk fails every append of every partition. So a partition is named once until a write succeeds there, and only a
few partitions are named in each interval. The rest is a sum.
"""

from __future__ import annotations

import errno

from blumfeld.spi.hooks import EventLog, Metric
from blumfeld.spi.runtime import Runtime, Timer
from blumfeld.spi.storage import TopicPartition

INTERVAL_MS = 10_000
"""Time in which at most :data:`NAMED_MAX` partitions are named; a sum follows at its end."""
NAMED_MAX = 5


class RefusedWrites:
    """What is known of failed writes of all hosted partitions."""

    def __init__(self, runtime: Runtime, events: EventLog) -> None:
        self._runtime = runtime
        self._events = events
        self._refusing: dict[TopicPartition, int] = {}
        """Partitions whose last write failed, with how many writes have failed in a row."""
        self._timer: Timer | None = None
        self._named = 0
        self._failed = 0
        """Writes that failed since the interval began, and that no line told."""
        self.failures_total = 0

    def gauges(self) -> list[Metric]:
        """How many partitions refuse writes now, and how many writes have failed."""
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
        """A write of this partition failed."""
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
        """A write succeeded in a partition whose last one had failed."""
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
        """It refuses until the next start: its own line has told that."""
        self._refusing.setdefault(partition, 0)

    def forget(self, partition: TopicPartition) -> None:
        """It is not hosted any more."""
        self._refusing.pop(partition, None)

    def stop(self) -> None:
        """Tell nothing any more."""
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
