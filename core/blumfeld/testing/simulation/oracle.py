"""What must hold in every run, whatever was cut, broken or restarted: the checker knows no broker, only its promises.

Each record's value is written once in a run, so a value names a record. A topic is *flushed* (an ack came after the
sync) or *cached* (an ack is a page-cache write: a power cut may take it, nothing else may).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from blumfeld.spi.storage import TopicPartition


class ViolationError(AssertionError):
    """A promise was broken."""


class PartitionLedger:
    """What is known of one partition."""

    def __init__(self, name: str, *, flushed: bool) -> None:
        self.name = name
        self.flushed = flushed
        self.sent: dict[bytes, int] = {}
        """Every value that was ever sent, with the place in its producer's order."""
        self.acked: dict[int, bytes] = {}
        """Offset → value: promised to be there."""
        self.read: dict[int, bytes] = {}
        """Offset → value, as a consumer saw it since the last power cut."""
        self.maybe: dict[int, bytes] = {}
        """Offset → value: was promised, and may have gone with the power."""
        self.taken = 0
        """Records that were acknowledged from the page cache, and went with the power."""
        self._offset_of: dict[bytes, int] = {}
        self._ever_acked: dict[bytes, None] = {}

    def ack(self, base_offset: int, values: Sequence[bytes]) -> None:
        """A batch was acknowledged at these offsets."""
        for offset, value in enumerate(values, base_offset):
            self._placed(offset, value, "acknowledged")
            self.acked[offset] = value
            self._ever_acked[value] = None

    def saw(self, offset: int, value: bytes) -> None:
        """A consumer read a record."""
        if value not in self.sent:
            raise ViolationError(f"{self.name}@{offset}: read {value!r}, which nobody produced")
        self._placed(offset, value, "read")
        self.read[offset] = value

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
        """Another record stands where one was that the power may have taken: all behind it must be gone too."""
        for later in [at for at in self.maybe if at >= offset]:
            value = self.maybe.pop(later)
            if self._offset_of.get(value) == later:
                del self._offset_of[value]

    def power_cut(self) -> None:
        """What was not synced may be gone."""
        kept = self.acked if self.flushed else {}
        for offset, value in self.read.items():
            if offset not in kept:
                self.maybe[offset] = value
        if not self.flushed:
            self.maybe.update(self.acked)
            self.acked = {}
        self.read = {}

    def check_whole(self, found: Iterable[tuple[int, bytes]]) -> int:
        """``found`` is the whole log, as read from its start: nothing lost, doubled, out of order or missing; the
        number of records.
        """
        expected, orders, values = 0, dict[bytes, int](), dict[int, bytes]()
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
        for offset, value in self.acked.items():
            if offset not in values:
                raise ViolationError(f"{self.name}@{offset}: {value!r} was acknowledged, and is lost")
        there = set(values.values())
        if len(there) != len(values):
            raise ViolationError(f"{self.name}: a record stands in the log twice")
        self.taken = sum(value not in there for value in self._ever_acked)
        return expected


class Counts(msgspec.Struct):
    """What a run did."""

    produced: int = 0
    acked: int = 0
    """Records whose acknowledgement the producer saw."""
    unsynced: int = 0
    """Of those, acknowledged from the page cache and taken by a power cut, as was said."""
    read: int = 0
    commits: int = 0
    retries: int = 0
    rebalances: int = 0


class Oracle:
    """All partitions and groups of a run."""

    def __init__(self) -> None:
        self.partitions: dict[TopicPartition, PartitionLedger] = {}
        self.counts = Counts()
        self._committed: dict[tuple[str, TopicPartition], int] = {}

    def add(self, partition: TopicPartition, *, flushed: bool) -> None:
        """Watch a partition."""
        self.partitions[partition] = PartitionLedger(str(partition), flushed=flushed)

    def sent(self, partition: TopicPartition, values: Sequence[bytes]) -> None:
        """Records are about to be sent for the first time, in the producer's order."""
        ledger = self.partitions[partition]
        for value in values:
            ledger.sent[value] = len(ledger.sent)
        self.counts.produced += len(values)

    def acked(self, partition: TopicPartition, base_offset: int, values: Sequence[bytes]) -> None:
        """Their acknowledgement came."""
        self.partitions[partition].ack(base_offset, values)
        self.counts.acked += len(values)

    def sequence_refused(self, partition: TopicPartition) -> None:
        """A producer's next batch was refused although the one before was acknowledged: the broker lost that."""
        if self.partitions[partition].flushed:
            raise ViolationError(
                f"{partition}: the broker forgot a producer whose batches it had acknowledged"
            )

    def read(self, partition: TopicPartition, offset: int, value: bytes) -> None:
        """A consumer read a record."""
        self.partitions[partition].saw(offset, value)
        self.counts.read += 1

    def out_of_range(self, partition: TopicPartition, offset: int) -> None:
        """A consumer was told that its position is not in the log."""
        ledger = self.partitions[partition]
        if ledger.flushed and (offset in ledger.acked or offset - 1 in ledger.acked):
            raise ViolationError(f"{partition}@{offset}: out of range, and was acknowledged")

    def committed(self, group: str, partition: TopicPartition, offset: int) -> None:
        """An OffsetCommit was acknowledged."""
        self._committed[group, partition] = offset
        self.counts.commits += 1

    def fetched(self, group: str, partition: TopicPartition, offset: int) -> None:
        """OffsetFetch gave this offset (-1: none)."""
        promised = self._committed.get((group, partition), -1)
        if offset < promised:
            raise ViolationError(f"group {group}, {partition}: {offset}, where {promised} was committed")

    def power_cut(self) -> None:
        """The machine lost its power."""
        for ledger in self.partitions.values():
            ledger.power_cut()
