"""A controller that pushes: its orders are fenced, each has a result of its own, and the image changes no replica."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from blumfeld.spi.cluster import ImageDelta, PartitionImage
from blumfeld.spi.completion import Completion
from blumfeld.spi.consensus import ReplicaDriver
from blumfeld.spi.storage import InconsistentTopicIdError, TopicPartition
from blumfeld.wire.errors import ErrorCode, PluginContractError
from tests.broker.batches import batch
from tests.broker.harness import BrokerHarness
from tests.broker.replicas.test_partition import code

AT = TopicPartition("t", 0)
TOPIC_ID = b"t".ljust(16, b"-")


class Pushed(BrokerHarness):
    """A broker whose consensus pushes."""

    def __init__(self, **options: Any) -> None:
        super().__init__(start=False, **options)
        self.metadata.replica_driver = ReplicaDriver.PUSHES
        self.broker.replicas._driver = ReplicaDriver.PUSHES
        self.start()

    def push(
        self, image: PartitionImage, epoch: int = 1, topic_id: bytes = TOPIC_ID
    ) -> Completion[ErrorCode]:
        done = self.broker.replicas.apply(AT, topic_id, image, epoch)
        self.runtime.run_turn()
        return done

    def halt(self, leader_epoch: int, epoch: int = 1, *, delete: bool = False) -> ErrorCode:
        done = self.broker.replicas.stop(AT, leader_epoch, epoch, delete=delete)
        self.runtime.run_turn()
        return done.result()

    @property
    def leads(self) -> bool:
        hosted = self.broker.partitions.find("t", 0)
        return hosted is not None and hosted.leader is not None


def image(epoch: int = 0, leader: int = 1) -> PartitionImage:
    return PartitionImage(
        partition=0, replicas=(1,), isr=(1,), leader=leader, leader_epoch=epoch, partition_epoch=epoch
    )


@pytest.fixture
def broker() -> Pushed:
    return Pushed()


def test_the_image_hosts_nothing(broker: Pushed) -> None:
    broker.create_topic("t")
    assert broker.broker.partitions.find("t", 0) is None
    broker.push(image())
    assert broker.leads
    assert code(broker, batch()) == ErrorCode.NONE
    topic = broker.metadata.image.topics["t"]
    other = msgspec.structs.replace(image(5), leader=-1)
    broker.metadata.tell(ImageDelta(partitions_changed=((topic, other),)))
    assert broker.leads
    broker.metadata.delete_topic("t")
    assert broker.leads, "the log goes when the controller says so"
    assert broker.halt(-2, delete=True) == ErrorCode.NONE
    assert broker.storage.deleted == [AT]


def test_the_result_comes_when_the_log_is_open(broker: Pushed) -> None:
    broker.storage.open_slowly = Completion()
    first = broker.push(image())
    again = broker.push(image(1))
    assert not first.done
    broker.storage.open_slowly.complete(None)
    broker.runtime.run_turn()
    assert (first.result(), again.result()) == (ErrorCode.NONE, ErrorCode.NONE)
    assert broker.leads
    assert broker.push(image(2)).result() == ErrorCode.NONE


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
    assert broker.push(image()).result() == answer


def test_a_replica_that_is_deleted_while_it_is_opened_has_a_result(broker: Pushed) -> None:
    broker.storage.open_slowly = Completion()
    done = broker.push(image())
    assert broker.halt(0, delete=True) == ErrorCode.NONE
    assert done.result() == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_stop_of_the_broker_ends_every_order(broker: Pushed) -> None:
    broker.storage.open_slowly = Completion()
    done = broker.push(image())
    broker.broker.partitions.stop()
    assert done.result() == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert broker.push(image()).result() == ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize("delete", [True, False])
def test_a_broker_that_is_stopped_says_that_it_did_nothing(broker: Pushed, delete: bool) -> None:
    """A success would tell the controller that the log is gone."""
    broker.push(image())
    broker.stop()
    assert broker.halt(-2, delete=delete) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert broker.push(image(1)).result() == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert broker.storage.deleted == []


def test_an_earlier_controller_changes_nothing(broker: Pushed) -> None:
    broker.push(image(), epoch=5)
    assert broker.push(image(3), epoch=4).result() == ErrorCode.STALE_CONTROLLER_EPOCH
    assert broker.halt(9, epoch=4, delete=True) == ErrorCode.STALE_CONTROLLER_EPOCH
    assert broker.leads
    hosted = broker.broker.partitions.find("t", 0)
    assert hosted is not None
    assert hosted.leader_epoch == 0


def test_an_older_leader_epoch_changes_nothing(broker: Pushed) -> None:
    broker.push(image(3))
    assert broker.push(image(2)).result() == ErrorCode.FENCED_LEADER_EPOCH
    assert broker.halt(2, delete=True) == ErrorCode.FENCED_LEADER_EPOCH
    assert broker.leads


def test_an_older_leader_epoch_is_seen_also_while_the_log_is_opened(broker: Pushed) -> None:
    broker.storage.open_slowly = Completion()
    broker.push(image(3))
    assert broker.push(image(2)).result() == ErrorCode.FENCED_LEADER_EPOCH


def test_a_stop_keeps_the_log_and_a_later_epoch_goes_on(broker: Pushed) -> None:
    broker.create_topic("t")
    broker.push(image())
    code(broker, batch())
    assert broker.halt(0) == ErrorCode.NONE
    assert not broker.leads
    assert code(broker, batch()) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert broker.storage.deleted == []
    broker.push(image(1))
    assert broker.leads
    assert broker.log_of("t").written_end_offset == 1


def test_a_stop_while_the_log_is_opened_keeps_it(broker: Pushed) -> None:
    broker.storage.open_slowly = Completion()
    done = broker.push(image())
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
        broker.broker.replicas.apply(AT, TOPIC_ID, image(), 1)
    with pytest.raises(PluginContractError):
        broker.broker.replicas.stop(AT, 0, 1, delete=True)
