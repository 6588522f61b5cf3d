"""WriteTxnMarkers (key 27), v1-2: end transactions in partitions that this node leads (KIP-98, KIP-664, KIP-1228).

A transaction coordinator sends it to the leaders of the transaction's partitions. An operator sends it to end a hanging
transaction. Each partition gets a control batch with the rules of acks=all, and is answered when that is committed.
Errors: INVALID_PRODUCER_EPOCH and TRANSACTION_COORDINATOR_FENCED if a later epoch is known, UNKNOWN_TOPIC_OR_PARTITION
and NOT_LEADER_OR_FOLLOWER if this node doesn't lead the partition, NOT_ENOUGH_REPLICAS. In a partition of
``__consumer_offsets`` the groups then apply the offsets that the transaction committed.

The epoch of a coordinator is the leader epoch of a partition of ``__transaction_state``. A marker with a later one than
the image has would fence every real coordinator, and ``read_committed`` would stand still in that partition for good.
It gets NOT_LEADER_OR_FOLLOWER, which a coordinator answers by another attempt: this node's image may be behind.

v2  the transaction's version: from 2 on a marker has the epoch after the transaction's.
"""

from __future__ import annotations

from collections.abc import Iterator

from blumfeld.broker.handlers.common import CLUSTER_NAME
from blumfeld.broker.ports import Ports
from blumfeld.broker.replicas.partition import Partition
from blumfeld.log.producers.end_marker import EndMarker
from blumfeld.spi.completion import Completion, Steps
from blumfeld.spi.context import ApiHandler, RequestContext
from blumfeld.spi.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from blumfeld.spi.repeated_events import RepeatedEvents
from blumfeld.spi.steps import at_once, errors_by_elements, small_at_once
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
ALIKE_MAX = 32
"""Markers for the same partitions that are placed together at most."""


def handlers(ports: Ports) -> list[ApiHandler]:
    """Returns the handler of WriteTxnMarkers."""
    return [
        ApiHandler(
            key=27,
            min_version=1,
            max_version=2,
            handle=small_at_once(WriteTxnMarkers(ports).serve),
            error_response=errors_by_elements(
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


class _Marker:
    """One marker of a request, while it is placed."""

    __slots__ = ("_topics", "asked", "batch", "ends", "leaps", "results")

    def __init__(
        self, txn_marker: WritableTxnMarker, answer: WritableTxnMarkerResult, now_ms: int, leaps: bool
    ) -> None:
        self.asked = txn_marker
        self.leaps = leaps
        """Whether the image has no coordinator in an epoch as late as the marker's."""
        self.batch: RecordBatch | None = None
        """The marker's batch, which is the same for all partitions; ``None`` if no batch can say this."""
        if txn_marker.producer_id >= 0 and txn_marker.producer_epoch >= 0:
            data = build_transaction_marker(
                commit=txn_marker.transaction_result,
                producer_id=txn_marker.producer_id,
                producer_epoch=txn_marker.producer_epoch,
                coordinator_epoch=txn_marker.coordinator_epoch,
                timestamp_ms=now_ms,
            )
            self.batch = RecordBatch(memoryview(data))
        self.ends = EndMarker(txn_marker.transaction_result, txn_marker.coordinator_epoch)
        """The content of the batch, so that nobody has to read it."""
        self.results: list[WritableTxnMarkerPartitionResult] = []
        """Takes the result of each partition of the topic that has its turn."""
        self._topics = answer.topics

    def next_topic(self, name: str) -> None:
        """Begin the results of a topic."""
        answer = WritableTxnMarkerTopicResult(name=name)
        self._topics.append(answer)
        self.results = answer.partitions


class _Writing:
    """One request whose markers are being written."""

    __slots__ = ("answered", "left", "response")

    def __init__(self) -> None:
        self.response = WriteTxnMarkersResponse()
        self.answered: Completion[Message] = Completion()
        self.left = 1
        """Number of partitions without an outcome. The placing counts as one, so that the answer waits for its end."""

    def one_done(self) -> None:
        """Count one outcome, and answer after the last one."""
        self.left -= 1
        if not self.left:
            self.answered.complete(self.response)


class _Placed:
    """Waits for the markers that a request places in one partition: implements ``AppendWaiter``."""

    __slots__ = ("_results", "_writing")

    commit_wait_ms = None

    def __init__(self, results: list[WritableTxnMarkerPartitionResult], writing: _Writing) -> None:
        self._results = results
        self._writing = writing

    def refused(self, code: ErrorCode) -> None:
        """Set the error of each marker."""
        for result in self._results:
            result.error_code = code

    def appended(self, code: ErrorCode) -> None:
        """Take the outcome: NONE when the markers are committed, or the error."""
        if code:
            self.refused(code)
        self._writing.one_done()


class WriteTxnMarkers:
    """Places one marker in each partition that a request names."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports
        self._coordinator_epoch_max = 0
        self._leaps = RepeatedEvents(ports.runtime)

    def serve(self, request: WriteTxnMarkersRequest, context: RequestContext) -> Steps[Completion[Message]]:
        """Place the markers. The answer completes when every marker is committed or has failed; no step waits for the
        commit of those before it.

        :raises BrokerError: CLUSTER_AUTHORIZATION_FAILED
        """
        if not (
            context.authorize("Alter", "Cluster", CLUSTER_NAME, quiet=True)
            or context.authorize("ClusterAction", "Cluster", CLUSTER_NAME)
        ):
            raise BrokerError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        return (yield from self._place(request))

    def write(self, request: WriteTxnMarkersRequest) -> Completion[Message]:
        """:meth:`serve` for this node's own coordinator, which needs no permission, at once."""
        answered: Completion[Message] = at_once(self._place(request))
        return answered

    def _place(self, request: WriteTxnMarkersRequest) -> Steps[Completion[Message]]:
        writing = _Writing()
        for alike in _alike(request.markers):
            markers = []
            for txn_marker in alike:
                if leaps := txn_marker.coordinator_epoch > self._coordinator_epoch_max:
                    leaps = self._leaps_past_the_image(txn_marker)
                answer = WritableTxnMarkerResult(producer_id=txn_marker.producer_id)
                writing.response.markers.append(answer)
                markers.append(_Marker(txn_marker, answer, self._ports.runtime.now_ms(), leaps))
            at_once = MARKERS_A_STEP // len(markers)
            for topic in alike[0].topics:
                for marker in markers:
                    marker.next_topic(topic.name)
                indexes = topic.partition_indexes
                for start in range(0, len(indexes), at_once):
                    self._place_some(markers, topic.name, indexes[start : start + at_once], writing)
                    yield None
                if not indexes:
                    yield None
            if not alike[0].topics:
                yield None
        writing.one_done()
        return writing.answered

    def _leaps_past_the_image(self, txn_marker: WritableTxnMarker) -> bool:
        """Whether the marker's epoch is later than that of every coordinator in the image."""
        topic = self._ports.cluster.image.topics.get(TRANSACTIONS_TOPIC)
        epochs = [] if topic is None else [partition.leader_epoch for partition in topic.partitions.values()]
        self._coordinator_epoch_max = max(epochs, default=0)
        if txn_marker.coordinator_epoch <= self._coordinator_epoch_max:
            return False
        self._leaps.say(
            self._ports.events.warning,
            "a transaction's marker has a later epoch than any coordinator of the metadata",
            txn_marker.producer_id,
            producer_id=txn_marker.producer_id,
            coordinator_epoch=txn_marker.coordinator_epoch,
            latest=self._coordinator_epoch_max,
        )
        return True

    def _place_some(self, markers: list[_Marker], topic: str, indexes: list[int], writing: _Writing) -> None:
        """Place all these markers in each of these partitions."""
        groups = self._ports.groups() if topic == OFFSETS_TOPIC else None
        # Each partition patches its offsets into copies of its own.
        count = len(indexes)
        copies = [
            [None] * count if marker.batch is None else marker.batch.copies(count) for marker in markers
        ]
        all_ends = [marker.ends for marker in markers]
        for index, *batches in zip(indexes, *copies, strict=True):
            results = [WritableTxnMarkerPartitionResult(index) for _ in markers]
            for marker, result in zip(markers, results, strict=True):
                marker.results.append(result)
            ends, waiter = all_ends, _Placed(results, writing)
            try:
                partition = self._ports.hosted.leading(topic, index)
                leader = partition.leader
                if leader is not None and (code := leader.check_append_all()):
                    raise BrokerError(code)
                if _refuses_some(partition, markers, results):
                    kept = [at for at, result in enumerate(results) if not result.error_code]
                    if not kept:
                        continue
                    batches, ends = [batches[at] for at in kept], [all_ends[at] for at in kept]
                    waiter = _Placed([results[at] for at in kept], writing)
                partition.place_markers(batches, ends, waiter)
            except BrokerError as error:
                waiter.refused(error.code)
                continue
            writing.left += 1
            if groups is not None:
                for batch, end in zip(batches, ends, strict=True):
                    groups.transaction_ended(index, batch.producer_id, end.committed)


def _refuses_some(
    partition: Partition, markers: list[_Marker], results: list[WritableTxnMarkerPartitionResult]
) -> bool:
    """Returns whether any of the markers may not be placed in the partition, and sets the error in its result."""
    refuses = False
    producers = partition.state.producers
    check = producers.check_marker
    for marker, result in zip(markers, results, strict=True):
        txn_marker = marker.asked
        try:
            check(
                txn_marker.producer_id,
                txn_marker.producer_epoch,
                txn_marker.coordinator_epoch,
                txn_marker.transaction_version,
            )
            if marker.batch is None:
                raise BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR)
            if marker.leaps:
                known = producers.producer(txn_marker.producer_id)
                if known is None or known.coordinator_epoch < txn_marker.coordinator_epoch:
                    raise BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        except BrokerError as error:
            result.error_code = error.code
            refuses = True
    return refuses


def _alike(markers: list[WritableTxnMarker]) -> Iterator[list[WritableTxnMarker]]:
    """Yields the markers in runs of neighbours that are for the same partitions and of different producers.

    The markers of a run are placed partition by partition. Two of one producer are in different runs, because the
    second one is checked against the state that the first one leaves.
    """
    run: list[WritableTxnMarker] = []
    producer_ids: set[int] = set()
    for marker in markers:
        if run and (
            len(run) == ALIKE_MAX or marker.producer_id in producer_ids or marker.topics != run[0].topics
        ):
            yield run
            run = []
            producer_ids.clear()
        run.append(marker)
        producer_ids.add(marker.producer_id)
    if run:
        yield run
