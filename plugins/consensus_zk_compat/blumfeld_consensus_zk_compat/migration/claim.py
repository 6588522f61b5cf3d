"""How the quorum's leader takes a tree over, and gives it back (KIP-866).

One ``multi`` takes ``/controller``, the next ``/controller_epoch`` and ``/migration``. It fences former controllers:
the write of one that wakes up later fails at the epoch's version. ``/controller`` is persistent, as Kafka's: when the
quorum is away, no broker is elected in its place.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from blumfeld.spi.completion import Completion
from blumfeld.spi.consensus import Controller as ControllerId
from blumfeld.spi.zookeeper import Check, Create, Delete, Node, NoNodeError, Operation, Set, ZooKeeper
from blumfeld_consensus_zk_compat.controller.election import Elected
from blumfeld_consensus_zk_compat.tree import paths
from blumfeld_consensus_zk_compat.tree.forms import (
    ControllerNode,
    MigrationNode,
    decode_controller,
    decode_epoch,
    decode_migration,
    encode_controller,
    encode_epoch,
    encode_migration,
)

T = TypeVar("T")


class NotNow(Exception):  # noqa: N818 - it is a state, no error
    """The tree can't be taken over as it is. It is looked at again later."""


class Claimed(msgspec.Struct, frozen=True):
    """This node's controller has the tree."""

    elected: Elected
    migration_version: int
    """Version of ``/migration``."""


async def claim(
    zookeeper: ZooKeeper, own: ControllerNode, progress: MigrationNode, *, is_copied: bool
) -> Claimed:
    """Take the tree over.

    :param own: what ``/controller`` is to say
    :param progress: what ``/migration`` is to say
    :param is_copied: the log has the cluster already
    :raises NotNow: a later leader of the quorum has it; or the cluster was copied, and went back to its ZooKeeper
    :raises ZooKeeperError: somebody was faster, or no server answers
    :raises TreeError: a node can't be read
    """
    controller, epoch, migration = [
        await _there(read)
        for read in (
            zookeeper.get(paths.CONTROLLER),
            zookeeper.get(paths.CONTROLLER_EPOCH),
            zookeeper.get(paths.MIGRATION),
        )
    ]
    if epoch is None:
        raise NotNow(f"{paths.CONTROLLER_EPOCH} isn't there: no cluster was ever at work in this tree")
    operations: list[Operation] = [
        Set(
            paths.CONTROLLER_EPOCH,
            encode_epoch(decode_epoch(paths.CONTROLLER_EPOCH, epoch.data) + 1),
            epoch.stat.version,
        )
    ]
    if controller is not None:
        _check_not_later(
            own, decode_controller(paths.CONTROLLER, controller.data).kraft_controller_epoch, paths.CONTROLLER
        )
        operations.append(Delete(paths.CONTROLLER, controller.stat.version))
    operations.append(Create(paths.CONTROLLER, encode_controller(own)))
    began = -1
    if migration is not None and migration.data:
        began = decode_migration(paths.MIGRATION, migration.data).kraft_controller_epoch
        _check_not_later(own, began, paths.MIGRATION)
    if is_copied and began < 0:
        raise NotNow(
            f"{paths.MIGRATION} is gone: the cluster went back to its ZooKeeper. Format the controllers anew before "
            "another migration"
        )
    data = encode_migration(progress)
    if migration is None:
        operations.append(Create(paths.MIGRATION, data))
    else:
        operations.append(Set(paths.MIGRATION, data, migration.stat.version))
    await zookeeper.multi(operations)
    elected = Elected(
        ControllerId(own.broker_id, decode_epoch(paths.CONTROLLER_EPOCH, epoch.data) + 1),
        epoch.stat.version + 1,
    )
    return Claimed(elected, 0 if migration is None else migration.stat.version + 1)


async def give_back(zookeeper: ZooKeeper, epoch_version: int, migration_version: int) -> None:
    """Leave the tree to its brokers.

    :param epoch_version: of ``/controller_epoch``, as the claim has left it
    :param migration_version: that of ``/migration``
    """
    await zookeeper.multi(
        [
            Check(paths.CONTROLLER_EPOCH, epoch_version),
            Delete(paths.CONTROLLER),
            Set(paths.MIGRATION, encode_migration(MigrationNode()), migration_version),
        ]
    )


def _check_not_later(own: ControllerNode, epoch: int, path: str) -> None:
    if epoch > own.kraft_controller_epoch:
        raise NotNow(
            f"{path} names epoch {epoch} of the quorum, and this leader has {own.kraft_controller_epoch}"
        )


async def _there(read: Completion[Node]) -> Node | None:
    try:
        return await read
    except NoNodeError:
        return None
