"""One partition of ``__remote_log_metadata``, as far as this node has read it. Pure, but for completions.

It keeps the catalogs of all partitions that have their records there, also of those that this node has no replica of:
one that comes here later needs no second look at records that were read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeAlias

from blumfeld.spi.completion import Completion
from blumfeld.wire.batches.record_batch import RecordBatch
from blumfeld.wire.batches.records import records
from blumfeld.wire.errors import BrokerError
from blumfeld.wire.primitives import DecodeError
from blumfeld_storage_tiered.catalog.catalog import CatalogError, RemoteLogCatalog
from blumfeld_storage_tiered.catalog.records import decode_change
from blumfeld_storage_tiered.catalog.segment import Change, PartitionDeleteState, TopicIdPartition

Key: TypeAlias = tuple[bytes, int]
"""Topic id and partition."""
Report: TypeAlias = "Callable[[str, Exception], None]"
"""Is told of a record that was passed over: its place, and why."""


def key_of(partition: TopicIdPartition) -> Key:
    """Returns what names a partition for ever: a record may have been written under no name of the topic."""
    return partition.topic_id, partition.partition


class LastBatch(NamedTuple):
    """The last batch that was read. Another leader's log has all that was read if it has this one (KIP-320): a batch is
    known by its offset and its leader epoch."""

    base_offset: int
    leader_epoch: int
    crc: int


class OtherHistoryError(Exception):
    """The log has another batch than the last one that was read: an unclean election took what was read."""


class ReadWait:
    """Waits until the metadata partition is read up to its end as of the moment when this was made."""

    __slots__ = ("partition", "ready", "target")

    def __init__(self, partition: TopicIdPartition | None) -> None:
        self.partition = partition
        self.ready: Completion[None] = Completion()
        self.target: int | None = None
        """The end of the metadata partition, as it was asked for after that moment; ``None`` until it is known."""


class Append(NamedTuple):
    """Callers that wait until one record is read back."""

    key: Key
    """The partition that it is about."""
    callers: list[Completion[None]]
    read_back: Completion[None]
    """Completes before the callers', whatever the outcome is."""


class MetadataPartition:
    """Catalogs, and the offset that they were read up to."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.position = 0
        """The offset of the next record to read."""
        self.saved_position = 0
        """The position of the snapshot on disk."""
        self.last_batch: LastBatch | None = None
        """``None``: nothing was read yet."""
        self._is_doubted = False
        """Whether it isn't known that the log has what was read: another leader epoch has begun."""
        self.leader = -1
        """The node that it is read from now; -1: none."""
        self._leader_epoch = -1
        self.is_loaded = False
        """Whether its snapshot was looked for."""
        self.catalogs: dict[Key, RemoteLogCatalog] = {}
        self.appends: dict[bytes, Append] = {}
        """Records that are being written, by their values: a record that is read back is known by it, so a lost answer
        of a leader costs nothing."""
        self._assigned: dict[Key, ReadWait] = {}
        """Partitions of which this node has a replica, or for which it works."""
        self._holds: dict[Key, int] = {}
        """Assignments of each that were not taken back."""
        self._refreshes: list[ReadWait] = []

    # Partitions of this node

    def __len__(self) -> int:
        """Number of partitions that are assigned."""
        return len(self._assigned)

    def assign(self, partition: TopicIdPartition) -> None:
        """Keep the catalog of ``partition`` ready from now on."""
        key = key_of(partition)
        self._holds[key] = self._holds.get(key, 0) + 1
        if key not in self._assigned:
            self._assigned[key] = ReadWait(partition)

    def unassign(self, partition: TopicIdPartition, reason: BrokerError) -> None:
        """Take one assignment back. With the last one, what waits for its readiness fails."""
        key = key_of(partition)
        self._holds[key] = self._holds.get(key, 0) - 1
        if self._holds[key] > 0:
            return
        del self._holds[key]
        gone = self._assigned.pop(key, None)
        if gone is not None and not gone.ready.done:
            gone.ready.fail(reason)
        for wait in self._refreshes:
            if wait.partition is not None and key_of(wait.partition) == key:
                wait.ready.fail(reason)
        self._refreshes = [wait for wait in self._refreshes if not wait.ready.done]

    def catalog(self, partition: TopicIdPartition) -> RemoteLogCatalog:
        """Returns the catalog of a partition, as far as it was read."""
        catalog = self.catalogs.get(key_of(partition))
        if catalog is None:
            catalog = self.catalogs[key_of(partition)] = RemoteLogCatalog(partition)
        return catalog

    def ready(self, partition: TopicIdPartition) -> Completion[None] | None:
        """Returns the completion of its readiness; ``None`` if it isn't assigned."""
        member = self._assigned.get(key_of(partition))
        return None if member is None else member.ready

    def refresh(self, partition: TopicIdPartition | None = None) -> Completion[None]:
        """Complete once everything is read that there is now. Fails if ``partition`` leaves before."""
        wait = ReadWait(partition)
        self._refreshes.append(wait)
        return wait.ready

    def abandon(self, reason: BrokerError) -> None:
        """Nothing reads it any more: what waits for its end fails."""
        refreshes, self._refreshes = self._refreshes, []
        for wait in refreshes:
            wait.ready.fail(reason)

    # Reading

    def waiting(self) -> list[ReadWait]:
        """Returns the waits for which the end to read up to is still to be asked for."""
        return [wait for wait in self._waits() if wait.target is None]

    def read_up_to(self, waiting: list[ReadWait], end_offset: int) -> None:
        """Let waits that :meth:`waiting` gave be over once the records below ``end_offset`` are read. That end was
        asked for afterwards."""
        for wait in waiting:
            wait.target = end_offset
        self._end_waits()

    @property
    def next_offset(self) -> int:
        """The offset to read from. It is that of the last batch while it isn't known whether the log has it."""
        return self.last_batch.base_offset if self._is_doubted and self.last_batch else self.position

    def trust(self) -> None:
        """The log doesn't have the last batch any more, because it begins later. So nothing can be compared."""
        self._is_doubted = False
        self._end_waits()

    def led_by(self, leader: int, leader_epoch: int) -> None:
        """It has another leader epoch, with or without a leader. Ends that are still to be read up to are asked for
        anew: what the last leader had not committed may be gone."""
        if (leader, leader_epoch) == (self.leader, self._leader_epoch):
            return
        self.leader, self._leader_epoch = leader, leader_epoch
        self._is_doubted = self.last_batch is not None
        for wait in self._waits():
            if not wait.ready.done:
                wait.target = None

    def _waits(self) -> list[ReadWait]:
        return [*self._assigned.values(), *self._refreshes]

    def _end_waits(self) -> None:
        if self._is_doubted:
            return
        for wait in self._waits():
            if wait.target is not None and self.position >= wait.target and not wait.ready.done:
                wait.ready.complete(None)
        self._refreshes = [wait for wait in self._refreshes if not wait.ready.done]

    def take(self, batches: Iterator[RecordBatch], report: Report) -> list[TopicIdPartition]:
        """Apply the records from the position on. Returns the assigned partitions that they are about.

        A record that means nothing, or that contradicts its catalog, is passed over, and ``told``: every node passes
        over the same ones. Callers that wait for it get the reason.

        :raises OtherHistoryError: the log doesn't have what was read
        """
        changed: dict[Key, TopicIdPartition] = {}
        for batch in batches:
            this = LastBatch(batch.base_offset, batch.partition_leader_epoch, batch.crc)
            if self._is_doubted:
                if this != self.last_batch:
                    raise OtherHistoryError(f"found {this}; read was {self.last_batch}")
                self._is_doubted = False
            if batch.last_offset < self.position:
                continue
            self.last_batch = this
            if not batch.is_control:
                for record in records(batch):
                    if record.offset >= self.position and record.value is not None:
                        self._apply(record.offset, bytes(record.value), changed, report)
            self.position = batch.last_offset + 1
        self._end_waits()
        return [partition for key, partition in changed.items() if key in self._assigned]

    def _apply(self, offset: int, value: bytes, changed: dict[Key, TopicIdPartition], report: Report) -> None:
        error: Exception | None = None
        try:
            change = decode_change(value)
            self._apply_change(change)
            changed[key_of(change.partition)] = change.partition
        except (DecodeError, CatalogError) as refused:
            report(f"partition {self.index}, offset {offset}", refused)
            error = refused
        append = self.appends.pop(value, None)
        if append is not None:
            append.read_back.complete(None)
            settle(append.callers, error)

    def _apply_change(self, change: Change) -> None:
        catalog = self.catalog(change.partition)
        try:
            catalog.apply(change)
        finally:
            # A partition that is deleted for ever leaves no catalog. Nor does one of which nothing is known, unless
            # somebody here holds it.
            key = key_of(change.partition)
            blank = catalog.since_ms is None and key not in self._assigned
            if blank or catalog.delete_state is PartitionDeleteState.FINISHED:
                del self.catalogs[key]

    def reset(self, position: int) -> None:
        """Read everything anew: the records that were read aren't those of the topic any more."""
        self.position, self.saved_position = position, -1
        self.last_batch, self._is_doubted = None, False
        self.catalogs.clear()
        for key, member in list(self._assigned.items()):
            again = self._assigned[key] = ReadWait(member.partition)
            if not member.ready.done:
                again.ready = member.ready
        for wait in self._refreshes:
            wait.target = None


def settle(callers: list[Completion[None]], error: BaseException | None) -> None:
    """Give callers the outcome of an append."""
    for caller in callers:
        if error is None:
            caller.complete(None)
        else:
            caller.fail(error)
