"""Log directories as the controller sees them (KIP-858): which holds a replica, and whether that is online. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blumfeld.spi.cluster import BrokerImage, PartitionImage
from blumfeld.wire.primitives import ZERO_UUID

if TYPE_CHECKING:
    from blumfeld.metadata.image.cluster_image import MetadataImage

MIGRATING_DIRECTORY = ZERO_UUID
"""Nobody has said where the replica lies: it was made before directories were written down."""
UNASSIGNED_DIRECTORY = bytes(15) + b"\x01"
"""The broker has several directories and chooses one itself."""
LOST_DIRECTORY = bytes(15) + b"\x02"
"""One that is offline, its id unknown."""

RESERVED_BELOW = 100


def is_reserved(directory_id: bytes) -> bool:
    """Whether the id names no directory: its high word is 0 and its low word below 100 (KIP-858)."""
    return int.from_bytes(directory_id) < RESERVED_BELOW


def directory_of(partition: PartitionImage, broker_id: int) -> bytes:
    """Where the broker's replica lies, as far as the controller knows; reserved ids for what it doesn't.

    :raises ValueError: the broker has no replica of it
    """
    at = partition.replicas.index(broker_id)
    return partition.directories[at] if at < len(partition.directories) else MIGRATING_DIRECTORY


def has_online_directory(broker: BrokerImage, directory_id: bytes) -> bool:
    """Whether a replica in this directory of the broker can be led or followed.

    One that is nowhere yet can. A broker that told of no directory has them all online: it would have stopped else.
    """
    if directory_id in (UNASSIGNED_DIRECTORY, MIGRATING_DIRECTORY):
        return True
    if directory_id == LOST_DIRECTORY:
        return False
    return not broker.log_dirs or directory_id in broker.log_dirs


def may_lead_from(image: MetadataImage, broker_id: int, directory_id: bytes) -> bool:
    """Whether the directory of this replica doesn't keep it from leading; that the broker is there, others check."""
    broker = image.brokers.get(broker_id)
    return broker is None or has_online_directory(broker, directory_id)


def default_directory(image: MetadataImage, broker_id: int) -> bytes:
    """Of a new replica: the broker's only directory, or one of its own choice."""
    broker = image.brokers.get(broker_id)
    if broker is None:
        return UNASSIGNED_DIRECTORY
    if not broker.log_dirs:
        return MIGRATING_DIRECTORY
    return broker.log_dirs[0] if len(broker.log_dirs) == 1 else UNASSIGNED_DIRECTORY
