"""Writes the markers that end transactions: one queue for each broker, batched, retried until every marker is written.

A marker is sent only after the decision is committed, because the runtime performs the effect only then. The queues are
in memory only. A new coordinator finds the decision in the log and sends all markers again: a marker that is already
there ends nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import NamedTuple

from blumfeld.spi.completion import Completion
from blumfeld.spi.hooks import EventLog
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
from blumfeld_transactions.transaction import Partition

RETRY_MS = 100
"""Pause before markers that could not be written are tried again, and before a broker is asked again (Kafka's
``retry.backoff.ms``)."""
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
    """One transaction whose markers are being written."""

    __slots__ = ("left", "markers", "order")

    def __init__(self, order: Order, markers: WriteMarkers) -> None:
        self.order = order
        self.markers = markers
        self.left = set(markers.partitions)
        """Partitions whose marker isn't written yet."""


class MarkerSender:
    """Sends markers, and tells the shard when all those of a transaction are written."""

    def __init__(self, runtime: Runtime, events: EventLog, around: TransactionSurroundings) -> None:
        self._runtime = runtime
        self._events = events
        self._around = around
        self._pending: dict[Order, _Pending] = {}
        self._queued: dict[int, dict[Order, set[Partition]]] = {}
        """Node → the partitions whose markers wait for the request before them, by transaction."""
        self._asked: set[int] = set()
        """Nodes that have a request without an answer, or a pause after a failure."""

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
        self._route(order, markers.partitions)
        self._complete_if_done(one)

    def _route(self, order: Order, partitions: Iterable[Partition]) -> None:
        """Queue the markers for the partitions' leaders as of now."""
        one = self._pending.get(order)
        if one is None:
            return
        topics = self._around.image().topics
        nodes: set[int] = set()
        without_leader = set()
        for at in sorted(partitions):
            topic = topics.get(at[0])
            found = None if topic is None else topic.partitions.get(at[1])
            if found is None:
                one.left.discard(at)  # the topic was deleted: there is nothing to end
            elif found.leader < 0:
                without_leader.add(at)
            else:
                self._queued.setdefault(found.leader, {}).setdefault(order, set()).add(at)
                nodes.add(found.leader)
        if without_leader:
            self._runtime.call_later(RETRY_MS, partial(self._again, order, without_leader))
        for node_id in sorted(nodes):
            self._send(node_id)

    def _again(self, order: Order, partitions: Iterable[Partition]) -> None:
        self._route(order, partitions)
        one = self._pending.get(order)
        if one is not None:
            self._complete_if_done(one)

    def _send(self, node_id: int) -> None:
        """Send all that is queued for a broker in one request, unless one is under way."""
        if node_id in self._asked:
            return
        sent = [(o, at) for o, at in self._queued.pop(node_id, {}).items() if o in self._pending]
        if not sent:
            return
        self._asked.add(node_id)
        request = WriteTxnMarkersRequest(markers=[self._marker(order, at) for order, at in sent])
        answer = self._around.write_markers(node_id, request)
        answer.when_done(lambda done: self._answered(node_id, sent, done))

    def _marker(self, order: Order, partitions: set[Partition]) -> WritableTxnMarker:
        markers = self._pending[order].markers
        topics: dict[str, WritableTxnMarkerTopic] = {}
        for topic, index in sorted(partitions):
            topics.setdefault(topic, WritableTxnMarkerTopic(name=topic)).partition_indexes.append(index)
        return WritableTxnMarker(
            producer_id=markers.producer_id,
            producer_epoch=markers.epoch,
            transaction_result=markers.commit,
            topics=list(topics.values()),
            coordinator_epoch=order.epoch,
            transaction_version=markers.client_version,
        )

    def _answered(
        self, node_id: int, sent: list[tuple[Order, set[Partition]]], done: Completion[Message]
    ) -> None:
        self._asked.discard(node_id)
        response = None if done.error is not None else done.result()
        if not isinstance(response, WriteTxnMarkersResponse) or len(response.markers) != len(sent):
            self._events.warning(
                "markers could not be sent", node_id=node_id, error=str(done.error or response)
            )
            self._retry(sent)
        else:
            failed = []
            for (order, asked), result in zip(sent, response.markers, strict=True):
                codes = {
                    (topic.name, p.partition_index): p.error_code
                    for topic in result.topics
                    for p in topic.partitions
                }
                left = self._settle(order, asked, codes)
                if left:
                    failed.append((order, left))
            self._retry(failed)
        self._send(node_id)

    def _settle(self, order: Order, asked: set[Partition], codes: dict[Partition, int]) -> set[Partition]:
        """Take the outcome for one transaction. Returns the partitions to try again."""
        one = self._pending.get(order)
        if one is None:
            return set()
        again = set()
        for at in sorted(asked):
            code = codes.get(at, ErrorCode.UNKNOWN_SERVER_ERROR)
            if code in FENCED:
                self._events.warning(
                    "a marker was fenced: a later coordinator ends the transaction",
                    transactional_id=order.transactional_id,
                    topic=at[0],
                    partition=at[1],
                    error=ErrorCode(code).name,
                )
                del self._pending[order]
                return set()
            if code:
                again.add(at)
            else:
                one.left.discard(at)
        self._complete_if_done(one)
        return again

    def _retry(self, failed: list[tuple[Order, set[Partition]]]) -> None:
        for order, partitions in failed:
            self._runtime.call_later(RETRY_MS, partial(self._again, order, partitions))

    def _complete_if_done(self, one: _Pending) -> None:
        if one.left:
            return
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
            self._runtime.call_later(RETRY_MS, partial(self._complete_if_done, one))
            return
        # On success, and where the shard is gone: its next one orders the markers anew.
        self._pending.pop(one.order, None)
