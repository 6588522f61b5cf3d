"""Periodic tasks: checkpoints, retention, and the expiry of idle producers, at Kafka's intervals.

Retention begins ``log.initial.task.delay.ms`` after the start, as in Kafka. It deletes whole segments, the oldest
first, by time, size and log start (:func:`blumfeld.log.segments.rules.plan_retention`). A topic that is only compacted
loses only segments below its log start.

Of a tiered log only the local part is looked at, with the topic's ``local.retention.*``, and only what the remote store
has. The rest of its retention is the storage's.
"""

from __future__ import annotations

from collections.abc import Callable

from blumfeld.broker.cluster import ClusterView
from blumfeld.broker.replicas.hosting.partition_manager import PartitionManager
from blumfeld.broker.replicas.partition import Partition
from blumfeld.config.values import AS_TOTAL, TopicConfig
from blumfeld.log.segments.rules import RetentionLimits, plan_retention
from blumfeld.spi.completion import Steps
from blumfeld.spi.hooks import EventLog
from blumfeld.spi.runtime import Runtime, Timer
from blumfeld.spi.scheduler import Lane, Work
from blumfeld.spi.storage import LogStorage, lasting, segmented


class Upkeep:
    """Runs the periodic tasks of a broker on three timers."""

    def __init__(
        self,
        cluster: ClusterView,
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
        self._rounds: dict[str, Work] = {}
        """The last round of each kind. The next one takes the place of one that is still running."""

    def start(self) -> None:
        """Begin. Each interval is read from the configuration anew, so a change at run time takes effect."""
        self._later("replica.high.watermark.checkpoint.interval.ms", self.checkpoint)
        self._later("log.retention.check.interval.ms", self.retain, "log.initial.task.delay.ms")
        self._later("producer.id.expiration.check.interval.ms", self.expire_producers)
        self.expire_producers()
        self._hosted.opened.append(self._expire_producers_of)

    def stop(self) -> None:
        """Stop all timers and rounds. May be called twice."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        for work in self._rounds.values():
            work.cancel()

    def _later(self, interval_key: str, work: Callable[[], None], first_key: str = "") -> None:
        def run() -> None:
            self._later(interval_key, work)
            work()

        interval_ms = self._cluster.config.int(first_key or interval_key)
        self._timers[interval_key] = self._runtime.call_later(interval_ms, run)

    def checkpoint(self) -> None:
        """Write high watermarks, recovery points and log starts, and save new aborted transactions.

        With many partitions the aborted transactions are saved over several turns.
        """
        self._round("checkpoint", lambda partition: partition.state.save_aborted())
        kept = lasting(self._storage)
        if kept is None:
            return
        try:
            kept.checkpoint(self._hosted.high_watermarks())
        except OSError as error:
            self._events.error("checkpoint not written", error=str(error))

    def retain(self) -> None:
        """Delete segments past their retention. A few partitions in each turn, because each needs a look at its
        disk."""
        self._round("retention", lambda partition: retain(partition, self._runtime.now_ms()))

    def _round(self, kind: str, look_after: Callable[[Partition], object]) -> None:
        before = self._rounds.get(kind)
        if before is not None:
            before.cancel()
        steps = self._each(look_after)
        self._rounds[kind] = self._runtime.scheduler.run(Lane.UPKEEP, steps)

    def _each(self, look_after: Callable[[Partition], object]) -> Steps[None]:
        for number, partition in enumerate(list(self._hosted)):
            if number:
                yield None
            if partition.closed is None:
                try:
                    look_after(partition)
                except OSError as error:
                    partition.fail_if_bad(error)

    def expire_producers(self) -> None:
        """Forget producers that have been idle for ``producer.id.expiration.ms``."""
        self._round("producers", self._expire_producers_of)

    def _expire_producers_of(self, partition: Partition) -> None:
        """Called for a newly opened partition, too: its producer snapshot may be old."""
        expiration_ms = self._cluster.config.int("producer.id.expiration.ms")
        partition.state.producers.expire(self._runtime.now_ms(), expiration_ms)


def retain(partition: Partition, now_ms: int) -> int:
    """Delete the segments of one partition that are past their retention. Returns their number. Raises OSError.

    A log without segments keeps everything.
    """
    log, config = segmented(partition.log), partition.config
    if log is None:
        return 0
    copies = partition.tiered
    if copies is not None and config.remote_log_copy_disable:
        copies = None  # as in Kafka, the total limits hold for the local part
    limits = RetentionLimits()
    if config.deletes:
        limits = _limits(config, local=copies is not None)
    segments = log.segments()
    partition.state.remove_strays([segment.base_offset for segment in segments])
    plan = plan_retention(
        segments,
        limits,
        log_start_offset=log.log_start_offset,
        high_watermark=partition.high_watermark,
        now_ms=now_ms,
        copied_end_offset=None if copies is None else copies.copied_end_offset,
    )
    # A roll needs a log without placed batches: they belong to the active segment. The next retention tries again.
    if not plan.segments or (plan.roll and log.placed_end_offset != log.written_end_offset):
        return 0
    if plan.roll:
        log.roll()
    dropped = log.drop_segments(plan.end_offset)
    if copies is None and partition.tiered is not None:
        log.advance_log_start(partition.tiered.local_log_start_offset)
    partition.log_start_moved()
    return dropped


def _limits(config: TopicConfig, *, local: bool) -> RetentionLimits:
    retention_ms, retention_bytes = config.retention_ms, config.retention_bytes
    if local and config.local_retention_ms != AS_TOTAL:
        retention_ms = config.local_retention_ms
    if local and config.local_retention_bytes != AS_TOTAL:
        retention_bytes = config.local_retention_bytes
    return RetentionLimits(retention_ms=retention_ms, retention_bytes=retention_bytes)
