"""The choice of a log directory for a replica's log (KIP-858)."""

from __future__ import annotations

from collections.abc import Mapping
from errno import EIO

from blumfeld.metadata.partitions.directories import (
    LOST_DIRECTORY,
    MIGRATING_DIRECTORY,
    UNASSIGNED_DIRECTORY,
    directory_of,
)
from blumfeld.spi.cluster import PartitionImage
from blumfeld.spi.storage import LogStorage, TopicPartition, lasting


class Places:
    """Chooses by the directories that the controller has assigned and the logs that the storage has.

    :param preferred: directories that AlterReplicaLogDirs asked for before the log existed. They go before the
        controller's choice
    """

    def __init__(self, storage: LogStorage, node_id: int, preferred: Mapping[TopicPartition, bytes]) -> None:
        self._storage = storage
        self._node_id = node_id
        self._preferred = preferred
        self._found: dict[TopicPartition, bytes] = {}
        """Logs that were found at the start."""
        self._online: dict[bytes, str] = {}
        self._offline: list[str] = []

    def start(self) -> None:
        """Read from the storage, which has started, where its logs lie and which directories are online."""
        kept = lasting(self._storage)
        self._found = {} if kept is None else dict(kept.partitions())
        self.changed()

    def changed(self) -> None:
        """Read from the storage which directories are online. Call it when one has failed."""
        directories = self._storage.log_dirs()
        self._online = {
            directory.directory_id: directory.path for directory in directories if directory.online
        }
        self._offline = [directory.path for directory in directories if not directory.online]

    def of(self, partition: TopicPartition, image: PartitionImage) -> bytes | None:
        """Returns the directory for a log that may have to be created; ``None`` leaves the choice to the storage.

        :raises OSError: the replica may lie in a directory that is offline. An empty log must not be created elsewhere:
            the cluster would take it for the complete replica, and its records would be lost
        """
        assigned = directory_of(image, self._node_id)
        preferred = self._preferred.get(partition)
        wanted = preferred if preferred in self._online else None
        if assigned in self._online:
            return assigned if wanted is None else wanted
        there = assigned in (MIGRATING_DIRECTORY, LOST_DIRECTORY) and partition in self._found
        if self._offline and assigned != UNASSIGNED_DIRECTORY and not there:
            raise OSError(EIO, "its log directory is offline", self._offline[0])
        return wanted
