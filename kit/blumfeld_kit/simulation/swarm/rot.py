"""The workload ``rot``: brokers whose disks flip bits below the checksum of a batch."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import partial
from random import Random
from typing import Any

from blumfeld.spi.storage import TopicPartition
from blumfeld.wire.batches.record_batch import HEADER_BYTES, LOG_OVERHEAD_BYTES, RecordBatch
from blumfeld.wire.errors import BrokerError, CorruptBatch
from blumfeld_kit.fakes.inodes import DirectoryNode
from blumfeld_kit.simulation.clients.oracle import Oracle
from blumfeld_kit.simulation.machine.host import Machine
from blumfeld_kit.simulation.swarm.brokers import Brokers
from blumfeld_kit.simulation.swarm.faults import OF_CLUSTERS, OF_ZOOKEEPER, FaultClass
from blumfeld_kit.simulation.swarm.world import World

CRC_AT, CRC_BYTES = 17, 4
CUT = "log cut after a crash"
"""The broker's event when it cuts a log before a batch that is not whole."""
DISK_ERRORS = frozenset(
    {FaultClass.DISK_FULL, FaultClass.WRITE_ERROR, FaultClass.SYNC_ERROR, FaultClass.READ_ERROR}
)
_LOG = re.compile(r"/([a-z]+)-(\d+)/\d{20}\.log$")


class Rot(Brokers):
    """As ``Brokers``, with bits that flip in batches: in their records and in their checksums.

    With one replica a rotten batch is lost. This is promised: no client takes wrong bytes for right ones; every other
    batch can be read, unless a recovery cut the log; a recovery cuts acknowledged records off at a rotten batch only,
    and says so. The other fields of the headers are left alone: Kafka's format has no checksum for a batch's place, and
    a broker finds a batch by its header. Errors of the disk are left out: they belong to ``brokers``.
    """

    survives = frozenset(FaultClass) - DISK_ERRORS - OF_CLUSTERS - OF_ZOOKEEPER - {FaultClass.STORE}

    def __init__(self) -> None:
        super().__init__()
        self._cuts = 0

    async def prepare(self, world: World) -> None:
        world.flip = self._flip
        await super().prepare(world)
        for machine in world.machines:
            machine.on_event = partial(self._logged, self.oracles[machine.address])

    def _flip(self, machine: Machine, chance: Random) -> bool:
        """Flip a bit of a batch in the log of one of the topics."""
        oracle = self.oracles[machine.address]
        logs = [path for path in _paths(machine.disk.tree.root) if _partition_of(path) in oracle.partitions]
        if not logs:
            return False
        path = logs[chance.randrange(len(logs))]
        batches = list(_sound(machine, path))
        if not batches:
            return False
        position, batch = batches[chance.randrange(len(batches))]
        covered = batch.size_bytes - HEADER_BYTES + CRC_BYTES
        at = chance.randrange(covered)
        at = CRC_AT + at if at < CRC_BYTES else HEADER_BYTES + at - CRC_BYTES
        partition = _partition_of(path)
        assert partition is not None
        oracle.partitions[partition].rotted(batch.base_offset, batch.last_offset)
        machine.disk.flip_bit(path, position + at, chance.randrange(8))
        return True

    def counts(self) -> Mapping[str, int]:
        """Return the sums over all brokers, the batches that are rotten, and the records that nobody can read."""
        watched = [
            partition_oracle
            for oracle in self.oracles.values()
            for partition_oracle in oracle.partitions.values()
        ]
        return {
            **super().counts(),
            "rotten": sum(len(partition_oracle.rotten) for partition_oracle in watched),
            "unreadable": sum(len(partition_oracle.unreadable) for partition_oracle in watched),
            "taken_flushed": sum(
                partition_oracle.taken for partition_oracle in watched if partition_oracle.flushed
            ),
            "cuts": self._cuts,
        }

    def _logged(self, oracle: Oracle, event: str, values: Mapping[str, Any]) -> None:
        if event == CUT and (partition := _partition_of(str(values["file"]))) in oracle.partitions:
            assert partition is not None
            self._cuts += 1
            oracle.partitions[partition].cut(int(values["end_offset"]))


def _paths(directory: DirectoryNode, path: str = "") -> Iterator[str]:
    """Yield the path of every file that isn't empty, in their order."""
    for name in sorted(directory.entries):
        node = directory.entries[name]
        if isinstance(node, DirectoryNode):
            yield from _paths(node, f"{path}/{name}")
        elif node.size:
            yield f"{path}/{name}"


def _partition_of(path: str) -> TopicPartition | None:
    match = _LOG.search(path)
    return TopicPartition(match[1], int(match[2])) if match else None


def _sound(machine: Machine, path: str) -> Iterator[tuple[int, RecordBatch]]:
    """Yield (position, batch) of each batch that isn't rotten yet: a second flip could heal it."""
    node = machine.disk.tree.file(path)
    data, position = memoryview(node.read(node.size, 0)), 0
    while position + LOG_OVERHEAD_BYTES < len(data):
        try:
            batch = RecordBatch(data, position)
        except BrokerError:
            return  # it is being written, or the file is filled up in advance
        try:
            batch.verify_crc()
        except CorruptBatch:
            pass
        else:
            yield position, batch
        position += batch.size_bytes
