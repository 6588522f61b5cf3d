"""In which log directory a replica's log is opened, or made if it isn't there (KIP-858)."""

from __future__ import annotations

from collections.abc import Mapping
from errno import EIO

from blumfeld.metadata.partitions.directories import MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY, directory_of
from blumfeld.spi.cluster import PartitionImage
from blumfeld.spi.storage import LogStorage, TopicPartition, lasting


class Places:
    """The choice, by what the controller has written down and what the storage has.

    :param preferred: where a log that isn't there yet was wanted (AlterReplicaLogDirs): before the controller's
    """

    def __init__(self, storage: LogStorage, node_id: int, preferred: Mapping[TopicPartition, bytes]) -> None:
        self._storage = storage
        self._node_id = node_id
        self._preferred = preferred
        kept = lasting(storage)
        self._found = {} if kept is None else dict(kept.partitions())
        self._online: dict[bytes, str] = {}
        self._offline: list[str] = []
        self.changed()

    def changed(self) -> None:
        """A directory failed: look anew."""
        directories = self._storage.log_dirs()
        self._online = {one.directory_id: one.path for one in directories if one.online}
        self._offline = [one.path for one in directories if not one.online]

    def of(self, partition: TopicPartition, image: PartitionImage) -> bytes | None:
        """The directory for a log that isn't there yet; ``None`` leaves it to the storage.

        :raises OSError: the replica may lie in a directory that is offline, and must not be made anew elsewhere:
            what it has would count for nothing, and it would be taken for whole
        """
        assigned = directory_of(image, self._node_id)
        preferred = self._preferred.get(partition)
        wanted = preferred if preferred in self._online else None
        if assigned in self._online:
            return assigned if wanted is None else wanted
        there = assigned == MIGRATING_DIRECTORY and partition in self._found
        if self._offline and assigned != UNASSIGNED_DIRECTORY and not there:
            raise OSError(EIO, "its log directory is offline", self._offline[0])
        return wanted
