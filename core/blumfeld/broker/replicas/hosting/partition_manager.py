"""The replicas that this node hosts: opened, led, closed and deleted as the cluster's image says, or as a controller
pushes (:mod:`blumfeld.broker.replicas.hosting.pushes`).

Logs are opened off the loop, a few at a time, in the order of the image. If a newer image comes while a log is being
opened, it is applied when the log is open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from errno import EIO

from msgspec.structs import replace

from blumfeld.broker.cluster import ClusterView
from blumfeld.broker.composition import BrokerComposition
from blumfeld.broker.replicas.hosting.places import Places
from blumfeld.broker.replicas.hosting.strays import strays
from blumfeld.broker.replicas.partition import Partition
from blumfeld.broker.replicas.refused_writes import RefusedWrites
from blumfeld.broker.replicas.state.epoch_files import EpochFiles
from blumfeld.broker.replicas.state.replica_state import ReplicaState
from blumfeld.broker.replicas.throttles import Throttles
from blumfeld.broker.replicas.watching.written_bytes import TopicBytes
from blumfeld.broker.waiting.deadlines import WaitCounts
from blumfeld.spi.cluster import ClusterImage, PartitionImage
from blumfeld.spi.completion import Completion
from blumfeld.spi.hooks import EventLog
from blumfeld.spi.repeated_events import RepeatedEvents
from blumfeld.spi.scheduler import Lane
from blumfeld.spi.storage import (
    LACKS,
    InconsistentTopicIdError,
    PartitionLog,
    TopicPartition,
    lasting,
)
from blumfeld.spi.tiering import tiering
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.primitives import ZERO_UUID

NO_LEADER = -1
PREFERRED_MAX = 10_000
"""Partitions, not hosted yet, for which a preferred log directory is remembered."""
OPENED_AT_ONCE_MAX = 4
"""Logs that are opened and recovered at the same time: one for each of the runtime's worker threads."""
TOPICS_SAID_MAX = 10
"""Topics that one line of the log names."""
REOPEN_MS = 1000.0
"""Pause before the next attempt to open a log for which space, descriptors or memory were lacking."""


class PartitionManager:
    """Hosted partitions by name and by id. ``find``/``find_by_id`` are on the path of every request."""

    def __init__(
        self,
        composition: BrokerComposition,
        counts: WaitCounts,
        events: EventLog,
        cluster: ClusterView,
    ) -> None:
        node_id, runtime, storage = composition.node_id, composition.runtime, composition.storage
        self.by_name: dict[str, dict[int, Partition]] = {}
        self.by_id: dict[bytes, dict[int, Partition]] = {}
        self.generation = 0
        """Goes up whenever a partition comes, goes, fails or changes its leader: earlier look-ups are stale."""
        self.opened: list[Callable[[Partition], None]] = []
        """Called after a partition was opened, failed, or got a new image."""
        self.unopened: list[Callable[[TopicPartition, bytes, PartitionImage], None]] = []
        """Called when the log of a replica could not be opened, and with each image of such a replica."""
        self.removed: list[Callable[[TopicPartition, bytes], None]] = []
        """Called with the topic id when a replica left this node, after it was closed; also if it wasn't open."""
        self.topic_bytes: dict[str, TopicBytes] = {}
        """Bytes in and out by topic with a hosted partition, once :meth:`count_bytes` was called.
        Without a metrics endpoint it is empty."""
        self._counts_bytes = False
        self.refused_writes = RefusedWrites(runtime, events)
        self._epoch_files = EpochFiles(runtime)
        self._lacking = RepeatedEvents(runtime)
        self.throttles = Throttles(cluster.config, node_id)
        self._node_id = node_id
        self._runtime = runtime
        self._composition = composition
        self._storage = storage
        self._lasting = lasting(storage)
        """The same object, if the storage keeps its logs over a restart."""
        self._tiering = tiering(storage)
        """The same object, if it may give another log for another configuration."""
        self._counts = counts
        self._events = events
        self._cluster = cluster
        self._wanted: dict[TopicPartition, tuple[bytes, PartitionImage]] = {}
        """Replicas to open, with topic id and newest image, also while they are being opened."""
        self._offline: dict[TopicPartition, tuple[bytes, PartitionImage]] = {}
        """Replicas that could not be opened, with topic id and image. They answer KAFKA_STORAGE_ERROR."""
        self._lacks_room: dict[TopicPartition, None] = {}
        """Replicas that are closed for lack of room, and will be opened again."""
        self._opening: dict[TopicPartition, None] = {}
        self._openers = 0
        self._openers_max = OPENED_AT_ONCE_MAX
        self._settled: Completion[None] | None = None
        self._outcomes: dict[TopicPartition, list[Completion[ErrorCode]]] = {}
        """Those that wait until a log is open."""
        self._high_watermarks: dict[TopicPartition, int] = {}
        self._preferred: dict[TopicPartition, bytes] = {}
        self._places = Places(storage, node_id, self._preferred)
        self._unclaimed: dict[TopicPartition, bytes] = {}
        """Logs that were found at the start and that no order was for yet, and their topic ids: the first one may
        delete such a log, or be for a new topic of its name."""
        self._failed_directories: dict[bytes, None] = {}
        self._configured = 0
        """Goes up with each change of a configuration: a log that was opened before it has an earlier one."""
        self.stopped = True
        """No replica can be hosted: before the start, and after the stop."""

    def __iter__(self) -> Iterator[Partition]:
        """All hosted partitions, in the order in which they were opened."""
        for partitions in self.by_name.values():
            yield from partitions.values()

    def count_bytes(self) -> None:
        """Count the bytes in and out of each topic from now on. Only a scrape reads them, and they have a price."""
        if not self._counts_bytes:
            self._counts_bytes = True
            for partition in self:
                self._count_bytes_of(partition)

    def _count_bytes_of(self, partition: Partition) -> None:
        counts = self.topic_bytes.setdefault(partition.partition.topic, TopicBytes())
        counts.add(partition.watchers.counted(partition.log.placed_end_offset))

    def find(self, topic: str, index: int) -> Partition | None:
        """Returns a hosted partition by its topic's name."""
        partitions = self.by_name.get(topic)
        return None if partitions is None else partitions.get(index)

    def find_by_id(self, topic_id: bytes, index: int) -> Partition | None:
        """Returns a hosted partition by its topic's id."""
        partitions = self.by_id.get(topic_id)
        return None if partitions is None else partitions.get(index)

    def leading(self, topic: str, index: int) -> Partition:
        """Returns a partition that this node leads.

        :raises BrokerError: UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR
        """
        partition = self.by_name.get(topic, {}).get(index)  # as find(), without its call
        if partition is not None and partition.leader is not None:
            return partition
        if partition is not None and partition.closed is not None:
            raise BrokerError(partition.closed)
        image = self._cluster.image.topics.get(topic)
        if image is None or index not in image.partitions:
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if self.is_offline(topic, index):
            raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR)
        raise BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def is_offline(self, topic: str, index: int) -> bool:
        """Whether this node has the replica but could not open it (KAFKA_STORAGE_ERROR)."""
        return TopicPartition(topic, index) in self._offline

    def offline_count(self) -> int:
        """Number of replicas that could not be opened, or failed since."""
        return len(self._offline) + sum(partition.closed is not None for partition in self)

    def refusing_count(self) -> int:
        """Number of replicas that can't be written now: the last write failed, or the log isn't open."""
        return len(self.refused_writes) + len(self._offline)

    def start(self, threads_per_dir: int) -> None:
        """Begin to host replicas: read the checkpointed high watermarks. Storage and replication must have started.

        :param threads_per_dir: ``num.recovery.threads.per.data.dir``: logs to open at once for each directory
        """
        online = sum(directory.online for directory in self._storage.log_dirs())
        self._openers_max = max(1, min(threads_per_dir * online, OPENED_AT_ONCE_MAX))
        self._high_watermarks = {} if self._lasting is None else self._lasting.high_watermarks()
        self._places.start()
        self._offline.clear()
        self._unclaimed.clear()
        self._failed_directories.clear()
        self.stopped = False

    def settled(self) -> Completion[None]:
        """Returns a completion that is done when no partition waits to be opened."""
        if not self._wanted and not self._openers:
            return Completion.of(None)
        if self._settled is None:
            self._settled = Completion()
        return self._settled

    # Replicas

    def apply(self, partition: TopicPartition, topic_id: bytes, image: PartitionImage | None) -> ErrorCode:
        """Lead, follow or (``None``) stop the replica.

        Returns NONE; FENCED_LEADER_EPOCH if the image is older than ours; the partition's error if it is offline.
        """
        if self.stopped:
            return ErrorCode.NONE
        hosted = self.find(partition.topic, partition.partition)
        if image is None or self._node_id not in image.replicas:
            self.remove(partition)
            return ErrorCode.NONE
        if hosted is not None and hosted.topic_id != topic_id:
            self.remove(partition)
            hosted = None
        if hosted is None:
            if partition in self._offline and self._offline[partition][0] == topic_id:
                self._is_unopened(partition, topic_id, image)
                return self._closed_code(partition)
            self._want(partition, topic_id, image)
            return ErrorCode.NONE
        if image.leader_epoch < hosted.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if hosted.closed is not None:  # offline until the next start, or until there is room again
            hosted.image = image
            return self._closed_code(partition)
        self._lead_or_follow(hosted, image)
        return ErrorCode.NONE

    def _want(self, partition: TopicPartition, topic_id: bytes, image: PartitionImage) -> None:
        if self._unclaimed and self._unclaimed.pop(partition, topic_id) not in (topic_id, ZERO_UUID):
            self._set_aside(partition)
        self._wanted[partition] = (topic_id, image)
        if self._openers < min(self._openers_max, len(self._wanted)):
            self._openers += 1
            self._runtime.spawn(self._open_wanted(), "open partitions")

    def leader_epoch_of(self, partition: TopicPartition, topic_id: bytes | None = None) -> int:
        """Returns the leader epoch that is known of a replica, open or not; -1 if none is.

        :param topic_id: a replica of another topic with the same name is not looked at
        """
        hosted = self.find(partition.topic, partition.partition)
        if hosted is not None:
            return hosted.leader_epoch if topic_id in (None, hosted.topic_id) else -1
        held = self._wanted.get(partition) or self._offline.get(partition)
        return -1 if held is None or topic_id not in (None, held[0]) else held[1].leader_epoch

    def outcome(self, partition: TopicPartition) -> Completion[ErrorCode]:
        """Returns a completion that is done when a replica is open (NONE) or can't be.

        KAFKA_STORAGE_ERROR; INCONSISTENT_TOPIC_ID: the log is another topic's; UNKNOWN_TOPIC_OR_PARTITION: it was
        removed; NOT_LEADER_OR_FOLLOWER: the broker stops, or the log lacks room and is opened when there is some.
        """
        if self.stopped:
            return Completion.of(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        done: Completion[ErrorCode] = Completion()
        if partition in self._wanted:
            self._outcomes.setdefault(partition, []).append(done)
            return done
        hosted = self.find(partition.topic, partition.partition)
        if partition in self._offline or (hosted is not None and hosted.closed is not None):
            return Completion.of(self._closed_code(partition))
        return Completion.of(ErrorCode.NONE)

    def _closed_code(self, partition: TopicPartition) -> ErrorCode:
        """The result of an order for a replica that isn't open. One that only lacks room will be, without an order."""
        lacks = partition in self._lacks_room
        return ErrorCode.NOT_LEADER_OR_FOLLOWER if lacks else ErrorCode.KAFKA_STORAGE_ERROR

    def _tell(self, partition: TopicPartition, code: ErrorCode) -> None:
        for waiting in self._outcomes.pop(partition, ()):
            waiting.complete(code)

    def rest(self, partition: TopicPartition) -> None:
        """Neither lead nor follow with a replica any more, and keep its log."""
        for held in (self._wanted, self._offline):
            if partition in held:
                topic_id, image = held[partition]
                held[partition] = (topic_id, replace(image, leader=NO_LEADER))
        hosted = self.find(partition.topic, partition.partition)
        if hosted is not None:
            self.apply(partition, hosted.topic_id, replace(hosted.image, leader=NO_LEADER))

    def remove(self, partition: TopicPartition) -> None:
        """Close a replica that is not ours any more, and delete its log."""
        self._tell(partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        self._wanted.pop(partition, None)
        self._preferred.pop(partition, None)
        self._high_watermarks.pop(partition, None)
        self._lacks_room.pop(partition, None)
        offline = self._offline.pop(partition, None)
        if self._unclaimed.pop(partition, None) is not None:
            self._delete_log(partition)
        if offline is not None:
            self._delete_log(partition)
            self._is_removed(partition, offline[0])
        hosted = self._forget(partition)
        if hosted is not None:
            hosted.abandon()
            self._delete_log(partition)
            self._is_removed(partition, hosted.topic_id)

    def set_strays_aside(self, image: ClusterImage, *, orders_come: bool) -> None:
        """Set aside logs that were found at the start and that no topic of the first image claims. Call it before
        anything is hosted: it frees their names, and a new topic of the same name must not open an old log.

        :param orders_come: a controller pushes orders. A log whose topic isn't in the image stays then: the topic may
            be on its way out, and the order to delete the replica comes. Kafka with a ZooKeeper does so. A topic of
            the image may be deleted, and made again, before the first order for it comes
        """
        if self._lasting is None:
            return
        found = dict(self._lasting.partitions())
        staying = []
        for partition in strays(found.items(), image, self._node_id):
            if orders_come and partition.topic not in image.topics:
                staying.append(partition)
            else:
                self._set_aside(partition)
                del found[partition]
        if orders_come:
            self._unclaimed = found
        if staying:
            said = "logs of topics that the cluster doesn't have stay until a controller has them deleted"
            names = dict.fromkeys(partition.topic for partition in staying)
            self._events.warning(said, logs=len(staying), topics=", ".join(list(names)[:TOPICS_SAID_MAX]))

    def _set_aside(self, partition: TopicPartition) -> None:
        assert self._lasting is not None
        self._high_watermarks.pop(partition, None)
        try:
            self._lasting.set_aside_log(partition)
        except OSError as error:
            self._events.error("stray log not set aside", partition=str(partition), error=str(error))

    def reconfigure(self, topic: str) -> None:
        """Read the changed configuration of a topic again; ``""`` stands for all topics."""
        self._configured += 1
        for name in [topic] if topic else list(self.by_name):
            for partition in list(self.by_name.get(name, {}).values()):
                partition.reconfigure(self._cluster.topic_config(name), self._tiering)

    def failed(self, partition: Partition, error: OSError) -> None:
        """Take note that a partition's log failed. The partition stays hosted and answers KAFKA_STORAGE_ERROR until the
        next start; if only room was lacking, until there is room again."""
        self.refused_writes.offline(partition.partition)
        at = str(partition.partition)
        if partition.log.directory_id in self._failed_directories:
            self._lacks_room.pop(partition.partition, None)  # its own event has said so for all
        elif error.errno in LACKS:
            self._lacks_room[partition.partition] = None
            self._say_lacking("a log lacks room and is opened again", partition.partition, error)
            self._runtime.call_later(REOPEN_MS, lambda: self._lacked(partition))
        else:
            self._events.error("partition offline", partition=at, error=str(error))
        self._changed(partition)

    def _lacked(self, partition: Partition) -> None:
        self._runtime.spawn(self._open_again(partition), "open a log again")

    async def _open_again(self, partition: Partition) -> None:
        """Close the log of a partition that failed for lack of room, and open it as after a crash."""
        at = partition.partition
        if self.stopped or self.find(at.topic, at.partition) is not partition:
            return
        with suppress(OSError):  # a disk that is bad takes its directory offline
            await partition.log.flush()  # off the loop, so that the close has little to sync
        image = partition.image
        if self.stopped or self.find(at.topic, at.partition) is not partition:
            return
        if partition.log.directory_id in self._failed_directories:
            return
        self._forget(at)
        self._high_watermarks[at] = partition.high_watermark
        self._offline[at] = (partition.topic_id, image)
        with suppress(OSError):
            partition.log.close()
        self._reopen(at, partition.topic_id)

    def directory_failed(self, directory_id: bytes, error: OSError) -> int:
        """Take every replica in this log directory offline until the next start. Returns their number.

        Requests that wait for one of them get KAFKA_STORAGE_ERROR.
        """
        if self.stopped:
            return 0
        self._places.changed()
        self._failed_directories[directory_id] = None  # failed() logs no event of its own for these replicas
        lost = [p for p in self if p.closed is None and p.log.directory_id == directory_id]
        for partition in lost:
            partition.fail(error)
        return len(lost)

    def prefer(self, partition: TopicPartition, directory_id: bytes) -> None:
        """Create the replica's log in this directory, if it is created later (AlterReplicaLogDirs before hosting)."""
        if partition in self._preferred or len(self._preferred) < PREFERRED_MAX:
            self._preferred[partition] = directory_id

    async def _open_wanted(self) -> None:
        while (partition := self._next_wanted()) is not None:
            topic_id, image = self._wanted[partition]
            self._opening[partition] = None
            configured = self._configured
            opened = await self._open(partition, topic_id, image)
            del self._opening[partition]
            if opened is not None and configured != self._configured:
                opened.reconfigure(self._cluster.topic_config(partition.topic), self._tiering)
            if self.stopped:
                if opened is not None:
                    self._high_watermarks[partition] = opened.high_watermark
                    self._close(opened)
                break
            wanted = self._wanted.get(partition)
            if wanted is None or wanted[0] != topic_id:  # the topic was deleted or recreated meanwhile
                if opened is not None:
                    opened.abandon()
                if self._offline.pop(partition, None) is not None:
                    self._is_removed(partition, topic_id)
                self._delete_log(partition)
                continue
            del self._wanted[partition]
            code = ErrorCode.INCONSISTENT_TOPIC_ID
            if opened is not None:
                self._host(opened, wanted[1])
                code = opened.closed or ErrorCode.NONE
            elif partition in self._offline:
                self._is_unopened(partition, *wanted)
                code = self._closed_code(partition)
            self._tell(partition, code)
        self._openers -= 1
        if not self._openers and self._settled is not None:
            settled, self._settled = self._settled, None
            settled.complete(None)

    def _next_wanted(self) -> TopicPartition | None:
        if self.stopped:
            return None
        return next((partition for partition in self._wanted if partition not in self._opening), None)

    async def _open(
        self, partition: TopicPartition, topic_id: bytes, image: PartitionImage
    ) -> Partition | None:
        config = self._cluster.topic_config(partition.topic)
        state = ReplicaState(str(partition), self._runtime.now_ms, self._events, self._epoch_files)
        opened: list[PartitionLog] = []
        try:
            place = self._places.of(partition, image)
            log = await self._storage.open_log(partition, topic_id, config, state, directory_id=place)
            opened.append(log)
            state.attach(log, self._high_watermarks.get(partition, 0))
            await self._runtime.scheduler.completed(Lane.REPLICATION, state.replay())
            if log.directory_id in self._failed_directories:
                raise OSError(EIO, "its log directory failed while it was opened")
        except InconsistentTopicIdError as error:
            self._events.error("log not opened", partition=str(partition), error=str(error))
            return None
        except Exception as error:
            # Also a batch with a right CRC that can't be read, or a defect: one log must not hold up the start.
            state.give_up_epochs()
            self._not_opened(partition, topic_id, image, error, opened)
            return None
        self._high_watermarks.pop(partition, None)
        self._preferred.pop(partition, None)
        self._offline.pop(partition, None)
        self._lacks_room.pop(partition, None)
        return Partition(
            partition,
            topic_id,
            image,
            log,
            state,
            config,
            self._runtime,
            self._counts,
            self.failed,
            self.refused_writes,
            self.throttles,
        )

    def _not_opened(
        self,
        partition: TopicPartition,
        topic_id: bytes,
        image: PartitionImage,
        error: Exception,
        opened: list[PartitionLog],
    ) -> None:
        """Take the replica offline. If only space, descriptors or memory were lacking, it is tried again later."""
        at = str(partition)
        self._lacks_room.pop(partition, None)
        self._is_unopened(partition, topic_id, image)
        for log in opened:
            with suppress(OSError):  # the first error is already in the log
                log.close()
        if isinstance(error, OSError) and error.errno in LACKS:
            self._lacks_room[partition] = None
            self._say_lacking("log not opened for lack of room, tried again", partition, error)
            self._runtime.call_later(REOPEN_MS, lambda: self._reopen(partition, topic_id))
            return
        defect = {} if isinstance(error, OSError | BrokerError) else {"exc_info": error}
        self._events.error("log not opened", partition=at, error=str(error), **defect)

    def _is_unopened(self, partition: TopicPartition, topic_id: bytes, image: PartitionImage) -> None:
        self._offline[partition] = (topic_id, image)
        for listener in self.unopened:
            listener(partition, topic_id, image)

    def _is_removed(self, partition: TopicPartition, topic_id: bytes) -> None:
        for listener in self.removed:
            listener(partition, topic_id)

    def _say_lacking(self, event: str, partition: TopicPartition, error: OSError) -> None:
        key = (event, error.errno)
        self._lacking.say(self._events.warning, event, key, partition=str(partition), error=str(error))

    def _reopen(self, partition: TopicPartition, topic_id: bytes) -> None:
        held = self._offline.get(partition)
        if self.stopped or held is None or held[0] != topic_id or partition in self._opening:
            return
        del self._offline[partition]
        self._want(partition, topic_id, held[1])

    def _host(self, partition: Partition, image: PartitionImage) -> None:
        name, index = partition.partition.topic, partition.partition.partition
        self.by_name.setdefault(name, {})[index] = partition
        self.by_id.setdefault(partition.topic_id, {})[index] = partition
        if self._counts_bytes:
            self._count_bytes_of(partition)
        self._lead_or_follow(partition, image)

    def _lead_or_follow(self, partition: Partition, image: PartitionImage) -> None:
        try:
            partition.apply(image, self._node_id, self._composition.replication)
        except Exception as defect:
            at = str(partition.partition)  # the other replicas must not wait for a defect of the replication
            self._events.error("replica neither leads nor follows", partition=at, exc_info=defect)
        self._changed(partition)

    def _changed(self, partition: Partition) -> None:
        self.generation += 1
        for listener in self.opened:
            listener(partition)

    def _forget(self, partition: TopicPartition) -> Partition | None:
        partitions = self.by_name.get(partition.topic, {})
        hosted = partitions.pop(partition.partition, None)
        if hosted is None:
            return None
        self.generation += 1
        self.refused_writes.forget(partition)
        by_id = self.by_id.get(hosted.topic_id, {})
        by_id.pop(partition.partition, None)
        counts, counted = self.topic_bytes.get(partition.topic), hosted.watchers.written_bytes
        if counts is not None and counted is not None:
            counts.remove(counted)
        if not partitions:
            self.by_name.pop(partition.topic, None)
            self.topic_bytes.pop(partition.topic, None)
        if not by_id:
            self.by_id.pop(hosted.topic_id, None)
        return hosted

    def _delete_log(self, partition: TopicPartition) -> None:
        try:
            self._storage.delete_log(partition)
        except OSError as error:
            self._events.error("log not deleted", partition=str(partition), error=str(error))

    # At the end

    def high_watermarks(self) -> Iterator[tuple[TopicPartition, int]]:
        """Yields the high watermarks for the checkpoint, each as it is at the moment of its yield.

        Replicas that were not opened yet keep their last checkpointed value. Otherwise their next start would begin at
        the log's start.
        """
        hosted, unopened = list(self), list(self._high_watermarks.items())
        for partition in hosted:
            if partition.closed is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                yield partition.partition, partition.high_watermark
        yield from unopened

    def _close(self, partition: Partition) -> None:
        try:
            partition.close(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        except OSError as error:
            self._events.error("log not closed", partition=str(partition.partition), error=str(error))

    def stop(self) -> None:
        """Close every log. A log that can't be closed is reported, and the others go on. A log that is being opened is
        closed later: :meth:`settled` says when."""
        self.stopped = True
        for partition_at in list(self._outcomes):
            self._tell(partition_at, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self.refused_writes.stop()
        self._high_watermarks = dict(self.high_watermarks())
        for partition in list(self):
            self._close(partition)
        self._wanted.clear()
        self.by_name.clear()
        self.by_id.clear()
        self.generation += 1
