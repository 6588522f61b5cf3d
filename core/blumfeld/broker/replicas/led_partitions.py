"""The partitions that this node leads, as plug-ins may use them: implements ``spi.partitions.LocalPartitions``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from blumfeld.broker.replicas.hosting.partition_manager import PartitionManager
from blumfeld.broker.replicas.partition import Partition
from blumfeld.broker.replicas.rules.append_rules import TooMuchAtOnce
from blumfeld.broker.replicas.waiting_appends import ACKS_ALL
from blumfeld.spi.completion import Completion
from blumfeld.spi.hooks import EventLog
from blumfeld.spi.partitions import EndWatcher, LeadershipWatcher, PartitionEnds
from blumfeld.spi.storage import LogRead, LogReadOutcome, TopicPartition
from blumfeld.wire.batches.record_batch import RecordBatch
from blumfeld.wire.errors import BrokerError, ErrorCode


class _Append:
    """Waits for one batch: implements ``AppendWaiter``."""

    __slots__ = ("base_offset", "committed")

    commit_wait_ms = None

    def __init__(self) -> None:
        self.base_offset = -1
        self.committed: Completion[int] = Completion()

    def appended(self, code: ErrorCode) -> None:
        """Take the outcome."""
        if code:
            self.committed.fail(BrokerError(code))
        else:
            self.committed.complete(self.base_offset)


class LedPartitions:
    """Looks each partition up anew, so that nothing is kept of one that has gone."""

    def __init__(self, hosted: PartitionManager, events: EventLog) -> None:
        self._hosted = hosted
        self._events = events
        self._leadership: list[LeadershipWatcher] = []
        self._led: dict[TopicPartition, tuple[bytes, int]] = {}
        """Topic id and leader epoch of each led partition, once there are watchers of leadership."""

    def ends(self, partition: TopicPartition) -> PartitionEnds:
        """As ``LocalPartitions.ends``."""
        led = self._find(partition)
        high_watermark, stable = led.readable_ends()
        return PartitionEnds(
            topic_id=led.topic_id,
            leader_epoch=led.leader_epoch,
            log_start_offset=led.log.log_start_offset,
            last_stable_offset=stable,
            high_watermark=high_watermark,
            log_end_offset=led.log.written_end_offset,
        )

    def append(self, partition: TopicPartition, batch: RecordBatch, leader_epoch: int) -> Completion[int]:
        """As ``LocalPartitions.append``."""
        led = self._find_in(partition, leader_epoch)
        waiter = _Append()
        try:
            waiter.base_offset, _ = led.append(batch, ACKS_ALL, waiter)
        except TooMuchAtOnce:
            raise BrokerError(
                ErrorCode.MESSAGE_TOO_LARGE,
                "the topic's records are checked one by one: make smaller batches",
            ) from None
        return waiter.committed

    def read(
        self, partition: TopicPartition, offset: int, bytes_max: int, *, read_committed: bool
    ) -> LogReadOutcome:
        """As ``LocalPartitions.read``."""
        led = self._find(partition)
        if not led.log.log_start_offset <= offset <= led.log.written_end_offset:
            raise BrokerError(ErrorCode.OFFSET_OUT_OF_RANGE)
        end_offset = led.readable_end(read_committed)
        if offset >= end_offset:
            return LogRead([], 0, offset)
        return led.read(offset, bytes_max, end_offset, True)

    def advance_log_start(self, partition: TopicPartition, offset: int, leader_epoch: int) -> int:
        """As ``LocalPartitions.advance_log_start``."""
        led = self._find_in(partition, leader_epoch)
        if offset > led.high_watermark:
            raise BrokerError(ErrorCode.OFFSET_OUT_OF_RANGE)
        try:
            if offset > led.log.log_start_offset:
                led.advance_log_start(offset)
        except OSError as error:
            led.fail(error)
            raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR) from error
        return led.log.log_start_offset

    def watch(self, partition: TopicPartition, watcher: EndWatcher, *, log_end: bool) -> None:
        """As ``LocalPartitions.watch``."""
        self._find(partition).watchers.add(watcher, log_end)

    def unwatch(self, partition: TopicPartition, watcher: EndWatcher, *, log_end: bool) -> None:
        """As ``LocalPartitions.unwatch``."""
        hosted = self._hosted.find(partition.topic, partition.partition)
        if hosted is not None:
            hosted.watchers.remove(watcher, log_end)

    def watch_leadership(self, watcher: LeadershipWatcher) -> None:
        """As ``LocalPartitions.watch_leadership``."""
        if not self._leadership:
            self._hosted.opened.append(self._changed)
            self._hosted.removed.append(self._removed)
            for partition in self._hosted:
                self._changed(partition)
        self._leadership.append(watcher)
        for at, (topic_id, epoch) in list(self._led.items()):
            watcher.leads(at, topic_id, epoch)

    def _find(self, partition: TopicPartition) -> Partition:
        return self._hosted.leading(partition.topic, partition.partition)

    def _find_in(self, partition: TopicPartition, leader_epoch: int) -> Partition:
        led = self._find(partition)
        code = led.check_leader_epoch(max(leader_epoch, 0))
        if code:
            raise BrokerError(code)
        return led

    def _changed(self, partition: Partition) -> None:
        if partition.leader is None:
            self._removed(partition.partition, partition.topic_id)
            return
        led = (partition.topic_id, partition.leader_epoch)
        if self._led.get(partition.partition) != led:
            self._led[partition.partition] = led
            for watcher in self._leadership:
                self._tell(partial(watcher.leads, partition.partition, *led))

    def _removed(self, partition: TopicPartition, topic_id: bytes) -> None:
        if self._led.pop(partition, None) is not None:
            for watcher in self._leadership:
                self._tell(partial(watcher.lost, partition))

    def _tell(self, call: Callable[[], None]) -> None:
        """Tell a watcher. Its defect is logged: the change of the replica must go on, and other watchers be told."""
        try:
            call()
        except Exception as defect:
            self._events.error("a watcher of leadership failed", exc_info=defect)
