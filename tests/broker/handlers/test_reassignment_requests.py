"""AlterPartitionReassignments and ListPartitionReassignments, as clients see them."""

from __future__ import annotations

import msgspec

from blumfeld.spi.consensus import Controller
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from blumfeld.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from tests.broker.harness import BrokerHarness


def test_only_partitions_that_are_reassigned_are_listed() -> None:
    broker = BrokerHarness(partitions=3)
    broker.create_topic("u")
    image = broker.metadata.image.topics["t"].partitions[1]
    moving = msgspec.structs.replace(image, replicas=(1, 2), adding_replicas=(2,), removing_replicas=(1,))
    broker.metadata.change_partition("t", moving)
    (topic,) = broker.ask(ListPartitionReassignmentsRequest(topics=None), 0).topics
    (partition,) = topic.partitions
    assert (topic.name, partition.partition_index, partition.replicas) == ("t", 1, [1, 2])
    assert (partition.adding_replicas, partition.removing_replicas) == ([2], [1])
    for name, indexes, count in (("t", [0, 1, 9], 1), ("t", [0], 0), ("nowhere", [0], 0)):
        wanted = [ListPartitionReassignmentsTopics(name=name, partition_indexes=indexes)]
        answer = broker.ask(ListPartitionReassignmentsRequest(topics=wanted), 0)
        assert (answer.error_code, len(answer.topics)) == (0, count)


def test_the_controller_decides_on_reassignments() -> None:
    broker = BrokerHarness()
    heard = AlterPartitionReassignmentsResponse(error_message="heard")
    broker.metadata.answers[AlterPartitionReassignmentsRequest] = lambda _: heard
    assert broker.ask(AlterPartitionReassignmentsRequest(timeout_ms=5), 1).error_message == "heard"
    assert len(broker.metadata.sent(AlterPartitionReassignmentsRequest)) == 1
    broker.metadata.refuse = ErrorCode.NOT_CONTROLLER
    assert broker.ask(AlterPartitionReassignmentsRequest(), 0).error_code == ErrorCode.NOT_CONTROLLER


def test_where_nodes_do_not_forward_only_the_controller_lists_reassignments() -> None:
    """The other nodes aren't told of them (ZooKeeper mode): an empty answer would say that all have ended."""
    broker = BrokerHarness()
    broker.metadata.forwards = False
    assert broker.ask(ListPartitionReassignmentsRequest(topics=None), 0).error_code == 0
    broker.metadata.controller = Controller(7, 1)
    answer = broker.ask(ListPartitionReassignmentsRequest(topics=None), 0)
    assert answer.error_code == ErrorCode.NOT_CONTROLLER
