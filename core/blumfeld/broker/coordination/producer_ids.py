"""Producer ids of this broker, from blocks that the controller gives (KIP-730). Idempotent producers and transactional
ones take them from the same block."""

from __future__ import annotations

from collections import deque

from blumfeld.broker.cluster import ClusterView
from blumfeld.spi.cluster import Membership
from blumfeld.spi.completion import Completion
from blumfeld.spi.consensus import ClusterMetadata
from blumfeld.spi.hooks import EventLog
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from blumfeld.wire.schema import Message

ALLOCATE_TIMEOUT_MS = 30_000


class ProducerIds:
    """Gives each caller the next id of a block, and asks the controller for another block when it is used up."""

    def __init__(
        self, cluster: ClusterView, membership: Membership, controller: ClusterMetadata, events: EventLog
    ) -> None:
        self._cluster = cluster
        self._membership = membership
        self._controller = controller
        self._events = events
        self._next_id = 0
        self._block_end = 0
        self._waiting: deque[Completion[int]] = deque()
        self._allocating = False

    def next(self) -> Completion[int]:
        """Returns an id that nobody has: at once while the block lasts, otherwise after the controller has given the
        next block.

        Fails with ``BrokerError``: COORDINATOR_LOAD_IN_PROGRESS if the controller gives none.
        """
        if self._next_id < self._block_end and not self._waiting:
            return Completion.of(self._take())
        wanted: Completion[int] = Completion()
        self._waiting.append(wanted)
        if not self._allocating:
            self._allocate()
        return wanted

    def _take(self) -> int:
        producer_id = self._next_id
        self._next_id += 1
        return producer_id

    def _allocate(self) -> None:
        self._allocating = True
        request = AllocateProducerIdsRequest(
            broker_id=self._cluster.node_id, broker_epoch=self._membership.broker_epoch
        )
        self._controller.submit(request, ALLOCATE_TIMEOUT_MS, wait_image=False).when_done(self._allocated)

    def _allocated(self, done: Completion[Message]) -> None:
        self._allocating = False
        answer = None if done.error is not None else done.result()
        if not isinstance(answer, AllocateProducerIdsResponse) or answer.error_code:
            reason = str(done.error) if answer is None else str(answer)
            self._events.warning("no producer ids from the controller", reason=reason)
            waiting, self._waiting = self._waiting, deque()
            for waiter in waiting:
                # Kafka's code for this: retriable, because the client did nothing wrong.
                waiter.fail(BrokerError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
            return
        self._next_id = answer.producer_id_start
        self._block_end = answer.producer_id_start + answer.producer_id_len
        while self._waiting and self._next_id < self._block_end:
            self._waiting.popleft().complete(self._take())
        if self._waiting:
            self._allocate()
