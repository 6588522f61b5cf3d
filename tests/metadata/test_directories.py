"""Directory ids: which name no directory, and whether a replica in one can be used (KIP-858)."""

from __future__ import annotations

from blumfeld.metadata.partitions.directories import (
    LOST_DIRECTORY,
    MIGRATING_DIRECTORY,
    UNASSIGNED_DIRECTORY,
    default_directory,
    directory_of,
    has_online_directory,
    is_reserved,
)
from blumfeld.spi.cluster import BrokerImage, PartitionImage
from tests.metadata.driven import Driven, directory_id


def broker(*log_dirs: bytes) -> BrokerImage:
    return BrokerImage(broker_id=1, epoch=1, incarnation_id=bytes(16), endpoints=(), log_dirs=log_dirs)


def test_the_first_hundred_ids_are_kafkas_own() -> None:
    first = [n.to_bytes(16) for n in range(3)]
    assert first == [MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY, LOST_DIRECTORY]
    assert all(is_reserved(n.to_bytes(16)) for n in (0, 1, 2, 99))
    assert not any(is_reserved(one) for one in ((100).to_bytes(16), (1 << 64).to_bytes(16), directory_id(1)))


def test_a_replica_that_is_nowhere_yet_can_be_used_and_a_lost_one_cannot() -> None:
    one, two = directory_id(1), directory_id(1, 1)
    assert has_online_directory(broker(one), one)
    assert not has_online_directory(broker(one), two)
    assert has_online_directory(broker(one), UNASSIGNED_DIRECTORY)
    assert has_online_directory(broker(one), MIGRATING_DIRECTORY)
    assert not has_online_directory(broker(one), LOST_DIRECTORY)
    assert not has_online_directory(broker(), LOST_DIRECTORY)
    assert has_online_directory(broker(), two)


def test_partitions_from_before_directories_are_migrating() -> None:
    partition = PartitionImage(
        partition=0, replicas=(3, 1), isr=(3,), leader=3, leader_epoch=0, partition_epoch=0
    )
    assert directory_of(partition, 1) == MIGRATING_DIRECTORY


def test_a_new_replica_lies_in_the_only_directory_or_where_its_broker_puts_it() -> None:
    driven = Driven()
    driven.register(1)
    driven.register(2, log_dirs=[directory_id(2), directory_id(2, 1)])
    assert default_directory(driven.image, 1) == directory_id(1)
    assert default_directory(driven.image, 2) == UNASSIGNED_DIRECTORY
    assert default_directory(driven.image, 9) == UNASSIGNED_DIRECTORY
