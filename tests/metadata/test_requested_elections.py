"""ElectLeaders, as Kafka 4.3.1 answers it for topics of one replica, and for what a larger cluster left."""

from __future__ import annotations

import pytest

from blumfeld.metadata.partitions.requested_elections import PREFERRED, UNCLEAN
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from blumfeld.wire.messages.metadata_records import PartitionChangeRecord
from tests.metadata.driven import Driven, replayed

NOT_NEEDED = int(ErrorCode.ELECTION_NOT_NEEDED)
UNKNOWN = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def elect(driven: Driven, kind: int, *elections: tuple[str, list[int]]) -> dict[str, list[tuple[int, int]]]:
    """(partition, error) by topic; of all topics where none is named."""
    elected = driven.elect(kind, *elections)
    assert replayed(driven.log) == driven.image
    return elected


def change(driven: Driven, **fields: object) -> None:
    """The partition of topic t changes, as a larger cluster may have left it."""
    topic_id = driven.image.topics["t"].topic_id
    driven.place([PartitionChangeRecord(partition_id=0, topic_id=topic_id, **fields)])  # type: ignore[arg-type]


@pytest.fixture
def driven() -> Driven:
    """Two brokers; topic t has a replica on both, topic one has two partitions of one replica."""
    driven = Driven()
    driven.join(1, 2)
    driven.create("t", factor=2)
    driven.create("one", partitions=2)
    return driven


@pytest.mark.parametrize("kind", [PREFERRED, UNCLEAN])
def test_one_replica_that_leads_needs_no_election(driven: Driven, kind: int) -> None:
    before = len(driven.log)
    assert elect(driven, kind, ("one", [0, 1, 7])) == {
        "one": [(0, NOT_NEEDED), (1, NOT_NEEDED), (7, UNKNOWN)]
    }
    assert elect(driven, kind, ("nope", [0])) == {"nope": [(0, UNKNOWN)]}
    assert elect(driven, kind) == {"t": [], "one": []}
    assert len(driven.log) == before


def test_a_partition_without_a_leader_takes_one_that_may_lack_records(driven: Driven) -> None:
    first, second = driven.partition("t").replicas
    change(driven, leader=-1, isr=[9])
    assert elect(driven, UNCLEAN, ("t", [0, 0])) == {"t": [(0, 0), (0, NOT_NEEDED)]}
    after = driven.partition("t")
    assert (after.leader, after.isr, after.leader_recovery_state) == (first, (first,), 1)
    assert elect(driven, UNCLEAN, ("t", [0])) == {"t": [(0, NOT_NEEDED)]}
    assert second in after.replicas


def test_a_partition_of_brokers_that_are_gone_stays_without_a_leader(driven: Driven) -> None:
    change(driven, leader=-1, isr=[9], replicas=[9])
    assert elect(driven, UNCLEAN, ("t", [0])) == {"t": [(0, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE)]}
    assert driven.partition("t").leader == -1


@pytest.mark.parametrize("kind", [2, -1])
def test_an_unknown_kind_of_election(driven: Driven, kind: int) -> None:
    partitions = [TopicPartitions(topic="one", partitions=[0])]
    answer = driven.do(
        ElectLeadersRequest(election_type=kind, topic_partitions=partitions), ElectLeadersResponse
    )
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    ((outcome,),) = [topic.partition_result for topic in answer.replica_election_results]
    assert outcome.error_code == ErrorCode.INVALID_REQUEST
