"""A controller that pushes: its orders are fenced, each has a result of its own, and the image changes no replica."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from blumfeld.spi.cluster import ImageDelta
from blumfeld.spi.completion import Completion
from blumfeld.spi.consensus import ReplicaDriver
from blumfeld.spi.storage import InconsistentTopicIdError, TopicPartition
from blumfeld.wire.errors import ErrorCode, PluginContractError
from tests.broker.harness import BrokerHarness, partition_image

AT = TopicPartition("t", 0)
TOPIC_ID = b"t".ljust(16, b"-")


class Pushed(BrokerHarness):
    """A broker whose consensus pushes."""

    def __init__(self, **options: Any) -> None:
        super().__init__(start=False, **options)
        self.metadata.replica_driver = ReplicaDriver.PUSHES
        self.broker.replicas._driver = ReplicaDriver.PUSHES
        self.start()

    def push(self, leader_epoch: int = 0, epoch: int = 1) -> Completion[ErrorCode]:
        """The controller of this epoch orders the replica to lead in a leader epoch."""
        image = partition_image(epoch=leader_epoch, partition_epoch=leader_epoch)
        done = self.broker.replicas.apply(AT, TOPIC_ID, image, epoch)
        self.runtime.run_turn()
        return done

    def halt(self, leader_epoch: int, epoch: int = 1, *, delete: bool = False) -> ErrorCode:
        done = self.broker.replicas.stop(AT, leader_epoch, epoch, delete=delete)
        self.runtime.run_turn()
        return done.result()

    @property
    def leads(self) -> bool:
        return any(partition.leader is not None for partition in self.broker.partitions)


@pytest.fixture
def broker() -> Pushed:
    return Pushed()


def test_the_image_hosts_nothing(broker: Pushed) -> None:
    broker.create_topic("t")
    assert broker.broker.partitions.find("t", 0) is None
    broker.push()
    assert broker.leads
    assert broker.produced() == ErrorCode.NONE
    topic = broker.metadata.image.topics["t"]
    other = partition_image(epoch=5, leader=-1)
    broker.metadata.tell(ImageDelta(partitions_changed=((topic, other),)))
    assert broker.leads
    broker.metadata.delete_topic("t")
    assert broker.leads, "the log goes when the controller says so"
    assert broker.halt(-2, delete=True) == ErrorCode.NONE
    assert broker.storage.deleted == [AT]


def test_the_result_comes_when_the_log_is_open(broker: Pushed) -> None:
    broker.storage.open_slowly = Completion()
    first = broker.push()
    again = broker.push(1)
    assert not first.done
    broker.storage.open_slowly.complete(None)
    broker.runtime.run_turn()
    assert (first.result(), again.result()) == (ErrorCode.NONE, ErrorCode.NONE)
    assert broker.leads
    assert broker.push(2).result() == ErrorCode.NONE


@pytest.mark.parametrize(
    ("error", "answer"),
    [
        (OSError("no such device"), ErrorCode.KAFKA_STORAGE_ERROR),
        (InconsistentTopicIdError("another topic's directory"), ErrorCode.INCONSISTENT_TOPIC_ID),
        (ValueError("a defect that is no answer"), ErrorCode.KAFKA_STORAGE_ERROR),
    ],
)
def test_a_log_that_cannot_be_opened_is_the_result(
    broker: Pushed, error: Exception, answer: ErrorCode
) -> None:
    broker.storage.refuse_to_open = error
    assert broker.push().result() == answer


def test_a_log_that_only_lacks_room_is_no_bad_disk(broker: Pushed) -> None:
    """The controller would take the replica for lost until the next process. It is opened as soon as there is room."""
    broker.storage.refuse_to_open = OSError(errno.ENOSPC, "no room")
    assert broker.push().result() == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert broker.push(1).result() == ErrorCode.NOT_LEADER_OR_FOLLOWER, "the second order finds it closed"
    broker.storage.refuse_to_open = None
    broker.runtime.advance(2_000)
    assert broker.leads
    assert broker.push(2).result() == ErrorCode.NONE


def test_a_replica_that_is_deleted_while_it_is_opened_has_a_result(broker: Pushed) -> None:
    broker.storage.open_slowly = Completion()
    done = broker.push()
    assert broker.halt(0, delete=True) == ErrorCode.NONE
    assert done.result() == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_stop_of_the_broker_ends_every_order(broker: Pushed) -> None:
    broker.storage.open_slowly = Completion()
    done = broker.push()
    broker.broker.partitions.stop()
    assert done.result() == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert broker.push().result() == ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize("delete", [True, False])
def test_a_broker_that_is_stopped_says_that_it_did_nothing(broker: Pushed, delete: bool) -> None:
    """A success would tell the controller that the log is gone."""
    broker.push()
    broker.stop()
    assert broker.halt(-2, delete=delete) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert broker.push(1).result() == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert broker.storage.deleted == []


def test_an_earlier_controller_changes_nothing(broker: Pushed) -> None:
    broker.push(epoch=5)
    assert broker.push(3, epoch=4).result() == ErrorCode.STALE_CONTROLLER_EPOCH
    assert broker.halt(9, epoch=4, delete=True) == ErrorCode.STALE_CONTROLLER_EPOCH
    assert broker.leads
    assert broker.hosted().leader_epoch == 0


def test_an_older_leader_epoch_changes_nothing(broker: Pushed) -> None:
    broker.push(3)
    assert broker.push(2).result() == ErrorCode.FENCED_LEADER_EPOCH
    assert broker.halt(2, delete=True) == ErrorCode.FENCED_LEADER_EPOCH
    assert broker.leads


def test_an_older_leader_epoch_is_seen_also_while_the_log_is_opened(broker: Pushed) -> None:
    broker.storage.open_slowly = Completion()
    broker.push(3)
    assert broker.push(2).result() == ErrorCode.FENCED_LEADER_EPOCH


def test_a_stop_keeps_the_log_and_a_later_epoch_goes_on(broker: Pushed) -> None:
    broker.create_topic("t")
    broker.push()
    broker.produced()
    assert broker.halt(0) == ErrorCode.NONE
    assert not broker.leads
    assert broker.produced() == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert broker.storage.deleted == []
    broker.push(1)
    assert broker.leads
    assert broker.log_of("t").written_end_offset == 1


def test_a_stop_while_the_log_is_opened_keeps_it(broker: Pushed) -> None:
    broker.storage.open_slowly = Completion()
    done = broker.push()
    assert broker.halt(0) == ErrorCode.NONE
    broker.storage.open_slowly.complete(None)
    broker.runtime.run_turn()
    assert done.result() == ErrorCode.NONE
    assert not broker.leads
    assert broker.broker.partitions.find("t", 0) is not None
    assert broker.storage.deleted == []


def test_a_stop_of_what_is_not_here_is_a_success(broker: Pushed) -> None:
    assert broker.halt(0) == ErrorCode.NONE
    assert broker.halt(0, delete=True) == ErrorCode.NONE


def test_a_consensus_whose_image_drives_the_replicas_may_not_push() -> None:
    broker = BrokerHarness()
    with pytest.raises(PluginContractError, match="replica_driver of the consensus is image"):
        broker.broker.replicas.apply(AT, TOPIC_ID, partition_image(), 1)
    with pytest.raises(PluginContractError):
        broker.broker.replicas.stop(AT, 0, 1, delete=True)
