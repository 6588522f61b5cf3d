"""A broker obeys its controller: the latest one, as the process that it is, and answers when it is done."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from blumfeld.broker.cluster import ClusterView
from blumfeld.broker.membership.leaders import offline_replicas
from blumfeld.metadata.image.cluster_image import MetadataImage
from blumfeld.metadata.partitions.directories import LOST_DIRECTORY, MIGRATING_DIRECTORY
from blumfeld.spi.cluster import ImageDelta, PartitionImage
from blumfeld.spi.completion import Completion
from blumfeld.spi.consensus import Controller
from blumfeld.spi.storage import TopicPartition
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.leader_and_isr import LeaderAndIsrRequest
from blumfeld.wire.messages.metadata_records import ConfigRecord
from blumfeld.wire.messages.stop_replica import StopReplicaRequest
from blumfeld.wire.messages.update_metadata import UpdateMetadataRequest
from blumfeld.wire.schema import Message
from blumfeld_consensus_zk_compat.node.control_requests import ControlRequests
from blumfeld_consensus_zk_compat.node.image import NodeImage
from blumfeld_consensus_zk_compat.pushes.plan import (
    LiveBrokers,
    Placed,
    Sender,
    Stop,
    leader_and_isr,
    stop_replica,
    update_metadata,
)
from blumfeld_kit.fakes.runtime import FakeRuntime
from tests.kernel.fakes import silent_logs
from tests.plugins.consensus_zk_compat.images import LISTENER, ORDERS, TRADES, broker, image_of, small

OWN, EPOCH, CONTROLLER_EPOCH = 2, 100, 7


class Node:
    """The broker's side of node 2, whose replicas only note what they are ordered to do."""

    def __init__(self) -> None:
        self.runtime = FakeRuntime()
        self.image = NodeImage(MetadataImage("cluster"), self.runtime, silent_logs().named("image"))
        self.image.load(small())
        self.deltas: list[ImageDelta] = []
        self.image.subscribe(lambda _, delta: self.deltas.append(delta))
        self.deltas.clear()
        self.orders: list[tuple[Any, ...]] = []
        self.outcomes: list[Completion[ErrorCode]] | None = None
        """With a list, replicas are open when the test says so."""
        self.read: list[str] = []
        self.told: list[list[tuple[bytes, int]]] = []
        self.requests = ControlRequests(
            node_id=OWN,
            runtime=self.runtime,
            events=silent_logs().named("node"),
            image=self.image,
            replicas=lambda: self,
            broker_epoch=lambda: EPOCH,
            topic_configs=self._configs,
            told=lambda replicas: self.told.append(list(replicas)),
            pushed=lambda controller_epoch, broker_epoch: None,
        )

    def _configs(self, topics: Sequence[str]) -> Completion[list[Message]]:
        self.read += topics
        return Completion.of(
            [ConfigRecord(resource_type=2, resource_name=t, name="retention.ms", value="5") for t in topics]
        )

    def apply(
        self, partition: TopicPartition, topic_id: bytes, image: PartitionImage, controller_epoch: int
    ) -> Completion[ErrorCode]:
        retention = self.image.image.config(2, partition.topic).get("retention.ms")
        self.orders.append((partition, image.leader, image.leader_epoch, controller_epoch, retention))
        if self.outcomes is None:
            return Completion.of(ErrorCode.NONE)
        self.outcomes.append(Completion())
        return self.outcomes[-1]

    def stop(
        self, partition: TopicPartition, leader_epoch: int, controller_epoch: int, *, delete: bool
    ) -> Completion[ErrorCode]:
        self.orders.append((partition, leader_epoch, controller_epoch, delete))
        return Completion.of(ErrorCode.NONE)

    def ask(self, request: Message) -> Any:
        served = self.requests.serve(request)
        self.runtime.run_turn()
        return served.result()


@pytest.fixture
def node() -> Node:
    made = Node()
    made.requests.begin()
    return made


SENDER = Sender(Controller(1, CONTROLLER_EPOCH), EPOCH)
IMAGE = small()
ORDER = Placed("orders", ORDERS, IMAGE.topics["orders"].partitions[0])


def lead(sender: Sender = SENDER, placed: Placed = ORDER) -> LeaderAndIsrRequest:
    return leader_and_isr(sender, [placed], LiveBrokers(IMAGE, LISTENER))


def show(*placed: Placed, sender: Sender = SENDER, image: MetadataImage = IMAGE) -> UpdateMetadataRequest:
    return update_metadata(sender, placed, LiveBrokers(image, LISTENER))


def stop(sender: Sender = SENDER, *, leader_epoch: int = 3, delete: bool = True) -> StopReplicaRequest:
    return stop_replica(sender, [(TopicPartition("orders", 0), Stop(leader_epoch, delete))])


def moved(leader: int, leader_epoch: int, **fields: Any) -> Placed:
    partition = IMAGE.topics["orders"].partitions[0]
    changed = {field: getattr(partition, field) for field in partition.__struct_fields__}
    changed |= {"leader": leader, "leader_epoch": leader_epoch, **fields}
    return Placed("orders", ORDERS, PartitionImage(**changed))


each_request = pytest.mark.parametrize("make", [lead, stop, lambda sender: show(ORDER, sender=sender)])


@each_request
def test_an_earlier_controller_is_refused_and_changes_nothing(node: Node, make: Any) -> None:
    assert node.ask(show()).error_code == 0
    orders, told = list(node.orders), len(node.told)
    answer = node.ask(make(Sender(Controller(3, CONTROLLER_EPOCH - 1), EPOCH)))
    assert answer.error_code == ErrorCode.STALE_CONTROLLER_EPOCH
    assert (node.orders, len(node.told)) == (orders, told)


@each_request
def test_what_is_meant_for_an_earlier_process_of_the_node_is_refused(node: Node, make: Any) -> None:
    answer = node.ask(make(Sender(Controller(1, CONTROLLER_EPOCH), EPOCH - 1)))
    assert answer.error_code == ErrorCode.STALE_BROKER_EPOCH
    assert node.orders == []
    assert node.deltas == []


@each_request
@pytest.mark.parametrize("epoch", [-1, EPOCH, EPOCH + 1])
def test_a_controller_that_knows_no_epoch_or_a_later_one_is_obeyed(node: Node, make: Any, epoch: int) -> None:
    """It may hear of the new epoch before this process does."""
    assert node.ask(make(Sender(Controller(1, CONTROLLER_EPOCH), epoch))).error_code == 0


@each_request
def test_requests_wait_until_the_broker_hosts_replicas(make: Any) -> None:
    node = Node()
    served = node.requests.serve(make(SENDER))
    node.runtime.run_turn()
    assert not served.done
    assert node.orders == []
    node.requests.begin()
    node.runtime.run_turn()
    assert served.done


def test_replicas_lead_and_follow_and_the_answer_waits_for_their_logs(node: Node) -> None:
    node.outcomes = []
    served = node.requests.serve(lead())
    node.runtime.run_turn()
    assert node.orders == [(TopicPartition("orders", 0), 1, 0, CONTROLLER_EPOCH, None)]
    assert not served.done
    assert node.told == []
    node.outcomes[0].complete(ErrorCode.KAFKA_STORAGE_ERROR)
    node.runtime.run_turn()
    answer: Any = served.result()
    (topic,) = answer.topics
    (error,) = topic.partition_errors
    assert (answer.error_code, topic.topic_id) == (0, ORDERS)
    assert (error.partition_index, error.error_code) == (0, ErrorCode.KAFKA_STORAGE_ERROR)
    assert node.told == [[(ORDERS, 0)]]


def test_the_configuration_of_a_topic_that_is_not_shown_yet_is_read_before_its_log_is_opened(
    node: Node,
) -> None:
    fresh = Placed("trades", TRADES, ORDER.image, is_new=True)
    node.ask(lead(placed=fresh))
    assert node.read == ["trades"]
    assert node.orders == [(TopicPartition("trades", 0), 1, 0, CONTROLLER_EPOCH, "5")]


def test_leader_and_isr_shows_clients_nothing(node: Node) -> None:
    node.ask(lead(placed=moved(2, 4)))
    assert node.image.image.topics["orders"].partitions[0].leader == 1


@pytest.mark.parametrize(("leader_epoch", "delete"), [(3, True), (3, False), (-2, True)])
def test_replicas_stop_and_only_go_if_the_order_says_so(node: Node, leader_epoch: int, delete: bool) -> None:
    answer = node.ask(stop(leader_epoch=leader_epoch, delete=delete))
    assert node.orders == [(TopicPartition("orders", 0), leader_epoch, CONTROLLER_EPOCH, delete)]
    (error,) = answer.partition_errors
    assert (error.topic_name, error.partition_index, error.error_code) == ("orders", 0, 0)


# UpdateMetadata


def test_what_is_shown_is_a_step_of_the_image_and_orders_no_replica(node: Node) -> None:
    assert node.ask(show(moved(2, 1, isr=(2,), partition_epoch=5))).error_code == 0
    shown = node.image.image.topics["orders"].partitions[0]
    assert (shown.leader, shown.leader_epoch, shown.isr, shown.partition_epoch) == (2, 1, (2,), 5)
    (delta,) = node.deltas
    assert [partition.partition for _, partition in delta.partitions_changed] == [0]
    assert node.orders == []
    assert node.told == [[]]


def test_the_answer_waits_for_those_who_listen_to_the_image(node: Node) -> None:
    applied: Completion[None] = Completion()
    node.image.subscribe(lambda _, delta: None if delta.first else applied)
    served = node.requests.serve(show(moved(2, 1)))
    node.runtime.run_turn()
    assert not served.done
    applied.complete(None)
    node.runtime.run_turn()
    assert served.done


def test_a_new_topic_comes_with_its_configuration(node: Node) -> None:
    node.ask(show(Placed("trades", TRADES, ORDER.image)))
    assert node.image.image.topics["trades"].topic_id == TRADES
    assert node.image.image.config(2, "trades") == {"retention.ms": "5"}


def test_a_topic_that_is_being_deleted_goes(node: Node) -> None:
    node.ask(show(ORDER._replace(deleted=True)))
    assert "orders" not in node.image.image.topics
    assert [topic.name for topic in node.deltas[0].topics_deleted] == ["orders"]


def test_a_late_deletion_leaves_the_topic_that_was_created_again(node: Node) -> None:
    node.ask(show(Placed("orders", TRADES, ORDER.image)))
    node.ask(show(ORDER._replace(deleted=True)))
    assert node.image.image.topics["orders"].topic_id == TRADES


def test_an_older_state_than_that_of_the_tree_changes_nothing(node: Node) -> None:
    """The tree that was read at the start may be ahead of what the controller sent first."""
    node.ask(show(moved(2, 3)))
    node.ask(show(moved(1, 2)))
    assert node.image.image.topics["orders"].partitions[0].leader == 2


def offline_at(node: Node) -> list[int]:
    """The replicas of ``orders``-0 that this node's Metadata shows offline."""
    cluster = SimpleNamespace(image=node.image.image)
    return offline_replicas(
        cast("ClusterView", cluster), cluster.image.topics["orders"].partitions[0], LISTENER
    )


def test_a_replica_on_a_lost_disk_of_a_live_broker_is_offline_until_it_is_well_again(node: Node) -> None:
    """No epoch moves with a follower's disk."""
    node.ask(show(moved(2, 0, directories=(LOST_DIRECTORY, MIGRATING_DIRECTORY))))
    assert offline_at(node) == [1]
    changed = len(node.deltas)
    node.ask(show(moved(2, 0, directories=(LOST_DIRECTORY, MIGRATING_DIRECTORY))))
    assert len(node.deltas) == changed, "nothing is new"
    node.ask(show(moved(2, 0)))
    assert offline_at(node) == []


def test_a_replica_whose_broker_went_is_offline_only_until_the_broker_is_there_again(node: Node) -> None:
    alone = image_of(broker(2))
    node.ask(show(moved(2, 1, isr=(2,)), image=alone))
    assert offline_at(node) == [1]
    node.ask(show())
    assert offline_at(node) == []


def test_brokers_come_and_go_with_each_list_and_this_node_stays(node: Node) -> None:
    node.ask(show(image=image_of(broker(1), broker(4))))
    assert sorted(node.image.image.brokers) == [1, 2, 4]
    assert node.image.image.brokers[2].epoch == 100
    assert node.image.image.brokers[4].epoch == -1
    assert not node.image.image.brokers[4].fenced
    changed = len(node.deltas)
    node.ask(show(image=image_of(broker(1), broker(4))))
    assert len(node.deltas) == changed, "nothing is new"


def test_a_step_that_can_not_be_taken_holds_up_no_other(node: Node) -> None:
    from blumfeld.wire.messages.metadata_records import PartitionChangeRecord

    broken = node.image.replay([PartitionChangeRecord(topic_id=b"?" * 16)])
    node.runtime.run_turn()
    assert broken.error is not None
    assert node.ask(show(moved(2, 1))).error_code == 0


def test_a_large_step_is_seen_as_a_whole(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("BATCH_RECORDS_MAX", 3), ("SLICE_RECORDS", 2)):
        monkeypatch.setattr(f"blumfeld_consensus_zk_compat.node.image.{name}", value)
    partitions = [moved(1, 1, partition=index) for index in range(9)]
    before = node.image.image
    node.ask(show(*partitions))
    assert node.image.image is not before
    assert len(node.image.image.topics["orders"].partitions) == 9
    assert len(before.topics["orders"].partitions) == 2
