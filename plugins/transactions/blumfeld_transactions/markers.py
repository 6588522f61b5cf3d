"""Writes the markers that end transactions: one queue for each broker, batched, retried until every marker is written.

A marker is sent only after the decision is committed, because the runtime performs the effect only then. The queues are
in memory only. A new coordinator finds the decision in the log and sends all markers again: a marker that is already
there ends nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import partial
from typing import NamedTuple, TypeAlias

from blumfeld.coordinator.runtime.coordinator import Coordinator
from blumfeld.spi.completion import Completion, Steps
from blumfeld.spi.hooks import EventLog
from blumfeld.spi.repeated_events import RepeatedEvents
from blumfeld.spi.runtime import Phase, Runtime
from blumfeld.spi.scheduler import Lane
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
from blumfeld_transactions.transaction import Partition, in_order, in_pieces

RETRY_MS = 100
"""Pause before markers that could not be written are tried again, and before a broker is asked again (Kafka's
``retry.backoff.ms``)."""
MARKERS_A_REQUEST = 200
"""Markers of one request; the rest waits for the next. This node writes its own at once, in a millisecond or three."""
OWN_SLICE_MS = 8.0
"""Time for requests to this node in one turn of the loop. Then the next one waits for another turn. The next request
to another broker does so, too: its answer comes in a later turn than the one whose time is kept.

A producer goes on when EndTxn is answered. If it comes back before the markers of its transaction are written, it has
to ask again. So the markers of several producers with a hundred partitions each should not need many turns."""
OWN_REQUESTS_MAX = 8
"""Requests to this node in one turn at most: in a simulation the clock stands still."""
ROUTED_A_STEP = 512
"""Partitions whose markers are queued in one step."""
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


class Pending:
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


Taken: TypeAlias = "dict[Pending, list[Partition]]"


class MarkerQueue:
    """The markers that wait for the next request to one broker: partitions in the order in which they came, each with
    its transactions in theirs.

    A request takes all markers of a partition, before it takes those of the next. So the broker writes each partition's
    markers together: many transactions that end at once cost one write for each partition.
    """

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: dict[Partition, list[Pending]] = {}

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, pending: Pending, partitions: Iterable[Partition]) -> None:
        """Add a transaction's markers for these partitions."""
        waiting = self._waiting
        for at in partitions:
            if at in waiting:
                waiting[at].append(pending)
            else:
                waiting[at] = [pending]

    def take(self, most: int) -> Taken:
        """Remove the markers that waited longest, ``most`` at most, and return them by transaction.

        The rest of a partition that has more waits behind the other partitions.
        """
        taken: Taken = {}
        gone: list[Partition] = []
        rest: list[Pending] = []
        for at, some in self._waiting.items():
            gone.append(at)
            if len(some) > most:
                some, rest = some[:most], some[most:]
            for order in some:
                if order in taken:
                    taken[order].append(at)
                else:
                    taken[order] = [at]
            most -= len(some)
            if not most:
                break
        for at in gone:
            del self._waiting[at]
        if rest:
            self._waiting[gone[-1]] = rest
        return taken


class MarkerSender:
    """Sends markers, and tells the shard when all those of a transaction are written."""

    def __init__(self, runtime: Runtime, events: EventLog, around: TransactionSurroundings) -> None:
        self._runtime = runtime
        self._events = events
        self._unsent = RepeatedEvents(runtime)
        self._coordinator: Coordinator = around.coordinator
        self._around = around
        self._pending: dict[Order, Pending] = {}
        self._queues: dict[int, MarkerQueue] = {}
        """Node → the markers that wait for a request."""
        self._asked: set[int] = set()
        """Nodes that have a request without an answer."""
        self._send_due = False
        self._began_ms = 0.0
        """The time at which the last turn that sent queued markers began to send them."""
        self._in_turn = 0
        """Requests that were answered since then."""

    @property
    def waiting(self) -> int:
        """Number of markers that are not written yet."""
        return sum(len(pending.left) for pending in self._pending.values())

    def begin(self, partition: int, epoch: int, markers: WriteMarkers) -> None:
        """Write the markers of a transaction. A second order of the same shard for the same transaction is the first
        one."""
        order = Order(partition, epoch, markers.transactional_id, markers.producer_id, markers.epoch)
        if order in self._pending:
            return
        pending = self._pending[order] = Pending(order, markers)
        self._queue(pending, markers.partitions)

    def _is_current(self, pending: Pending) -> bool:
        """Whether the transaction is still to be ended by this shard. What a leadership that has ended ordered is
        forgotten: the next coordinator writes these markers, in its own epoch."""
        order = pending.order
        if self._pending.get(order) is not pending:
            return False
        if self._coordinator.epoch_of(order.partition) != order.epoch:
            del self._pending[order]
            return False
        return True

    def _queue(self, pending: Pending, partitions: Collection[Partition]) -> None:
        """Queue markers: at once, or many of them over several turns."""
        self._runtime.scheduler.run(Lane.COORDINATORS, self._queue_in_steps(pending, partitions))

    def _queue_in_steps(self, pending: Pending, partitions: Collection[Partition]) -> Steps[None]:
        if len(partitions) <= ROUTED_A_STEP:
            self._route(pending, in_order(partitions) if isinstance(partitions, frozenset) else partitions)
            return
        for some in in_pieces(partitions, ROUTED_A_STEP):
            if not self._is_current(pending):
                return
            self._route(pending, some)
            yield None

    def _route(self, pending: Pending, partitions: Iterable[Partition]) -> None:
        """Queue the markers for the partitions' leaders as of now."""
        if not self._is_current(pending):
            return
        topics = self._around.metadata.image.topics
        by_leader: dict[int, list[Partition]] = {}
        for at in partitions:
            topic = topics.get(at[0])
            known = None if topic is None else topic.partitions.get(at[1])
            if known is None:
                pending.left.discard(at)  # the topic was deleted: there is nothing to end
            elif known.leader in by_leader:
                by_leader[known.leader].append(at)
            else:
                by_leader[known.leader] = [at]
        for node_id, some in by_leader.items():
            if node_id < 0:  # no leader
                self._runtime.call_later(RETRY_MS, partial(self._queue, pending, some))
            else:
                self._queues.setdefault(node_id, MarkerQueue()).add(pending, some)
        self._complete_if_done(pending)
        if self._queues and not self._send_due:
            # Not at once: transactions that end in the same turn share the request.
            self._send_due = True
            self._runtime.at_end_of_turn(Phase.COMPLETE, self._send_all)

    def _send_all(self) -> None:
        self._send_due = False
        self._turn_begins()
        for node_id in sorted(self._queues):
            self._send(node_id)

    def _send(self, node_id: int) -> None:
        """Send what is queued for a broker in one request, unless one is under way."""
        if node_id in self._asked:
            return
        sent = self._next_request(node_id)
        if not sent:
            return
        self._asked.add(node_id)
        request = WriteTxnMarkersRequest(markers=[_marker(pending, at) for pending, at in sent.items()])
        answer = self._around.send(node_id, request)
        if answer.done:
            # Not from here: where this node can write none, thousands of requests would be answered inside each other.
            self._runtime.call_later(0, partial(self._answered, node_id, sent, answer))
        else:
            answer.when_done(lambda done: self._answered(node_id, sent, done))

    def _next_request(self, node_id: int) -> Taken:
        queue = self._queues.get(node_id)
        sent: Taken = {}
        while queue and not sent:
            taken = queue.take(MARKERS_A_REQUEST)
            sent = {pending: some for pending, some in taken.items() if self._is_current(pending)}
        if not queue:
            self._queues.pop(node_id, None)
        return sent

    def _answered(self, node_id: int, sent: Taken, done: Completion[Message]) -> None:
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
            failed: Taken = {}
            for (pending, partitions), result in zip(sent.items(), response.markers, strict=True):
                codes = {
                    (topic.name, p.partition_index): p.error_code
                    for topic in result.topics
                    for p in topic.partitions
                }
                again = self._settle(pending, partitions, codes)
                if again:
                    failed[pending] = again
            self._retry(failed)
        self._asked.discard(node_id)
        if node_id in self._queues:
            self._in_turn += 1
            spent_ms = self._runtime.monotonic_ms() - self._began_ms
            if self._in_turn < OWN_REQUESTS_MAX and spent_ms < OWN_SLICE_MS:
                self._send(node_id)
            else:
                self._asked.add(node_id)
                self._runtime.call_later(0, partial(self._go_on, node_id))

    def _go_on(self, node_id: int) -> None:
        self._turn_begins()
        self._asked.discard(node_id)
        self._send(node_id)

    def _turn_begins(self) -> None:
        self._began_ms = self._runtime.monotonic_ms()
        self._in_turn = 0

    def _settle(
        self, pending: Pending, partitions: list[Partition], codes: dict[Partition, int]
    ) -> list[Partition]:
        """Take the outcome for one transaction. Returns the partitions to try again."""
        if not self._is_current(pending):
            return []
        if not any(codes.values()) and codes.keys() >= set(partitions):
            pending.left.difference_update(partitions)
            self._complete_if_done(pending)
            return []
        again: list[Partition] = []
        for at in partitions:
            code = codes.get(at, ErrorCode.UNKNOWN_SERVER_ERROR)
            if code in FENCED:
                # Mostly a later coordinator has ended the transaction. Where records of the coordinator were lost, none
                # has, and the transaction stays prepared.
                self._events.warning(
                    "a marker was refused: its partition knows a later epoch of the coordinator or of the producer",
                    transactional_id=pending.order.transactional_id,
                    topic=at[0],
                    partition=at[1],
                    error=ErrorCode(code).name,
                )
                del self._pending[pending.order]
                return []
            if code:
                again.append(at)
            else:
                pending.left.discard(at)
        self._complete_if_done(pending)
        return again

    def _retry(self, failed: Taken) -> None:
        for pending, partitions in failed.items():
            self._runtime.call_later(RETRY_MS, partial(self._queue, pending, partitions))

    def _complete_if_done(self, pending: Pending) -> None:
        if pending.left or pending.reported or not self._is_current(pending):
            return
        pending.reported = True
        order = pending.order
        written = MarkersWritten(
            transactional_id=order.transactional_id,
            producer_id=order.producer_id,
            epoch=order.producer_epoch,
        )
        completion = self._coordinator.submit_in_epoch(order.partition, order.epoch, written)
        completion.when_done(lambda done: self._told(pending, done))

    def _told(self, pending: Pending, done: Completion[object]) -> None:
        error = done.error
        if isinstance(error, BrokerError) and error.code is ErrorCode.COORDINATOR_NOT_AVAILABLE:
            # The record was refused, with too few replicas in sync. The transaction stays prepared until it is taken.
            pending.reported = False
            self._runtime.call_later(RETRY_MS, partial(self._complete_if_done, pending))
        elif self._pending.get(pending.order) is pending:
            # On success, and where the shard is gone: its next one orders the markers anew.
            del self._pending[pending.order]


def _marker(pending: Pending, partitions: list[Partition]) -> WritableTxnMarker:
    indexes: dict[str, list[int]] = {}
    for topic, index in partitions:
        if topic in indexes:
            indexes[topic].append(index)
        else:
            indexes[topic] = [index]
    markers = pending.markers
    return WritableTxnMarker(
        producer_id=markers.producer_id,
        producer_epoch=markers.epoch,
        transaction_result=markers.commit,
        topics=[WritableTxnMarkerTopic(name=name, partition_indexes=some) for name, some in indexes.items()],
        coordinator_epoch=pending.order.epoch,
        transaction_version=markers.client_version,
    )
