"""Other replicas for a partition (KIP-455). ``tests/traces/controller_reassignment.txt`` has whole stories."""

from __future__ import annotations

import pytest

from blumfeld.metadata.partitions.directories import UNASSIGNED_DIRECTORY
from blumfeld.metadata.slices import SLICE_RECORDS
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from blumfeld.wire.messages.metadata_records import PartitionChangeRecord
from tests.metadata.driven import Driven, directory_id


@pytest.fixture
def driven() -> Driven:
    """Three brokers, of which 1 and 2 have the topic."""
    driven = Driven()
    driven.join(1, 2)
    driven.create("t", factor=2)
    driven.join(3)
    return driven


def test_the_same_replicas_are_no_change(driven: Driven) -> None:
    before = len(driven.log)
    assert driven.reassign("t", list(driven.partition("t").replicas)) == 0
    assert len(driven.log) == before


@pytest.mark.parametrize("replicas", [[], [1, 1], [1, 9], [-1]])
def test_replicas_are_registered_brokers_each_once(driven: Driven, replicas: list[int]) -> None:
    before = len(driven.log)
    assert driven.reassign("t", replicas) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert len(driven.log) == before


def test_a_fenced_broker_may_be_added(driven: Driven) -> None:
    """It becomes a member of the ISR when it has come and caught up."""
    driven.register(4)
    assert driven.reassign("t", [1, 4]) == 0
    assert driven.partition("t").adding_replicas == (4,)


def test_a_replica_goes_to_a_directory_that_its_broker_chooses(driven: Driven) -> None:
    """A broker with several directories chooses one, and reports it."""
    epoch = driven.register(4, log_dirs=[directory_id(4, 0), directory_id(4, 1)])
    driven.beat(4, epoch)
    assert driven.reassign("t", [*driven.partition("t").replicas, 4]) == 0
    assert driven.partition("t").directories[2] == UNASSIGNED_DIRECTORY


def test_another_number_of_replicas_can_be_forbidden(driven: Driven) -> None:
    """KIP-860. The number is counted without replicas that go."""
    same = ErrorCode.INVALID_REPLICATION_FACTOR
    assert driven.reassign("t", [1], same_factor=True) == same
    assert driven.reassign("t", [1, 2, 3], same_factor=True) == same
    assert driven.reassign("t", [1, 3], same_factor=True) == 0
    assert len(driven.partition("t").replicas) == 3
    assert driven.reassign("t", [1, 2, 3], same_factor=True) == same
    assert driven.reassign("t", [3, 2], same_factor=True) == 0


def test_one_request_sees_its_own_changes(driven: Driven) -> None:
    wanted = [ReassignablePartition(replicas=[1, 3]), ReassignablePartition(replicas=None)]
    request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name="t", partitions=wanted)])
    before = driven.partition("t")
    answer = driven.do(request, AlterPartitionReassignmentsResponse)
    assert [result.error_code for result in answer.responses[0].partitions] == [0, 0]
    after = driven.partition("t")
    assert (after.replicas, after.adding_replicas) == (before.replicas, ())
    assert after.leader_epoch == before.leader_epoch + 1


def test_many_partitions_take_several_parts(driven: Driven) -> None:
    count = SLICE_RECORDS + 5
    driven.create("many", count, 2)
    wanted = [ReassignablePartition(partition_index=number, replicas=[3]) for number in range(count)]
    request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name="many", partitions=wanted)])
    first = driven.decide(request)
    assert len(first.records) == SLICE_RECORDS
    answer = driven.carry_out(first).response
    assert isinstance(answer, AlterPartitionReassignmentsResponse)
    results = answer.responses[0].partitions
    assert [result.partition_index for result in results] == list(range(count))
    partitions = driven.image.topics["many"].partitions.values()
    assert all(3 in partition.replicas for partition in partitions)


def test_what_another_controller_began_ends_or_is_cancelled(driven: Driven) -> None:
    """As in a directory of Kafka's: the records are the same."""
    topic, (first, second) = driven.image.topics["t"], driven.partition("t").replicas
    began = PartitionChangeRecord(
        partition_id=0,
        topic_id=topic.topic_id,
        replicas=[first, 3, second],
        adding_replicas=[3],
        removing_replicas=[second],
        directories=list(map(directory_id, (first, 3, second))),
    )
    driven.place([began])
    assert driven.decide(_cancel()).records
    assert driven.alter_isr("t", [first, second, 3]) == 0
    assert driven.partition("t").replicas == (first, 3)
    assert driven.reassign("t", None) == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


def _cancel() -> AlterPartitionReassignmentsRequest:
    wanted = [ReassignablePartition(replicas=None)]
    return AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name="t", partitions=wanted)])
