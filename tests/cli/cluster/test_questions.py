"""Questions to the nodes of a cluster: each has its own time, and the newest answers count."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from blumfeld.cli.cluster import questions
from blumfeld.cli.cluster.questions import Answers, KnownMetadata, KnownQuorum, ask_all, joined, quorum_leader
from blumfeld.cli.cluster.state import ClusterState, NodeState
from blumfeld.cli.cluster.view import Place
from blumfeld.client.errors import NoCommonVersionError
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from blumfeld.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from blumfeld.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    ReplicaState,
    ResponsePartitionData,
    ResponseTopicData,
)
from blumfeld.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    PartitionData,
)
from blumfeld.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)
from blumfeld.wire.schema import Message

Answer = Message | Exception | None
"""``None``: the server is silent."""
WAIT_S = 30


def quorum(leader: int, epoch: int, error: int = 0) -> DescribeQuorumResponse:
    partition = ResponsePartitionData(leader_id=leader, leader_epoch=epoch, error_code=error)
    return DescribeQuorumResponse(topics=[ResponseTopicData(partitions=[partition])])


def place(leader: int, epoch: int) -> FetchResponse:
    current = LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
    partition = PartitionData(error_code=ErrorCode.FENCED_LEADER_EPOCH, current_leader=current)
    return FetchResponse(responses=[FetchableTopicResponse(partitions=[partition])])


def lag(records: int) -> DescribeLogDirsResponse:
    topic = DescribeLogDirsTopic(partitions=[DescribeLogDirsPartition(offset_lag=records)])
    return DescribeLogDirsResponse(results=[DescribeLogDirsResult(topics=[topic])])


METADATA = MetadataResponse(cluster_id="c")
BROKER: Mapping[type[Message], Answer] = {
    DescribeQuorumRequest: quorum(2, 7),
    ApiVersionsRequest: ApiVersionsResponse(finalized_features_epoch=40),
    MetadataRequest: METADATA,
    DescribeLogDirsRequest: lag(3),
}
CONTROLLER: Mapping[type[Message], Answer] = {FetchRequest: place(-1, 7)}


class FakeConnection:
    """Answers as its server does. A server that holds one answer back holds back all behind it."""

    def __init__(self, answers: Mapping[type[Message], Answer]) -> None:
        self._answers = answers
        self._order = asyncio.Lock()
        self.is_closed = False

    async def ask(self, request: Message, _expected: type[Message]) -> Message:
        async with self._order:
            answer = self._answers.get(type(request), NoCommonVersionError(0, "unknown here"))
            if answer is None:
                await asyncio.sleep(WAIT_S)
            if isinstance(answer, Exception):
                raise answer
            assert answer is not None
            return answer

    def close(self) -> None:
        self.is_closed = True


Serve = Callable[[Mapping[int, Mapping[type[Message], Answer] | None]], list[FakeConnection]]


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Serve:
    """Put servers on ports. ``None`` on one refuses connections. Returns the connections that are opened."""

    def put(servers: Mapping[int, Mapping[type[Message], Answer] | None]) -> list[FakeConnection]:
        connections: list[FakeConnection] = []

        async def opened(_host: str, port: int, _security: object) -> Any:
            answers = servers.get(port)
            if answers is None:
                raise ConnectionRefusedError
            connections.append(FakeConnection(answers))
            return connections[-1]

        monkeypatch.setattr(questions, "opened", opened)
        monkeypatch.setattr(questions, "ANSWER_S_MAX", 0.05)
        return connections

    return put


def node(node_id: int) -> NodeState:
    return NodeState(
        id=node_id,
        roles=("broker", "controller"),
        host="h",
        port=node_id,
        controller=("h", 100 + node_id),
        manifest="",
        log="",
    )


def test_a_node_says_all_that_it_knows(serve: Serve) -> None:
    connections = serve({1: BROKER, 101: CONTROLLER})
    (answers,) = asyncio.run(ask_all([node(1)]))
    assert answers.quorum is not None
    assert answers.quorum.quorum is not None
    assert (answers.quorum.quorum.leader_id, answers.place, answers.lag) == (2, Place(7, -1), 3)
    assert answers.known == KnownMetadata(40, METADATA)
    assert all(connection.is_closed for connection in connections)


def test_an_answer_that_is_held_back_costs_no_other(serve: Serve) -> None:
    """Without a leader DescribeQuorum waits for one, longer than we do. The node answers all the rest."""
    serve({1: {**BROKER, DescribeQuorumRequest: None}, 101: CONTROLLER})
    (answers,) = asyncio.run(ask_all([node(1)]))
    assert answers == Answers(1, None, Place(7, -1), KnownMetadata(40, METADATA), 3)


@pytest.mark.parametrize("silent", [FetchRequest, MetadataRequest, DescribeLogDirsRequest])
def test_each_answer_may_be_missing(serve: Serve, silent: type[Message]) -> None:
    serve({1: {**BROKER, silent: None}, 101: {**CONTROLLER, silent: None}})
    (answers,) = asyncio.run(ask_all([node(1)]))
    missing = [name for name, answer in zip(answers._fields, answers, strict=True) if answer is None]
    expected = {FetchRequest: "place", MetadataRequest: "known", DescribeLogDirsRequest: "lag"}
    assert missing == [expected[silent]]


def test_a_node_that_says_nothing_is_not_among_the_answers(serve: Serve) -> None:
    serve({1: None, 2: dict.fromkeys(BROKER), 3: BROKER})
    assert [answer.node_id for answer in asyncio.run(ask_all([node(1), node(2), node(3)]))] == [3]


def test_a_controller_alone_is_asked_for_its_place(serve: Serve) -> None:
    serve({101: {**CONTROLLER, DescribeQuorumRequest: quorum(-1, -1, ErrorCode.REQUEST_TIMED_OUT)}})
    alone = node(1)
    alone.port = 101
    assert asyncio.run(ask_all([alone])) == [Answers(1, place=Place(7, -1))]


def test_the_leader_is_the_first_one_that_a_node_names(serve: Serve) -> None:
    unknown: Mapping[type[Message], Answer] = {DescribeQuorumRequest: quorum(-1, 3)}
    connections = serve({1: {DescribeQuorumRequest: None}, 2: unknown, 3: BROKER})
    assert asyncio.run(quorum_leader([("h", 1), ("h", 2), ("h", 3), ("h", 4)])) == 2
    assert all(connection.is_closed for connection in connections)
    assert asyncio.run(quorum_leader([("h", 1), ("h", 2)])) is None
    assert asyncio.run(quorum_leader([])) is None


def known(offset: int, brokers: int, topics: int) -> KnownMetadata:
    return KnownMetadata(
        offset,
        MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=broker_id) for broker_id in range(brokers)],
            topics=[MetadataResponseTopic(name=f"t{number}") for number in range(topics)],
        ),
    )


def test_the_newest_metadata_counts() -> None:
    """A node that was cut off shows brokers that died since, and topics that were deleted."""
    state = ClusterState(nodes=[node(1), node(2)])
    stale, fresh = Answers(1, known=known(40, 3, 9)), Answers(2, known=known(41, 2, 4))
    assert joined(state, [stale, fresh]).topics == 4
    assert joined(state, [fresh, stale]).topics == 4


def test_the_newest_epoch_of_the_quorum_counts() -> None:
    old = ResponsePartitionData(leader_id=1, leader_epoch=6, high_watermark=90)
    voter = ReplicaState(replica_id=1, last_caught_up_timestamp=8_800)
    new = ResponsePartitionData(leader_id=2, leader_epoch=7, high_watermark=80, current_voters=[voter])
    view = joined(
        ClusterState(nodes=[node(1), node(2)]),
        [Answers(1, KnownQuorum(5_000, old), Place(6, 1)), Answers(2, KnownQuorum(9_000, new))],
    )
    assert view.quorum is not None
    assert (view.quorum.leader, view.quorum.epoch) == (2, 7)
    assert view.quorum.replicas[0].caught_up_ms_ago == 200, "when the leader answered, not when all had"
    assert [(row.answers, row.place) for row in view.nodes] == [(True, Place(6, 1)), (True, None)]
