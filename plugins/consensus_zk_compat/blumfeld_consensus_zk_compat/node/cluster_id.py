"""The cluster's id in the tree, and the nodes that every broker makes sure of."""

from __future__ import annotations

from collections.abc import Callable

from blumfeld.spi.zookeeper import NodeExistsError, NoNodeError, ZooKeeper
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld_consensus_zk_compat.tree import paths
from blumfeld_consensus_zk_compat.tree.forms import decode_cluster_id, encode_cluster_id


async def agreed_cluster_id(
    zookeeper: ZooKeeper, own: str | None, new: Callable[[], str], *, is_formatted: bool, where: str
) -> str:
    """As ``ClusterIdKeeper.agreed_cluster_id``.

    :param where: the connect string, for errors
    """
    try:
        node = await zookeeper.get(paths.CLUSTER_ID)
    except NoNodeError:
        if is_formatted:
            raise BrokerError(
                ErrorCode.INCONSISTENT_CLUSTER_ID,
                f"{where} has no {paths.CLUSTER_ID}, and this node's directories are of cluster {own}: found another "
                "ZooKeeper, or another chroot, than the node was started with before; name that one in "
                "consensus.options.connect, or start on empty directories",
            ) from None
        return await _begun(zookeeper, new() if own is None else own)
    agreed = decode_cluster_id(paths.CLUSTER_ID, node.data)
    if own not in (None, agreed):
        raise BrokerError(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"{where} is of cluster {agreed}, and this node of {own}: name the ZooKeeper and the chroot of cluster "
            f"{own} in consensus.options.connect",
        )
    return agreed


async def _begun(zookeeper: ZooKeeper, cluster_id: str) -> str:
    await make_persistent(zookeeper, paths.above(paths.CLUSTER_ID))
    try:
        await zookeeper.create(paths.CLUSTER_ID, encode_cluster_id(cluster_id))
    except NodeExistsError:  # another node was faster
        node = await zookeeper.get(paths.CLUSTER_ID)
        return decode_cluster_id(paths.CLUSTER_ID, node.data)
    return cluster_id


async def make_persistent(zookeeper: ZooKeeper, wanted: list[str]) -> None:
    """Create those of these nodes that aren't there, in this order."""
    there = [(path, zookeeper.exists(path)) for path in wanted]
    for path, stat in there:
        if await stat is None:
            try:
                await zookeeper.create(path)
            except NodeExistsError:
                continue


def top_level() -> list[str]:
    """The nodes that each broker creates at its start, each after those above it."""
    wanted: dict[str, None] = {}
    for path in paths.PERSISTENT:
        wanted.update(dict.fromkeys((*paths.above(path), path)))
    return list(wanted)
