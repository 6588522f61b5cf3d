"""Committed records, by every replica's word: no record below a high watermark changes, and the whole ISR has it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any
from zlib import crc32

from blumfeld.broker.replicas.partition import Partition
from blumfeld.spi.cluster import PartitionImage
from blumfeld.spi.consensus import ClusterMetadata, ReplicaDriver
from blumfeld.spi.storage import PartitionLog
from blumfeld.spi.tiering import local_log_start_offset
from blumfeld.wire.errors import BrokerError
from blumfeld_kit.simulation.clients.oracle import ViolationError
from blumfeld_kit.simulation.machine.host import Machine


class History:
    """The committed batches of one log. Each replica has the same ones, in all its processes."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.end_offset = -1
        """End of what any replica has called committed; -1: nothing yet."""
        self.compared = 0
        """Batches that were looked at, each once for each process that has it."""
        self.on_batch: Callable[[int, bytes], None] = _nothing
        """Called with the base offset and the bytes of each batch that any replica commits first."""
        self._batches: dict[int, tuple[int, int]] = {}
        """Base offset → (next offset, checksum of the bytes)."""
        self._checked: dict[str, tuple[int, int]] = {}
        """Address → (process, offset): what the machine's process was checked up to."""
        self._unseen: list[range] = []
        """Offsets that were committed and deleted between two looks. A log that still has them tells the others."""

    def forget(self) -> None:
        """Begin anew: what was committed may be gone."""
        self.end_offset = -1
        self._batches.clear()
        self._checked.clear()
        self._unseen.clear()

    def check(self, machine: Machine, log: PartitionLog, end_offset: int, may_begin_at: int = 0) -> None:
        """Compare what a replica has come to call committed since it was checked last.

        :param end_offset: the replica's high watermark
        :param may_begin_at: the highest offset at which the log may begin, though nobody saw all that was below
        :raises ViolationError: it has something else there, or a hole
        """
        process, offset = self._checked.get(machine.address, (-1, -1))
        start = local_log_start_offset(log)
        if process != machine.incarnations or offset < start:
            offset = start
        if start > log.log_start_offset:
            may_begin_at = max(may_begin_at, start)  # the store has what lies below
        if 0 <= self.end_offset < start <= min(may_begin_at, end_offset):
            self._unseen.append(range(self.end_offset, start))
            self.end_offset = start
        if offset < end_offset:
            with unseen(machine), suppress(OSError):  # a process that stops has closed its log
                for batch in log.batches(offset):
                    if batch.next_offset > end_offset:
                        break
                    offset = max(offset, batch.next_offset)
                    if self._take(machine, batch.base_offset, batch.next_offset, crc32(batch.data)):
                        self.on_batch(batch.base_offset, bytes(batch.data))
        self._checked[machine.address] = (machine.incarnations, offset)

    def _take(self, machine: Machine, base_offset: int, next_offset: int, checksum: int) -> bool:
        """Take a batch. Return whether nobody had it before."""
        self.compared += 1
        if base_offset >= self.end_offset or self.end_offset < 0:
            if base_offset > self.end_offset >= 0:
                raise ViolationError(
                    f"{self._name}: {machine.address} has committed {base_offset} behind {self.end_offset}: a hole"
                )
            self._batches[base_offset] = (next_offset, checksum)
            self.end_offset = next_offset
            return True
        known = self._batches.get(base_offset)
        if known is None and any(base_offset in offsets for offsets in self._unseen):
            self._batches[base_offset] = (next_offset, checksum)
            return False
        if known is None and base_offset < next(iter(self._batches)):
            return False  # older than what was known when the watch began, or than what every log begins with
        if known != (next_offset, checksum):
            raise ViolationError(
                f"{self._name}@{base_offset}: {machine.address} has another batch there than was committed"
            )
        return False


def _nothing(_base_offset: int, _data: bytes) -> None:
    """Nobody asked to be told."""


@contextmanager
def unseen(machine: Machine) -> Iterator[None]:
    """Read the machine's disk without an event, and without the crash that may be due in its next operation."""
    disk = machine.disk
    watch, disk.watch = disk.watch, None
    try:
        yield
    finally:
        disk.watch = watch


def metadata_log(metadata: ClusterMetadata | None) -> tuple[PartitionLog, int, int] | None:
    """Return a node's metadata log, the end of what it calls committed, and the end of its newest snapshot, behind
    which the log may begin; ``None`` before it is open, and where the consensus has none (a ZooKeeper)."""
    if metadata is None or metadata.replica_driver is not ReplicaDriver.IMAGE:
        return None
    kraft: Any = metadata  # the contract of a consensus has no log
    try:
        log = kraft.replica.log
    except BrokerError:
        return None
    snapshot = log.latest_snapshot
    return log.log, log.committed_end, 0 if snapshot is None else snapshot.end_offset


def is_held_to(partition: Partition, decided: PartitionImage | None, node_id: int) -> bool:
    """Return whether a member of a leader's ISR is still held to what that leader calls committed.

    A leader may not hear for long that another one was elected, on a full disk say. Meanwhile a member may leave the
    ISR, be no replica any more, and come back with an empty log.

    :param decided: the partition in the newest image
    """
    return decided is None or decided.leader_epoch <= partition.leader_epoch or node_id in decided.isr


def check_isr(partition: Partition, decided: PartitionImage | None, has: dict[int, Partition]) -> None:
    """Check that the members of a leader's ISR have all that it calls committed.

    :param decided: the partition in the newest image. A member that the controller has added counts also before the
        leader hears of it
    :param has: the replicas that can be looked at, by node. None of their machines lost its cache since it came in
    :raises ViolationError: one lacks some of it
    """
    leader: Any = partition.leader
    members = dict.fromkeys(leader.isr)
    if (
        decided is not None
        and decided.leader_epoch == partition.leader_epoch
        and decided.partition_epoch >= leader.rules.partition_epoch
    ):
        members = dict.fromkeys(decided.isr)
    for node_id in members:
        other = has.get(node_id)
        if other is not None and other.log.written_end_offset < leader.high_watermark:
            raise ViolationError(
                f"{partition.partition}: the leader of epoch {partition.leader_epoch} has the high watermark "
                f"{leader.high_watermark}, and node {node_id} of its ISR ends at {other.log.written_end_offset}"
            )
