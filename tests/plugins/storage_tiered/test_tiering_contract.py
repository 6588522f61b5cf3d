"""The kit's contract of a tiering storage, on the real one: a store in memory, and a metadata topic that is a list."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from blumfeld.config.values import BrokerConfig
from blumfeld.spi.partitions import LeadershipWatcher, PartitionEnds
from blumfeld.spi.storage import LogStorage, TopicPartition
from blumfeld_kit.fakes.object_store import SimulatedBucket, SimulatedStore
from blumfeld_kit.fakes.runtime import FakeRuntime
from blumfeld_kit.storage_contract import TieringContract
from blumfeld_kit.storage_contract.tiering import EPOCH
from blumfeld_kit.storage_driver.node import PARTITION, TOPIC_ID, Log
from blumfeld_storage_local.storage import LocalStorage
from blumfeld_storage_tiered.catalog.catalog import RemoteLogCatalog
from blumfeld_storage_tiered.catalog.segment import TopicIdPartition
from blumfeld_storage_tiered.storage import TieredStorage
from blumfeld_storage_tiered.tasks.tiering import Tiering
from tests.plugins.storage_local.local_node import Events
from tests.plugins.storage_tiered.tiered_cluster import MetadataTopic, NodeMetadata

INTERVAL_MS = 1_000


class Metadata(NodeMetadata):
    def __init__(self, runtime: FakeRuntime) -> None:
        super().__init__(MetadataTopic(runtime.loop), runtime)
        self._catalog = RemoteLogCatalog(TopicIdPartition(TOPIC_ID, 0, PARTITION.topic))

    def assign(self, partition: TopicIdPartition) -> None:
        pass

    unassign = assign


class Leader:
    """The part of a broker that the copies ask: this node leads, and everything is committed."""

    def __init__(self) -> None:
        self.log: Any = None

    def ends(self, partition: TopicPartition) -> PartitionEnds:
        end = self.log.written_end_offset
        return PartitionEnds(
            topic_id=TOPIC_ID,
            leader_epoch=EPOCH,
            log_start_offset=self.log.log_start_offset,
            last_stable_offset=end,
            high_watermark=end,
            log_end_offset=end,
        )

    def watch_leadership(self, watcher: LeadershipWatcher) -> None:
        watcher.leads(PARTITION, TOPIC_ID, EPOCH)


class TestTieredStorage(TieringContract):
    def make_storage(self, runtime: FakeRuntime) -> LogStorage:
        self.leader, events = Leader(), Events()
        self.composition: Any = SimpleNamespace(
            runtime=runtime,
            config=BrokerConfig({"remote.log.manager.task.interval.ms": INTERVAL_MS}),
            node_id=1,
            data_dir="/data",
            local_partitions=self.leader,
            log=lambda _: events,
            metadata=SimpleNamespace(image=SimpleNamespace(topics={})),
        )
        store, metadata = SimulatedStore(runtime, SimulatedBucket()), cast("Any", Metadata(runtime))
        self.tiering = Tiering(self.composition, store, metadata, 1 << 20, "memory")
        return TieredStorage(LocalStorage(runtime, ["/data"], events), self.tiering)

    def copy(self, log: Log) -> None:
        self.leader.log = log.log
        log.node.runtime.run(self.tiering.begin(self.composition))
        log.node.runtime.advance(10 * INTERVAL_MS)
