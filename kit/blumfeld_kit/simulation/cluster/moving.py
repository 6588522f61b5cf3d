"""Moves partitions to other brokers, and leaders back, as an operator does."""

from __future__ import annotations

from collections.abc import Sequence

from blumfeld.spi.storage import TopicPartition
from blumfeld.wire.errors import ErrorCode, is_retriable
from blumfeld.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from blumfeld.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from blumfeld_kit.simulation.clients.oracle import ViolationError
from blumfeld_kit.simulation.cluster.routes import Routes

TIMEOUT_MS = 8_000
NOT_ELECTED = (ErrorCode.ELECTION_NOT_NEEDED, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)


async def reassign(routes: Routes, partition: TopicPartition, brokers: Sequence[int], replicas: int) -> bool:
    """Move a partition to some of these brokers, or let another of its replicas be the first.

    :return: whether the controller took the move
    :raises OSError: nobody knows
    :raises ViolationError: it was refused for ever
    """
    random = routes.random
    chosen = sorted(brokers, key=lambda _: random.random())[:replicas]
    wanted = ReassignablePartition(partition_index=partition.partition, replicas=chosen)
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=TIMEOUT_MS, topics=[ReassignableTopic(name=partition.topic, partitions=[wanted])]
    )
    connection = await routes.any_broker()
    answer = await connection.ask(request, 0, AlterPartitionReassignmentsResponse)
    code = ErrorCode(answer.error_code or answer.responses[0].partitions[0].error_code)
    if code is not ErrorCode.NONE and not is_retriable(code):
        raise ViolationError(f"AlterPartitionReassignments of {partition} to {chosen}: {code.name}")
    return code is ErrorCode.NONE


async def elect_preferred(routes: Routes, topic: str, indexes: Sequence[int]) -> int:
    """Elect the preferred leaders of partitions. Return how many became leader.

    :raises OSError: nobody knows
    :raises ViolationError: an election was refused for ever
    """
    topics = [TopicPartitions(topic=topic, partitions=list(indexes))]
    connection = await routes.any_broker()
    request = ElectLeadersRequest(election_type=0, topic_partitions=topics, timeout_ms=TIMEOUT_MS)
    answer = await connection.ask(request, 2, ElectLeadersResponse)
    results = [one for topic in answer.replica_election_results for one in topic.partition_result]
    codes = [ErrorCode(one.error_code) for one in results]
    for code in (ErrorCode(answer.error_code), *codes):
        if code is not ErrorCode.NONE and not is_retriable(code) and code not in NOT_ELECTED:
            raise ViolationError(f"ElectLeaders: {code.name}")
    return codes.count(ErrorCode.NONE)
