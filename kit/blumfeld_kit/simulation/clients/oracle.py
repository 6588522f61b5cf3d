"""Checks the broker's promises in every run, whatever failed or restarted. The checker knows nothing of the broker's
parts.

Each record's value is written once in a run, so a value identifies a record. A topic is *flushed* (an ack comes after
the sync) or *cached* (an ack is a page-cache write, which only a power cut may take).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from blumfeld.spi.storage import TopicPartition


class ViolationError(AssertionError):
    """A promise was not kept."""


class PartitionLedger:
    """The knowledge about one partition."""

    def __init__(self, name: str, *, flushed: bool) -> None:
        self.name = name
        self.flushed = flushed
        self.sent: dict[bytes, int] = {}
        """Every value that was sent, with its place in its producer's order."""
        self.acked: dict[int, bytes] = {}
        """Offset → value of acknowledged records, which must be there."""
        self.read: dict[int, bytes] = {}
        """Offset → value of records that a consumer read since the last power cut."""
        self.maybe: dict[int, bytes] = {}
        """Offset → value of acknowledged records that a power cut may have taken."""
        self.taken = 0
        """Number of records that were acknowledged from the page cache and taken by a power cut."""
        self._offset_of: dict[bytes, int] = {}
        self._ever_acked: dict[bytes, None] = {}
        self.claimed: dict[bytes, None] = {}
        """Values of batches whose repetition was refused. They were never acknowledged, and the broker says by its
        refusal that it has them.
        """

        self.rotten: dict[int, int] = {}
        """Base offset → last offset of batches in which a bit has flipped."""
        self.unreadable: dict[int, None] = {}
        """Offsets in such batches that a reader came to."""
        self.was_cut_at_rot = False
        """Whether a recovery cut acknowledged records off, at a rotten batch."""

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
        self.was_cut_at_rot |= bool(behind)
        for offset in behind:
            self.maybe[offset] = self.acked.pop(offset)
        for offset in [at for at in self.read if at >= end_offset]:
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

    def ack(self, base_offset: int, values: Sequence[bytes]) -> None:
        """Note that a batch was acknowledged at these offsets."""
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
        """Note that the power cut took a record, since another stands in its place: all records behind it must be gone
        too.
        """
        for later in [at for at in self.maybe if at >= offset]:
            value = self.maybe.pop(later)
            if self._offset_of.get(value) == later:
                del self._offset_of[value]

    def power_cut(self) -> None:
        """Note a power cut: unsynced records may be gone."""
        kept = self.acked if self.flushed else {}
        for offset, value in self.read.items():
            if offset not in kept:
                self.maybe[offset] = value
        if not self.flushed:
            self.maybe.update(self.acked)
            self.acked = {}
        self.read = {}
        self.claimed.clear()

    def check_claims(self, found: Iterable[tuple[int, bytes | None]]) -> None:
        """Check that the log has each batch whose repetition was refused. To be called while no power cut may have
        taken it.
        """
        there = {value for _, value in found}
        for value in self.claimed:
            if value not in there and not self.unreadable:
                raise ViolationError(
                    f"{self.name}: the repetition of {value!r} was refused, and the log doesn't have it"
                )

    def check_whole(self, found: Iterable[tuple[int, bytes | None]]) -> int:
        """Check the whole log: no record is lost, doubled, out of order or missing. Return the number of records.

        :param found: the records in the order of the log; the value ``None``: nobody can read it, its batch is rotten
        """
        expected, orders, values = 0, dict[bytes, int](), dict[int, bytes]()
        for offset, value in found:
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
        for offset, value in self.acked.items():
            if offset not in values and offset not in self.unreadable:
                raise ViolationError(f"{self.name}@{offset}: {value!r} was acknowledged, and is lost")
        there = set(values.values())
        if len(there) != len(values):
            raise ViolationError(f"{self.name}: a record stands in the log twice")
        hidden = {self.acked.get(offset) or self.maybe.get(offset) for offset in self.unreadable}
        self.taken = sum(value not in there and value not in hidden for value in self._ever_acked)
        return expected


class Counts(msgspec.Struct):
    """Counts of a run."""

    produced: int = 0
    acked: int = 0
    """Records whose acknowledgement the producer saw."""
    unsynced: int = 0
    """Records among them that were acknowledged from the page cache and taken by a power cut, as documented."""
    read: int = 0
    commits: int = 0
    retries: int = 0
    rebalances: int = 0


class Oracle:
    """All partitions and groups of a run."""

    def __init__(self) -> None:
        self.partitions: dict[TopicPartition, PartitionLedger] = {}
        self.counts = Counts()
        self.restarts = 0
        """Processes that were started."""
        self.power_cuts = 0
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
        """Note the acknowledgement of records."""
        self.partitions[partition].ack(base_offset, values)
        self.counts.acked += len(values)

    def sequence_refused(self, partition: TopicPartition, *, power_cuts: int) -> None:
        """Report that a producer's next batch was refused although the one before was acknowledged: the broker lost
        that one. Only a power cut may take it, and only from the page cache.

        :param power_cuts: :attr:`power_cuts` when the producer had its id
        """
        ledger = self.partitions[partition]
        if not ledger.was_cut_at_rot and (ledger.flushed or self.power_cuts == power_cuts):
            raise ViolationError(
                f"{partition}: the broker forgot a producer whose batches it had acknowledged"
            )

    def repetition_refused(
        self, partition: TopicPartition, values: Sequence[bytes], *, power_cuts: int
    ) -> None:
        """Report that the broker refused a repeated batch because it knows a later one. So it must have this one.

        :param power_cuts: as in :meth:`sequence_refused`
        """
        ledger = self.partitions[partition]
        if not ledger.was_cut_at_rot and (ledger.flushed or self.power_cuts == power_cuts):
            ledger.claimed.update(dict.fromkeys(values))

    def restarted(self) -> None:
        """Note that a process is about to start."""
        self.restarts += 1

    def read(self, partition: TopicPartition, offset: int, value: bytes) -> None:
        """Note that a consumer read a record."""
        self.partitions[partition].saw(offset, value)
        self.counts.read += 1

    def out_of_range(self, partition: TopicPartition, offset: int) -> None:
        """Note that a consumer's position is not in the log."""
        ledger = self.partitions[partition]
        if ledger.flushed and (offset in ledger.acked or offset - 1 in ledger.acked):
            raise ViolationError(f"{partition}@{offset}: out of range, and was acknowledged")

    def committed(self, group: str, partition: TopicPartition, offset: int) -> None:
        """Note that an OffsetCommit was acknowledged."""
        self._committed[group, partition] = offset
        self.counts.commits += 1

    def fetched(self, group: str, partition: TopicPartition, offset: int) -> None:
        """Check the offset that OffsetFetch returned (-1: none)."""
        promised = self._committed.get((group, partition), -1)
        if offset < promised:
            raise ViolationError(f"group {group}, {partition}: {offset}, where {promised} was committed")

    def power_cut(self) -> None:
        """Note that the machine lost its power."""
        self.power_cuts += 1
        for ledger in self.partitions.values():
            ledger.power_cut()
