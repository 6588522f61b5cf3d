"""The tiering of a node: the parts that its tiered logs share, and the work for those that it leads."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any

from blumfeld.spi.cluster import TopicImage
from blumfeld.spi.completion import Completion
from blumfeld.spi.hooks import Composition
from blumfeld.spi.object_store import ObjectNotFoundError, ObjectStore, StoreError, StoreUnavailableError
from blumfeld.spi.repeated_events import RepeatedEvents
from blumfeld.spi.runtime import Task
from blumfeld.spi.storage import AuxFiles, TopicPartition
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld_storage_tiered.cache.chunk_cache import ChunkCache
from blumfeld_storage_tiered.cache.segment_bytes import SegmentBytes
from blumfeld_storage_tiered.catalog.catalog import RemoteLogCatalog
from blumfeld_storage_tiered.catalog.copy_pace import CopyPace
from blumfeld_storage_tiered.catalog.counts import Counts
from blumfeld_storage_tiered.catalog.segment import Change, TopicIdPartition
from blumfeld_storage_tiered.catalog.sweep_settings import DEFAULT_SWEEP, SweepSettings
from blumfeld_storage_tiered.logs.remote_part import RemotePart
from blumfeld_storage_tiered.logs.tiered_log import TieredLog
from blumfeld_storage_tiered.metadata_topic.remote_log_metadata import RemoteLogMetadata
from blumfeld_storage_tiered.objects.manifest import SegmentCorruptError
from blumfeld_storage_tiered.objects.segments import SegmentObjects
from blumfeld_storage_tiered.objects.topics import StoredTopic, TopicDescription, TopicObjects, described
from blumfeld_storage_tiered.objects.upload import SegmentUpload, Verify
from blumfeld_storage_tiered.restore.under_way import check_restored
from blumfeld_storage_tiered.stores.claimed import ClaimedStore
from blumfeld_storage_tiered.tasks.deletion import delete_partition, delete_segments, sleep
from blumfeld_storage_tiered.tasks.led_partition import LedPartition

USED_FILE = "remote-store"
"""The file in the data directory that says which store this node has used."""
LEFT_INTERVAL_MS = 600_000
"""Pause between two searches for partitions whose topics are gone."""
LEFT_GRACE_MS = 3_600_000
"""Time for which a topic must be absent from the image before its segments are deleted by a search."""
TOPICS_TOLD_MAX = 5
"""Topics that are named in one event."""


class Tiering:
    """The tiering of one node. Made with the storage, it starts with it, and works once the broker serves.

    :param metadata: the metadata topic
    :param cache_bytes: bound of the chunk cache
    :param shown: the store for people, without secrets
    :param verify: how uploads are checked
    :param lasts: the store is the same one after a restart of the node
    """

    def __init__(
        self,
        composition: Composition,
        store: ObjectStore,
        metadata: RemoteLogMetadata,
        cache_bytes: int,
        shown: str,
        sweep: SweepSettings = DEFAULT_SWEEP,
        *,
        verify: Verify = "size",
        lasts: bool = True,
    ) -> None:
        self.runtime = runtime = composition.runtime
        self.events = composition.log("storage_tiered")
        self.repeated = RepeatedEvents(runtime)
        self.node_id = composition.node_id
        self.metadata = metadata
        self.counts = Counts()
        used_file = f"{composition.data_dir}/{USED_FILE}" if lasts else None
        self.store = ClaimedStore(runtime, store, shown, used_file)
        self.objects = SegmentObjects(runtime, self.store)
        self.topics = TopicObjects(self.store)
        self.uploads: SegmentUpload
        """Made at the start, when the cluster's id is known."""
        config = composition.config
        self.cache = ChunkCache(runtime, composition.data_dir, cache_bytes, self.events)
        self.source = SegmentBytes(
            runtime,
            self.objects,
            self.cache,
            self._pace_fetch,
            requests_max=config.int("remote.log.reader.threads"),
            waiting_max=config.int("remote.log.reader.max.pending.tasks"),
        )
        self.copy_slots = asyncio.Semaphore(config.int("remote.log.manager.copier.thread.pool.size"))
        self.expiration_slots = asyncio.Semaphore(
            config.int("remote.log.manager.expiration.thread.pool.size")
        )
        self._composition = composition
        self._verify: Verify = verify
        self.shown = shown
        self.sweep = sweep
        self._copy_pace = _pace(composition, "copy")
        self._fetch_pace = _pace(composition, "fetch")
        self._logs: dict[TopicPartition, TieredLog] = {}
        """The tiered logs that are open."""
        self._led: dict[TopicPartition, int] = {}
        """Partitions that this node leads → leader epoch."""
        self._work: dict[TopicPartition, LedPartition] = {}
        self._known: set[TopicIdPartition] = set()
        """Partitions that had a tiered log on this node since its start."""
        self._deletions: dict[Task, None] = {}
        self._search: Task | None = None

    async def start(self, cluster_id: str) -> None:
        """Check the store. The broker doesn't serve yet.

        :raises OSError: the store can't be used, or a restore of this node was interrupted. A store that can't be
            reached now is no reason: the node serves without it
        """
        check_restored(self.runtime.files, self._composition.data_dir)
        try:
            await self.store.claim(cluster_id)
        except StoreUnavailableError as error:
            self.events.warning("store unavailable", store=self.shown, error=str(error))
        except StoreError as error:
            raise OSError(str(error)) from None
        self.uploads = SegmentUpload(
            self.runtime, self.store, cluster_id, still_ours=self.store.still_ours, verify=self._verify
        )

    async def begin(self, composition: Composition) -> None:
        """The broker serves: read the metadata, and do the work for what this node leads."""
        self.partitions = composition.local_partitions
        await self.metadata.start()
        self.partitions.watch_leadership(self)
        self._search = self.runtime.spawn(self._search_left_topics(), "search for topics that are gone")

    def halt(self) -> None:
        """End all work, and begin none."""
        self._led.clear()
        for work in self._work.values():
            work.stop()
        self._work.clear()
        for task in self._deletions:
            task.cancel()
        if self._search is not None:
            self._search.cancel()

    async def stop(self) -> None:
        """End all work, and let go of the store. Legal at any time."""
        self.halt()
        await self.metadata.stop()
        await self.store.close()

    # Logs

    def remote_part(self, partition: TopicIdPartition, aux: AuxFiles) -> RemotePart:
        """Return the remote part of a log of this node."""
        return RemotePart(self, partition, aux)

    def opened(self, partition: TopicPartition, log: TieredLog) -> None:
        """A tiered log is open, or a log has become tiered."""
        self._logs[partition] = log
        self._known.add(log.remote.partition)
        self.metadata.assign(log.remote.partition)
        self._follow(partition)

    def closed(self, partition: TopicPartition) -> None:
        """A tiered log is closed or deleted, or is tiered no more."""
        log = self._logs.pop(partition, None)
        if log is not None:
            self.metadata.unassign(log.remote.partition)
            self._follow(partition)

    def disabled(self, partition: TopicIdPartition) -> None:
        """The log is tiered no more: its leader deletes what the store has of it (``remote.log.delete.on.disable``)."""
        if TopicPartition(partition.topic, partition.partition) in self._led:
            self._delete(partition, whole=False)

    def topic_deleted(self, topic: TopicImage) -> None:
        """A topic has left the image: the last leader of each partition deletes what the store has of it."""
        for number, image in topic.partitions.items():
            partition = TopicIdPartition(topic.topic_id, number, topic.name)
            if partition in self._known and image.leader == self.node_id:
                self._delete(partition, whole=True)
            self._known.discard(partition)

    def _delete(self, partition: TopicIdPartition, *, whole: bool) -> None:
        deletion = delete_partition(self, partition) if whole else delete_segments(self, partition)
        self._deletions = {task: None for task in self._deletions if not task.done()}
        task = self.runtime.spawn(
            self._deleted(partition, deletion), f"delete {partition.topic} in the store"
        )
        self._deletions[task] = None

    async def _deleted(self, partition: TopicIdPartition, deletion: Coroutine[Any, Any, None]) -> None:
        self.metadata.assign(partition)
        try:
            await deletion
        finally:
            self.metadata.unassign(partition)
            if not any(open_.topic == partition.topic for open_ in self._logs):
                self.counts.forget(partition.topic)

    async def _search_left_topics(self) -> None:
        """Delete partitions whose topics are gone: their last leaders may have died before they had deleted them.

        The leader of their metadata does it, so each has one node. It waits, because its image may be behind.
        """
        gone_since_ms: dict[TopicIdPartition, float] = {}
        looked = False
        while True:
            looked = looked or await self._tell_unknown_topics()
            await sleep(self.runtime, LEFT_INTERVAL_MS)
            try:
                catalogs = await self.metadata.led_catalogs()
            except BrokerError:
                continue  # an election; the next search finds them
            topic_by_id, now_ms = self._composition.metadata.image.topic_by_id, self.runtime.monotonic_ms()
            gone = [c.partition for c in catalogs if topic_by_id(c.partition.topic_id) is None]
            gone_since_ms = {partition: gone_since_ms.get(partition, now_ms) for partition in gone}
            for partition, since_ms in gone_since_ms.items():
                if now_ms - since_ms >= LEFT_GRACE_MS:
                    self.events.info(
                        "deleting what is left of a topic",
                        partition=f"{partition.topic}-{partition.partition}",
                    )
                    self._delete(partition, whole=True)
                    gone_since_ms[partition] = now_ms  # should it fail with this node, another hour passes

    async def _tell_unknown_topics(self) -> bool:
        """Tell of topics that the store has and the cluster doesn't know. It may have begun anew on empty disks, with
        the id of the cluster before, where a restore was meant. Returns whether the store could be read."""
        image = self._composition.metadata.image
        try:
            stored = [each async for each in self.topics.list() if image.topic_by_id(each.topic_id) is None]
            unknown = [each.topic for each in stored if not await self._is_deleted(each)]
        except StoreError:
            return False
        if unknown:
            self.events.warning(
                "the store has topics that this cluster doesn't know",
                topics=", ".join(unknown[:TOPICS_TOLD_MAX]),
                number=len(unknown),
                hint="if the cluster's disks are gone, stop all nodes, empty the data directories, and run"
                " `blumfeld tiered restore`",
            )
        return True

    async def _is_deleted(self, stored: StoredTopic) -> bool:
        try:
            return (await self.topics.read(stored.topic, stored.topic_id)).deleted
        except ObjectNotFoundError:
            return True
        except SegmentCorruptError:
            return False

    # LeadershipWatcher

    def leads(self, partition: TopicPartition, topic_id: bytes, leader_epoch: int) -> None:
        """As ``LeadershipWatcher.leads``."""
        self._led[partition] = leader_epoch
        self._follow(partition)

    def lost(self, partition: TopicPartition) -> None:
        """As ``LeadershipWatcher.lost``."""
        self._led.pop(partition, None)
        self._follow(partition)

    def _follow(self, partition: TopicPartition) -> None:
        """Work for a partition if its log is tiered and this node leads it, in its present epoch."""
        before = self._work.pop(partition, None)
        if before is not None:
            before.stop()
        log, leader_epoch = self._logs.get(partition), self._led.get(partition)
        if log is not None and leader_epoch is not None:
            work = self._work[partition] = LedPartition(self, log.remote.partition, log, leader_epoch)
            work.start()

    def led_partitions(self) -> Mapping[str, list[LedPartition]]:
        """As ``Measured.led_partitions``."""
        works: dict[str, list[LedPartition]] = {}
        for partition, work in self._work.items():
            works.setdefault(partition.topic, []).append(work)
        return works

    # RemoteReading, TieringNode

    @property
    def files(self) -> SegmentObjects:
        """As ``RemoteReading.files``."""
        return self.objects

    def catalog(self, partition: TopicIdPartition) -> RemoteLogCatalog | None:
        """As ``RemoteReading.catalog``."""
        return self.metadata.catalog(partition) if self.metadata.is_ready(partition) else None

    async def ready(self, partition: TopicIdPartition) -> RemoteLogCatalog:
        """As ``RemoteReading.ready``."""
        self._check_assigned(partition)
        await self.metadata.when_ready(partition)
        return self.metadata.catalog(partition)

    async def refreshed(self, partition: TopicIdPartition) -> RemoteLogCatalog:
        """As ``TieringNode.refreshed``."""
        self._check_assigned(partition)
        await self.metadata.refresh(partition)
        return self.metadata.catalog(partition)

    def _check_assigned(self, partition: TopicIdPartition) -> None:
        if not self.metadata.is_assigned(partition):
            raise BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{partition.topic} left this node")

    def description(self, partition: TopicIdPartition) -> TopicDescription | None:
        """As ``TieringNode.description``."""
        return described(self._composition.metadata.image, partition)

    def append(self, change: Change) -> Completion[None]:
        """As ``TieringNode.append``."""
        return self.metadata.append(change)

    def fetch_wait_ms(self) -> int:
        """As ``RemoteReading.fetch_wait_ms``."""
        return self._composition.config.int("remote.fetch.max.wait.ms")

    def interval_ms(self) -> float:
        """As ``TieringNode.interval_ms``."""
        return self._composition.config.int("remote.log.manager.task.interval.ms")

    def backoff_ms(self, before_ms: float) -> float:
        """As ``TieringNode.backoff_ms``."""
        config = self._composition.config
        delay_ms = before_ms * 2 or config.int("remote.log.manager.task.retry.backoff.ms")
        delay_ms = min(delay_ms, config.int("remote.log.manager.task.retry.backoff.max.ms"))
        jitter = config.float("remote.log.manager.task.retry.jitter")
        return delay_ms * (1 + jitter * (2 * self.runtime.random.random() - 1))

    async def pace_copy(self, size_bytes: int) -> None:
        """As ``TieringNode.pace_copy``."""
        await self._wait(self._copy_pace, "copy", size_bytes)

    async def _pace_fetch(self, size_bytes: int) -> None:
        await self._wait(self._fetch_pace, "fetch", size_bytes)

    async def _wait(self, pace: CopyPace, kind: str, size_bytes: int) -> None:
        pace.bytes_per_second = self._composition.config.int(
            f"remote.log.manager.{kind}.max.bytes.per.second"
        )
        now_ms = self.runtime.monotonic_ms()
        ready_ms = pace.ready_at(now_ms, size_bytes)
        if ready_ms > now_ms:
            await sleep(self.runtime, ready_ms - now_ms)


def _pace(composition: Composition, kind: str) -> CopyPace:
    config = composition.config
    windows = config.int(f"remote.log.manager.{kind}.quota.window.num")
    window_ms = config.int(f"remote.log.manager.{kind}.quota.window.size.seconds") * 1000
    return CopyPace(config.int(f"remote.log.manager.{kind}.max.bytes.per.second"), windows * window_ms)
