"""OffsetForLeaderEpoch (key 23), v2-4: the end offset of a leader epoch in our log (KIP-101, KIP-320).

v3  replica id.  v4 flexible.
"""

from __future__ import annotations

from blumfeld.broker.handlers.common import CLUSTER_NAME
from blumfeld.broker.ports import Ports
from blumfeld.spi.context import ApiHandler, RequestContext
from blumfeld.spi.steps import in_parts
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)


def handlers(ports: Ports) -> list[ApiHandler]:
    """Returns the handler of OffsetForLeaderEpoch."""

    def handle(request: OffsetForLeaderEpochRequest, context: RequestContext) -> OffsetForLeaderEpochResponse:
        return OffsetForLeaderEpochResponse(
            topics=[
                OffsetForLeaderTopicResult(
                    topic=topic.topic,
                    partitions=[_end_of_epoch(ports, topic.topic, p, context) for p in topic.partitions],
                )
                for topic in request.topics
            ]
        )

    path = ("topics", "partitions")
    serve = in_parts(handle, failed, path, path)
    return [ApiHandler(key=23, min_version=2, max_version=4, handle=serve, error_response=failed)]


def failed(
    request: OffsetForLeaderEpochRequest, code: int, _message: str | None
) -> OffsetForLeaderEpochResponse:
    """Returns an answer with this error for every partition."""
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[EpochEndOffset(error_code=code, partition=p.partition) for p in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _end_of_epoch(
    ports: Ports, topic: str, epoch_query: OffsetForLeaderPartition, context: RequestContext
) -> EpochEndOffset:
    try:
        # Kafka lets a node ask for each topic, and a consumer for those that it may describe.
        if not (
            context.authorize("Describe", "Topic", topic)
            or context.authorize("ClusterAction", "Cluster", CLUSTER_NAME, quiet=True)
        ):
            raise BrokerError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        partition = ports.hosted.leading(topic, epoch_query.partition)
        code = partition.check_leader_epoch(epoch_query.current_leader_epoch)
        if code:
            raise BrokerError(code)
    except BrokerError as error:
        return EpochEndOffset(error_code=int(error.code), partition=epoch_query.partition)
    end = partition.state.epochs.end_offset_for(epoch_query.leader_epoch, partition.log.written_end_offset)
    return EpochEndOffset(partition=epoch_query.partition, leader_epoch=end.epoch, end_offset=end.end_offset)
