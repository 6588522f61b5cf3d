"""The log cleaner: cleans the dirtiest compacted log, one log at a time (Kafka's ``LogCleaner``).

This module decides *when* a log is cleaned. The storage and ``log.cleaning`` decide which records a pass
keeps. A log whose pass fails is left alone until the next start, as in Kafka, and the other logs go on.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence

from blumfeld.broker.cluster import ClusterView
from blumfeld.broker.fetch.first_timestamps import FirstTimestamps
from blumfeld.broker.replicas.hosting.partition_manager import PartitionManager
from blumfeld.broker.replicas.partition import Partition
from blumfeld.broker.upkeep.cleaner_choice import cleanable, request_for, with_segments
from blumfeld.log.cleaning.rules import CleaningPlan, choose, plan_cleaning
from blumfeld.spi.compaction import CompactionAbandonedError, CompactionResult
from blumfeld.spi.completion import Completion, Steps
from blumfeld.spi.hooks import EventLog, Metric
from blumfeld.spi.runtime import Runtime, Timer
from blumfeld.spi.scheduler import Lane, Work
from blumfeld.spi.storage import LogStorage, TopicPartition

FULL = (errno.ENOSPC, errno.EDQUOT)
"""Errors of a full disk. They may be over at the next attempt, so the log is not given up."""


class Cleaner:
    """The cleaner of one broker. Nothing of it is on the path of a request."""

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
        self._timer: Timer | None = None
        self._stopped = True
        self._examination: Work | None = None
        self._plans: dict[TopicPartition, CleaningPlan] = {}
        """Logs with something to clean, found by the present look."""
        self._first_timestamps = FirstTimestamps()
        self.uncleanable: dict[TopicPartition, bytes] = {}
        """Logs whose last pass failed, with their topic's id. A recreated topic of the same name is cleaned again."""
        self.passes = 0
        self._last: CompactionResult | None = None
        self._max_dirty_ratio = 0.0
        self._max_delay_ms = 0

    def start(self) -> None:
        """Begin with a look at once. Does nothing if the storage doesn't compact, or ``log.cleaner.enable`` is
        false."""
        if not self._storage.compacts or not self._cluster.config.bool("log.cleaner.enable"):
            return
        self._stopped = False
        self._look_in(0)

    def stop(self) -> None:
        """Stop. A pass that runs is abandoned when its log is closed. May be called twice."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._examination is not None:
            self._examination.cancel()

    def _look_in(self, delay_ms: int) -> None:
        if not self._stopped:
            self._timer = self._runtime.call_later(delay_ms, self._look)

    def _look(self) -> None:
        """Clean the dirtiest log. If no log needs it, look again after ``log.cleaner.backoff.ms``."""
        self._timer = None
        if self._cluster.config.int("log.cleaner.threads") <= 0:
            self._look_in(self._backoff_ms())
            return
        self._forget_deleted()
        self._plans.clear()
        compacted = [p for p in self._hosted if p.config.compacts]
        self._first_timestamps.keep({p.partition for p in compacted})
        self._examination = self._runtime.scheduler.run(Lane.UPKEEP, self._examine(compacted))

    def _backoff_ms(self) -> int:
        return self._cluster.config.int("log.cleaner.backoff.ms")

    def _examine(self, compacted: Sequence[Partition]) -> Steps[None]:
        """Plan the cleaning of each log, which takes some 20 µs for each segment, and begin with one of them."""
        for partition in compacted:
            if partition.closed is not None or partition.partition in self.uncleanable:
                continue
            try:
                plan = plan_cleaning(cleanable(partition, self._first_timestamps), self._runtime.now_ms())
            except OSError as error:
                partition.fail_if_bad(error)
            else:
                if plan.end_offset > plan.first_dirty_offset:
                    self._plans[plan.partition] = plan
            yield None
        self._choose()

    def _choose(self) -> None:
        plans = self._plans.values()
        self._max_dirty_ratio = max((plan.dirty_ratio for plan in plans), default=0.0)
        self._max_delay_ms = max((plan.overdue_ms for plan in plans), default=0)
        while (plan := choose(plans)) is not None:
            del self._plans[plan.partition]
            partition = self._hosted.find(plan.partition.topic, plan.partition.partition)
            if partition is not None and partition.closed is None:
                self._clean(partition, plan)
                return
        self._look_in(self._backoff_ms())

    def _forget_deleted(self) -> None:
        partitions = self._hosted
        for at, topic_id in list(self.uncleanable.items()):
            hosted = partitions.find(at.topic, at.partition)
            if hosted is None or hosted.topic_id != topic_id:
                del self.uncleanable[at]

    def _clean(self, partition: Partition, plan: CleaningPlan) -> None:
        try:
            request = request_for(partition, plan, self._cluster.config, self._runtime.now_ms())
            done = with_segments(partition).compact(request)
        except (OSError, ValueError) as error:
            self._failed(partition, error)
            self._look_in(self._backoff_ms())
            return
        done.when_done(lambda done: self._ended(partition, plan, done))

    def _ended(self, partition: Partition, plan: CleaningPlan, done: Completion[CompactionResult]) -> None:
        if self._stopped:
            return
        error = done.error
        if error is None:
            result = done.result()
            self._cleaned(partition, result)
            went_on = result.cleaned_end_offset > plan.first_dirty_offset
            self._look_in(0 if went_on else self._backoff_ms())
            return
        if not isinstance(error, CompactionAbandonedError):
            self._failed(partition, error)
        self._look_in(self._backoff_ms())

    def _cleaned(self, partition: Partition, result: CompactionResult) -> None:
        self.passes += 1
        self._last = result
        if partition.closed is None:
            try:
                partition.state.compacted()
            except OSError as error:
                partition.fail(error)
        self._events.info(
            "log cleaned",
            log=str(partition.partition),
            cleaned_end_offset=result.cleaned_end_offset,
            bytes_before=result.bytes_before,
            bytes_after=result.bytes_after,
            records_before=result.records_read,
            records_after=result.records_kept,
            seconds=round(result.seconds, 3),
        )
        if result.invalid_records:
            self._events.warning(
                "records without a key removed", log=str(partition.partition), count=result.invalid_records
            )

    def _failed(self, partition: Partition, error: BaseException) -> None:
        if isinstance(error, OSError) and error.errno in FULL:
            self._events.warning(
                "log not cleaned, tried again later", log=str(partition.partition), error=str(error)
            )
            return
        self.uncleanable[partition.partition] = partition.topic_id
        self._events.error(
            "log can't be cleaned, left alone until the next start",
            log=str(partition.partition),
            error=str(error),
        )

    # Metrics

    def gauges(self) -> list[Metric]:
        """Returns the metrics of Kafka's cleaner and cleaner manager; each help text has Kafka's name."""
        return [
            Metric(
                "blumfeld_log_cleaner_max_dirty_percent",
                "Dirty share of the dirtiest compacted log, at the last look (Kafka's max-dirty-percent)",
                "gauge",
                lambda: int(100 * self._max_dirty_ratio),
            ),
            Metric(
                "blumfeld_log_cleaner_recopy_percent",
                "What the last pass wrote, of what it cleaned (Kafka's cleaner-recopy-percent)",
                "gauge",
                self._recopy_percent,
            ),
            Metric(
                "blumfeld_log_cleaner_max_clean_time_seconds",
                "How long the last pass worked (Kafka's max-clean-time-secs)",
                "gauge",
                lambda: 0 if self._last is None else int(self._last.seconds),
            ),
            Metric(
                "blumfeld_log_cleaner_max_compaction_delay_seconds",
                "How far a log is beyond max.compaction.lag.ms, at the last look (Kafka's max-compaction-delay-secs)",
                "gauge",
                lambda: self._max_delay_ms // 1000,
            ),
            Metric(
                "blumfeld_log_cleaner_uncleanable_partitions",
                "Logs that can't be cleaned (Kafka's uncleanable-partitions-count)",
                "gauge",
                lambda: len(self.uncleanable),
            ),
            Metric(
                "blumfeld_log_cleaner_passes_total",
                "Passes that came to their end",
                "counter",
                lambda: self.passes,
            ),
        ]

    def _recopy_percent(self) -> int:
        last = self._last
        return 0 if last is None or not last.bytes_before else 100 * last.bytes_after // last.bytes_before
