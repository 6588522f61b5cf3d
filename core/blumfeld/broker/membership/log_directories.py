"""Reacts to changes of log directories: a failure (KIP-112), a moved replica, a placed replica (KIP-858), and a replica
that can't be written (ADR 0020).

A failed directory takes only its own partitions offline, and a heartbeat tells the controller at once. The node stops
in two cases:

* the first directory fails, which holds the cluster's metadata. So it also stops when no directory is left;
* the controller could not be told within ``log.dir.failure.timeout.ms``. The cluster would go on to send clients to a
  leader that can't serve them.

A storage without ``SeveralDirectories`` tells of no failure: its ``log_dirs`` are looked at again and again.

A replica that can't be written is reported in a lost directory, as long as another replica in sync may lead. So it
leaves its leadership and its ISR at once, and the other replicas of its directory stay.
"""

from __future__ import annotations

from errno import EIO

from blumfeld.broker.cluster import ClusterView
from blumfeld.broker.composition import BrokerComposition
from blumfeld.broker.membership.directory_assignments import DirectoryAssignments, Replica
from blumfeld.broker.membership.lifecycle import Lifecycle
from blumfeld.broker.replicas.hosting.partition_manager import PartitionManager
from blumfeld.broker.replicas.partition import Partition
from blumfeld.broker.replicas.troubled_replicas import TroubledReplicas
from blumfeld.metadata.partitions.directories import (
    LOST_DIRECTORY,
    directory_of,
    has_online_directory,
    is_reserved,
)
from blumfeld.spi.cluster import PartitionImage
from blumfeld.spi.hooks import EventLog, Metric
from blumfeld.spi.repeated_events import RepeatedEvents
from blumfeld.spi.runtime import NodeFailure, Timer
from blumfeld.spi.storage import LogDirInfo, TopicPartition, several_directories

LOOK_MS = 1_000.0
"""Pause between two looks for room, while a replica can't be written or came back a while ago; and between two looks
at a storage that tells no watcher."""
ROOM_BYTES = 16 << 20
ROOM_SHARE = 0.01
"""A directory has room with so many bytes free, or with this share of its file system if that is less."""


def has_room(directory: LogDirInfo) -> bool:
    """Whether writes to a directory may succeed again. A storage that doesn't know its space has room."""
    if directory.usable_bytes < 0:
        return directory.online
    return directory.usable_bytes > min(ROOM_BYTES, ROOM_SHARE * directory.total_bytes)


class LogDirectoryFailure(NodeFailure, OSError):  # noqa: N818 - the noun says what it is
    """The node can't go on without this directory."""


class LogDirectories:
    """Implements ``StorageWatcher``."""

    def __init__(
        self,
        composition: BrokerComposition,
        cluster: ClusterView,
        hosted: PartitionManager,
        lifecycle: Lifecycle,
        events: EventLog,
    ) -> None:
        self._composition = composition
        self._runtime = composition.runtime
        self._cluster = cluster
        self._hosted = hosted
        self._lifecycle = lifecycle
        self._events = events
        self.assignments = DirectoryAssignments(
            node_id=cluster.node_id,
            runtime=composition.runtime,
            metadata=composition.metadata,
            lifecycle=lifecycle,
            events=events,
        )
        self.assignments.taken = self._taken
        self._giving_way = TroubledReplicas()
        self._look_timer: Timer | None = None
        self._online_timer: Timer | None = None
        self._repeated = RepeatedEvents(composition.runtime)
        hosted.opened.append(self._placed)
        hosted.unopened.append(self._unopened)
        hosted.removed.append(self._removed)
        hosted.refused_writes.watch = self._write_failed

    def start(self) -> None:
        """Look at the directories from now on, if the storage tells no watcher of a failure."""
        if several_directories(self._composition.storage) is None:
            self._look_whether_online()

    def _look_whether_online(self) -> None:
        self._online_timer = None
        for directory in self._composition.storage.log_dirs():
            if not directory.online:
                self.directory_failed(directory, OSError(EIO, "the storage shows it offline", directory.path))
                return
        self._online_timer = self._runtime.call_later(LOOK_MS, self._look_whether_online)

    # StorageWatcher

    def directory_failed(self, directory: LogDirInfo, error: OSError) -> None:
        """Take the directory's partitions offline, and tell the controller or stop the node."""
        offline = self._hosted.directory_failed(directory.directory_id, error)
        self._events.error(
            "partitions offline", directory=directory.path, partitions=offline, error=str(error)
        )
        directories = self._composition.storage.log_dirs()
        if directory.path == directories[0].path:
            self._stop_node(directory, "it holds the cluster's metadata", error)
        elif "broker" in self._composition.roles:
            self._lifecycle.beat_now()
            timeout_ms = self._cluster.config.int("log.dir.failure.timeout.ms")
            self._runtime.call_later(timeout_ms, lambda: self._check_told(directory, error))

    def moved(self, partition: TopicPartition, directory_id: bytes) -> None:
        """Report to the controller that the replica lies in another directory now."""
        hosted = self._hosted.find(partition.topic, partition.partition)
        if hosted is not None:
            self._events.info("replica moved", partition=str(partition), directory=self._path(directory_id))
            self._placed(hosted)

    def gauges(self) -> list[Metric]:
        """Returns metrics worth an alert: failed directories (Kafka's OfflineLogDirectoryCount) and lost replicas."""
        storage, partitions = self._composition.storage, self._hosted
        return [
            Metric(
                "blumfeld_offline_log_directories",
                "Log directories that failed",
                "gauge",
                lambda: sum(not directory.online for directory in storage.log_dirs()),
            ),
            Metric(
                "blumfeld_offline_replicas",
                "Replicas of this node that can't be used, since their log directory failed",
                "gauge",
                partitions.offline_count,
            ),
            Metric(
                "blumfeld_replicas_giving_way",
                "Replicas of this node that can't be written: others lead and no ISR waits for them, if one is in sync",
                "gauge",
                lambda: len(self._giving_way),
            ),
        ]

    def stop(self) -> None:
        """Stop the reports to the controller."""
        self.assignments.stop()
        for timer in (self._look_timer, self._online_timer):
            if timer is not None:
                timer.cancel()
        self._look_timer = self._online_timer = None

    # Where replicas lie

    def _placed(self, partition: Partition) -> None:
        image, at = partition.image, partition.partition
        lies_in = partition.log.directory_id
        if partition.closed is not None:
            if not self._is_online(lies_in):
                return  # the heartbeat says so for the whole directory
            self._is_bad(at)
        if image is None or not image.directories:
            # The images of a consensus that doesn't record directories have none, and there is nothing to report.
            return
        gives_way = self._place(at, partition.topic_id, image, None if is_reserved(lies_in) else lies_in)
        partition.give_way(gives_way)

    def _unopened(self, at: TopicPartition, topic_id: bytes, image: PartitionImage) -> None:
        """The replica's log can't be opened, or its image has changed meanwhile."""
        if image.directories and all(directory.online for directory in self._composition.storage.log_dirs()):
            self._is_bad(at)
            self._place(at, topic_id, image, None)

    def _place(
        self, at: TopicPartition, topic_id: bytes, image: PartitionImage, lies_in: bytes | None
    ) -> bool:
        """Report where a replica lies. Returns whether it gives way, as far as the controller may know.

        :param lies_in: its directory; ``None`` if it isn't known
        """
        node_id, replica = self._cluster.node_id, (topic_id, at.partition)
        shown = directory_of(image, node_id)
        if self._giving_way.gives_way(at) and self._another_may_lead(image):
            if shown != LOST_DIRECTORY and not self.assignments.may_be_lost(replica):
                self._repeated.say(
                    self._events.warning,
                    "a replica that can't be written gives way",
                    "gives way",
                    partition=str(at),
                )
            in_sync = node_id in image.isr
            self.assignments.place(replica, LOST_DIRECTORY, shown, urgent=in_sync, again=in_sync)
        elif lies_in is not None:
            self.assignments.place(replica, lies_in, shown)
        return self.assignments.may_be_lost(replica)

    def _another_may_lead(self, image: PartitionImage) -> bool:
        """Whether a replica of another node is in sync and has a directory that works. If not, this replica keeps what
        it has: it can be read, and may have room again before any other."""
        brokers = self._cluster.image.brokers
        return any(
            replica != self._cluster.node_id
            and (broker := brokers.get(replica)) is not None
            and not broker.fenced
            and has_online_directory(broker, directory_of(image, replica))
            for replica in image.isr
        )

    def _taken(self, replica: Replica) -> None:
        hosted = self._hosted.find_by_id(*replica)
        if hosted is not None:
            self._placed(hosted)

    def _removed(self, at: TopicPartition, topic_id: bytes) -> None:
        self.assignments.forget((topic_id, at.partition))
        self._giving_way.forget(at)

    def _is_online(self, directory_id: bytes) -> bool:
        directories = self._composition.storage.log_dirs()
        return any(directory.online for directory in directories if directory.directory_id == directory_id)

    # Replicas that can't be written

    def _write_failed(self, at: TopicPartition) -> None:
        if self._hosted.stopped:
            return
        self._is_bad(at)
        hosted = self._hosted.find(at.topic, at.partition)
        if hosted is not None:
            self._placed(hosted)

    def _is_bad(self, at: TopicPartition) -> None:
        self._giving_way.bad(at, self._runtime.monotonic_ms())
        if self._look_timer is None:
            self._look_timer = self._runtime.call_later(LOOK_MS, self._look)

    def _look(self) -> None:
        """Look for room, and let replicas come back."""
        self._look_timer = None
        refused = self._hosted.refused_writes
        roomy = {
            directory.directory_id
            for directory in self._composition.storage.log_dirs()
            if has_room(directory)
        }
        refused.found_room(lambda at: self._lies_in(at) in roomy)
        for at in self._giving_way.come_back(self._runtime.monotonic_ms(), self._is_usable):
            hosted = self._hosted.find(at.topic, at.partition)
            if hosted is not None:
                self._placed(hosted)
        if len(refused) or not self._giving_way.is_idle:
            self._look_timer = self._runtime.call_later(LOOK_MS, self._look)

    def _lies_in(self, at: TopicPartition) -> bytes | None:
        hosted = self._hosted.find(at.topic, at.partition)
        return None if hosted is None or hosted.closed is not None else hosted.log.directory_id

    def _is_usable(self, at: TopicPartition) -> bool:
        return self._lies_in(at) is not None and not self._hosted.refused_writes.refuses(at)

    def _path(self, directory_id: bytes) -> str:
        directories = self._composition.storage.log_dirs()
        return next(
            (directory.path for directory in directories if directory.directory_id == directory_id),
            directory_id.hex(),
        )

    # When the node can't go on

    def _check_told(self, directory: LogDirInfo, error: OSError) -> None:
        if directory.directory_id not in self._lifecycle.offline_dirs_told:
            self._stop_node(directory, "the controller could not be told in time", error)

    def _stop_node(self, directory: LogDirInfo, why: str, error: OSError) -> None:
        self._events.error("the node stops: a log directory failed", path=directory.path, why=why)

        async def stop() -> None:
            raise LogDirectoryFailure(
                error.errno, f"log directory failed, and {why}: {error}", directory.path
            )

        self._runtime.spawn(stop(), "log directories")
