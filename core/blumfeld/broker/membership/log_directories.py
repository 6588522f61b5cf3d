"""What a node makes of its log directories: one that fails (KIP-112), a replica that moved, where each lies (KIP-858).

A failed directory takes its partitions offline and no others; the controller is told with a heartbeat at once. The node
stops when the directory of the cluster's metadata fails, which is the first (so it stops when none is left, too), and
when the controller could not be told within ``log.dir.failure.timeout.ms``: others would wait for a leader that isn't
one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from blumfeld.broker.membership.directory_assignments import DirectoryAssignments
from blumfeld.broker.replicas.partition import Partition
from blumfeld.metadata.directories import directory_of, is_reserved
from blumfeld.spi.hooks import Metric
from blumfeld.spi.runtime import NodeFailure
from blumfeld.spi.storage import LogDirInfo, TopicPartition

if TYPE_CHECKING:
    from blumfeld.broker.broker import Broker


class LogDirectoryFailure(NodeFailure, OSError):  # noqa: N818 - the noun says what it is
    """The node can't go on without this directory."""


class LogDirectories:
    """Implements ``StorageWatcher``."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._events = broker.events
        self.assignments = DirectoryAssignments(
            node_id=broker.node_id,
            runtime=broker.runtime,
            metadata=broker.composition.metadata,
            lifecycle=broker.lifecycle,
            events=broker.events,
        )
        broker.partitions.opened.append(self._placed)
        broker.partitions.removed.append(self._removed)

    # StorageWatcher

    def directory_failed(self, directory: LogDirInfo, error: OSError) -> None:
        """Its partitions are offline now; the controller is told, or the node stops."""
        broker = self._broker
        offline = broker.partitions.directory_failed(directory.directory_id, error)
        self._events.error(
            "partitions offline", directory=directory.path, partitions=offline, error=str(error)
        )
        directories = broker.composition.storage.log_dirs()
        if directory.path == directories[0].path:
            self._stop_node(directory, "it holds the cluster's metadata", error)
        elif "broker" in broker.composition.roles:
            broker.lifecycle.beat_now()
            timeout_ms = broker.config.int("log.dir.failure.timeout.ms")
            broker.runtime.call_later(timeout_ms, lambda: self._check_told(directory, error))

    def moved(self, partition: TopicPartition, directory_id: bytes) -> None:
        """Tell the controller where the replica lies now."""
        hosted = self._broker.partitions.find(partition.topic, partition.partition)
        if hosted is not None:
            self._events.info("replica moved", partition=str(partition), directory=self._path(directory_id))
            self._placed(hosted)

    def gauges(self) -> list[Metric]:
        """What an operator is woken for: Kafka's OfflineLogDirectoryCount, and what it comes to."""
        storage, partitions = self._broker.composition.storage, self._broker.partitions
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
        """Tell nobody anything more."""
        self.assignments.stop()

    # Where replicas lie

    def _placed(self, partition: Partition) -> None:
        image, replica = partition.image, (partition.topic_id, partition.partition.partition)
        # A consensus that writes no directories down has none in its images.
        if image is None or not image.directories or partition.closed is not None:
            return
        lies_in = partition.log.directory_id
        if is_reserved(lies_in) or directory_of(image, self._broker.node_id) == lies_in:
            self.assignments.known(replica)
        else:
            self.assignments.tell(replica, lies_in)

    def _removed(self, partition: Partition) -> None:
        self.assignments.known((partition.topic_id, partition.partition.partition))

    def _path(self, directory_id: bytes) -> str:
        directories = self._broker.composition.storage.log_dirs()
        return next((one.path for one in directories if one.directory_id == directory_id), directory_id.hex())

    # When the node can't go on

    def _check_told(self, directory: LogDirInfo, error: OSError) -> None:
        if directory.directory_id not in self._broker.lifecycle.offline_dirs_told:
            self._stop_node(directory, "the controller could not be told in time", error)

    def _stop_node(self, directory: LogDirInfo, why: str, error: OSError) -> None:
        self._events.error("the node stops: a log directory failed", path=directory.path, why=why)

        async def stop() -> None:
            raise LogDirectoryFailure(
                error.errno, f"log directory failed, and {why}: {error}", directory.path
            )

        self._broker.runtime.spawn(stop(), "log directories")
