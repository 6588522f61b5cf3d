"""The migration of a cluster from a ZooKeeper, as its image shows it (KIP-866). Pure."""

from __future__ import annotations

from enum import IntEnum

from blumfeld.metadata.image.cluster_image import MetadataImage
from blumfeld.metadata.image.kept import KEPT
from blumfeld.wire.messages.metadata_records import ZkMigrationStateRecord
from blumfeld.wire.schema import Message

_KEY = (KEPT[ZkMigrationStateRecord].part, KEPT[ZkMigrationStateRecord].entity(ZkMigrationStateRecord()))


class MigrationState(IntEnum):
    """How far the log says that the migration is, with Kafka's numbers."""

    NONE = 0
    """No tree was copied."""
    MIGRATION = 2
    """The log has the cluster, and the tree follows it."""
    POST_MIGRATION = 3
    """The tree follows no more."""


def migration_state(image: MetadataImage) -> MigrationState:
    """Returns how far the migration is."""
    record = image.kept.get(_KEY)
    if not isinstance(record, ZkMigrationStateRecord):
        return MigrationState.NONE
    known = [state for state in MigrationState if state == record.zk_migration_state]
    return known[0] if known else MigrationState.NONE


def reads_tree(image: MetadataImage, broker_id: int) -> bool:
    """Whether a registered broker still reads the tree. Its life is its znode: it sends no heartbeats."""
    registration = image.registrations.get(broker_id)
    return registration is not None and registration.is_migrating_zk_broker


def brokers_of_tree(image: MetadataImage) -> list[int]:
    """Returns the brokers that still read the tree."""
    return [broker_id for broker_id in image.registrations if reads_tree(image, broker_id)]


def ending(image: MetadataImage) -> list[Message]:
    """Returns the record that ends the migration, for a controller that takes part in none; nothing where none is under
    way, or where a broker still reads the tree."""
    if migration_state(image) is not MigrationState.MIGRATION or brokers_of_tree(image):
        return []
    return [ZkMigrationStateRecord(zk_migration_state=MigrationState.POST_MIGRATION)]
