"""Several log directories: one that fails takes only its partitions, and the controller knows where replicas lie."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from blumfeld.broker.membership.log_directories import LOOK_MS, LogDirectoryFailure
from blumfeld.metadata.partitions.directories import UNASSIGNED_DIRECTORY
from blumfeld.spi.completion import Completion
from blumfeld.spi.storage import TopicPartition
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest, RequestTopicData
from blumfeld.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from blumfeld.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from blumfeld_kit.fakes.loop import SimulationError
from tests.broker.batches import batch, fetch, produce
from tests.broker.harness import BrokerHarness, failing
from tests.broker.plain_storage import PlainStorage

A, B = b"a" * 16, b"b" * 16
PATHS = ("/m/a", "/m/b")


@pytest.fixture
def broker() -> BrokerHarness:
    """Topic ``a`` in the first directory, which is the metadata's too, ``b`` in the second."""
    harness = BrokerHarness(storage=PlainStorage(PATHS))
    for name, directory in (("a", A), ("b", B)):
        harness.metadata.new_directory = directory
        harness.create_topic(name)
    return harness


Assigned = list[tuple[bytes, list[tuple[bytes, list[int]]]]]


def assignments(broker: BrokerHarness) -> list[Assigned]:
    """Each request as (directory, (topic, partitions))."""
    requests = broker.metadata.sent(AssignReplicasToDirsRequest)
    return [[(d.id, [_of_topic(topic) for topic in d.topics]) for d in r.directories] for r in requests]


def _of_topic(topic: RequestTopicData) -> tuple[bytes, list[int]]:
    return topic.topic_id.rstrip(b"-"), [partition.partition_index for partition in topic.partitions]


# A directory fails


def test_a_failed_directory_takes_its_partitions_offline_and_no_others(broker: BrokerHarness) -> None:
    broker.storage.fail_directory("/m/b")
    assert broker.produced(topic="b") == ErrorCode.KAFKA_STORAGE_ERROR
    answer = broker.ask(fetch(topic="b"), 11)
    assert answer.responses[0].partitions[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert broker.produced(topic="a") == ErrorCode.NONE
    (line,) = [values for level, _, values in broker.log.events if level == "error"]
    assert (line["directory"], line["partitions"]) == ("/m/b", 1)


def test_who_waits_for_a_partition_of_it_is_told_at_once(broker: BrokerHarness) -> None:
    broker.log_of("b").hold_writes = True
    producing = broker.send(produce(batch(), topic="b", acks=-1), 9)
    fetching = broker.send(fetch(topic="b", max_wait_ms=60_000), 11)
    assert not producing.settled
    assert not fetching.settled
    broker.storage.fail_directory("/m/b")
    broker.runtime.run_turn()
    answer = broker.response(producing, produce(batch()), 9)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    answer = broker.response(fetching, fetch(topic="b"), 11)
    assert answer.responses[0].partitions[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR


def test_the_controller_is_told_with_a_heartbeat_at_once(broker: BrokerHarness) -> None:
    before = len(broker.metadata.sent(BrokerHeartbeatRequest))
    broker.storage.fail_directory("/m/b")
    broker.runtime.run_turn()
    assert [beat.offline_log_dirs for beat in broker.metadata.sent(BrokerHeartbeatRequest)[before:]] == [[B]]
    broker.runtime.advance(4_100)
    assert [beat.offline_log_dirs for beat in broker.metadata.sent(BrokerHeartbeatRequest)[before:]] == [
        [B]
    ] * 3


def test_a_heartbeat_that_is_under_way_is_followed_by_the_next_at_once(broker: BrokerHarness) -> None:
    pending = broker.metadata.held = []
    broker.runtime.advance(2_100)
    before = len(broker.metadata.sent(BrokerHeartbeatRequest))
    assert len(pending) == 1
    broker.storage.fail_directory("/m/b")
    broker.runtime.run_turn()
    assert len(broker.metadata.sent(BrokerHeartbeatRequest)) == before
    pending[0].complete(BrokerHeartbeatResponse(is_caught_up=True, is_fenced=False))
    broker.runtime.run_turn()
    assert [beat.offline_log_dirs for beat in broker.metadata.sent(BrokerHeartbeatRequest)[before:]] == [[B]]


def test_a_partition_that_is_offline_stays_so_whatever_the_image_says(broker: BrokerHarness) -> None:
    """Or it would lead with a log that it can't write."""
    broker.storage.fail_directory("/m/b")
    image = broker.metadata.image.topics["b"].partitions[0]
    broker.metadata.change_partition("b", msgspec.structs.replace(image, leader_epoch=5))
    assert (broker.hosted("b").leader, broker.hosted("b").closed) == (None, ErrorCode.KAFKA_STORAGE_ERROR)
    assert broker.produced(topic="b") == ErrorCode.KAFKA_STORAGE_ERROR


def test_replicas_in_an_offline_directory_are_offline_in_metadata(broker: BrokerHarness) -> None:
    own = broker.metadata.image.brokers[1]
    broker.metadata.image.brokers[1] = msgspec.structs.replace(own, log_dirs=(A,))
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in ("a", "b")])
    offline = {t.name: t.partitions[0].offline_replicas for t in broker.ask(request, 9).topics}
    assert offline == {"a": [], "b": [1]}


def test_without_the_directory_of_the_metadata_the_node_stops(broker: BrokerHarness) -> None:
    broker.storage.fail_directory("/m/a")
    with pytest.raises(SimulationError, match="it holds the cluster's metadata"):
        broker.runtime.run_turn()
    ((_, error),) = broker.runtime.defects
    assert isinstance(error, LogDirectoryFailure)
    assert ("error", "the node stops: a log directory failed") in [event[:2] for event in broker.log.events]


def test_a_node_that_cannot_tell_of_a_failure_stops_after_a_while(broker: BrokerHarness) -> None:
    broker.metadata.answers[BrokerHeartbeatRequest] = failing(BrokerError(ErrorCode.NOT_CONTROLLER))
    broker.storage.fail_directory("/m/b")
    broker.runtime.advance(29_900)
    with pytest.raises(SimulationError, match="could not be told in time"):
        broker.runtime.advance(200)


def test_what_is_offline_is_counted(broker: BrokerHarness) -> None:
    def counted() -> tuple[float, float]:
        return broker.gauge("offline_log_directories"), broker.gauge("offline_replicas")

    assert counted() == (0, 0)
    broker.storage.fail_directory("/m/b")
    assert counted() == (1, 1)
    broker.metadata.new_directory = B
    broker.create_topic("never opened", 2)
    assert counted() == (1, 3)


def test_a_node_that_has_told_serves_on(broker: BrokerHarness) -> None:
    broker.storage.fail_directory("/m/b")
    broker.runtime.advance(60_000)
    assert broker.produced(topic="a") == ErrorCode.NONE


def test_a_directory_that_fails_while_a_log_in_it_is_opened_takes_that_too(broker: BrokerHarness) -> None:
    """Or it would lead without being told."""
    broker.storage.just_opened = lambda: broker.storage.fail_directory("/m/b")
    broker.create_topic("late")
    assert broker.broker.partitions.find("late", 0) is None
    assert broker.produced(topic="late") == ErrorCode.KAFKA_STORAGE_ERROR


def test_a_log_that_was_to_be_opened_in_it_is_offline_too(broker: BrokerHarness) -> None:
    broker.storage.open_slowly = Completion()
    broker.create_topic("late")
    broker.storage.fail_directory("/m/b")
    broker.storage.open_slowly.complete(None)
    broker.runtime.run_turn()
    assert broker.produced(topic="late") == ErrorCode.KAFKA_STORAGE_ERROR
    broker.metadata.delete_topic("late")
    assert broker.produced(topic="late") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# A storage that tells no watcher


class UnwatchedStorage(PlainStorage):
    """Has one directory, and nothing of ``SeveralDirectories``: only ``log_dirs`` says that the directory failed."""

    def __getattribute__(self, name: str) -> Any:
        if name in SEVERAL:
            raise AttributeError(name)
        return super().__getattribute__(name)


SEVERAL = frozenset({"watch", "move_log", "moves"})


@pytest.mark.parametrize("roles", [("broker", "controller"), ("controller",)], ids=" ".join)
def test_a_node_stops_when_its_storage_shows_the_only_directory_offline(roles: tuple[str, ...]) -> None:
    """It would answer KAFKA_STORAGE_ERROR, and neither vote nor lead, until a person ends it."""
    broker = BrokerHarness(storage=UnwatchedStorage(), roles=roles)
    broker.runtime.advance(5_000)
    broker.storage.fail_directory("/plain/d")
    with pytest.raises(SimulationError, match="it holds the cluster's metadata"):
        broker.runtime.advance(LOOK_MS)
    ((_, error),) = broker.runtime.defects
    assert isinstance(error, LogDirectoryFailure)


def test_a_broker_that_stops_looks_at_its_storage_no_more() -> None:
    broker = BrokerHarness(storage=UnwatchedStorage())
    broker.stop()
    broker.storage.fail_directory("/plain/d")
    broker.runtime.advance(5 * LOOK_MS)


# After a restart


def test_a_replica_of_an_offline_directory_is_not_made_anew(broker: BrokerHarness) -> None:
    """Empty, it would be taken for whole."""
    broker.stop()
    broker.storage.watcher = None
    broker.storage.fail_directory("/m/b")
    del broker.storage.logs[TopicPartition("b", 0)]  # nobody can see it there
    again = broker.restarted(clean=False)
    assert TopicPartition("b", 0) not in broker.storage.logs
    assert again.produced(topic="b") == ErrorCode.KAFKA_STORAGE_ERROR
    assert again.produced(topic="a") == ErrorCode.NONE
    registration = again.metadata.commands[0]
    assert registration.log_dirs == [A]  # type: ignore[attr-defined]


def test_a_topic_that_is_new_is_made_in_what_is_online(broker: BrokerHarness) -> None:
    broker.stop()
    broker.storage.watcher = None
    broker.storage.fail_directory("/m/b")
    again = broker.restarted(clean=False)
    again.metadata.new_directory = UNASSIGNED_DIRECTORY
    again.create_topic("new")
    assert again.log_of("new").directory_id == A
    again.metadata.delete_topic("b")
    assert again.produced(topic="b") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    again.create_topic("b")
    assert again.produced(topic="b") == ErrorCode.NONE


def test_it_is_opened_once_the_directory_is_back(broker: BrokerHarness) -> None:
    assert broker.produced(topic="b") == ErrorCode.NONE
    broker.stop()
    broker.storage.watcher = None
    broker.storage.fail_directory("/m/b")
    without = broker.restarted(clean=False)
    assert without.produced(topic="b") == ErrorCode.KAFKA_STORAGE_ERROR
    without.stop()
    broker.storage.mend_directory("/m/b")
    again = broker.restarted(clean=False)
    assert again.log_of("b").written_end_offset == 1
    assert again.produced(topic="b") == ErrorCode.NONE


# The controller is told where replicas lie


def test_replicas_that_are_nowhere_yet_are_told_of_together() -> None:
    broker = BrokerHarness(storage=PlainStorage(PATHS))
    broker.metadata.new_directory = UNASSIGNED_DIRECTORY
    broker.create_topic("t", 3)
    broker.create_topic("u")
    broker.runtime.advance(400)
    assert assignments(broker) == []
    broker.runtime.advance(200)
    assert assignments(broker) == [[(A, [(b"t", [0, 2])]), (B, [(b"t", [1]), (b"u", [0])])]]
    broker.runtime.advance(60_000)
    assert len(assignments(broker)) == 1
    assert len(broker.broker.log_directories.assignments) == 0


def with_a_new_topic(directory: bytes | None = UNASSIGNED_DIRECTORY) -> BrokerHarness:
    """Topic ``t`` lies in this directory as far as the controller knows, by default in none."""
    broker = BrokerHarness(storage=PlainStorage(PATHS))
    broker.metadata.new_directory = directory
    broker.create_topic("t")
    return broker


@pytest.mark.parametrize("directory", [A, None], ids=["it knows", "it keeps no directories"])
def test_a_controller_that_needs_no_assignment_is_told_nothing(directory: bytes | None) -> None:
    broker = with_a_new_topic(directory)
    broker.runtime.advance(5_000)
    assert assignments(broker) == []


def test_a_controller_that_knows_no_assignments_is_left_alone() -> None:
    broker = with_a_new_topic()
    broker.metadata.refuse = ErrorCode.UNSUPPORTED_VERSION
    broker.runtime.advance(60_000)
    assert len(assignments(broker)) == 1


def test_an_assignment_that_was_not_heard_is_told_again() -> None:
    broker = with_a_new_topic()
    broker.metadata.refuse = ErrorCode.NOT_CONTROLLER
    broker.runtime.advance(550)
    assert len(assignments(broker)) == 1
    broker.runtime.advance(100)
    assert assignments(broker) == [[(A, [(b"t", [0])])]] * 2
    assert broker.metadata.image.topics["t"].partitions[0].directories == (A,)
    broker.runtime.advance(60_000)
    assert len(assignments(broker)) == 2


def test_many_assignments_go_in_several_requests() -> None:
    broker = BrokerHarness(storage=PlainStorage(("/m/a",)))
    broker.metadata.new_directory = UNASSIGNED_DIRECTORY
    broker.create_topic("t", 2_300)
    broker.runtime.advance(1_100)
    assert [len(request[0][1][0][1]) for request in assignments(broker)] == [2_250, 50]


def test_a_topic_that_is_deleted_is_told_of_no_more() -> None:
    broker = with_a_new_topic()
    broker.metadata.delete_topic("t")
    broker.runtime.advance(60_000)
    assert assignments(broker) == []


def test_a_replica_that_moved_is_told_of(broker: BrokerHarness) -> None:
    at = TopicPartition("b", 0)
    broker.storage.move_log(at, A)
    broker.runtime.advance(2_000)
    assert assignments(broker) == []
    broker.storage.finish_move(at)
    broker.runtime.advance(600)
    assert assignments(broker) == [[(A, [(b"b", [0])])]]
    assert broker.produced(topic="b") == ErrorCode.NONE
