"""Reacts to changes of log directories: a failure (KIP-112), a moved replica, a placed replica (KIP-858).

A failed directory takes only its own partitions offline, and a heartbeat tells the controller at once. The node stops
in two cases:

* the first directory fails, which holds the cluster's metadata. So it also stops when no directory is left;
* the controller could not be told within ``log.dir.failure.timeout.ms``. The cluster would go on to send clients to a
  leader that can't serve them.
"""

from __future__ import annotations

from blumfeld.broker.membership.directory_assignments import DirectoryAssignments
from blumfeld.broker.membership.lifecycle import Lifecycle
from blumfeld.broker.ports import BrokerComposition, Image
from blumfeld.broker.replicas.hosting.partition_manager import PartitionManager
from blumfeld.broker.replicas.partition import Partition
from blumfeld.metadata.partitions.directories import directory_of, is_reserved
from blumfeld.spi.hooks import EventLog, Metric
from blumfeld.spi.runtime import NodeFailure
from blumfeld.spi.storage import LogDirInfo, TopicPartition


class LogDirectoryFailure(NodeFailure, OSError):  # noqa: N818 - the noun says what it is
    """The node can't go on without this directory."""


class LogDirectories:
    """Implements ``StorageWatcher``."""

    def __init__(
        self,
        composition: BrokerComposition,
        cluster: Image,
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
        hosted.opened.append(self._placed)
        hosted.removed.append(self._removed)

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
        ]

    def stop(self) -> None:
        """Send no more reports to the controller."""
        self.assignments.stop()

    # Where replicas lie

    def _placed(self, partition: Partition) -> None:
        image, replica = partition.image, (partition.topic_id, partition.partition.partition)
        # The images of a consensus that doesn't record directories have none, and there is nothing to report.
        if image is None or not image.directories or partition.closed is not None:
            return
        lies_in = partition.log.directory_id
        if is_reserved(lies_in) or directory_of(image, self._cluster.node_id) == lies_in:
            self.assignments.known(replica)
        else:
            self.assignments.tell(replica, lies_in)

    def _removed(self, partition: Partition) -> None:
        self.assignments.known((partition.topic_id, partition.partition.partition))

    def _path(self, directory_id: bytes) -> str:
        directories = self._composition.storage.log_dirs()
        return next((one.path for one in directories if one.directory_id == directory_id), directory_id.hex())

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
