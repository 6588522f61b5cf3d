"""Orders of a controller that pushes: implements ``spi.replication.Replicas`` (ZooKeeper mode)."""

from __future__ import annotations

from blumfeld.broker.replicas.hosting.partition_manager import PartitionManager
from blumfeld.spi.cluster import PartitionImage
from blumfeld.spi.completion import Completion
from blumfeld.spi.consensus import ReplicaDriver
from blumfeld.spi.storage import TopicPartition
from blumfeld.wire.errors import ErrorCode, PluginContractError


class PushedReplicas:
    """Fences earlier controllers and older leader epochs, and hands the rest to the replicas.

    :param driver: as of ``ClusterMetadata.replica_driver``
    """

    def __init__(self, hosted: PartitionManager, driver: ReplicaDriver) -> None:
        self._hosted = hosted
        self._driver = driver
        self._controller_epoch = -1

    def apply(
        self, partition: TopicPartition, topic_id: bytes, image: PartitionImage, controller_epoch: int
    ) -> Completion[ErrorCode]:
        """As ``Replicas.apply``."""
        if self._is_stale(controller_epoch):
            return Completion.of(ErrorCode.STALE_CONTROLLER_EPOCH)
        if image.leader_epoch < self._hosted.leader_epoch_of(partition, topic_id):
            return Completion.of(ErrorCode.FENCED_LEADER_EPOCH)
        code = self._hosted.apply(partition, topic_id, image)
        return Completion.of(code) if code else self._hosted.outcome(partition)

    def stop(
        self, partition: TopicPartition, leader_epoch: int, controller_epoch: int, *, delete: bool
    ) -> Completion[ErrorCode]:
        """As ``Replicas.stop``."""
        if self._is_stale(controller_epoch):
            return Completion.of(ErrorCode.STALE_CONTROLLER_EPOCH)
        if 0 <= leader_epoch < self._hosted.leader_epoch_of(partition):
            return Completion.of(ErrorCode.FENCED_LEADER_EPOCH)
        if self._hosted.stopped:  # a success would say that the log is deleted
            return Completion.of(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if delete:
            self._hosted.remove(partition)
        else:
            self._hosted.rest(partition)
        return Completion.of(ErrorCode.NONE)

    def _is_stale(self, controller_epoch: int) -> bool:
        if self._driver is not ReplicaDriver.PUSHES:
            raise PluginContractError(
                f"replica_driver of the consensus is {self._driver.value}, so it can't push replicas; allowed: pushes"
            )
        stale = controller_epoch < self._controller_epoch
        self._controller_epoch = max(self._controller_epoch, controller_epoch)
        return stale
