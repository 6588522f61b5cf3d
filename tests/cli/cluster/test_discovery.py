"""The nodes of any cluster, from the address of one broker."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from blumfeld.cli.cluster import questions
from blumfeld.cli.cluster.discovery import addresses_of, discovered, nodes_of
from blumfeld.cli.cluster.processes import UNKNOWN, state_of
from blumfeld.cli.cluster.state import ClusterError, NodeState
from blumfeld.client.security.command_config import ClientSecurity
from blumfeld.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from blumfeld.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    ReplicaState,
    ResponsePartitionData,
    ResponseTopicData,
)
from blumfeld.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tests.cli.cluster.test_questions import FakeConnection


def metadata(*brokers: int, replicas: tuple[int, ...] = ()) -> MetadataResponse:
    partition = MetadataResponsePartition(replica_nodes=list(replicas))
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=node_id, host="h", port=node_id) for node_id in brokers],
        topics=[MetadataResponseTopic(name="t", partitions=[partition])],
    )


def quorum(*voters: int, named_nodes: tuple[int, ...] = ()) -> DescribeQuorumResponse:
    partition = ResponsePartitionData(
        leader_id=1, current_voters=[ReplicaState(replica_id=voter_id) for voter_id in voters]
    )
    nodes = [
        Node(node_id=node_id, listeners=[Listener(name="C", host="c", port=100 + node_id)])
        for node_id in named_nodes
    ]
    return DescribeQuorumResponse(topics=[ResponseTopicData(partitions=[partition])], nodes=nodes)


def told(nodes: list[NodeState]) -> list[tuple[int, tuple[str, ...], str, int, tuple[str, int] | None]]:
    return [(node.id, node.roles, node.host, node.port, node.controller) for node in nodes]


def test_brokers_and_voters_are_the_nodes() -> None:
    nodes = nodes_of(metadata(1, 2), quorum(1, 7, named_nodes=(1, 7)))
    assert told(nodes) == [
        (1, ("broker", "controller"), "h", 1, ("c", 101)),
        (2, ("broker",), "h", 2, None),
        (7, ("controller",), "c", 107, ("c", 107)),
    ]
    assert {state_of(node) for node in nodes} == {UNKNOWN}


def test_a_broker_that_is_away_is_known_by_its_replicas_and_has_no_address() -> None:
    assert told(nodes_of(metadata(1, replicas=(1, 3)), None)) == [
        (1, ("broker",), "h", 1, None),
        (3, ("broker",), "", 0, None),
    ]


def test_a_voter_whose_listener_is_not_told_is_a_voter_all_the_same() -> None:
    """DescribeQuorum before version 2."""
    assert told(nodes_of(metadata(1), quorum(1))) == [(1, ("broker", "controller"), "h", 1, None)]


def test_the_first_broker_that_answers_is_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def opened(_host: str, port: int, _security: object) -> Any:
        if port == 1:
            raise ConnectionRefusedError
        return FakeConnection(
            {
                ApiVersionsRequest: ApiVersionsResponse(finalized_features_epoch=4),
                MetadataRequest: metadata(1, 2),
                DescribeQuorumRequest: quorum(1),
            }
        )

    monkeypatch.setattr(questions, "opened", opened)
    state = asyncio.run(discovered([("h", 1), ("h", 2)]))
    assert [node.id for node in state.nodes] == [1, 2]
    with pytest.raises(ClusterError, match=r"no broker answered at h:1 within 2 s. Name the broker listener"):
        asyncio.run(discovered([("h", 1)]))
    with pytest.raises(ClusterError, match=r"no broker answered at h:1 within 7 s"):
        asyncio.run(discovered([("h", 1)], ClientSecurity("SSL")))


def test_addresses_are_told_apart_by_commas() -> None:
    assert addresses_of("a:1, [::1]:9092") == [("a", 1), ("::1", 9092)]


@pytest.mark.parametrize("text", ["", "a", "a:", ":1", "a:x", "a:0", "a:65536", "a:1,"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ClusterError, match=r"--bootstrap: found .*; allowed: HOST:PORT"):
        addresses_of(text)
