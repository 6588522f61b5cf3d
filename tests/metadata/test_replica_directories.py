"""Where replicas lie, and what becomes of them when a log directory fails (KIP-858)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from blumfeld.metadata.image.records import image_of, image_records
from blumfeld.metadata.partitions.directories import (
    LOST_DIRECTORY,
    MIGRATING_DIRECTORY,
    UNASSIGNED_DIRECTORY,
    directory_of,
    has_online_directory,
    is_reserved,
)
from blumfeld.metadata.partitions.placement import default_directory
from blumfeld.spi.cluster import BrokerImage, PartitionImage
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    RequestDirectoryData,
    RequestPartitionData,
    RequestTopicData,
)
from blumfeld.wire.messages.metadata_records import BrokerRegistrationChangeRecord, PartitionChangeRecord
from tests.metadata.driven import CLUSTER_ID, Driven, assigned, directory_id, replayed

FIRST, SECOND = directory_id(1), directory_id(1, 1)
SESSION_MS = 9_000


def two_directories(
    config: Mapping[str, object] | None = None, *, levels: Mapping[str, int] | None = None
) -> Driven:
    """Broker 1 with two directories, broker 2 with one."""
    driven = Driven(config, levels=levels)
    driven.beat(1, driven.register(1, log_dirs=[FIRST, SECOND]))
    driven.join(2)
    return driven


def assign(
    driven: Driven,
    places: Mapping[bytes, Sequence[tuple[str, int]]],
    broker_id: int = 1,
    epoch: int | None = None,
) -> AssignReplicasToDirsResponse:
    """Say where these replicas of a broker lie: by directory, (topic, partition)."""
    epoch = driven.epoch_of(1) if epoch is None else epoch
    directories = []
    for directory, partitions in places.items():
        topics = []
        for name, index in partitions:
            topic = driven.image.topics.get(name)
            topic_id = b"?" * 16 if topic is None else topic.topic_id
            topics.append(RequestTopicData(topic_id=topic_id, partitions=[RequestPartitionData(index)]))
        directories.append(RequestDirectoryData(id=directory, topics=topics))
    request = AssignReplicasToDirsRequest(broker_id=broker_id, broker_epoch=epoch, directories=directories)
    return driven.do(request, AssignReplicasToDirsResponse)


def codes(response: AssignReplicasToDirsResponse) -> list[int]:
    return [p.error_code for d in response.directories for t in d.topics for p in t.partitions]


@pytest.fixture
def driven() -> Driven:
    return two_directories()


def test_an_assignment_is_a_record_that_changes_nothing_else(driven: Driven) -> None:
    driven.create("t")
    before = driven.partition("t")
    response = assign(driven, {SECOND: [("t", 0)]})
    assert (response.error_code, codes(response)) == (0, [0])
    assert response.directories[0].id == SECOND
    after = driven.partition("t")
    assert after.directories == (SECOND,)
    assert (after.leader, after.leader_epoch, after.isr) == (before.leader, before.leader_epoch, before.isr)
    assert after.partition_epoch == before.partition_epoch + 1
    record = driven.log[-1]
    assert isinstance(record, PartitionChangeRecord)
    assert (record.directories, record.isr, record.leader) == ([SECOND], None, -2)


def test_the_same_assignment_again_writes_nothing(driven: Driven) -> None:
    driven.create("t")
    assign(driven, {FIRST: [("t", 0)]})
    before = len(driven.log)
    assert codes(assign(driven, {FIRST: [("t", 0)]})) == [0]
    assert len(driven.log) == before


def test_a_partition_named_twice_ends_in_the_last_place(driven: Driven) -> None:
    driven.create("t")
    assert codes(assign(driven, {FIRST: [("t", 0)], SECOND: [("t", 0)]})) == [0, 0]
    assert driven.partition("t").directories == (SECOND,)
    assert replayed(driven.log) == driven.image


def test_assignments_that_cannot_be_have_errors_of_their_own(driven: Driven) -> None:
    driven.create("ours", factor=2)
    driven.create("theirs", **assigned([2]))
    places = {FIRST: [("ours", 0), ("ours", 7), ("nowhere", 0), ("theirs", 0)]}
    assert codes(assign(driven, places)) == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ]


def test_assignments_of_another_process_are_refused(driven: Driven) -> None:
    driven.create("t")
    before = len(driven.log)
    assert (
        assign(driven, {FIRST: [("t", 0)]}, epoch=driven.epoch_of(1) + 1).error_code
        == ErrorCode.STALE_BROKER_EPOCH
    )
    unknown = assign(driven, {FIRST: [("t", 0)]}, broker_id=9)
    assert unknown.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
    assert len(driven.log) == before


def led_by_one(driven: Driven, *names: str, factor: int = 2) -> None:
    """Topics whose first replica, broker 1, leads; they lie in its directories in turn."""
    for nth, name in enumerate(names):
        driven.create(name, **assigned([1, 2][:factor]))
        assign(driven, {(FIRST, SECOND)[nth % 2]: [(name, 0)]})
        assert driven.partition(name).leader == 1


@pytest.mark.parametrize(
    ("factor", "lost", "first", "second", "log_dirs"),
    [
        (2, [SECOND], (1, (1, 2)), (2, (2,)), (FIRST,)),
        (1, [SECOND], (1, (1,)), (-1, (1,)), (FIRST,)),
        (2, [FIRST, SECOND], (2, (2,)), (2, (2,)), (FIRST, SECOND)),
    ],
    ids=[
        "another replica leads",
        "the only replica is all that is known of who has every committed record",
        "a broker without any directory stays registered",
    ],
)
def test_a_failed_directory_takes_only_its_replicas_out_of_isr_and_lead(
    driven: Driven,
    factor: int,
    lost: list[bytes],
    first: tuple[int, tuple[int, ...]],
    second: tuple[int, tuple[int, ...]],
    log_dirs: tuple[bytes, ...],
) -> None:
    led_by_one(driven, "first", "second", factor=factor)
    driven.beat(1, driven.epoch_of(1), offline_log_dirs=lost)
    pairs = [(driven.partition(name).leader, driven.partition(name).isr) for name in ("first", "second")]
    assert pairs == [first, second]
    assert driven.image.brokers[1].log_dirs == log_dirs
    assert replayed(driven.log) == driven.image


def test_the_record_of_a_failure_names_the_directories_that_are_left(driven: Driven) -> None:
    driven.beat(1, driven.epoch_of(1), offline_log_dirs=[SECOND])
    change = driven.log[-1]
    assert isinstance(change, BrokerRegistrationChangeRecord)
    assert (change.log_dirs, change.fenced) == ([FIRST], 0)
    assert driven.image.is_active(1)


def test_a_failure_is_written_once_however_often_it_is_told(driven: Driven) -> None:
    led_by_one(driven, "first", "second")
    driven.beat(1, driven.epoch_of(1), offline_log_dirs=[SECOND])
    before = len(driven.log)
    driven.beat(1, driven.epoch_of(1), offline_log_dirs=[SECOND])
    driven.beat(1, driven.epoch_of(1), offline_log_dirs=[b"nobody knows it!"])
    assert len(driven.log) == before


def test_with_elr_the_last_replica_leaves_the_isr_and_may_come_back() -> None:
    driven = two_directories(levels={"eligible.leader.replicas.version": 1})
    led_by_one(driven, "first", "second", factor=1)
    driven.beat(1, driven.epoch_of(1), offline_log_dirs=[SECOND])
    lost = driven.partition("second")
    assert (lost.leader, lost.isr, lost.eligible_leader_replicas) == (-1, (), (1,))
    driven.now_ms += SESSION_MS
    again = driven.register(1, incarnation=2, log_dirs=[FIRST, SECOND])
    driven.beat(1, again)
    assert (driven.partition("second").leader, driven.partition("second").isr) == (1, (1,))


def test_a_replica_in_an_offline_directory_is_not_even_elected_unclean() -> None:
    driven = two_directories({"unclean.leader.election.enable": True})
    led_by_one(driven, "first", "second")
    driven.beat(1, driven.epoch_of(1), offline_log_dirs=[SECOND])
    driven.beat(2, driven.image.brokers[2].epoch, want_fence=True)
    assert (driven.partition("second").leader, driven.partition("second").isr) == (-1, (2,))
    assert driven.partition("first").leader == 1


def test_a_replica_leads_again_when_its_directory_is_back(driven: Driven) -> None:
    """Not when the broker is back without it."""
    led_by_one(driven, "first", "second", factor=1)
    driven.beat(1, driven.epoch_of(1), offline_log_dirs=[SECOND])
    driven.now_ms += SESSION_MS
    without = driven.register(1, incarnation=2, log_dirs=[FIRST])
    driven.beat(1, without)
    assert driven.partition("second").leader == -1
    assert driven.partition("first").leader == 1
    driven.now_ms += SESSION_MS
    whole = driven.register(1, incarnation=3, log_dirs=[FIRST, SECOND])
    driven.beat(1, whole)
    assert driven.partition("second").leader == 1


def test_the_first_heartbeat_may_tell_of_a_failure(driven: Driven) -> None:
    """A directory that fails between registration and the first heartbeat: what lies there is not led."""
    led_by_one(driven, "first", "second", factor=1)
    driven.now_ms += SESSION_MS
    again = driven.register(1, incarnation=2, log_dirs=[FIRST, SECOND])
    answer = driven.beat(1, again, offline_log_dirs=[SECOND])
    assert not answer.is_fenced
    assert (driven.partition("first").leader, driven.partition("second").leader) == (1, -1)
    assert driven.image.brokers[1].log_dirs == (FIRST,)


def test_who_leaves_with_a_failed_directory_changes_each_partition_once(driven: Driven) -> None:
    led_by_one(driven, "first", "second")
    epochs = {name: driven.partition(name).partition_epoch for name in ("first", "second")}
    driven.beat(1, driven.epoch_of(1), want_shut_down=True, offline_log_dirs=[SECOND])
    for name in ("first", "second"):
        partition = driven.partition(name)
        assert (partition.leader, partition.partition_epoch) == (2, epochs[name] + 1)
    assert driven.image.brokers[1].log_dirs == (FIRST,)
    assert replayed(driven.log) == driven.image


@pytest.mark.parametrize("directory", [LOST_DIRECTORY, b"not of broker 1!"])
def test_a_replica_told_to_lie_in_a_directory_that_is_offline_leaves(
    driven: Driven, directory: bytes
) -> None:
    led_by_one(driven, "first")
    assert codes(assign(driven, {directory: [("first", 0)]})) == [0]
    partition = driven.partition("first")
    assert (partition.leader, partition.isr, partition.directories[0]) == (2, (2,), directory)


def test_a_replica_found_in_another_directory_may_lead_again(driven: Driven) -> None:
    """A disk was replaced, or a log moved by hand: the old id is of no directory that there is."""
    led_by_one(driven, "first", "second", factor=1)
    driven.now_ms += SESSION_MS
    third = directory_id(1, 2)
    again = driven.register(1, incarnation=2, log_dirs=[FIRST, third])
    driven.beat(1, again)
    assert driven.partition("second").leader == -1
    assert codes(assign(driven, {third: [("second", 0)]})) == [0]
    assert (driven.partition("second").leader, driven.partition("second").directories) == (1, (third,))


def test_a_snapshot_keeps_where_replicas_lie_and_what_is_offline(driven: Driven) -> None:
    led_by_one(driven, "first", "second")
    driven.beat(1, driven.epoch_of(1), offline_log_dirs=[SECOND])
    again = image_of(CLUSTER_ID, image_records(driven.image))
    assert again == driven.image
    assert again.brokers[1].log_dirs == (FIRST,)
    assert again.topics["second"].partitions[0].directories == (SECOND, directory_id(2))


# Directory ids


def broker(*log_dirs: bytes) -> BrokerImage:
    return BrokerImage(broker_id=1, epoch=1, incarnation_id=bytes(16), endpoints=(), log_dirs=log_dirs)


def test_the_first_hundred_ids_are_kafkas_own() -> None:
    first = [n.to_bytes(16) for n in range(3)]
    assert first == [MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY, LOST_DIRECTORY]
    assert all(is_reserved(n.to_bytes(16)) for n in (0, 1, 2, 99))
    assert not any(
        is_reserved(id_bytes) for id_bytes in ((100).to_bytes(16), (1 << 64).to_bytes(16), directory_id(1))
    )


def test_a_replica_that_is_nowhere_yet_can_be_used_and_a_lost_one_cannot() -> None:
    first_dir, second_dir = directory_id(1), directory_id(1, 1)
    assert has_online_directory(broker(first_dir), first_dir)
    assert not has_online_directory(broker(first_dir), second_dir)
    assert has_online_directory(broker(first_dir), UNASSIGNED_DIRECTORY)
    assert has_online_directory(broker(first_dir), MIGRATING_DIRECTORY)
    assert not has_online_directory(broker(first_dir), LOST_DIRECTORY)
    assert not has_online_directory(broker(), LOST_DIRECTORY)
    assert has_online_directory(broker(), second_dir)


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
