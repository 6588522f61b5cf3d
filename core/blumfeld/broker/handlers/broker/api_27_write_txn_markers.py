"""WriteTxnMarkers (key 27), v1-2: end transactions in partitions that this node leads (KIP-98, KIP-664, KIP-1228).

A transaction coordinator sends it to the leaders of the transaction's partitions. An operator sends it to end a hanging
transaction. Each partition gets a control batch with the rules of acks=all, and is answered when that is committed.
Errors: INVALID_PRODUCER_EPOCH and TRANSACTION_COORDINATOR_FENCED if a later epoch is known, UNKNOWN_TOPIC_OR_PARTITION
and NOT_LEADER_OR_FOLLOWER if this node doesn't lead the partition, NOT_ENOUGH_REPLICAS. In a partition of
``__consumer_offsets`` the groups then apply the offsets that the transaction committed.

v2  the transaction's version: from 2 on a marker has the epoch after the transaction's.
"""

from __future__ import annotations

from collections.abc import Callable

from blumfeld.broker.handlers.common import CLUSTER_NAME
from blumfeld.broker.ports import Ports
from blumfeld.broker.replicas.partition import ACKS_ALL, Partition
from blumfeld.spi.completion import Completion
from blumfeld.spi.context import ApiHandler, RequestContext
from blumfeld.spi.internal_topics import OFFSETS_TOPIC
from blumfeld.spi.steps import by_elements
from blumfeld.wire.batches.control_records import build_transaction_marker
from blumfeld.wire.batches.record_batch import RecordBatch
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from blumfeld.wire.schema import Message


def handlers(ports: Ports) -> list[ApiHandler]:
    """Returns the handler of WriteTxnMarkers."""
    handle = WriteTxnMarkers(ports).handle
    handler = ApiHandler(
        key=27,
        min_version=1,
        max_version=2,
        handle=handle,
        error_response=failed,
        in_steps=by_elements(
            lambda: handler, ("markers", "topics", "partition_indexes"), ("markers", "topics", "partitions")
        ),
    )
    return [handler]


def failed(request: WriteTxnMarkersRequest, code: int, _message: str | None) -> WriteTxnMarkersResponse:
    """Returns an answer with this error for every partition of every marker."""
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            WritableTxnMarkerPartitionResult(partition_index=index, error_code=code)
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request.markers
        ]
    )


class _Placed:
    """Waits for one marker: implements ``AppendWaiter``."""

    __slots__ = ("_result", "_told")

    commit_wait_ms = None

    def __init__(self, result: WritableTxnMarkerPartitionResult, told: Callable[[], None]) -> None:
        self._result = result
        self._told = told

    def appended(self, code: ErrorCode) -> None:
        """Take the outcome: NONE when the marker is committed, or the error."""
        self._result.error_code = code
        self._told()


class WriteTxnMarkers:
    """Places one marker in each partition that a request names."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports

    def handle(self, request: WriteTxnMarkersRequest, context: RequestContext) -> Completion[Message]:
        """Place the markers. The answer completes when every marker is committed or has failed.

        :raises BrokerError: CLUSTER_AUTHORIZATION_FAILED
        """
        may = any(context.authorize(can, "Cluster", CLUSTER_NAME) for can in ("Alter", "ClusterAction"))
        if not may:
            raise BrokerError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        return self.write(request)

    def write(self, request: WriteTxnMarkersRequest) -> Completion[Message]:
        """:meth:`handle` for this node's own coordinator, which needs no permission."""
        response = failed(request, ErrorCode.NONE, None)
        answered: Completion[Message] = Completion()
        left = 1  # this call itself, so that no answer is made before all markers are placed

        def told() -> None:
            nonlocal left
            left -= 1
            if left == 0:
                answered.complete(response)

        for marker, results in zip(request.markers, response.markers, strict=True):
            built = self._built(marker)
            for topic in results.topics:
                for result in topic.partitions:
                    left += 1
                    self._place(marker, built, topic.name, result, told)
        told()
        return answered

    def _place(
        self,
        marker: WritableTxnMarker,
        built: bytearray | None,
        topic: str,
        result: WritableTxnMarkerPartitionResult,
        told: Callable[[], None],
    ) -> None:
        try:
            partition = self._ports.hosted.leading(topic, result.partition_index)
            self._check(partition, marker)
            if built is None:
                raise BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR)
            # Each partition patches its offset into a copy of its own.
            batch = RecordBatch(memoryview(bytearray(built)))
            partition.place(batch, ACKS_ALL, _Placed(result, told))
        except BrokerError as error:
            result.error_code = error.code
            told()
            return
        groups = self._ports.groups()
        if topic == OFFSETS_TOPIC and groups is not None:
            groups.transaction_ended(result.partition_index, marker.producer_id, marker.transaction_result)

    def _check(self, partition: Partition, marker: WritableTxnMarker) -> None:
        leader = partition.leader
        code = ErrorCode.NOT_LEADER_OR_FOLLOWER if leader is None else leader.check_append_all()
        if code:
            raise BrokerError(code)
        partition.state.producers.check_marker(
            marker.producer_id,
            marker.producer_epoch,
            marker.coordinator_epoch,
            marker.transaction_version,
        )

    def _built(self, marker: WritableTxnMarker) -> bytearray | None:
        """Returns the marker's batch, which is the same for all partitions; ``None`` if no batch can say this."""
        if marker.producer_id < 0 or marker.producer_epoch < 0:
            return None
        return build_transaction_marker(
            commit=marker.transaction_result,
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            coordinator_epoch=marker.coordinator_epoch,
            timestamp_ms=self._ports.runtime.now_ms(),
        )
