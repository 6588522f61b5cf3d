"""Log directories in the metadata (KIP-858): the directory of each replica, and whether it is online. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blumfeld.spi.cluster import BrokerImage, PartitionImage
from blumfeld.wire.primitives import ZERO_UUID

if TYPE_CHECKING:
    from blumfeld.metadata.image.cluster_image import MetadataImage

MIGRATING_DIRECTORY = ZERO_UUID
"""The replica's directory was never reported: the replica is older than KIP-858."""
UNASSIGNED_DIRECTORY = bytes(15) + b"\x01"
"""The broker has several directories and has not chosen one yet."""
LOST_DIRECTORY = bytes(15) + b"\x02"
"""The replica's directory is offline and its id unknown."""

RESERVED_BELOW = 100


def is_reserved(directory_id: bytes) -> bool:
    """Whether the id is reserved and names no directory: high word 0, low word below 100 (KIP-858)."""
    return int.from_bytes(directory_id) < RESERVED_BELOW


def directory_of(partition: PartitionImage, broker_id: int) -> bytes:
    """Returns the directory of the broker's replica, or a reserved id if the controller doesn't know it.

    :raises ValueError: the broker has no replica of the partition
    """
    at = partition.replicas.index(broker_id)
    return partition.directories[at] if at < len(partition.directories) else MIGRATING_DIRECTORY


def has_online_directory(broker: BrokerImage, directory_id: bytes) -> bool:
    """Whether a replica in this directory of the broker can be led or followed.

    A replica without a directory can. A broker that reported no directories counts as having all online: it
    would have stopped otherwise.
    """
    if directory_id in (UNASSIGNED_DIRECTORY, MIGRATING_DIRECTORY):
        return True
    if directory_id == LOST_DIRECTORY:
        return False
    return not broker.log_dirs or directory_id in broker.log_dirs


def may_lead_from(image: MetadataImage, broker_id: int, directory_id: bytes) -> bool:
    """Whether the replica's directory allows it to lead. Whether its broker is active is checked elsewhere."""
    broker = image.brokers.get(broker_id)
    return broker is None or has_online_directory(broker, directory_id)
