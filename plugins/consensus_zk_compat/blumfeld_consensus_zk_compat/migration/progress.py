"""``/migration`` says up to where the tree has the log: for the operator, and for the next leader."""

from __future__ import annotations

from collections.abc import Callable

from blumfeld.spi.consensus import Controller as ControllerId
from blumfeld.spi.runtime import Runtime, Task, pause
from blumfeld.spi.zookeeper import Check, Set, ZooKeeper, ZooKeeperError
from blumfeld_consensus_zk_compat.migration.claim import Claimed
from blumfeld_consensus_zk_compat.tree import paths
from blumfeld_consensus_zk_compat.tree.forms import MigrationNode, encode_migration

PAUSE_MS = 1_000
"""Pause between two writes of it."""


class Progress:
    """Writes the node from now on, until it is stopped.

    :param offset: up to where the tree has the log
    :param failed: is told when another leader has claimed the tree
    """

    def __init__(
        self,
        zookeeper: ZooKeeper,
        runtime: Runtime,
        claimed: Claimed,
        controller: ControllerId,
        offset: Callable[[], int],
        failed: Callable[[BaseException], None],
    ) -> None:
        self._zookeeper = zookeeper
        self._runtime = runtime
        self._controller = controller
        self._offset = offset
        self._check = Check(paths.CONTROLLER_EPOCH, claimed.elected.epoch_version)
        self._version = claimed.migration_version
        self._failed = failed
        self._task: Task = runtime.spawn(self._write(), "progress of the migration")

    def stop(self) -> None:
        """Write no more."""
        self._task.cancel()

    async def _write(self) -> None:
        told = -1
        while True:
            offset = self._offset()
            if offset != told:
                node = MigrationNode(
                    kraft_metadata_offset=offset,
                    kraft_controller_id=self._controller.node_id,
                    kraft_metadata_epoch=self._controller.epoch,
                    kraft_controller_epoch=self._controller.epoch,
                )
                try:
                    await self._zookeeper.multi(
                        [self._check, Set(paths.MIGRATION, encode_migration(node), self._version)]
                    )
                except ZooKeeperError as error:
                    self._failed(error)
                    return
                self._version += 1
                told = offset
            await pause(self._runtime, PAUSE_MS)
