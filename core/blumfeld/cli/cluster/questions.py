"""Questions to the nodes of a cluster, over the protocol.

Each question has a connection and a time of its own. A connection's answers come in the order of its requests, and a
node holds DescribeQuorum back for seconds while no leader can answer: the other answers would wait behind it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, NamedTuple, TypeVar

from blumfeld.cli.cluster.processes import state_of
from blumfeld.cli.cluster.state import ClusterState, NodeState
from blumfeld.cli.cluster.view import ClusterView, Place, cluster_view, lag_of, quorum_view
from blumfeld.client.asyncio_connection import AsyncioConnection, connect
from blumfeld.client.errors import NoCommonVersionError, NotSecuredError, NotServedError, RefusedError
from blumfeld.client.security.command_config import PLAINTEXT, ClientSecurity
from blumfeld.client.versions import SPOKEN
from blumfeld.spi.internal_topics import CLUSTER_METADATA_TOPIC, CLUSTER_METADATA_TOPIC_ID
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from blumfeld.wire.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from blumfeld.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    RequestPartitionData,
    RequestTopicData,
    ResponsePartitionData,
)
from blumfeld.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from blumfeld.wire.messages.metadata import MetadataRequest, MetadataResponse

T = TypeVar("T")
CLIENT_ID = "blumfeld-cluster"
ANSWER_S_MAX = 2.0
"""Longest wait for one answer. A paused node accepts connections and answers nothing."""
LOGIN_S_MAX = 5.0
"""Longest wait for TLS and a login before it: a JVM that has just started takes seconds for its first ones."""
UNANSWERED = (OSError, TimeoutError, NoCommonVersionError, RefusedError)
"""Errors of a question to a node that is down, silent, of another protocol, or without the API that was asked for."""


async def opened(host: str, port: int, security: ClientSecurity) -> AsyncioConnection:
    """Return a connection whose versions are agreed on.

    :raises OSError: no server listens there, or TLS or the login failed
    :raises NoCommonVersionError: no server of this protocol
    :raises RefusedError: the same
    """
    connection = await connect(host, port, CLIENT_ID, security)
    try:
        await connection.negotiate(SPOKEN)
    except BaseException:
        connection.close()
        raise
    return connection


async def asked(
    host: str,
    port: int,
    question: Callable[[AsyncioConnection], Awaitable[T]],
    security: ClientSecurity = PLAINTEXT,
) -> T | None:
    """Return what a question found out on a connection of its own; ``None`` if it wasn't answered in time.
    :func:`not_let_in` tells whether the login is why.
    """
    try:
        async with asyncio.timeout(patience_s(security)):
            connection = await opened(host, port, security)
            try:
                return await question(connection)
            finally:
                connection.close()
    except UNANSWERED:
        return None


def patience_s(security: ClientSecurity) -> float:
    """Return the longest wait for a connection and an answer on it."""
    return ANSWER_S_MAX if security.protocol == "PLAINTEXT" else LOGIN_S_MAX + ANSWER_S_MAX


async def not_let_in(addresses: Sequence[tuple[str, int]], security: ClientSecurity) -> str | None:
    """Return why the first of these brokers that has a reason lets this client not in; ``None`` where none has one.

    It is asked after no broker answered. A single node may as well have died in the middle of a question.
    """
    for host, port in addresses:
        try:
            async with asyncio.timeout(patience_s(security)):
                connection = await opened(host, port, security)
                try:
                    await connection.ask(MetadataRequest(topics=[]), MetadataResponse)
                finally:
                    connection.close()
        except NotSecuredError as error:
            return str(error)
        except NotServedError as error:
            return f"{error} (--command-config FILE)"
        except UNANSWERED:
            continue
    return None


def quorum_request() -> DescribeQuorumRequest:
    """Return the question for the state of the metadata quorum. A node passes it on to the leader."""
    topic = RequestTopicData(
        topic_name=CLUSTER_METADATA_TOPIC, partitions=[RequestPartitionData(partition_index=0)]
    )
    return DescribeQuorumRequest(topics=[topic])


def quorum_in(answer: DescribeQuorumResponse) -> ResponsePartitionData | None:
    """Return the state of the metadata quorum in an answer; ``None`` without a leader."""
    partitions = [partition for topic in answer.topics for partition in topic.partitions]
    if answer.error_code or not partitions or partitions[0].error_code:
        return None
    return partitions[0]


def leader_in(answer: DescribeQuorumResponse) -> int | None:
    """Return the node id of the quorum's leader in an answer; ``None`` without a leader."""
    quorum = quorum_in(answer)
    return None if quorum is None or quorum.leader_id < 0 else quorum.leader_id


async def quorum_answer(connection: AsyncioConnection) -> DescribeQuorumResponse:
    """Return the answer of the metadata quorum's leader, or its error.

    :raises NoCommonVersionError: the node doesn't answer DescribeQuorum
    """
    return await connection.ask(quorum_request(), DescribeQuorumResponse)


async def place_in_quorum(connection: AsyncioConnection) -> Place | None:
    """Return the epoch and the leader that a voter knows, on its controller listener. It needs no leader.

    The question is a Fetch of epoch 0, which nobody ever led. So the voter refuses it, changes nothing, and names its
    own epoch and leader beside the error (KIP-595).

    :raises NoCommonVersionError: the listener serves no Fetch
    """
    partition = FetchPartition(partition=0, current_leader_epoch=0, partition_max_bytes=1)
    topic = FetchTopic(
        topic=CLUSTER_METADATA_TOPIC, topic_id=CLUSTER_METADATA_TOPIC_ID, partitions=[partition]
    )
    answer = await connection.ask(FetchRequest(max_bytes=1, topics=[topic]), FetchResponse)
    leaders = [
        quorum_partition.current_leader for topic in answer.responses for quorum_partition in topic.partitions
    ]
    if not leaders or leaders[0].leader_epoch < 0:
        return None
    return Place(epoch=leaders[0].leader_epoch, leader=leaders[0].leader_id)


class KnownQuorum(NamedTuple):
    """The quorum as its leader told at this wall-clock time. Other nodes may answer seconds later, or not at all."""

    at_ms: int
    quorum: ResponsePartitionData | None
    """``None`` where this client may not Describe the cluster."""


async def known_quorum(connection: AsyncioConnection) -> KnownQuorum | None:
    """Return the state of the metadata quorum, and when it came; ``None`` without a leader.

    :raises NoCommonVersionError: the node doesn't answer DescribeQuorum
    """
    answer = await quorum_answer(connection)
    quorum = quorum_in(answer)
    if quorum is None and answer.error_code != ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        return None
    return KnownQuorum(time.time_ns() // 1_000_000, quorum)


class KnownMetadata(NamedTuple):
    """The metadata of one broker. It has at least the records up to ``offset`` in it."""

    offset: int
    metadata: MetadataResponse


async def known_metadata(connection: AsyncioConnection) -> KnownMetadata:
    """Return the metadata that a broker serves, and how new it is.

    :raises NoCommonVersionError: a controller's listener has no Metadata
    """
    versions = await connection.ask(
        ApiVersionsRequest(client_software_name=CLIENT_ID, client_software_version="1"), ApiVersionsResponse
    )
    request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
    return KnownMetadata(versions.finalized_features_epoch, await connection.ask(request, MetadataResponse))


async def known_lag(connection: AsyncioConnection) -> int:
    """Return the records that a broker's replicas lack.

    :raises NoCommonVersionError: a controller's listener has no DescribeLogDirs
    """
    return lag_of(await connection.ask(DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse))


async def quorum_leader(
    addresses: Sequence[tuple[str, int]], security: ClientSecurity = PLAINTEXT
) -> int | None:
    """Return the node id of the quorum's leader, from the first node that answers with it; ``None`` without one."""
    return await first_leader([asked(*address, told_leader, security) for address in addresses])


async def told_leader(connection: AsyncioConnection) -> int | None:
    """Return the node id of the quorum's leader, as a node tells it; ``None`` without a leader.

    :raises NoCommonVersionError: the node doesn't answer DescribeQuorum
    """
    return leader_in(await quorum_answer(connection))


async def first_leader(asked_nodes: Sequence[Coroutine[Any, Any, int | None]]) -> int | None:
    """Return the first leader that any node tells; ``None`` where those that answer know none. The others are asked no
    longer then.

    :raises OSError: every node fails: the error of the last one
    :raises BrokerError: the same
    """
    asking = [asyncio.ensure_future(question) for question in asked_nodes]
    failed: list[Exception] = []
    try:
        for answer in asyncio.as_completed(asking):
            try:
                leader = await answer
            except (OSError, BrokerError) as error:
                failed.append(error)
                continue
            if leader is not None:
                return leader
    finally:
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
    if failed and len(failed) == len(asking):
        raise failed[-1]
    return None


class Answers(NamedTuple):
    """The answers of one node. A field is ``None`` where the node didn't answer."""

    node_id: int
    quorum: KnownQuorum | None = None
    place: Place | None = None
    known: KnownMetadata | None = None
    lag: int | None = None


async def ask_all(nodes: Sequence[NodeState], security: ClientSecurity = PLAINTEXT) -> list[Answers]:
    """Ask every node everything at once. A node that answers nothing isn't in the list."""
    gathered = await asyncio.gather(*(_ask_one(node, security) for node in nodes))
    return [answers for answers in gathered if any(part is not None for part in answers[1:])]


async def _ask_one(node: NodeState, security: ClientSecurity) -> Answers:
    quorum, place, known, lag = await asyncio.gather(
        asked(node.host, node.port, known_quorum, security),
        _nothing()
        if node.controller is None
        else asked(*node.controller, place_in_quorum, _at_controllers(node, security)),
        asked(node.host, node.port, known_metadata, security),
        asked(node.host, node.port, known_lag, security),
    )
    return Answers(node.id, quorum, place, known, lag)


def _at_controllers(node: NodeState, security: ClientSecurity) -> ClientSecurity:
    """Return what a client does at the node's controller listener: nothing, where that is known to be PLAINTEXT."""
    return PLAINTEXT if node.controller_protocol == "PLAINTEXT" else security


async def _nothing() -> None:
    return None


def joined(state: ClusterState, answers: Sequence[Answers]) -> ClusterView:
    """Return the cluster's state. Of answers that differ, the newest epoch and the newest metadata count."""
    quorums = [
        (answer.quorum.quorum, answer.quorum.at_ms)
        for answer in answers
        if answer.quorum is not None and answer.quorum.quorum is not None
    ]
    known = max(quorums, key=lambda known: (known[0].leader_epoch, known[0].high_watermark), default=None)
    metadatas = [answer.known for answer in answers if answer.known is not None]
    newest = max(metadatas, key=lambda metadata: metadata.offset, default=None)
    return cluster_view(
        state.nodes,
        {node.id: state_of(node) for node in state.nodes},
        [answer.node_id for answer in answers],
        None if known is None else quorum_view(*known),
        None if newest is None else newest.metadata,
        {answer.node_id: answer.lag for answer in answers if answer.lag is not None},
        state.cuts,
        {answer.node_id: answer.place for answer in answers if answer.place is not None},
    )
