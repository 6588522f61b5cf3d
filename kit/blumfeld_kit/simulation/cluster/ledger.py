"""The promises that the clients of a cluster got, partition by partition. The oracle compares the logs with it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from blumfeld.spi.internal_topics import OFFSETS_TOPIC
from blumfeld.spi.storage import TopicPartition
from blumfeld_kit.simulation.clients.oracle import PartitionLedger, ViolationError

NEVER_S = -1.0
BEHIND_S = 0.1
"""Longer than the time between two looks of the watch."""


class ReplicatedLedger(PartitionLedger):
    """One replicated partition. Nothing but the loss of every disk that had its records excuses a lost record."""

    def __init__(self, name: str) -> None:
        super().__init__(name, flushed=False)
        self.excused_s = NEVER_S
        """Virtual time at which no disk of the ISR was known to have all acknowledged records; -1: never."""
        self.excuses = 0
        self.floor_epoch = -1
        """Leader epoch at the end of the last excuse. What leaders of earlier epochs show counts no more."""
        self.deleted = 0
        """Highest offset up to which a client asked to delete records."""
        self.deleted_for_sure = 0
        """Highest low watermark that an answer to DeleteRecords had."""
        self.start_excused_s = NEVER_S
        """Virtual time at which the whole ISR's processes had ended uncleanly, with what they knew of the start."""

    def excuse(self, now_s: float) -> None:
        """Note that the disks of the whole ISR lost what they had not flushed: every record may be gone."""
        self.excused_s = now_s
        self.excuses += 1
        self.deleted_for_sure = 0
        self.power_cut()

    def excuse_start(self, now_s: float) -> None:
        """Note that the log may start earlier than it did."""
        self.start_excused_s = now_s
        self.deleted_for_sure = 0

    def deleted_to(self, low_watermark: int, sent_s: float) -> None:
        """Note an answer to DeleteRecords. One of a request from before an excuse promises nothing any more."""
        if sent_s > max(self.excused_s, self.start_excused_s):
            self.deleted_for_sure = max(self.deleted_for_sure, low_watermark)

    def acked_batch(self, base_offset: int, values: Sequence[bytes], sent_s: float) -> None:
        """Note an acknowledgement. One of a request from before an excuse promises nothing any more."""
        if sent_s > self.excused_s:
            self.ack(base_offset, values)

    def check_log(self, start_offset: int, found: Iterable[tuple[int, bytes]]) -> int:
        """Check the whole log of the leader: nothing is lost, doubled, out of order or missing.

        :return: the number of records
        """
        if start_offset > self.deleted:
            raise ViolationError(
                f"{self.name}: the log starts at {start_offset}, and {self.deleted} was asked for"
            )
        if start_offset < self.deleted_for_sure:
            raise ViolationError(
                f"{self.name}: the log starts at {start_offset}, and records below {self.deleted_for_sure} were deleted"
            )
        expected, orders, values = start_offset, dict[bytes, int](), dict[int, bytes]()
        for offset, value in found:
            if offset != expected:
                raise ViolationError(f"{self.name}: offset {offset} follows {expected - 1}: a hole")
            expected += 1
            self.saw(offset, value)
            values[offset] = value
            producer, order = value.partition(b"#")[0], self.sent[value]
            if orders.get(producer, -1) >= order:
                raise ViolationError(
                    f"{self.name}@{offset}: {value!r} stands behind what was produced after it"
                )
            orders[producer] = order
        for how, promised in (("acknowledged", self.acked), ("read", self.read)):
            for offset, value in promised.items():
                if offset >= start_offset and values.get(offset) != value:
                    raise ViolationError(f"{self.name}@{offset}: {value!r} was {how}, and is lost")
        if len(set(values.values())) != len(values):
            raise ViolationError(f"{self.name}: a record stands in the log twice")
        if not start_offset and not self.excuses:
            self.check_claims(values.items())
        return len(values)


class ClusterLedger:
    """All partitions, groups and topics of a run, and the numbers of its report."""

    def __init__(self) -> None:
        self.partitions: dict[TopicPartition, ReplicatedLedger] = {}
        self.offsets_excused_s = NEVER_S
        """As ``ReplicatedLedger.excused_s``, for the offsets topic."""
        self._committed: dict[tuple[str, TopicPartition], int] = {}
        self._unsure: dict[tuple[str, TopicPartition], set[int]] = {}
        self.behind_s: dict[str, float] = {}
        """Address of a broker → virtual time at which it was last seen to coordinate, and to know no successor of its
        own that is there."""
        self.fenced_s = NEVER_S
        """Virtual time at which some node last took some broker for fenced."""
        self.topics: dict[str, bool | None] = {}
        """Topics that clients create and delete → whether they must be there; ``None``: nobody knows."""
        self.partition_counts: dict[str, int] = {}
        """Partitions of each topic that was created for sure."""
        self.counts: Counter[str] = Counter()

    def add(self, partition: TopicPartition) -> ReplicatedLedger:
        """Watch a partition."""
        ledger = self.partitions[partition] = ReplicatedLedger(str(partition))
        return ledger

    def sent(self, partition: TopicPartition, values: Sequence[bytes]) -> None:
        """Records are about to be sent for the first time, in the producer's order."""
        ledger = self.partitions[partition]
        for value in values:
            ledger.sent[value] = len(ledger.sent)
        self.counts["produced"] += len(values)

    def acked(
        self, partition: TopicPartition, base_offset: int, values: Sequence[bytes], sent_s: float
    ) -> None:
        """Note the acknowledgement of records that were sent at ``sent_s``."""
        self.partitions[partition].acked_batch(base_offset, values, sent_s)
        self.counts["acked"] += len(values)

    def deleted(self, partition: TopicPartition, low_watermark: int, sent_s: float) -> None:
        """Note an answer to DeleteRecords. The leader waits for the followers on live brokers only, as Kafka's does, so
        it promises little while it takes a broker for fenced: that one may lead later, and its log starts earlier.
        """
        if self.fenced_s < sent_s - BEHIND_S:
            self.partitions[partition].deleted_to(low_watermark, sent_s)
        self.counts["records deleted"] += 1

    def offsets_sent(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """An OffsetCommit is about to be sent. Until its answer it may be applied at any time."""
        for partition, offset in offsets.items():
            self._unsure.setdefault((group, partition), set()).add(offset)

    def offsets_committed(self, group: str, partition: TopicPartition, offset: int, sent_s: float) -> None:
        """Note that an OffsetCommit was acknowledged."""
        self._unsure[group, partition].discard(offset)
        if sent_s > self.offsets_excused_s:
            self._committed[group, partition] = offset
        self.counts["commits"] += 1

    def excuse_offsets(self, now_s: float) -> None:
        """Note that a partition of the offsets topic lost the disks of its whole ISR."""
        self.offsets_excused_s = now_s
        self._committed.clear()

    def excuse(self, partition: TopicPartition, now_s: float) -> None:
        """Note that a partition, of the offsets topic or another, may have lost its records."""
        if partition.topic == OFFSETS_TOPIC:
            self.excuse_offsets(now_s)
        else:
            self.partitions[partition].excuse(now_s)

    def offsets_fetched(
        self, group: str, partition: TopicPartition, offset: int, broker: str = "", sent_s: float = 0.0
    ) -> None:
        """Check the offset that OffsetFetch returned (-1: none).

        A coordinator that hasn't heard of its successor answers with the offsets that it has, as Kafka's does: the
        request has no epoch by which it could be told.

        :param broker: address of the broker that answered
        """
        promised = self._committed.get((group, partition), -1)
        if self.behind_s.get(broker, NEVER_S) >= sent_s - BEHIND_S:
            return
        if offset < promised and offset not in self._unsure.get((group, partition), ()):
            raise ViolationError(f"group {group}, {partition}: {offset}, where {promised} was committed")
