"""Checks the promises of brokers in every run, whatever failed or restarted. It knows nothing of a broker's parts.

Each record's value is written once in a run, so a value identifies a record. A topic of a single broker is *flushed*
(an ack comes after the sync) or *cached* (an ack is a page-cache write, which only a power cut may take). Records of a
cluster's partition go only with the disks of its whole ISR, which is the same excuse.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from blumfeld.spi.internal_topics import OFFSETS_TOPIC
from blumfeld.spi.storage import TopicPartition

NEVER_S = -1.0
ALWAYS_S = float("inf")
BEHIND_S = 0.1
"""Longer than the time between two looks of the watch."""


class ViolationError(AssertionError):
    """A promise was not kept."""


class PartitionOracle:
    """The knowledge about one partition."""

    def __init__(self, name: str, *, flushed: bool = False) -> None:
        self.name = name
        self.flushed = flushed
        self.sent: dict[bytes, int] = {}
        """Every value that was sent, with its place in its producer's order."""
        self.acked: dict[int, bytes] = {}
        """Offset → value of acknowledged records, which must be there."""
        self.read: dict[int, bytes] = {}
        """Offset → value of records that a consumer read since the last excuse."""
        self.maybe: dict[int, bytes] = {}
        """Offset → value of acknowledged records that an excuse may have taken."""
        self.taken = 0
        """Number of acknowledged records that an excuse took."""
        self._offset_of: dict[bytes, int] = {}
        self._ever_acked: dict[bytes, None] = {}
        self.claimed: dict[bytes, None] = {}
        """Values of batches whose repetition was refused. They were never acknowledged, and the broker says by its
        refusal that it has them.
        """

        self.excused_s = NEVER_S
        """Virtual time up to which acknowledged records may be lost: a power cut took the page cache, or no disk of the
        ISR was known to have them all; -1: never."""
        self.excuses = 0
        self.floor_epoch = -1
        """Leader epoch at the end of the last excuse. What leaders of earlier epochs show counts no more."""
        self.deleted = 0
        """Highest offset up to which a client asked to delete records."""
        self.deleted_for_sure = 0
        """Highest low watermark that an answer to DeleteRecords had."""
        self.start_excused_s = NEVER_S
        """Virtual time at which the whole ISR's processes had ended uncleanly, with what they knew of the start."""

        self.rotten: dict[int, int] = {}
        """Base offset → last offset of batches in which a bit has flipped."""
        self.unreadable: dict[int, None] = {}
        """Offsets in such batches that a reader came to."""

    # Excuses

    def excuse(self, now_s: float) -> None:
        """Note that whatever was not flushed may be gone."""
        kept = self.acked if self.flushed else {}
        for offset, value in self.read.items():
            if offset not in kept:
                self.maybe[offset] = value
        self.read = {}
        self.claimed.clear()
        if not self.flushed:
            self.maybe.update(self.acked)
            self.acked = {}
            self.excused_s = now_s
            self.excuses += 1
            self.deleted_for_sure = 0

    def excuse_start(self, now_s: float) -> None:
        """Note that the log may start earlier than it did."""
        self.start_excused_s = now_s
        self.deleted_for_sure = 0

    def rotted(self, base_offset: int, last_offset: int) -> None:
        """Note that a bit flipped in the batch of these offsets, in bytes that its checksum covers."""
        self.rotten[base_offset] = last_offset

    def cut(self, end_offset: int) -> None:
        """Note that a broker said that it cuts the log there. What is behind may be gone from now on.

        :raises ViolationError: that takes acknowledged records, and the batch there isn't rotten
        """
        behind = [at for at in self.acked if at >= end_offset]
        if behind and end_offset not in self.rotten:
            raise ViolationError(
                f"{self.name}@{end_offset}: the log is cut, where no bit has flipped; {behind[0]} was acknowledged"
            )
        shown = [at for at in self.read if at >= end_offset]
        if behind or shown:
            self.excused_s = ALWAYS_S
        for offset in behind:
            self.maybe[offset] = self.acked.pop(offset)
        for offset in shown:
            self.maybe[offset] = self.read.pop(offset)
        self.claimed.clear()

    def skip_rotten(self, base_offset: int) -> int:
        """Return the last offset of a batch whose checksum a reader found wrong.

        :raises ViolationError: no bit has flipped in it
        """
        last_offset = self.rotten.get(base_offset)
        if last_offset is None:
            raise ViolationError(f"{self.name}@{base_offset}: a batch with a wrong checksum")
        self.unreadable.update(dict.fromkeys(range(base_offset, last_offset + 1)))
        return last_offset

    # Records

    def ack(self, base_offset: int, values: Sequence[bytes], sent_s: float = ALWAYS_S) -> None:
        """Note that a batch was acknowledged at these offsets. An answer to a request from before an excuse promises
        nothing any more.

        :param sent_s: when the request was sent
        """
        if sent_s <= self.excused_s < ALWAYS_S:
            return
        for offset, value in enumerate(values, base_offset):
            self._placed(offset, value, "acknowledged")
            self.acked[offset] = value
            self._ever_acked[value] = None

    def saw(self, offset: int, value: bytes) -> None:
        """Note that a consumer read a record."""
        if value not in self.sent:
            raise ViolationError(f"{self.name}@{offset}: read {value!r}, which nobody produced")
        self._placed(offset, value, "read")
        self.read[offset] = value

    def is_promised(self, position: int) -> bool:
        """Whether a position that a consumer came to by reading must be in the log."""
        if self.flushed:
            return position in self.acked or position - 1 in self.acked
        return position >= self.deleted and self.excused_s == NEVER_S

    def deleted_to(self, low_watermark: int, sent_s: float) -> None:
        """Note an answer to DeleteRecords. One of a request from before an excuse promises nothing any more."""
        if sent_s > max(self.excused_s, self.start_excused_s):
            self.deleted_for_sure = max(self.deleted_for_sure, low_watermark)

    def _placed(self, offset: int, value: bytes, how: str) -> None:
        before = self._offset_of.setdefault(value, offset)
        if before != offset and self.maybe.get(before) == value:
            self._gone_from(before)
            before = self._offset_of.setdefault(value, offset)
        if before != offset:
            raise ViolationError(
                f"{self.name}: {value!r} was {how} at {offset}, and stands at {before}: doubled"
            )
        for known in (self.acked, self.read):
            other = known.get(offset, value)
            if other != value:
                raise ViolationError(f"{self.name}@{offset}: {value!r} was {how}, where {other!r} stood")
        if self.maybe.get(offset, value) != value:
            self._gone_from(offset)

    def _gone_from(self, offset: int) -> None:
        """Note that an excuse took a record: another stands in its place. All records behind it must be gone, too."""
        for later in [at for at in self.maybe if at >= offset]:
            value = self.maybe.pop(later)
            if self._offset_of.get(value) == later:
                del self._offset_of[value]

    def sequence_refused(self, known_s: float) -> None:
        """Judge that a producer's next batch was refused although those before it were acknowledged: the broker lost
        them.

        :param known_s: when the producer asked for its id
        :raises ViolationError: nothing excuses that
        """
        if self.excused_s <= known_s:
            raise ViolationError(
                f"{self.name}: the broker forgot a producer whose batches it had acknowledged"
            )

    def repetition_refused(self, values: Iterable[bytes], known_s: float) -> None:
        """Note that a broker refused a repeated batch because it knows a later one. So it must have this one."""
        if self.excused_s <= known_s:
            self.claimed.update(dict.fromkeys(values))

    # The whole log

    def check_claims(self, pairs: Iterable[tuple[int, bytes | None]]) -> None:
        """Check that the log has each batch whose repetition was refused. To be called while no excuse may have taken
        it.
        """
        there = {value for _, value in pairs}
        for value in self.claimed:
            if value not in there and not self.unreadable:
                raise ViolationError(
                    f"{self.name}: the repetition of {value!r} was refused, and the log doesn't have it"
                )

    def check_whole(self, readings: Sequence[tuple[int, bytes | None]], start_offset: int = 0) -> int:
        """Check the whole log: no record is lost, doubled, out of order or missing. Return the number of records.

        :param readings: the records in the order of the log; the value ``None``: nobody can read it, as its batch is
            rotten
        """
        self._check_start(start_offset)
        expected, orders, values = start_offset, dict[bytes, int](), dict[int, bytes]()
        for offset, value in readings:
            if offset != expected:
                raise ViolationError(f"{self.name}: offset {offset} follows {expected - 1}: a hole")
            expected += 1
            if value is None:
                continue
            self.saw(offset, value)
            values[offset] = value
            producer, order = value.partition(b"#")[0], self.sent[value]
            if orders.get(producer, -1) >= order:
                raise ViolationError(
                    f"{self.name}@{offset}: {value!r} stands behind what was produced after it"
                )
            orders[producer] = order
        self._check_there(values, start_offset)
        if not start_offset and not self.excuses:
            self.check_claims(values.items())
        return expected - start_offset

    def _check_start(self, start_offset: int) -> None:
        if start_offset > self.deleted:
            raise ViolationError(
                f"{self.name}: the log starts at {start_offset}, and {self.deleted} was asked for"
            )
        if start_offset < self.deleted_for_sure:
            raise ViolationError(
                f"{self.name}: the log starts at {start_offset}, and records below {self.deleted_for_sure} were deleted"
            )

    def _check_there(self, values: Mapping[int, bytes], start_offset: int) -> None:
        for how, promised in (("acknowledged", self.acked), ("read", self.read)):
            for offset, value in promised.items():
                is_hidden = offset < start_offset or offset in self.unreadable
                if not is_hidden and values.get(offset) != value:
                    raise ViolationError(f"{self.name}@{offset}: {value!r} was {how}, and is lost")
        there = set(values.values())
        if len(there) != len(values):
            raise ViolationError(f"{self.name}: a record stands in the log twice")
        hidden = {self.acked.get(offset) or self.maybe.get(offset) for offset in self.unreadable}
        self.taken = sum(value not in there and value not in hidden for value in self._ever_acked)


class Oracle:
    """All partitions, groups and topics of a run, and the numbers of its report."""

    def __init__(self) -> None:
        self.partitions: dict[TopicPartition, PartitionOracle] = {}
        self.counts: Counter[str] = Counter()
        self._order = 0
        self.restarted_s = ALWAYS_S
        """Virtual time at which a process may last have begun with a snapshot of producers. In a cluster it may be any
        time: the next leader may have done so."""
        self.offsets_excused_s = NEVER_S
        """As ``PartitionOracle.excused_s``, for the offsets topic."""
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

    def add(self, partition: TopicPartition, *, flushed: bool = False) -> PartitionOracle:
        """Watch a partition."""
        oracle = self.partitions[partition] = PartitionOracle(str(partition), flushed=flushed)
        return oracle

    def sent(self, partition: TopicPartition, values: Sequence[bytes]) -> None:
        """Records are about to be sent for the first time, in the producer's order."""
        sent = self.partitions[partition].sent
        for value in values:
            sent[value] = self._order = self._order + 1
        self.counts["produced"] += len(values)

    def refused(self, partition: TopicPartition, values: Sequence[bytes]) -> None:
        """Records were refused for good: from now on the log may not have them."""
        for value in values:
            del self.partitions[partition].sent[value]

    def acked(
        self, partition: TopicPartition, base_offset: int, values: Sequence[bytes], sent_s: float = ALWAYS_S
    ) -> None:
        """Note the acknowledgement of records that were sent at ``sent_s``."""
        self.partitions[partition].ack(base_offset, values, sent_s)
        self.counts["acked"] += len(values)

    def read(self, partition: TopicPartition, offset: int, value: bytes) -> None:
        """Note that a consumer read a record."""
        self.partitions[partition].saw(offset, value)
        self.counts["read"] += 1

    def excuse(self, partition: TopicPartition, now_s: float) -> None:
        """Note that a partition, of the offsets topic or another, may have lost what was not flushed."""
        if partition in self.partitions:
            self.partitions[partition].excuse(now_s)
        elif partition.topic == OFFSETS_TOPIC:
            self.offsets_excused_s = now_s
            self._committed.clear()

    def deleted(self, partition: TopicPartition, low_watermark: int, sent_s: float) -> None:
        """Note an answer to DeleteRecords. The leader waits for the followers on live brokers only, as Kafka's does, so
        it promises little while it takes a broker for fenced: that one may lead later, and its log starts earlier.
        """
        if self.fenced_s < sent_s - BEHIND_S:
            self.partitions[partition].deleted_to(low_watermark, sent_s)
        self.counts["records deleted"] += 1

    # Committed offsets

    def offsets_sent(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """An OffsetCommit is about to be sent. Until its answer it may be applied at any time."""
        for partition, offset in offsets.items():
            self._unsure.setdefault((group, partition), set()).add(offset)

    def offsets_committed(
        self, group: str, partition: TopicPartition, offset: int, sent_s: float = ALWAYS_S
    ) -> None:
        """Note that an OffsetCommit was acknowledged."""
        self._unsure.get((group, partition), set()).discard(offset)
        if sent_s > self.offsets_excused_s:
            self._committed[group, partition] = offset
        self.counts["commits"] += 1

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
