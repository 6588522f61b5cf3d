"""Three real nodes on simulated machines, their replicas, and producers that remember what was acknowledged."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from importlib.metadata import EntryPoint
from random import Random
from typing import Any, cast

from blumfeld.broker.replicas.partition import Partition
from blumfeld.spi.cluster import PartitionImage
from blumfeld.wire.batches.builder import build_batch
from blumfeld.wire.batches.record_batch import RecordBatch
from blumfeld.wire.batches.records import Record, records
from blumfeld.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from blumfeld.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from blumfeld.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from blumfeld.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from blumfeld_kit.fakes.loop import SimulatedLoop
from blumfeld_kit.simulation.clients.client import ClientConnection, connect
from blumfeld_kit.simulation.machine.host import ADDRESS, Machine, address_of, plan_of
from blumfeld_kit.simulation.network.network import Network
from blumfeld_kit.simulation.trace import Trace
from tests.plugins.replication_isr.shared_controller import CLUSTER_ID, SharedController

NODES = 3
TOPIC = "t"
CONFIG = {
    "auto.create.topics.enable": False,
    "broker.session.timeout.ms": 2_000,
    "broker.heartbeat.interval.ms": 400,
    "replica.lag.time.max.ms": 2_000,
    "replica.socket.timeout.ms": 3_000,
    "replica.fetch.backoff.ms": 200,
    "min.insync.replicas": 2,
    "default.replication.factor": 3,
}


class ThreeNodes:
    """The machines, the controller and the network of one seed."""

    def __init__(
        self,
        seed: int = 1,
        *,
        nodes: int = NODES,
        config: dict[str, Any] | None = None,
        sections: dict[str, Any] | None = None,
        data_dirs: Sequence[str] = ("/data",),
        plugins: Sequence[EntryPoint] = (),
        tiers: bool = False,
    ) -> None:
        self.loop = SimulatedLoop()
        self.chance = Random(f"{seed}/fate")
        self.network = Network(self.loop, Random(f"{seed}/network"), Trace(self.loop.time))
        self.defects: list[tuple[str, BaseException]] = []
        self.events: list[tuple[int, str, dict[str, Any]]] = []
        self.config = CONFIG | (config or {})
        self.shared = SharedController(self.loop, {**self.config, "remote.log.storage.system.enable": tiers})
        point = self.shared.plugin()
        self.machines = [
            Machine(
                seed * 10 + nth,
                self.loop,
                self.network,
                plan_of(
                    self.config,
                    "storage_local",
                    node_id=nth,
                    sections={
                        "consensus": {"plugin": "consensus_shared"},
                        "node": {
                            "id": nth,
                            "data_dirs": list(data_dirs),
                            "cluster_id": CLUSTER_ID,
                            "rack": f"r{nth}",
                        },
                        **(sections or {}),
                    },
                    plugins=[point, *plugins],
                ),
                lambda where, error: self.defects.append((where, error)),
            )
            for nth in range(1, nodes + 1)
        ]
        for machine in self.machines:
            machine.on_event = self._note(machine)
        self.acked: dict[int, dict[int, bytes]] = {}
        """Partition → offset → value of each acknowledged record."""
        self.unknown = 0
        """Records whose acknowledgement never came."""

    def _note(self, machine: Machine) -> Any:
        number = int(machine.address.rsplit(".", 1)[1])
        return lambda event, values: self.events.append((number, event, dict(values)))

    def run(self, story: Coroutine[Any, Any, None]) -> None:
        """Start all nodes, and run a story to its end."""

        async def told() -> None:
            starts = [asyncio.ensure_future(machine.start()) for machine in self.machines]
            for start in starts:
                assert await start
            await story
            for machine in self.machines:
                machine.end()

        self.loop.run(told())
        assert not self.defects, self.defects

    def said(self, event: str) -> list[tuple[int, dict[str, Any]]]:
        """Nodes and values of an event."""
        return [(node, values) for node, name, values in self.events if name == event]

    # The cluster

    async def create(
        self, partitions: int = 1, configs: dict[str, str] | None = None, rf: int = NODES
    ) -> None:
        topic = CreatableTopic(
            name=TOPIC,
            num_partitions=partitions,
            replication_factor=rf,
            configs=[CreatableTopicConfig(name=k, value=v) for k, v in (configs or {}).items()],
        )
        admin = await self.connect(1)
        request = CreateTopicsRequest(topics=[topic], timeout_ms=10_000)
        answer = await admin.ask(request, 5, CreateTopicsResponse)
        assert answer.topics[0].error_code == 0, answer
        admin.close()

    async def connect(self, node_id: int) -> ClientConnection:
        return await connect(self.network, (address_of(node_id), ADDRESS[1]), "test")

    def image(self, partition: int = 0) -> PartitionImage:
        """The partition as the controller has it."""
        return self.shared.image.topics[TOPIC].partitions[partition]

    def machine(self, node_id: int) -> Machine:
        return self.machines[node_id - 1]

    def hosted(self, node_id: int, partition: int = 0) -> Partition | None:
        node = self.machine(node_id).node
        if node is None or not self.machine(node_id).is_running:
            return None
        broker: Any = node.broker
        replica: Partition | None = broker.partitions.find(TOPIC, partition)
        return replica

    def replica(self, node_id: int, partition: int = 0) -> Partition:
        replica = self.hosted(node_id, partition)
        assert replica is not None
        return replica

    def cut(self, first: int, other: int) -> None:
        """Cut both ways between two nodes."""
        self.network.cut(address_of(first), address_of(other))
        self.network.cut(address_of(other), address_of(first))

    def isolate(self, node_id: int) -> None:
        """Cut a node off from the others, and from the controller."""
        self.shared.unreachable.add(node_id)
        for other in range(1, len(self.machines) + 1):
            if other != node_id:
                self.cut(node_id, other)

    async def restart(self, node_id: int) -> None:
        """Kill a process (SIGKILL), and start the next one once the controller has fenced it."""
        self.machine(node_id).crash(power_cut=False)
        await self.until(lambda: self.shared.image.brokers[node_id].fenced)
        assert await self.machine(node_id).start()

    def heal(self) -> None:
        self.shared.unreachable.clear()
        self.network.heal_all()

    async def until(self, condition: Any, seconds: float = 60.0) -> None:
        """Wait on virtual time for a condition."""
        until_s = self.loop.time() + seconds
        while not condition():
            assert self.loop.time() < until_s, "the condition does not come true"
            await asyncio.sleep(0.02)

    def settled(self, partitions: Sequence[int]) -> bool:
        """Whether all replicas are in sync, and know it."""
        for index in partitions:
            image = self.image(index)
            if image.leader < 0 or len(image.isr) < len(image.replicas):
                return False
            replicas = [self.hosted(node_id, index) for node_id in image.replicas]
            ends = {
                None
                if replica is None
                else (replica.log.written_end_offset, replica.high_watermark, replica.leader_epoch)
                for replica in replicas
            }
            if len(ends) != 1 or None in ends:
                return False
            (end,) = ends
            assert end is not None
            if end[0] != end[1] or end[2] != image.leader_epoch:
                return False
        return True

    # Records

    async def produce(
        self, values: Sequence[bytes], partition: int = 0, *, acks: int = -1, timeout_ms: int = 5_000
    ) -> bool:
        """Send one batch to the leader. Return whether it was acknowledged."""
        leader = self.image(partition).leader
        if leader < 0:
            return False
        try:
            connection = await self.connect(leader)
        except OSError:
            return False
        batch = build_batch([Record(value=value, timestamp=1_700_000_000_000) for value in values])
        request = ProduceRequest(
            acks=acks,
            timeout_ms=timeout_ms,
            topic_data=[
                TopicProduceData(
                    name=TOPIC, partition_data=[PartitionProduceData(index=partition, records=bytes(batch))]
                )
            ],
        )
        try:
            answer = await asyncio.wait_for(connection.ask(request, 9, ProduceResponse), 10.0)
        except (OSError, TimeoutError):
            self.unknown += len(values)
            return False
        finally:
            connection.close()
        (partition_response,) = answer.responses[0].partition_responses
        if partition_response.error_code:
            self.unknown += len(values)
            return False
        if acks == -1:
            known = self.acked.setdefault(partition, {})
            for number, value in enumerate(values):
                assert partition_response.base_offset + number not in known, (
                    "an offset was acknowledged twice"
                )
                known[partition_response.base_offset + number] = value
        return True

    async def fetch(
        self,
        node_id: int,
        offset: int,
        *,
        partition: int = 0,
        rack: str = "",
        version: int = 12,
        leader_epoch: int = -1,
        max_wait_ms: int = 0,
        replica_id: int = -1,
        isolation_level: int = 0,
    ) -> PartitionData:
        """A consumer's fetch from one node."""
        connection = await self.connect(node_id)
        fetch_partition = FetchPartition(
            partition=partition,
            fetch_offset=offset,
            partition_max_bytes=1 << 20,
            current_leader_epoch=leader_epoch,
        )
        request = FetchRequest(
            replica_id=replica_id,
            rack_id=rack,
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            isolation_level=isolation_level,
            topics=[FetchTopic(topic=TOPIC, partitions=[fetch_partition])],
        )
        answer = await connection.ask(request, version, FetchResponse)
        connection.close()
        (data,) = answer.responses[0].partitions
        return data

    async def delete_records(self, offset: int, partition: int = 0) -> int:
        """Delete records on the leader. Return the low watermark of the answer."""
        connection = await self.connect(self.image(partition).leader)
        topic = DeleteRecordsTopic(
            name=TOPIC, partitions=[DeleteRecordsPartition(partition_index=partition, offset=offset)]
        )
        request = DeleteRecordsRequest(topics=[topic], timeout_ms=30_000)
        answer = await connection.ask(request, 2, DeleteRecordsResponse)
        connection.close()
        (result,) = answer.topics[0].partitions
        assert result.error_code == 0
        return result.low_watermark

    def check(self, partitions: Sequence[int]) -> None:
        """Replicas are equal below the high watermark, byte by byte, and have every acknowledged record."""
        for index in partitions:
            image = self.image(index)
            replicas = [self.replica(node_id, index) for node_id in image.replicas]
            committed = min(replica.high_watermark for replica in replicas)
            logs = [batches_of(replica, committed) for replica in replicas]
            assert logs.count(logs[0]) == len(logs), f"{TOPIC}-{index}: replicas differ"
            values = dict(values_of(logs[0]))
            for offset, value in self.acked.get(index, {}).items():
                assert values.get(offset) == value, f"{TOPIC}-{index}: lost {value!r} at {offset}"


def batches_of(partition: Partition, end_offset: int) -> list[bytes]:
    """The bytes of each batch below ``end_offset``."""
    log: Any = partition.log
    start = log.log_start_offset
    if start >= end_offset:
        return []
    return [bytes(batch.data) for batch in log.batches(start) if batch.next_offset <= end_offset]


def bytes_of(data: PartitionData) -> bytes:
    """The records of an answer."""
    return bytes(cast("memoryview", data.records))


def values_of(batches: Sequence[bytes]) -> list[tuple[int, bytes]]:
    """(offset, value) of each record."""
    values = []
    for data in batches:
        batch = RecordBatch(memoryview(bytearray(data)))
        values += [(record.offset, bytes(record.value or b"")) for record in records(batch)]
    return values
