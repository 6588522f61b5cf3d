"""Writes the markers that end transactions: one queue for each broker, batched, retried until every marker is written.

A marker is sent only after the decision is committed, because the runtime performs the effect only then. The queues are
in memory only. A new coordinator finds the decision in the log and sends all markers again: a marker that is already
there ends nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import NamedTuple, TypeAlias

from blumfeld.spi.completion import Completion
from blumfeld.spi.hooks import EventLog
from blumfeld.spi.repeated_events import RepeatedEvents
from blumfeld.spi.runtime import Runtime
from blumfeld.spi.transactions import TransactionSurroundings
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from blumfeld.wire.schema import Message
from blumfeld_transactions.commands import MarkersWritten, WriteMarkers
from blumfeld_transactions.transaction import Partition, by_topic

RETRY_MS = 100
"""Pause before markers that could not be written are tried again, and before a broker is asked again (Kafka's
``retry.backoff.ms``)."""
MARKERS_A_REQUEST = 200
"""Markers of one request; the rest waits for the next. This node writes its own at once, in a few milliseconds."""
FENCED = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED)
"""Errors that say that a later coordinator, or a later epoch of the producer, is known. Its own coordinator completes
the transaction."""


class Order(NamedTuple):
    """The place of an effect: the shard that ordered it, in its leader epoch."""

    partition: int
    epoch: int
    transactional_id: str
    producer_id: int
    producer_epoch: int


class _Pending:
    """One transaction whose markers are being written. Queues and requests under way hold this object, not its order:
    with the first generation the next transaction has an equal order, and a late answer is not about it."""

    __slots__ = ("left", "markers", "order", "reported")

    def __init__(self, order: Order, markers: WriteMarkers) -> None:
        self.order = order
        self.markers = markers
        self.left = set(markers.partitions)
        """Partitions whose marker isn't written yet."""
        self.reported = False
        """Whether the shard is being told that all are written."""


_Sent: TypeAlias = "list[tuple[_Pending, set[Partition]]]"


class MarkerSender:
    """Sends markers, and tells the shard when all those of a transaction are written."""

    def __init__(self, runtime: Runtime, events: EventLog, around: TransactionSurroundings) -> None:
        self._runtime = runtime
        self._events = events
        self._unsent = RepeatedEvents(runtime)
        self._around = around
        self._pending: dict[Order, _Pending] = {}
        self._queued: dict[int, dict[_Pending, set[Partition]]] = {}
        """Node → the partitions whose markers wait for the request before them, by transaction."""
        self._asked: set[int] = set()
        """Nodes that have a request without an answer."""

    @property
    def waiting(self) -> int:
        """Number of markers that are not written yet."""
        return sum(len(one.left) for one in self._pending.values())

    def begin(self, partition: int, epoch: int, markers: WriteMarkers) -> None:
        """Write the markers of a transaction. A second order of the same shard for the same transaction is the first
        one."""
        order = Order(partition, epoch, markers.transactional_id, markers.producer_id, markers.epoch)
        if order in self._pending:
            return
        one = self._pending[order] = _Pending(order, markers)
        self._route(one, markers.partitions)

    def _is_current(self, one: _Pending) -> bool:
        """Whether the transaction is still to be ended by this shard. What a leadership that has ended ordered is
        forgotten: the next coordinator writes these markers, in its own epoch."""
        order = one.order
        if self._pending.get(order) is not one:
            return False
        if not self._around.coordinates(order.partition, order.epoch):
            del self._pending[order]
            return False
        return True

    def _route(self, one: _Pending, partitions: Iterable[Partition]) -> None:
        """Queue the markers for the partitions' leaders as of now."""
        if not self._is_current(one):
            return
        topics = self._around.image().topics
        by_leader: dict[int, list[Partition]] = {}
        for at in partitions:
            topic = topics.get(at[0])
            found = None if topic is None else topic.partitions.get(at[1])
            if found is None:
                one.left.discard(at)  # the topic was deleted: there is nothing to end
            elif found.leader in by_leader:
                by_leader[found.leader].append(at)
            else:
                by_leader[found.leader] = [at]
        for node_id in sorted(by_leader):
            if node_id < 0:  # no leader
                self._runtime.call_later(RETRY_MS, partial(self._route, one, by_leader[node_id]))
                continue
            self._queued.setdefault(node_id, {}).setdefault(one, set()).update(by_leader[node_id])
            self._send(node_id)
        self._complete_if_done(one)

    def _send(self, node_id: int) -> None:
        """Send what is queued for a broker in one request, unless one is under way."""
        if node_id in self._asked:
            return
        sent = self._next_request(node_id)
        if not sent:
            return
        self._asked.add(node_id)
        request = WriteTxnMarkersRequest(markers=[_marker(one, at) for one, at in sent])
        answer = self._around.write_markers(node_id, request)
        answer.when_done(lambda done: self._answered(node_id, sent, done))

    def _next_request(self, node_id: int) -> _Sent:
        queue = self._queued.get(node_id, {})
        sent: _Sent = []
        room = MARKERS_A_REQUEST
        while queue and room:
            one = next(iter(queue))
            partitions = queue.pop(one)
            if not self._is_current(one):
                continue
            if len(partitions) > room:
                now = set(sorted(partitions)[:room])
                queue[one] = partitions - now
                partitions = now
            sent.append((one, partitions))
            room -= len(partitions)
        if not queue:
            self._queued.pop(node_id, None)
        return sent

    def _answered(self, node_id: int, sent: _Sent, done: Completion[Message]) -> None:
        self._asked.discard(node_id)
        response = None if done.error is not None else done.result()
        if not isinstance(response, WriteTxnMarkersResponse) or len(response.markers) != len(sent):
            reason = str(done.error or response)
            self._unsent.say(
                self._events.warning,
                "markers could not be sent",
                (node_id, reason),
                node_id=node_id,
                error=reason,
            )
            self._retry(sent)
        else:
            failed: _Sent = []
            for (one, asked), result in zip(sent, response.markers, strict=True):
                codes = {
                    (topic.name, p.partition_index): p.error_code
                    for topic in result.topics
                    for p in topic.partitions
                }
                again = self._settle(one, asked, codes)
                if again:
                    failed.append((one, again))
            self._retry(failed)
        self._send(node_id)

    def _settle(self, one: _Pending, asked: set[Partition], codes: dict[Partition, int]) -> set[Partition]:
        """Take the outcome for one transaction. Returns the partitions to try again."""
        if not self._is_current(one):
            return set()
        if not any(codes.values()) and codes.keys() >= asked:
            one.left -= asked
            self._complete_if_done(one)
            return set()
        again = set()
        for at in sorted(asked):
            code = codes.get(at, ErrorCode.UNKNOWN_SERVER_ERROR)
            if code in FENCED:
                # Mostly a later coordinator has ended the transaction. Where records of the coordinator were lost, none
                # has, and the transaction stays prepared.
                self._events.warning(
                    "a marker was refused: its partition knows a later epoch of the coordinator or of the producer",
                    transactional_id=one.order.transactional_id,
                    topic=at[0],
                    partition=at[1],
                    error=ErrorCode(code).name,
                )
                del self._pending[one.order]
                return set()
            if code:
                again.add(at)
            else:
                one.left.discard(at)
        self._complete_if_done(one)
        return again

    def _retry(self, failed: _Sent) -> None:
        for one, partitions in failed:
            self._runtime.call_later(RETRY_MS, partial(self._route, one, partitions))

    def _complete_if_done(self, one: _Pending) -> None:
        if one.left or one.reported or not self._is_current(one):
            return
        one.reported = True
        order = one.order
        written = MarkersWritten(
            transactional_id=order.transactional_id,
            producer_id=order.producer_id,
            epoch=order.producer_epoch,
        )
        told = self._around.submit_in_epoch(order.partition, order.epoch, written)
        told.when_done(lambda done: self._told(one, done))

    def _told(self, one: _Pending, done: Completion[object]) -> None:
        error = done.error
        if isinstance(error, BrokerError) and error.code is ErrorCode.COORDINATOR_NOT_AVAILABLE:
            # The record was refused, with too few replicas in sync. The transaction stays prepared until it is taken.
            one.reported = False
            self._runtime.call_later(RETRY_MS, partial(self._complete_if_done, one))
        elif self._pending.get(one.order) is one:
            # On success, and where the shard is gone: its next one orders the markers anew.
            del self._pending[one.order]


def _marker(one: _Pending, partitions: set[Partition]) -> WritableTxnMarker:
    markers = one.markers
    topics = [
        WritableTxnMarkerTopic(name=name, partition_indexes=indexes) for name, indexes in by_topic(partitions)
    ]
    return WritableTxnMarker(
        producer_id=markers.producer_id,
        producer_epoch=markers.epoch,
        transaction_result=markers.commit,
        topics=topics,
        coordinator_epoch=one.order.epoch,
        transaction_version=markers.client_version,
    )
