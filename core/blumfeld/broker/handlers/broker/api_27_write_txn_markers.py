"""WriteTxnMarkers (key 27), v1-2: end transactions in partitions that this node leads (KIP-98, KIP-664, KIP-1228).

A transaction coordinator sends it to the leaders of the transaction's partitions. An operator sends it to end a hanging
transaction. Each partition gets a control batch with the rules of acks=all, and is answered when that is committed.
Errors: INVALID_PRODUCER_EPOCH and TRANSACTION_COORDINATOR_FENCED if a later epoch is known, UNKNOWN_TOPIC_OR_PARTITION
and NOT_LEADER_OR_FOLLOWER if this node doesn't lead the partition, NOT_ENOUGH_REPLICAS. In a partition of
``__consumer_offsets`` the groups then apply the offsets that the transaction committed.

v2  the transaction's version: from 2 on a marker has the epoch after the transaction's.
"""

from __future__ import annotations

from typing import NamedTuple

from blumfeld.broker.handlers.common import CLUSTER_NAME
from blumfeld.broker.ports import Ports
from blumfeld.broker.replicas.waiting_appends import ACKS_ALL
from blumfeld.log.producers.end_marker import EndMarker
from blumfeld.spi.completion import Completion, Steps
from blumfeld.spi.context import ApiHandler, RequestContext
from blumfeld.spi.internal_topics import OFFSETS_TOPIC
from blumfeld.spi.steps import errors_by_elements
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

MARKERS_A_STEP = 128
"""Markers that are placed between two yields: less than a millisecond."""


def handlers(ports: Ports) -> list[ApiHandler]:
    """Returns the handler of WriteTxnMarkers."""
    markers = WriteTxnMarkers(ports)
    return [
        ApiHandler(
            key=27,
            min_version=1,
            max_version=2,
            handle=markers.handle,
            error_response=failed,
            in_steps=markers.in_steps,
            error_in_steps=errors_by_elements(
                failed, ("markers", "topics", "partition_indexes"), ("markers", "topics", "partitions")
            ),
        )
    ]


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


class _Built(NamedTuple):
    """A marker's batch, from which each partition gets a copy, and what a log reads from it."""

    batch: RecordBatch
    ends: EndMarker


class _Writing:
    """One request whose markers are being written."""

    __slots__ = ("answered", "left", "response")

    def __init__(self) -> None:
        self.response = WriteTxnMarkersResponse()
        self.answered: Completion[Message] = Completion()
        self.left = 1
        """Number of markers without an outcome. The placing counts as one, so that the answer waits for its end."""

    def one_done(self) -> None:
        """Count one outcome, and answer after the last one."""
        self.left -= 1
        if not self.left:
            self.answered.complete(self.response)


class _Placed:
    """Waits for one marker: implements ``AppendWaiter``."""

    __slots__ = ("_result", "_writing")

    commit_wait_ms = None

    def __init__(self, result: WritableTxnMarkerPartitionResult, writing: _Writing) -> None:
        self._result = result
        self._writing = writing

    def appended(self, code: ErrorCode) -> None:
        """Take the outcome: NONE when the marker is committed, or the error."""
        if code:
            self._result.error_code = code
        self._writing.one_done()


class WriteTxnMarkers:
    """Places one marker in each partition that a request names."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports

    def handle(self, request: WriteTxnMarkersRequest, context: RequestContext) -> Completion[Message]:
        """Place the markers. The answer completes when every marker is committed or has failed.

        :raises BrokerError: CLUSTER_AUTHORIZATION_FAILED
        """
        self._check_permission(context)
        return self.write(request)

    def write(self, request: WriteTxnMarkersRequest) -> Completion[Message]:
        """:meth:`handle` for this node's own coordinator, which needs no permission."""
        writing = _Writing()
        for _ in self._steps(request, writing):
            pass
        return writing.answered

    def in_steps(
        self, request: WriteTxnMarkersRequest, context: RequestContext
    ) -> Steps[Completion[Message]]:
        """:meth:`handle` for many partitions. No step waits for the commit of those before it."""
        self._check_permission(context)
        writing = _Writing()
        yield from self._steps(request, writing)
        return writing.answered

    def _check_permission(self, context: RequestContext) -> None:
        may = any(context.authorize(can, "Cluster", CLUSTER_NAME) for can in ("Alter", "ClusterAction"))
        if not may:
            raise BrokerError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)

    def _steps(self, request: WriteTxnMarkersRequest, writing: _Writing) -> Steps[None]:
        for marker in request.markers:
            built = self._built(marker)
            result = WritableTxnMarkerResult(producer_id=marker.producer_id)
            writing.response.markers.append(result)
            for topic in marker.topics:
                of_topic = WritableTxnMarkerTopicResult(name=topic.name)
                result.topics.append(of_topic)
                indexes = topic.partition_indexes
                for start in range(0, len(indexes), MARKERS_A_STEP):
                    some = indexes[start : start + MARKERS_A_STEP]
                    self._place_some(marker, built, topic.name, some, of_topic.partitions, writing)
                    yield None
                if not indexes:
                    yield None
            if not marker.topics:
                yield None
        writing.one_done()

    def _place_some(
        self,
        marker: WritableTxnMarker,
        built: _Built | None,
        topic: str,
        indexes: list[int],
        results: list[WritableTxnMarkerPartitionResult],
        writing: _Writing,
    ) -> None:
        """:param results: takes the result of each partition"""
        leading = self._ports.hosted.leading
        groups = self._ports.groups() if topic == OFFSETS_TOPIC else None
        producer_id, producer_epoch = marker.producer_id, marker.producer_epoch
        coordinator_epoch, version = marker.coordinator_epoch, marker.transaction_version
        for index in indexes:
            result = WritableTxnMarkerPartitionResult(index)
            results.append(result)
            try:
                partition = leading(topic, index)
                leader = partition.leader
                if leader is not None and (code := leader.check_append_all()):
                    raise BrokerError(code)
                partition.state.producers.check_marker(
                    producer_id, producer_epoch, coordinator_epoch, version
                )
                if built is None:
                    raise BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR)
                # Each partition patches its offset into a copy of its own.
                partition.place(built.batch.copy(), ACKS_ALL, _Placed(result, writing), built.ends)
            except BrokerError as error:
                result.error_code = error.code
                continue
            writing.left += 1
            if groups is not None:
                groups.transaction_ended(index, producer_id, marker.transaction_result)

    def _built(self, marker: WritableTxnMarker) -> _Built | None:
        """Returns the marker's batch, which is the same for all partitions; ``None`` if no batch can say this."""
        if marker.producer_id < 0 or marker.producer_epoch < 0:
            return None
        data = build_transaction_marker(
            commit=marker.transaction_result,
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            coordinator_epoch=marker.coordinator_epoch,
            timestamp_ms=self._ports.runtime.now_ms(),
        )
        return _Built(
            RecordBatch(memoryview(data)), EndMarker(marker.transaction_result, marker.coordinator_epoch)
        )
