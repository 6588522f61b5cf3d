"""Nodes with tiered storage and one partition, on virtual time: a metadata topic and a replication that are lists.

The storage, its tasks, the catalogs and the store's objects are real. What stands around them is as small as it can be:
records of the metadata topic reach each node a little later, and followers get the leader's batches at once.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from blumfeld.config.values import BrokerConfig, TopicConfig
from blumfeld.log.leader_epochs import FILE_NAME, LeaderEpochCache
from blumfeld.log.producers.snapshot import encode_snapshot
from blumfeld.log.segments.file_names import Suffix, segment_name
from blumfeld.spi.cluster import PartitionImage, TopicImage
from blumfeld.spi.completion import Completion
from blumfeld.spi.partitions import LeadershipWatcher, PartitionEnds
from blumfeld.spi.parts import join, release
from blumfeld.spi.storage import LogRead, TopicPartition
from blumfeld.wire.batches.record_batch import RecordBatch, split_batches
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld_kit.fakes.loop import SimulatedLoop
from blumfeld_kit.fakes.object_store import SimulatedBucket, SimulatedStore
from blumfeld_kit.fakes.power import Luck
from blumfeld_kit.fakes.runtime import FakeRuntime
from blumfeld_kit.storage_driver.node import make_batch
from blumfeld_storage_local.storage import LocalStorage
from blumfeld_storage_tiered.catalog.catalog import CatalogError, RemoteLogCatalog
from blumfeld_storage_tiered.catalog.segment import Change, TopicIdPartition
from blumfeld_storage_tiered.catalog.sweep_settings import DEFAULT_SWEEP, SweepSettings
from blumfeld_storage_tiered.logs.tiered_log import TieredLog
from blumfeld_storage_tiered.storage import TieredStorage
from blumfeld_storage_tiered.tasks.tiering import Tiering
from tests.plugins.storage_local.local_node import Events

NAME = TopicPartition("ticks", 0)
TOPIC_ID = bytes(range(1, 17))
PARTITION = TopicIdPartition(TOPIC_ID, 0, "ticks")
INTERVAL_MS = 30_000
METADATA_DELAY_MS = 3.0


class MetadataTopic:
    """The records of ``__remote_log_metadata``, in order."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self.loop = loop
        self.changes: list[Change] = []
        self.readers: list[NodeMetadata] = []
        self.refused: list[str] = []
        self.away = False
        """Nobody can write."""


class NodeMetadata:
    """``MetadataTopic`` of one node: its catalog is a little behind the topic."""

    def __init__(self, topic: MetadataTopic, runtime: FakeRuntime) -> None:
        self._topic, self._runtime = topic, runtime
        self._catalog = RemoteLogCatalog(PARTITION)
        self._applied = 0
        self._known = False
        self._waiting: list[tuple[int, Completion[Any]]] = []

    async def start(self) -> None:
        self._topic.readers.append(self)
        self.soon()

    async def stop(self) -> None:
        """As ``MetadataTopic.stop``."""

    def assign(self, partition: TopicIdPartition) -> None:
        assert partition == PARTITION

    def unassign(self, partition: TopicIdPartition) -> None:
        assert partition == PARTITION

    def soon(self) -> None:
        """Read to the end a little later."""
        self._runtime.call_later(METADATA_DELAY_MS, self._read)

    def _read(self) -> None:
        for change in self._topic.changes[self._applied :]:
            self._applied += 1
            try:
                self._catalog.apply(change)
            except CatalogError as error:
                self._topic.refused.append(str(error))
        self._known = True
        due = [waiter for at, waiter in self._waiting if at <= self._applied]
        self._waiting = [(at, waiter) for at, waiter in self._waiting if at > self._applied]
        for waiter in due:
            waiter.complete(None)

    def catalog(self, partition: TopicIdPartition) -> RemoteLogCatalog:
        return self._catalog

    def is_assigned(self, partition: TopicIdPartition) -> bool:
        return True

    def is_ready(self, partition: TopicIdPartition) -> bool:
        return self._known

    def when_ready(self, partition: TopicIdPartition) -> Completion[None]:
        return Completion.of(None) if self._known else self.refresh(partition)

    def refresh(self, partition: TopicIdPartition) -> Completion[None]:
        waiter: Completion[None] = Completion()
        self._waiting.append((len(self._topic.changes), waiter))
        self.soon()
        return waiter

    async def led_catalogs(self) -> list[RemoteLogCatalog]:
        """The first node leads all metadata."""
        return (
            [self._catalog] if self._topic.readers[0] is self and self._catalog.since_ms is not None else []
        )

    def append(self, change: Change) -> Completion[None]:
        done: Completion[None] = Completion()

        def place() -> None:
            if self._topic.away:
                done.fail(BrokerError(ErrorCode.NOT_ENOUGH_REPLICAS))
                return
            self._topic.changes.append(change)
            self._waiting.append((len(self._topic.changes), done))
            for reader in self._topic.readers:
                reader.soon()

        self._runtime.call_later(METADATA_DELAY_MS, place)
        return done


class TieredNode:
    """One node. Its broker is what replicates, and keeps epochs and producers beside the log."""

    runtime: FakeRuntime

    def __init__(self, cluster: TieredCluster, node_id: int, before: TieredNode | None = None) -> None:
        self.cluster, self.node_id = cluster, node_id
        disk = None if before is None else before.runtime.disk
        cluster.starts += 1
        self.runtime = FakeRuntime(cluster.seed * 1000 + cluster.starts, loop=cluster.loop, disk=disk)
        self._watcher: LeadershipWatcher | None = None
        self.events = Events()
        self.composition: Any = SimpleNamespace(
            runtime=self.runtime,
            config=BrokerConfig(cluster.broker_settings),
            node_id=node_id,
            data_dir="/data",
            local_partitions=self,
            log=lambda _: self.events,
            metadata=SimpleNamespace(image=cluster),
        )
        store = SimulatedStore(self.runtime, cluster.bucket)
        self.metadata = NodeMetadata(cluster.metadata, self.runtime)
        self.tiering = Tiering(
            self.composition,
            store,
            cast("Any", self.metadata),
            cluster.cache_bytes,
            "memory",
            cluster.sweep,
        )
        self.storage = TieredStorage(LocalStorage(self.runtime, "/data", self.events), self.tiering)
        self.epochs = LeaderEpochCache()
        self.log: Any = None
        """``None`` before the first start has opened it."""

    # A broker

    async def start(self) -> None:
        await self.storage.start("cluster", self.node_id)
        await self.open()
        await self.tiering.begin(self.composition)

    async def open(self) -> None:
        self.log = await self.storage.open_log(NAME, TOPIC_ID, self.cluster.topic_config, self)
        self.epochs = LeaderEpochCache.decode(self.log.aux.read(FILE_NAME) or b"")
        for batch in self.log.batches(self.log.local_log_start_offset):
            if batch.partition_leader_epoch > self.epochs.latest_epoch:
                start_offset = max(batch.base_offset, self.log.log_start_offset)
                self.epochs.assign(batch.partition_leader_epoch, start_offset)
        self.log.aux.write(FILE_NAME, self.epochs.encode())

    def rolled(self, base_offset: int) -> None:
        self.log.aux.write(FILE_NAME, self.epochs.encode())
        self.log.aux.write(segment_name(base_offset, Suffix.PRODUCER_SNAPSHOT), encode_snapshot([]))

    def recovered(self, batch: RecordBatch) -> None:
        pass

    def append(self, batch: RecordBatch, leader_epoch: int) -> None:
        self.epochs.assign(leader_epoch, self.log.placed_end_offset)
        self.log.place(batch, leader_epoch)
        self._write()

    def append_as_is(self, batch: RecordBatch) -> None:
        self.epochs.assign(batch.partition_leader_epoch, batch.base_offset)
        self.log.place_as_is(batch)
        self._write()

    def _write(self) -> None:
        outcomes: list[Any] = []
        self.log.write(outcomes.append)
        assert [outcome.error for outcome in outcomes] == [None]

    def truncate_to(self, offset: int) -> None:
        """Cut off what no other node has."""
        if self.log.written_end_offset > offset:
            self.log.truncate_to(offset)
            self.epochs.truncate_from_end(offset)
            self.log.aux.write(FILE_NAME, self.epochs.encode())

    def flush(self) -> None:
        async def flush() -> None:
            await self.log.flush()

        self.runtime.run(flush())

    def lead(self, leader_epoch: int) -> None:
        if self._watcher is not None:
            self._watcher.leads(NAME, TOPIC_ID, leader_epoch)

    def follow(self) -> None:
        if self._watcher is not None:
            self._watcher.lost(NAME)

    def delete_topic(self) -> None:
        """The image of this node loses the topic, of which it has this node as the leader."""
        self.follow()
        self.cluster.is_topic_gone = True
        replicas = (self.node_id,)
        image = PartitionImage(
            partition=0,
            replicas=replicas,
            isr=replicas,
            leader=self.node_id,
            leader_epoch=0,
            partition_epoch=0,
        )
        self.tiering.topic_deleted(TopicImage(name=NAME.topic, topic_id=TOPIC_ID, partitions={0: image}))

    # LocalPartitions

    def ends(self, partition: TopicPartition) -> PartitionEnds:
        if self.cluster.leader is not self:
            raise BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        end = min(node.log.written_end_offset for node in self.cluster.nodes if node.log is not None)
        return PartitionEnds(
            topic_id=TOPIC_ID,
            leader_epoch=self.cluster.leader_epoch,
            log_start_offset=self.log.log_start_offset,
            last_stable_offset=min(self.cluster.last_stable_offset or end, end),
            high_watermark=end,
            log_end_offset=self.log.written_end_offset,
        )

    def advance_log_start(self, partition: TopicPartition, offset: int, leader_epoch: int) -> None:
        if self.cluster.leader is not self or leader_epoch != self.cluster.leader_epoch:
            raise BrokerError(ErrorCode.FENCED_LEADER_EPOCH)
        self.cluster.delete_records(offset)

    def watch_leadership(self, watcher: LeadershipWatcher) -> None:
        self._watcher = watcher
        if self.cluster.leader is self:
            self.lead(self.cluster.leader_epoch)


class TieredCluster:
    """Nodes that replicate one partition."""

    def __init__(
        self,
        nodes: int = 1,
        *,
        seed: int = 1,
        config: dict[str, str] | None = None,
        cache_bytes: int = 1 << 20,
        sweep: SweepSettings = DEFAULT_SWEEP,
        **topic: int | str,
    ) -> None:
        self.seed = seed
        self.starts = 0
        """Starts of nodes so far: each has its own chance."""
        self.loop = SimulatedLoop()
        self.broker_settings = {"remote.log.manager.task.interval.ms": str(INTERVAL_MS), **(config or {})}
        self.cache_bytes = cache_bytes
        self.sweep = sweep
        settings: dict[str, Any] = {"remote.storage.enable": "true", "internal.segment.bytes": 400}
        settings |= {"index.interval.bytes": 64, **{k.replace("_", "."): v for k, v in topic.items()}}
        self.topic_settings = {key: str(value) for key, value in settings.items()}
        self.topic_config = TopicConfig(self.topic_settings)
        self.bucket = SimulatedBucket()
        self.metadata = MetadataTopic(self.loop)
        self.leader_epoch = 0
        self.is_topic_gone = False
        """The image has lost the topic."""
        self.last_stable_offset: int | None = None
        self.written = 0
        """Batches written so far."""
        self.nodes = [TieredNode(self, number) for number in range(1, nodes + 1)]
        self.leader = self.nodes[0]
        for node in self.nodes:
            node.runtime.run(node.start())
        self.advance(100)

    def topic_by_id(self, topic_id: bytes) -> object | None:
        """As ``ClusterImage.topic_by_id``."""
        return None if self.is_topic_gone else self

    @property
    def topics(self) -> dict[str, TopicImage]:
        """As ``ClusterImage.topics``."""
        replicas = tuple(node.node_id for node in self.nodes)
        partition = PartitionImage(
            partition=0, replicas=replicas, isr=replicas, leader=1, leader_epoch=0, partition_epoch=0
        )
        topic = TopicImage(name=NAME.topic, topic_id=TOPIC_ID, partitions={0: partition})
        return {} if self.is_topic_gone else {NAME.topic: topic}

    def config(self, resource_type: int, name: str) -> dict[str, str]:
        """As ``ClusterImage.config``."""
        return self.topic_settings

    def advance(self, ms: float) -> None:
        self.leader.runtime.advance(ms)

    def segment_keys(self) -> list[str]:
        """The objects in the store, but for those that say whose it is."""
        return [key for key in self.bucket.keys() if not key.startswith("blumfeld-")]  # noqa: SIM118 - no dict

    def rounds(self, count: int = 1) -> None:
        """Let so many rounds of the tasks pass."""
        for _ in range(count):
            self.advance(INTERVAL_MS)
        self.advance(5_000)

    def write(self, batches: int = 1, *, timestamp_ms: int | None = None) -> None:
        """Write batches of one to three records on the leader, and replicate them."""
        for _ in range(batches):
            self.written += 1
            time_ms = self.leader.runtime.now_ms() if timestamp_ms is None else timestamp_ms
            batch = make_batch(1 + self.written % 3, timestamp_ms=time_ms, seed=self.written)
            self.leader.append(batch, self.leader_epoch)
            for node in self.nodes:
                if node is not self.leader:
                    node.append_as_is(RecordBatch(memoryview(bytearray(batch.data))))

    def elect(self, node: TieredNode) -> None:
        """Let another node lead."""
        before, self.leader = self.leader, node
        self.leader_epoch += 1
        before.follow()
        node.lead(self.leader_epoch)

    def delete_records(self, offset: int) -> None:
        """Move the log start on every node."""
        for node in self.nodes:
            if offset > node.log.log_start_offset:
                node.log.advance_log_start(offset)
                node.epochs.truncate_from_start(offset)
                node.log.aux.write(FILE_NAME, node.epochs.encode())

    def drop_local(self, node: TieredNode | None = None, *, keep_segments: int = 1) -> None:
        """Delete local segments that the store has, but for the last ones."""
        log: TieredLog = (node or self.leader).log
        segments = log.segments()
        bases = [segment.base_offset for segment in segments]
        end_offset = bases[max(len(bases) - keep_segments, 0)]
        log.drop_segments(min(end_offset, log.copied_end_offset))

    def restart(self, node: TieredNode, *, power_cut: bool = False, luck: Luck | None = None) -> TieredNode:
        """Kill a node and start it again."""
        node.runtime.crash(power_cut=power_cut, luck=luck)
        again = TieredNode(self, node.node_id, before=node)
        again.runtime.run(again.start())
        # Only now: the others look at the ends of all nodes while this one starts.
        self.nodes[self.nodes.index(node)] = again
        if self.leader is node:
            self.leader = again
            again.lead(self.leader_epoch)
        return again

    def read_some(self, offset: int, node: TieredNode | None = None) -> list[RecordBatch]:
        """Read once, as a consumer does; nothing if the store doesn't answer."""
        node = node or self.leader
        log, runtime = node.log, node.runtime
        outcome = log.read(offset, 300, log.written_end_offset, True)
        try:
            found: LogRead = runtime.run(_wait(outcome)) if isinstance(outcome, Completion) else outcome
        except BrokerError as error:
            if error.code is not ErrorCode.KAFKA_STORAGE_ERROR:
                raise
            return []
        data = join(found.parts)
        release(found.parts)
        return list(split_batches(memoryview(data), allow_partial=True))

    def read_all(self, node: TieredNode | None = None, offset: int | None = None) -> list[RecordBatch]:
        """Read as a consumer does, from the log start to the end."""
        log = (node or self.leader).log
        offset = log.log_start_offset if offset is None else offset
        batches: list[RecordBatch] = []
        tries = 0
        while offset < log.written_end_offset:
            whole = self.read_some(offset, node)
            if not whole:
                tries += 1
                assert tries < 1000, f"nothing can be read at {offset}"
                continue
            batches += whole
            offset = whole[-1].next_offset
        return batches


async def _wait(answer: Completion[Any]) -> Any:
    return await answer
