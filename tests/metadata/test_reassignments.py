"""Other replicas for a partition: what this build does of KIP-455, and what it refuses."""

from __future__ import annotations

import pytest

from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from blumfeld.wire.messages.metadata_records import PartitionChangeRecord
from tests.metadata.driven import Driven, directory_id, replayed


def reassign(driven: Driven, topic: str, replicas: list[int] | None, partition: int = 0) -> int:
    """Ask for these replicas of one partition; its error."""
    partitions = [ReassignablePartition(partition_index=partition, replicas=replicas)]
    request = AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name=topic, partitions=partitions)]
    )
    response = driven.do(request, AlterPartitionReassignmentsResponse)
    assert response.error_code == 0
    return response.responses[0].partitions[0].error_code


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
    assert reassign(driven, "t", list(driven.partition("t").replicas)) == 0
    assert len(driven.log) == before


def test_another_order_is_another_preferred_leader(driven: Driven) -> None:
    before = driven.partition("t")
    turned = list(reversed(before.replicas))
    assert reassign(driven, "t", turned) == 0
    after = driven.partition("t")
    assert (after.replicas, after.directories) == (tuple(turned), tuple(map(directory_id, turned)))
    assert (after.leader, after.leader_epoch, after.isr) == (before.leader, before.leader_epoch, before.isr)
    assert replayed(driven.log) == driven.image


@pytest.mark.parametrize("replicas", [[], [1], [1, 1], [1, 3], [1, 2, 3], [1, 9]])
def test_replicas_stay_on_their_brokers(driven: Driven, replicas: list[int]) -> None:
    before = len(driven.log)
    assert reassign(driven, "t", replicas) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert len(driven.log) == before


def test_what_there_is_not_is_not_reassigned(driven: Driven) -> None:
    assert reassign(driven, "nowhere", [1, 2]) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert reassign(driven, "t", [1, 2], partition=7) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert reassign(driven, "t", None) == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


def test_what_another_build_began_is_left_to_it(driven: Driven) -> None:
    topic = driven.image.topics["t"]
    driven.place([PartitionChangeRecord(partition_id=0, topic_id=topic.topic_id, adding_replicas=[2])])
    before = len(driven.log)
    assert reassign(driven, "t", None) == ErrorCode.REASSIGNMENT_IN_PROGRESS
    assert reassign(driven, "t", [1, 2]) == ErrorCode.REASSIGNMENT_IN_PROGRESS
    assert len(driven.log) == before
