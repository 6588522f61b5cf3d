"""The quorum's APIs on controller listeners: Fetch of the metadata log, FetchSnapshot, Vote, BeginQuorumEpoch,
EndQuorumEpoch, UpdateRaftVoter; and DescribeQuorum, AddRaftVoter, RemoveRaftVoter on all listeners.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from blumfeld.spi.completion import Completion
from blumfeld.spi.consensus import ClusterMetadata, OnBehalf
from blumfeld.spi.context import ApiHandler, RequestContext
from blumfeld.spi.steps import errors_by_elements
from blumfeld.wire.api import response_class
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.add_raft_voter import AddRaftVoterRequest
from blumfeld.wire.schema import Message
from blumfeld_consensus_kraft.quorum.driver import RaftDriver
from blumfeld_consensus_kraft.raft.voters import NO_DIRECTORY

if TYPE_CHECKING:
    from blumfeld.wire.messages.describe_quorum import DescribeQuorumRequest
    from blumfeld.wire.messages.fetch import FetchRequest
    from blumfeld.wire.messages.fetch_snapshot import FetchSnapshotRequest
    from blumfeld.wire.messages.update_raft_voter import UpdateRaftVoterRequest
    from blumfeld_consensus_kraft.quorum.membership import QuorumMembership
    from blumfeld_consensus_kraft.quorum.snapshot_exchange import SnapshotExchange

FETCH, VOTE, BEGIN, END, DESCRIBE, FETCH_SNAPSHOT = 1, 52, 53, 54, 55, 59
ADD_VOTER, REMOVE_VOTER, UPDATE_VOTER = 80, 81, 82
DESCRIBE_TIMEOUT_MS = 5_000
REMOVE_TIMEOUT_MS = 5_000
"""RemoveRaftVoter names no timeout of its own."""
DIRECTORIES_VERSION = 2
"""The first version of DescribeQuorum whose answer has directory ids and the endpoints of voters (KIP-853)."""


def quorum_handlers(
    driver: Callable[[], RaftDriver],
    snapshot_exchange: Callable[[], SnapshotExchange],
    membership: Callable[[], QuorumMembership],
    metadata: ClusterMetadata,
    roles: tuple[str, ...],
) -> list[ApiHandler]:
    """Returns the handlers of a node.

    :param driver: raises BrokerError before the node has joined, as ``snapshot_exchange`` does
    """

    def handle(request: Message, context: RequestContext) -> Completion[Message]:
        if not context.authorize("ClusterAction", "Cluster", "kafka-cluster"):
            raise BrokerError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        return driver().handle(request, context.peer_host, context.api_version, context.listener.name)

    def snapshot(request: FetchSnapshotRequest, context: RequestContext) -> Completion[Message]:
        if not context.authorize("ClusterAction", "Cluster", "kafka-cluster"):
            raise BrokerError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        return snapshot_exchange().serve(request, context.api_version, context.listener.name)

    def describe(request: DescribeQuorumRequest, context: RequestContext) -> Completion[Message]:
        if not context.authorize("Describe", "Cluster", "kafka-cluster"):
            raise BrokerError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        on_behalf = OnBehalf(context.principal, context.peer_host, context.client_id)
        described = metadata.submit(request, DESCRIBE_TIMEOUT_MS, on_behalf=on_behalf, wait_image=False)
        return described if context.api_version >= DIRECTORIES_VERSION else without_directories(described)

    def change(request: Message, context: RequestContext) -> Completion[Message]:
        if not context.authorize("Alter", "Cluster", "kafka-cluster"):
            raise BrokerError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        timeout_ms = (
            max(request.timeout_ms, 1) if isinstance(request, AddRaftVoterRequest) else REMOVE_TIMEOUT_MS
        )
        on_behalf = OnBehalf(context.principal, context.peer_host, context.client_id)
        return metadata.submit(request, timeout_ms, on_behalf=on_behalf, wait_image=False)

    def update(request: UpdateRaftVoterRequest, context: RequestContext) -> Completion[Message]:
        if not context.authorize("ClusterAction", "Cluster", "kafka-cluster"):
            raise BrokerError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        return membership().updated(request)

    handlers = [
        _handler(DESCRIBE, 0, 2, describe, ("broker", "controller")),
        _handler(ADD_VOTER, 0, 1, change, ("broker", "controller")),
        _handler(REMOVE_VOTER, 0, 0, change, ("broker", "controller")),
    ]
    if "controller" in roles:
        handlers.append(_handler(UPDATE_VOTER, 0, 0, update, ("controller",)))
        versions = ((VOTE, 0, 2), (BEGIN, 0, 1), (END, 0, 1))
        handlers += [_handler(key, low, high, handle, ("controller",)) for key, low, high in versions]
        handlers.append(_fetch(handle))
        handlers.append(_handler(FETCH_SNAPSHOT, 0, 1, snapshot, ("controller",)))
    return handlers


def without_directories(described: Completion[Message]) -> Completion[Message]:
    """Returns the answer as older versions have it. The leader gives the newest, whichever the client asked for."""
    answer: Completion[Message] = Completion()

    def done(completion: Completion[Message]) -> None:
        if completion.error is not None:
            answer.fail(completion.error)
        else:
            description: Any = completion.result()
            description.nodes = []
            for partition in (
                described_partition
                for topic in description.topics
                for described_partition in topic.partitions
            ):
                for replica in (*partition.current_voters, *partition.observers):
                    replica.replica_directory_id = NO_DIRECTORY
            answer.complete(description)

    described.when_done(done)
    return answer


def _handler(
    key: int, low: int, high: int, handle: Callable[[Any, RequestContext], Any], listeners: tuple[str, ...]
) -> ApiHandler:
    def failed(_request: Any, code: int, _message: str | None) -> Message:
        made: Any = response_class(key)()
        made.error_code = code
        return made  # type: ignore[no-any-return]

    return ApiHandler(
        key=key, min_version=low, max_version=high, handle=handle, error_response=failed, listeners=listeners
    )


def _fetch(handle: Callable[[Any, RequestContext], Any]) -> ApiHandler:
    def failed(request: FetchRequest, code: int, _message: str | None) -> Message:
        """The error at the top, and for every partition named: before version 7 there is no other place."""
        from blumfeld.wire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData

        return FetchResponse(
            error_code=code,
            responses=[
                FetchableTopicResponse(
                    topic=topic.topic,
                    topic_id=topic.topic_id,
                    partitions=[
                        PartitionData(partition.partition, code, -1) for partition in topic.partitions
                    ],
                )
                for topic in request.topics
            ],
        )

    return ApiHandler(
        key=FETCH,
        min_version=4,
        max_version=18,
        handle=handle,
        error_response=errors_by_elements(failed, ("topics", "partitions"), ("responses", "partitions")),
        listeners=("controller",),
    )
