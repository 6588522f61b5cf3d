"""Questions to a cluster, over the protocol: which node leads the quorum."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from blumfeld.client.asyncio_connection import AsyncioConnection, connect
from blumfeld.client.errors import NoCommonVersionError, RefusedError
from blumfeld.client.versions import SPOKEN
from blumfeld.spi.internal_topics import CLUSTER_METADATA_TOPIC
from blumfeld.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    RequestPartitionData,
    RequestTopicData,
    ResponsePartitionData,
)

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
