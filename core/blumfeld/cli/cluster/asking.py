"""Questions to the nodes of a cluster, over the protocol."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from blumfeld.cli.cluster.processes import state_of
from blumfeld.cli.cluster.state import ClusterState, NodeState
from blumfeld.cli.cluster.view import ClusterView, cluster_view, lag_of, quorum_view
from blumfeld.client.asyncio_connection import AsyncioConnection, connect
from blumfeld.client.errors import NoCommonVersionError, RefusedError
from blumfeld.client.versions import SPOKEN
from blumfeld.spi.internal_topics import CLUSTER_METADATA_TOPIC
from blumfeld.wire.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from blumfeld.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    RequestPartitionData,
    RequestTopicData,
    ResponsePartitionData,
)
from blumfeld.wire.messages.metadata import MetadataRequest, MetadataResponse

CLIENT_ID = "blumfeld-cluster"
ANSWER_S_MAX = 2.0
"""Longest wait for the answers of one node. A paused node accepts connections and answers nothing."""
UNANSWERED = (OSError, TimeoutError, NoCommonVersionError, RefusedError)
"""What a node that can't be asked makes of a question."""


async def opened(host: str, port: int) -> AsyncioConnection:
    """Return a connection whose versions are agreed on.

    :raises OSError: no server listens there
    :raises NoCommonVersionError: no server of this protocol
    :raises RefusedError: the same
    """
    connection = await connect(host, port, CLIENT_ID)
    try:
        await connection.negotiate(SPOKEN)
    except BaseException:
        connection.close()
        raise
    return connection


async def described_quorum(connection: AsyncioConnection) -> ResponsePartitionData | None:
    """Return the state of the metadata quorum; ``None`` if the node doesn't know it.

    :raises NoCommonVersionError: the node doesn't answer DescribeQuorum
    """
    topic = RequestTopicData(
        topic_name=CLUSTER_METADATA_TOPIC, partitions=[RequestPartitionData(partition_index=0)]
    )
    answer = await connection.ask(DescribeQuorumRequest(topics=[topic]), DescribeQuorumResponse)
    partitions = [one for topic in answer.topics for one in topic.partitions]
    if answer.error_code or not partitions or partitions[0].error_code:
        return None
    return partitions[0]


async def quorum_leader(addresses: Sequence[tuple[str, int]]) -> int | None:
    """Return the node id of the quorum's leader, from the first node that knows it."""
    for host, port in addresses:
        with suppress(*UNANSWERED):
            async with asyncio.timeout(ANSWER_S_MAX):
                connection = await opened(host, port)
                try:
                    quorum = await described_quorum(connection)
                finally:
                    connection.close()
            if quorum is not None and quorum.leader_id >= 0:
                return quorum.leader_id
    return None


class Answers(NamedTuple):
    """What one node said."""

    node_id: int
    quorum: ResponsePartitionData | None = None
    metadata: MetadataResponse | None = None
    lag: int | None = None


async def ask_all(nodes: Sequence[NodeState]) -> list[Answers]:
    """Ask every node at once. A node that doesn't answer in time isn't in the list."""
    found = await asyncio.gather(*map(_ask_one, nodes))
    return [answers for answers in found if answers is not None]


async def _ask_one(node: NodeState) -> Answers | None:
    try:
        async with asyncio.timeout(ANSWER_S_MAX):
            connection = await opened(node.host, node.port)
            try:
                return await _answers(node, connection)
            finally:
                connection.close()
    except UNANSWERED:
        return None


async def _answers(node: NodeState, connection: AsyncioConnection) -> Answers:
    quorum = metadata = lag = None
    with suppress(NoCommonVersionError):
        quorum = await described_quorum(connection)
    with suppress(NoCommonVersionError):  # a controller's listener has no Metadata
        request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
        metadata = await connection.ask(request, MetadataResponse)
    with suppress(NoCommonVersionError):
        lag = lag_of(await connection.ask(DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse))
    return Answers(node.id, quorum, metadata, lag)


def joined(state: ClusterState, answers: Sequence[Answers], now_ms: int) -> ClusterView:
    """Return the cluster's state. Among answers that differ the newest epoch, and the most topics, count."""
    quorums = [one.quorum for one in answers if one.quorum is not None]
    known = max(quorums, key=lambda one: (one.leader_epoch, one.high_watermark), default=None)
    metadatas = [one.metadata for one in answers if one.metadata is not None]
    return cluster_view(
        state.nodes,
        {node.id: state_of(node) for node in state.nodes},
        [one.node_id for one in answers],
        None if known is None else quorum_view(known, now_ms),
        max(metadatas, key=lambda one: (len(one.brokers), len(one.topics)), default=None),
        {one.node_id: one.lag for one in answers if one.lag is not None},
        state.cuts,
    )
