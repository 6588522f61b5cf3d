"""A replica that can't be written is reported in a lost directory, so that others lead; and in its own once there is
room (ADR 0020)."""

from __future__ import annotations

import errno
from typing import Any

import msgspec
import pytest

from blumfeld.broker.membership.log_directories import LOOK_MS, has_room
from blumfeld.metadata.partitions.directories import LOST_DIRECTORY, UNASSIGNED_DIRECTORY
from blumfeld.spi.cluster import BrokerImage, PartitionImage
from blumfeld.spi.storage import LogDirInfo, TopicPartition
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld_replication_isr.node import Node
from tests.broker.harness import NODE, BrokerHarness, partition_image
from tests.broker.membership.test_log_directories import assignments
from tests.broker.plain_storage import PlainStorage

OWN, OTHERS, OTHER = b"d" * 16, b"o" * 16, 2
FULL = OSError(errno.ENOSPC, "no space left")
MOVED = [[(LOST_DIRECTORY, [(b"t", [0])])]]
BACK = [[(OWN, [(b"t", [0])])]]


class Storage(PlainStorage):
    """A storage that says how much room it has."""

    room_bytes = 1 << 30

    def log_dirs(self) -> list[LogDirInfo]:
        return [
            msgspec.structs.replace(one, total_bytes=1 << 40, usable_bytes=self.room_bytes)
            for one in super().log_dirs()
        ]


IMAGE = partition_image(replicas=(NODE, OTHER), partition_epoch=0, directories=(OWN, OTHERS))


def replicated(**changes: Any) -> PartitionImage:
    return msgspec.structs.replace(IMAGE, **changes)


@pytest.fixture
def broker() -> BrokerHarness:
    """It leads ``t-0``, and node 2 is in sync."""
    broker = BrokerHarness(storage=Storage())
    broker.metadata.image.brokers[OTHER] = BrokerImage(
        broker_id=OTHER, epoch=3, incarnation_id=b"2" * 16, endpoints=(), fenced=False, log_dirs=(OTHERS,)
    )
    broker.metadata.new_directory = OWN
    broker.create_topic("t")
    show(broker, replicated())
    assert assignments(broker) == []
    return broker


def show(broker: BrokerHarness, image: PartitionImage) -> None:
    broker.metadata.change_partition("t", image)
    broker.runtime.run_turn()


def fail_a_write(broker: BrokerHarness) -> None:
    """The disk is full from now on; the turn of the write ends."""
    assert isinstance(broker.storage, Storage)
    broker.storage.room_bytes = 0
    broker.log_of("t").fail_next_write = True
    assert broker.produced() == ErrorCode.KAFKA_STORAGE_ERROR


def free(broker: BrokerHarness) -> None:
    assert isinstance(broker.storage, Storage)
    broker.storage.room_bytes = 1 << 30


def test_a_leader_whose_write_fails_gives_way_at_once(broker: BrokerHarness) -> None:
    fail_a_write(broker)
    broker.runtime.advance(1)
    assert assignments(broker) == MOVED


def test_it_is_reported_once(broker: BrokerHarness) -> None:
    broker.metadata.held = []
    refused = broker.broker.partitions.refused_writes
    for _ in range(100):
        refused.failed(TopicPartition("t", 0), FULL)
        broker.runtime.advance(1)
    show(broker, moved_image())
    for _ in range(100):
        refused.failed(TopicPartition("t", 0), FULL)
        broker.runtime.advance(1)
    assert assignments(broker) == MOVED


def moved_image(**changes: Any) -> PartitionImage:
    """Another replica leads, which doesn't matter here: there is no network."""
    return replicated(
        isr=(OTHER,),
        leader=-1,
        leader_epoch=1,
        partition_epoch=1,
        directories=(LOST_DIRECTORY, OTHERS),
        **changes,
    )


def test_until_others_lead_it_takes_no_batch_that_would_be_lost(broker: BrokerHarness) -> None:
    """The next leader wouldn't have it, though it fits and an ack of 1 would be given."""
    broker.metadata.held = []
    fail_a_write(broker)
    broker.runtime.advance(1)
    free(broker)
    assert broker.produced() == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert broker.hosted().leader is not None
    broker.runtime.advance(10 * LOOK_MS)
    assert broker.produced() == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_change_of_its_configuration_makes_it_take_none(broker: BrokerHarness) -> None:
    broker.metadata.held = []
    fail_a_write(broker)
    broker.hosted().reconfigure(broker.hosted().config)
    assert broker.produced() == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_with_the_next_epoch_it_takes_batches_again(broker: BrokerHarness) -> None:
    fail_a_write(broker)
    broker.runtime.advance(1)
    show(broker, moved_image())
    free(broker)
    broker.runtime.advance(2 * LOOK_MS)
    show(broker, replicated(leader_epoch=2, partition_epoch=3))
    assert broker.produced() == ErrorCode.NONE


def test_it_comes_back_when_there_is_room_and_no_write_was_tried(broker: BrokerHarness) -> None:
    fail_a_write(broker)
    broker.runtime.advance(1)
    show(broker, moved_image())
    broker.runtime.advance(10_000)
    assert assignments(broker) == MOVED
    assert (broker.broker.refusing_writes, broker.gauge("replicas_giving_way")) == (1, 1)
    free(broker)
    broker.runtime.advance(LOOK_MS + 600)
    assert assignments(broker) == MOVED + BACK
    assert (broker.broker.refusing_writes, broker.gauge("replicas_giving_way")) == (0, 0)


def test_without_another_replica_in_sync_it_keeps_its_leadership(broker: BrokerHarness) -> None:
    """It serves reads, and takes writes again as soon as there is room."""
    show(broker, replicated(isr=(NODE,), partition_epoch=1))
    fail_a_write(broker)
    broker.runtime.advance(5_000)
    assert assignments(broker) == []
    free(broker)
    assert broker.produced() == ErrorCode.NONE


@pytest.mark.parametrize("reason", ["fenced", "without room itself"])
def test_another_replica_that_can_not_lead_does_not_count(broker: BrokerHarness, reason: str) -> None:
    if reason == "fenced":
        other = broker.metadata.image.brokers[OTHER]
        broker.metadata.image.brokers[OTHER] = msgspec.structs.replace(other, fenced=True)
    else:
        show(broker, replicated(partition_epoch=1, directories=(OWN, LOST_DIRECTORY)))
    fail_a_write(broker)
    broker.runtime.advance(5_000)
    assert assignments(broker) == []


def test_two_that_give_way_at_the_same_moment_do_not_leave_it_without_a_leader(broker: BrokerHarness) -> None:
    """The controller has decided on both. Each sees that no other may lead, and takes its word back."""
    fail_a_write(broker)
    broker.runtime.advance(1)
    nobody = moved_image(eligible_leader_replicas=(NODE, OTHER))
    show(broker, msgspec.structs.replace(nobody, isr=(), leader=-1, directories=(LOST_DIRECTORY,) * 2))
    broker.runtime.advance(600)
    assert assignments(broker) == MOVED + BACK


def test_a_follower_gives_way_so_that_the_isr_does_not_wait_for_it(broker: BrokerHarness) -> None:
    show(broker, replicated(leader=-1, leader_epoch=1, partition_epoch=1))
    broker.broker.partitions.refused_writes.failed(TopicPartition("t", 0), FULL)
    broker.runtime.advance(1)
    assert assignments(broker) == MOVED


def test_a_replica_that_is_in_sync_again_while_it_refuses_says_so_again(broker: BrokerHarness) -> None:
    """A leader of Kafka takes it in once it has caught up, whatever its directory is."""
    without_room = moved_image()
    fail_a_write(broker)
    broker.runtime.advance(1)
    show(broker, without_room)
    assert assignments(broker) == MOVED
    show(broker, msgspec.structs.replace(without_room, isr=(OTHER, NODE), partition_epoch=2))
    broker.runtime.advance(1)
    assert assignments(broker) == MOVED * 2


def test_a_leader_takes_no_replica_into_the_isr_that_can_not_be_written(broker: BrokerHarness) -> None:
    """It would hold up acks=all with the next batch."""
    node = Node(broker.composition)
    assert node.eligible(OTHER, OTHERS)
    assert not node.eligible(OTHER, LOST_DIRECTORY)


def test_a_log_that_can_not_be_opened_gives_way_until_its_topic_is_deleted(broker: BrokerHarness) -> None:
    broker.storage.refuse_to_open = OSError(errno.EIO, "bad sector")
    broker.metadata.delete_topic("t")
    broker.metadata.create_topic("t")
    broker.metadata.change_partition("t", replicated())
    broker.runtime.advance(1)
    assert assignments(broker)[-1:] == MOVED
    assert broker.gauge("replicas_giving_way") == 1
    broker.metadata.delete_topic("t")
    broker.runtime.run_turn()
    assert broker.gauge("replicas_giving_way") == 0


def test_a_log_whose_disk_is_bad_gives_way(broker: BrokerHarness) -> None:
    broker.hosted().fail(OSError(errno.EIO, "bad sector"))
    broker.runtime.advance(1)
    assert assignments(broker) == MOVED
    assert broker.broker.refusing_writes == 1
    broker.runtime.advance(60_000)
    assert assignments(broker) == MOVED


def test_a_directory_that_fails_is_told_by_the_heartbeat_alone() -> None:
    broker = BrokerHarness(storage=PlainStorage(("/m/a", "/m/b")))
    broker.metadata.image.brokers[OTHER] = BrokerImage(
        broker_id=OTHER, epoch=3, incarnation_id=b"2" * 16, endpoints=(), fenced=False, log_dirs=(OTHERS,)
    )
    broker.metadata.new_directory = b"b" * 16
    broker.create_topic("t")
    show(broker, replicated(directories=(b"b" * 16, OTHERS)))
    broker.storage.fail_directory("/m/b")
    broker.runtime.advance(5_000)
    assert assignments(broker) == []


def test_a_controller_that_does_not_hear_is_told_again(broker: BrokerHarness) -> None:
    broker.metadata.refuse = ErrorCode.NOT_CONTROLLER
    fail_a_write(broker)
    broker.runtime.advance(120)
    assert assignments(broker) == MOVED * 2


def test_a_word_that_is_under_way_is_followed_by_the_next_without_a_pause(broker: BrokerHarness) -> None:
    broker.metadata.new_directory = UNASSIGNED_DIRECTORY
    broker.create_topic("new")
    pending = broker.metadata.held = []
    broker.runtime.advance(550)
    first = pending[-1]
    fail_a_write(broker)
    broker.runtime.advance(5)
    assert len(assignments(broker)) == 1
    first.fail(BrokerError(ErrorCode.NOT_CONTROLLER))
    broker.runtime.advance(101)
    assert (LOST_DIRECTORY, [(b"t", [0])]) in assignments(broker)[-1]


def test_a_stop_is_the_end_of_it(broker: BrokerHarness) -> None:
    broker.stop()
    broker.broker.partitions.refused_writes.failed(TopicPartition("t", 0), FULL)
    broker.runtime.advance(10_000)
    assert assignments(broker) == []


def test_one_line_says_so_for_many(broker: BrokerHarness) -> None:
    fail_a_write(broker)
    broker.runtime.advance(1)
    lines = [values for _, event, values in broker.log.events if "gives way" in event]
    assert [one["partition"] for one in lines] == ["t-0"]


@pytest.mark.parametrize(
    ("usable_bytes", "total_bytes", "expected"),
    [
        (0, 1 << 40, False),
        (16 << 20, 1 << 40, False),
        (17 << 20, 1 << 40, True),
        (400_000, 30 << 20, True),
        (-1, -1, True),
    ],
)
def test_room_is_some_megabytes_or_a_hundredth_of_a_small_disk(
    usable_bytes: int, total_bytes: int, expected: bool
) -> None:
    directory = LogDirInfo(
        path="/d", directory_id=OWN, online=True, total_bytes=total_bytes, usable_bytes=usable_bytes
    )
    assert has_room(directory) is expected
