"""The quorum's requests and answers as messages, and back: nothing that they say is lost."""

from __future__ import annotations

from typing import Any

import pytest

from blumfeld.spi.cluster import Endpoint
from blumfeld.spi.leader_epochs import EpochEnd
from blumfeld.wire.codec import decode, encode
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages import begin_quorum_epoch, end_quorum_epoch, fetch, vote
from blumfeld_consensus_kraft.quorum.wire_form import (
    FetchSettings,
    answer_from_wire,
    answer_to_wire,
    from_wire,
    nodes_of,
    to_wire,
)
from blumfeld_consensus_kraft.raft.messages import (
    BeginEpoch,
    EndEpoch,
    EpochAnswer,
    FetchAnswer,
    FetchRequest,
    Request,
    SnapshotId,
    VoteAnswer,
    VoteRequest,
)
from blumfeld_consensus_kraft.raft.voters import ReplicaKey

SETTINGS = FetchSettings("MkU3OEVBNTcwNTJENDM2Qg", 500, 8 << 20)
OWN = [Endpoint("CONTROLLER", "localhost", 9093)]
NODES = [(3, "localhost", 9095)]
ONE, TWO, THREE = (ReplicaKey(node_id, bytes([node_id]) * 16) for node_id in (1, 2, 3))
OWN_ID = 2

REQUESTS: list[Request] = [
    VoteRequest(7, ONE, TWO, 5, 40, pre_vote=False),
    VoteRequest(7, ONE, TWO, 7, 40, pre_vote=True),
    BeginEpoch(7, 1, TWO),
    EndEpoch(7, 1, (THREE, TWO)),
    FetchRequest(ONE, 7, 40, 5, 38),
]


@pytest.mark.parametrize("request_", REQUESTS, ids=repr)
def test_a_request_is_the_same_behind_the_wire(request_: Request) -> None:
    assert from_wire(to_wire(request_, SETTINGS, OWN), OWN_ID) == request_


ANSWERS: list[tuple[Any, Any]] = [
    (vote.VoteRequest(), VoteAnswer(ErrorCode.NONE, 7, -1, granted=True)),
    (vote.VoteRequest(), VoteAnswer(ErrorCode.FENCED_LEADER_EPOCH, 8, 3)),
    (begin_quorum_epoch.BeginQuorumEpochRequest(), EpochAnswer(ErrorCode.INVALID_VOTER_KEY, 7, 3)),
    (end_quorum_epoch.EndQuorumEpochRequest(), EpochAnswer(ErrorCode.NONE, 7, 3)),
    (fetch.FetchRequest(), FetchAnswer(ErrorCode.NONE, 7, 3, 40)),
    (fetch.FetchRequest(), FetchAnswer(ErrorCode.NONE, 7, 3, 40, records=b"batches")),
    (fetch.FetchRequest(), FetchAnswer(ErrorCode.NONE, 7, 3, 40, diverging=EpochEnd(5, 0))),
    (fetch.FetchRequest(), FetchAnswer(ErrorCode.NONE, 7, 3, 40, snapshot=SnapshotId(30, 5))),
    (fetch.FetchRequest(), FetchAnswer(ErrorCode.NOT_LEADER_OR_FOLLOWER, 7)),
]


@pytest.mark.parametrize(("question", "answer"), ANSWERS, ids=repr)
def test_an_answer_is_the_same_behind_the_wire_and_names_the_leaders_address(
    question: Any, answer: Any
) -> None:
    message = answer_to_wire(answer, question, NODES, question.meta.valid.last)
    assert answer_from_wire(message) == answer
    assert nodes_of(message) == NODES


def test_a_request_without_a_voter_id_means_the_node_that_it_reaches() -> None:
    """As version 0 of Vote and BeginQuorumEpoch has it."""
    for request in REQUESTS[:3]:
        message: Any = to_wire(request, SETTINGS, OWN)
        message.voter_id = -1
        raft_request = from_wire(message, OWN_ID)
        assert isinstance(raft_request, VoteRequest | BeginEpoch)
        assert raft_request.voter == TWO


def test_successors_without_directories_are_node_ids() -> None:
    """As version 0 of EndQuorumEpoch has it."""
    message: Any = to_wire(REQUESTS[3], SETTINGS, OWN)
    message.topics[0].partitions[0].preferred_candidates = []
    assert from_wire(message, OWN_ID) == EndEpoch(7, 1, (ReplicaKey(3), ReplicaKey(2)))


def test_a_fetch_of_an_older_version_names_its_replica_elsewhere() -> None:
    """Before Fetch v15 the node id stands beside the topics."""
    message: Any = to_wire(REQUESTS[4], SETTINGS, OWN)
    message.replica_state.replica_id, message.replica_id = -1, 1
    assert from_wire(message, OWN_ID) == REQUESTS[4]


@pytest.mark.parametrize("topics", [[], [vote.RequestTopicData(topic_name="other")]])
def test_a_request_for_anything_but_the_metadata_is_invalid(topics: list[Any]) -> None:
    message: Any = to_wire(REQUESTS[0], SETTINGS, OWN)
    message.topics = topics
    with pytest.raises(BrokerError) as refused:
        from_wire(message, OWN_ID)
    assert refused.value.code is ErrorCode.INVALID_REQUEST


def test_an_error_for_the_whole_request_is_no_answer() -> None:
    with pytest.raises(BrokerError) as refused:
        answer_from_wire(vote.VoteResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID))
    assert refused.value.code is ErrorCode.INCONSISTENT_CLUSTER_ID


def test_an_answer_without_a_partition_is_none() -> None:
    with pytest.raises(BrokerError) as refused:
        answer_from_wire(fetch.FetchResponse())
    assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(("question", "answer"), ANSWERS)
def test_an_answer_has_no_more_than_its_version(question: Any, answer: Any) -> None:
    """Vote, BeginQuorumEpoch and EndQuorumEpoch v0 know no addresses, Fetch knows no leader before v12."""
    for version in range(question.meta.valid.first, question.meta.valid.last + 1):
        message = answer_to_wire(answer, question, NODES, version)
        assert decode(type(message), encode(message, version), version)
