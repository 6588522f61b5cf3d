"""A new log waits for no sync; its topic id reaches the device soon after, many in one go."""

from __future__ import annotations

import errno
from random import Random
from typing import Any

import pytest

from blumfeld.log.checkpoints import PARTITION_METADATA
from blumfeld.spi.storage import TopicPartition
from blumfeld_kit.fakes.files import Fault
from blumfeld_kit.fakes.power import Adversary, Chance
from blumfeld_kit.storage_driver.node import PARTITION, TOPIC_ID, Node
from blumfeld_storage_local.durability import Durability
from blumfeld_storage_local.sync.new_logs import QUIET_MS, SYNCED_AT_ONCE, WAIT_MAX_MS
from tests.plugins.storage_local.local_node import new_node

SYNCS = ("fdatasync", "sync_dir", "write_atomically:fdatasync", "write_atomically:sync_dir")


def syncs(node: Node) -> int:
    return sum(node.runtime.disk.operations.get(name, 0) for name in SYNCS)


def create(node: Node, count: int, **config: Any) -> None:
    for number in range(count):
        node.open(TopicPartition("topic", number), **config)


def id_of(number: int) -> str:
    return f"/data/topic-{number}/{PARTITION_METADATA}"


def test_a_new_log_waits_for_no_sync() -> None:
    node = new_node()
    before = syncs(node)
    create(node, 3 * SYNCED_AT_ONCE)
    assert syncs(node) == before


def test_the_ids_are_synced_once_no_more_logs_come() -> None:
    node = new_node()
    create(node, SYNCED_AT_ONCE + 1)
    node.runtime.advance(QUIET_MS)
    tree = node.runtime.disk.tree
    assert all(tree.file(id_of(number)).is_synced for number in range(SYNCED_AT_ONCE + 1))
    again = node.crash()  # by a power cut that takes whatever it may
    assert dict(again.storage.partitions()) == {
        TopicPartition("topic", number): TOPIC_ID for number in range(SYNCED_AT_ONCE + 1)
    }


def test_logs_that_come_without_a_pause_are_synced_all_the_same() -> None:
    node = new_node()
    before = syncs(node)
    for number in range(int(WAIT_MAX_MS / QUIET_MS * 2) + 1):
        node.open(TopicPartition("topic", number))
        node.runtime.advance(QUIET_MS / 2)
    assert syncs(node) > before


def test_a_clean_stop_syncs_them() -> None:
    node = new_node()
    create(node, 2)
    node.stop()
    assert all(node.runtime.disk.tree.file(id_of(number)).is_synced for number in range(2))


def test_where_an_ack_means_the_device_the_id_is_there_before_the_log_serves() -> None:
    every, flush_node = new_node(durability=Durability("every")), new_node()
    create(every, 1)
    create(flush_node, 1, flush_messages=1)
    for node in (every, flush_node):
        assert node.runtime.disk.tree.file(id_of(0)).is_synced


def test_a_log_that_was_deleted_before_the_sync_is_passed_over() -> None:
    node = new_node()
    create(node, 2)
    node.storage.delete_log(TopicPartition("topic", 0))
    node.runtime.advance(QUIET_MS)
    assert node.runtime.disk.tree.file(id_of(1)).is_synced
    assert node.storage.log_dirs()[0].online


def test_a_sync_that_fails_takes_the_directory_offline() -> None:
    node = new_node()
    create(node, 1)
    node.runtime.disk.inject(Fault(operation="fdatasync", path_part=PARTITION_METADATA))
    node.runtime.advance(QUIET_MS)
    assert not node.storage.log_dirs()[0].online
    assert [error.errno for _, error in node.watcher.failures] == [errno.EIO]


def test_a_process_without_descriptors_syncs_them_later() -> None:
    """Nothing is bad then: other partitions of the directory serve on."""
    node = new_node()
    create(node, 2)
    node.runtime.disk.inject(Fault(operation="open", path_part=PARTITION_METADATA, error_number=errno.EMFILE))
    node.runtime.advance(QUIET_MS)
    assert node.storage.log_dirs()[0].online
    node.runtime.advance(QUIET_MS)
    assert all(node.runtime.disk.tree.file(id_of(number)).is_synced for number in range(2))


# Power cuts around a topic that was deleted and made anew

NAMESAKE_ID = bytes(range(64, 80))
POWER_CUTS = (*Adversary, *range(12))


@pytest.mark.parametrize("flushed", [False, True], ids=["written", "flushed"])
@pytest.mark.parametrize("made", [False, True], ids=["not made again", "made again"])
@pytest.mark.parametrize("killed", ["never", "before the deletion", "behind it"])
def test_no_power_cut_gives_the_records_of_a_deleted_topic_to_its_namesake(
    killed: str, made: bool, flushed: bool
) -> None:
    """Nobody has synced the topic's id, and the cut may take the new name of its directory."""
    for cut in POWER_CUTS:
        node = new_node()
        log = node.open()
        log.fill(3, 3)
        if flushed:
            log.flush()
        if killed == "before the deletion":
            node.crash(power_cut=False)
            node.open()
        node.storage.delete_log(PARTITION)
        if killed == "behind it":
            node.crash(power_cut=False)
        if made:
            node.open(topic_id=NAMESAKE_ID)
        node.crash(luck=Chance(Random(cut)) if isinstance(cut, int) else cut)
        topic_id = dict(node.storage.partitions()).get(PARTITION)
        if topic_id == TOPIC_ID:  # the broker sees that it is a deleted topic's
            node.storage.set_aside_log(PARTITION)
        assert node.open(topic_id=NAMESAKE_ID).read_all() == [], cut


def test_a_flush_covers_the_topic_id() -> None:
    """Or the records that it was to keep could not be served."""
    for cut in POWER_CUTS:
        node = new_node()
        log = node.open()
        log.fill(2, 2)
        log.flush()
        assert node.runtime.disk.tree.file(f"/data/{PARTITION}/{PARTITION_METADATA}").is_synced
        node.crash(luck=Chance(Random(cut)) if isinstance(cut, int) else cut)
        assert dict(node.storage.partitions()) == {PARTITION: TOPIC_ID}
        assert node.open().spans() == [(0, 2), (2, 4)]


def test_a_log_without_records_takes_its_topic_id_from_the_cluster() -> None:
    node = new_node()
    create(node, 1)
    node.crash(luck=Adversary.NAMES)
    assert dict(node.storage.partitions()) == {TopicPartition("topic", 0): bytes(16)}
    node.open(TopicPartition("topic", 0))
    assert node.runtime.disk.tree.file(id_of(0)).is_synced
    assert [name for name in node.runtime.files.list_dir("/data") if name.endswith("-stray")] == []
