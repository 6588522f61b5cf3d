"""A coordinator on an internal topic: its shards follow the leadership of the topic's partitions, and each partition is
the log of its shard.

Nothing here knows the coordinator's kind. Groups use it on ``__consumer_offsets``, transactions on
``__transaction_state``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from blumfeld.broker.replicas.hosting.partition_manager import PartitionManager
from blumfeld.broker.replicas.partition import Partition
from blumfeld.broker.replicas.state.replay import written_batches
from blumfeld.broker.replicas.waiting_appends import ACKS_ALL
from blumfeld.coordinator.runtime.coordinator import Coordinator
from blumfeld.coordinator.runtime.record_runs import record_run
from blumfeld.coordinator.runtime.shard_contract import LogItem, Shard, TransactionalRecord, TransactionMarker
from blumfeld.spi.cluster import ClusterImage
from blumfeld.spi.completion import Completion
from blumfeld.spi.groups import CoordinatorRecord, Producer
from blumfeld.spi.hooks import EventLog
from blumfeld.spi.runtime import Runtime
from blumfeld.spi.storage import TopicPartition
from blumfeld.wire.batches.builder import build_batch
from blumfeld.wire.batches.control_records import ControlType, control_type_of
from blumfeld.wire.batches.record_batch import (
    HEADER_BYTES,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    RecordBatch,
)
from blumfeld.wire.batches.records import Record, records
from blumfeld.wire.compression.codec import Codec
from blumfeld.wire.errors import BrokerError, ErrorCode

RECORD_BYTES = 25
"""The most bytes of a record beside its key and value: six varints, and its attributes."""


class _Commit:
    """Waits for one batch of records: implements ``AppendWaiter``."""

    __slots__ = ("committed",)

    commit_wait_ms = None

    def __init__(self) -> None:
        self.committed: Completion[None] = Completion()

    def appended(self, code: ErrorCode) -> None:
        """The batch is committed, or isn't in the log.

        NOT_ENOUGH_REPLICAS_AFTER_APPEND counts as committed: the high watermark has passed the batch, and only the ISR
        is smaller than it should be by now. A coordinator waits for the high watermark alone (as Kafka's).
        """
        if code and code is not ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND:
            self.committed.fail(BrokerError(code))
        else:
            self.committed.complete(None)


def fitting(items: Sequence[CoordinatorRecord], bytes_max: int) -> list[Sequence[CoordinatorRecord]]:
    """The records in their order, in as few parts as fit into batches of so many bytes.

    :raises BrokerError: MESSAGE_TOO_LARGE: one alone doesn't
    """
    sizes = [RECORD_BYTES + len(item.key) + len(item.value or b"") for item in items]
    room = bytes_max - HEADER_BYTES
    if sum(sizes) <= room:
        return [items]
    parts: list[Sequence[CoordinatorRecord]] = []
    start = used = 0
    for at, size in enumerate(sizes):
        if size > room:
            raise BrokerError(
                ErrorCode.MESSAGE_TOO_LARGE, f"a record of {size} bytes, a batch may have {bytes_max}"
            )
        if used + size > room:
            parts.append(items[start:at])
            start, used = at, 0
        used += size
    return [*parts, items[start:]]


class PartitionCoordinatorLog:
    """A partition of an internal topic, as a shard's host writes and replays it: implements ``CoordinatorLog``."""

    def __init__(self, partition: Partition, runtime: Runtime, codec: Codec = Codec.NONE) -> None:
        self._partition = partition
        self._runtime = runtime
        self._codec = codec
        self.epoch = partition.leader_epoch

    def append(
        self, items: Sequence[CoordinatorRecord], producer: Producer | None = None
    ) -> Completion[None]:
        """Place the records with this broker's time. They make one batch, or several in their order if they are more
        than a batch of the topic may be (``max.message.bytes``, ``segment.bytes``). Completes once the last is
        committed.

        So a decision that fits into one batch is atomic. A crash may leave only the beginning of a larger one. Deciders
        therefore order their records so that any beginning makes sense: an offset stands for itself, the tombstones of
        a group begin with the records that depend on the others, a new target assignment ends with its epoch. (Kafka
        refuses such a decision with UNKNOWN_SERVER_ERROR.)

        Each batch of a producer is transactional and has the sequence 0, as Kafka's coordinator writes them.

        :raises BrokerError: NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR, NOT_ENOUGH_REPLICAS: nothing was placed;
            MESSAGE_TOO_LARGE: neither, since one record alone is too large
        """
        partition = self._partition
        if partition.leader is not None:
            code = partition.leader.check_append_all()
            if code:
                raise BrokerError(code)
        rules = partition.rules
        parts = fitting(items, min(rules.batch_bytes_max, rules.segment_bytes))
        for part in parts:
            waiter = _Commit()
            partition.place(RecordBatch(memoryview(self._batch(part, producer))), ACKS_ALL, waiter)
        return waiter.committed

    def _batch(self, items: Sequence[CoordinatorRecord], producer: Producer | None) -> bytearray:
        now_ms = self._runtime.now_ms()
        return build_batch(
            [
                Record(offset=at, timestamp=now_ms, key=item.key, value=item.value)
                for at, item in enumerate(items)
            ],
            codec=self._codec,
            producer_id=NO_PRODUCER_ID if producer is None else producer.producer_id,
            producer_epoch=NO_PRODUCER_EPOCH if producer is None else producer.producer_epoch,
            base_sequence=NO_SEQUENCE if producer is None else 0,
            transactional=producer is not None,
        )

    def check_producer(self, producer: Producer) -> None:
        """An epoch of the producer's before the one that is known here may not write.

        :raises BrokerError: INVALID_PRODUCER_EPOCH
        """
        known = self._partition.state.producers.producer(producer.producer_id)
        if known is not None and producer.producer_epoch < known.epoch:
            raise BrokerError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {producer.producer_id} has epoch {producer.producer_epoch}, but {known.epoch} is known here",
            )

    def committed(self) -> Completion[None]:
        """Completes once the high watermark has reached the log's present end."""
        partition = self._partition
        if partition.high_watermark >= partition.log.placed_end_offset:
            return Completion.of(None)
        waiter = _Commit()
        partition.wait_committed(waiter)
        return waiter.committed

    def written(self) -> Completion[None]:
        """Completes once nothing is placed that isn't written, or gone."""
        partition, done = self._partition, Completion[None]()
        if partition.log.written_end_offset >= partition.log.placed_end_offset:
            done.complete(None)
        else:
            waiter = _Commit()
            partition.wait_written(waiter)
            waiter.committed.when_done(lambda _: done.complete(None))
        return done

    def records(self) -> Iterator[LogItem | Completion[Any]]:
        """Every record with a key, plain ones batch by batch, and the end of every transaction."""
        for batch in written_batches(self._partition.log):
            if isinstance(batch, Completion):
                yield batch
            elif batch.is_control:
                yield from _markers(batch)
            elif batch.is_transactional:
                producer = Producer(batch.producer_id, batch.producer_epoch)
                for key, value in zip(*record_run(batch), strict=True):
                    yield TransactionalRecord(producer, CoordinatorRecord(key, value))
            else:
                yield record_run(batch)


def _markers(batch: RecordBatch) -> Iterator[TransactionMarker]:
    for item in records(batch):
        kind = control_type_of(item.key)
        if kind in (ControlType.ABORT, ControlType.COMMIT):
            yield TransactionMarker(batch.producer_id, kind is ControlType.COMMIT)


class LedTopic:
    """Elects a shard where this node becomes the leader of a partition of ``topic``, and resigns it afterwards."""

    def __init__(
        self,
        topic: str,
        new_shard: Callable[[int], Shard],
        *,
        runtime: Runtime,
        events: EventLog,
        partitions: PartitionManager,
        image: Callable[[], ClusterImage],
        codec: Codec = Codec.NONE,
        perform: Callable[[int, int, Any], None] | None = None,
    ) -> None:
        """
        :param new_shard: makes the shard of a partition, by its index
        :param codec: compresses the batches that shards write
        :param perform: as of :class:`~blumfeld.coordinator.runtime.coordinator.Coordinator`
        """
        self._topic = topic
        self._runtime = runtime
        self._image = image
        self._codec = codec
        self._epochs: dict[int, int] = {}
        """Partition → the leader epoch in which its shard was built."""
        self.coordinator = Coordinator(runtime, events, new_shard, self._partition_count, perform)
        partitions.opened.append(self._changed)
        partitions.removed.append(self._removed)

    def _partition_count(self) -> int:
        topic = self._image().topics.get(self._topic)
        return 0 if topic is None else len(topic.partitions)

    def _changed(self, partition: Partition) -> None:
        if partition.partition.topic != self._topic:
            return
        index = partition.partition.partition
        if partition.leader is None:
            self._resign(index)
        elif self._epochs.get(index) != partition.leader_epoch:
            self._epochs[index] = partition.leader_epoch
            self.coordinator.elected(index, PartitionCoordinatorLog(partition, self._runtime, self._codec))

    def _removed(self, partition: TopicPartition, topic_id: bytes) -> None:
        if partition.topic == self._topic:
            self._resign(partition.partition)

    def _resign(self, index: int) -> None:
        if self._epochs.pop(index, None) is not None:
            self.coordinator.resigned(index)
