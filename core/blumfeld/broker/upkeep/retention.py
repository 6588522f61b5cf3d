"""What is done now and then: checkpoints, retention, forgetting producers (Kafka's own intervals).

Retention begins ``log.initial.task.delay.ms`` after the start, as Kafka's does. It takes whole segments, the
oldest first, by time, size and log start (:func:`blumfeld.log.segments.rules.plan_retention`); a topic that is
only compacted loses what is below its log start and nothing else.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from blumfeld.broker.ports import Image
from blumfeld.broker.replicas.hosting import PartitionManager
from blumfeld.broker.replicas.partition import Partition
from blumfeld.log.segments.rules import RetentionLimits, plan_retention
from blumfeld.spi.hooks import EventLog
from blumfeld.spi.runtime import Runtime, Timer
from blumfeld.spi.storage import LogStorage, lasting, segmented

RETAINED_AT_ONCE = 16
"""Partitions that retention looks at in one turn: about a millisecond."""
SAVED_AT_ONCE = 2_000
"""Partitions that are asked in one turn whether a transaction was aborted: about a millisecond too."""


class Upkeep:
    """Three timers of a broker."""

    def __init__(
        self,
        cluster: Image,
        hosted: PartitionManager,
        storage: LogStorage,
        runtime: Runtime,
        events: EventLog,
    ) -> None:
        self._cluster = cluster
        self._hosted = hosted
        self._storage = storage
        self._runtime = runtime
        self._events = events
        self._timers: dict[str, Timer] = {}
        self._unretained: deque[Partition] = deque()
        """Partitions that this round of retention has yet to look at."""
        self._unsaved: deque[Partition] = deque()
        """Partitions whose aborted transactions this checkpoint has yet to save."""

    def start(self) -> None:
        """Begin; the intervals are read anew each time."""
        self._later("replica.high.watermark.checkpoint.interval.ms", self.checkpoint)
        self._later("log.retention.check.interval.ms", self.retain, "log.initial.task.delay.ms")
        self._later("producer.id.expiration.check.interval.ms", self.expire_producers)
        self.expire_producers()
        self._hosted.opened.append(self._expire_producers_of)

    def stop(self) -> None:
        """End. May be called twice."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _later(self, interval_key: str, work: Callable[[], None], first_key: str = "") -> None:
        def run() -> None:
            self._later(interval_key, work)
            work()

        interval_ms = self._cluster.config.int(first_key or interval_key)
        self._timers[interval_key] = self._runtime.call_later(interval_ms, run)

    def checkpoint(self) -> None:
        """Write high watermarks, recovery points, log starts and transactions that were aborted since: of many
        partitions in turns to come.
        """
        self._unsaved = deque(self._hosted)
        self._save_some()
        kept = lasting(self._storage)
        if kept is None:
            return
        try:
            kept.checkpoint(self._hosted.high_watermarks())
        except OSError as error:
            self._events.error("checkpoint not written", error=str(error))

    def _save_some(self) -> None:
        for _ in range(min(SAVED_AT_ONCE, len(self._unsaved))):
            partition = self._unsaved.popleft()
            if partition.closed is None:
                try:
                    partition.state.save_aborted()
                except OSError as error:
                    partition.fail(error)
        if self._unsaved:
            self._timers["save"] = self._runtime.call_later(0, self._save_some)

    def retain(self) -> None:
        """Delete what retention doesn't keep; some partitions in a turn, for each is looked at on its disk."""
        self._unretained = deque(self._hosted)
        self._retain_some()

    def _retain_some(self) -> None:
        now_ms = self._runtime.now_ms()
        for _ in range(min(RETAINED_AT_ONCE, len(self._unretained))):
            partition = self._unretained.popleft()
            if partition.closed is None:
                try:
                    retain(partition, now_ms)
                except OSError as error:
                    partition.fail(error)
        if self._unretained:
            self._timers["retain"] = self._runtime.call_later(0, self._retain_some)

    def expire_producers(self) -> None:
        """Forget producers that have been idle for ``producer.id.expiration.ms``."""
        for partition in self._hosted:
            self._expire_producers_of(partition)

    def _expire_producers_of(self, partition: Partition) -> None:
        """Also right after a start: a snapshot may be of long ago."""
        expiration_ms = self._cluster.config.int("producer.id.expiration.ms")
        partition.state.producers.expire(self._runtime.now_ms(), expiration_ms)


def retain(partition: Partition, now_ms: int) -> int:
    """Delete segments of one partition that its topic doesn't keep; how many. Raises OSError.

    A log without segments keeps everything.
    """
    log, config = segmented(partition.log), partition.config
    if log is None:
        return 0
    limits = RetentionLimits()
    if config.deletes:
        limits = RetentionLimits(retention_ms=config.retention_ms, retention_bytes=config.retention_bytes)
    segments = log.segments()
    partition.state.remove_strays([segment.base_offset for segment in segments])
    plan = plan_retention(
        segments,
        limits,
        log_start_offset=log.log_start_offset,
        high_watermark=partition.high_watermark,
        now_ms=now_ms,
    )
    if not plan.segments or (plan.roll and log.placed_end_offset != log.written_end_offset):
        return 0
    if plan.roll:
        log.roll()
    dropped = log.drop_segments(plan.end_offset)
    partition.log_start_moved()
    return dropped
