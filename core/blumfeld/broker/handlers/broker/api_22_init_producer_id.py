"""InitProducerId (key 22), v0-5: ids for idempotent producers, from blocks that the controller gives.

v2  flexible.  v3 the producer sends its present id and epoch (KIP-360). Without a transactional id it just gets a
fresh id, as in Kafka.
Left out: transactions. A transactional id gets TRANSACTIONAL_ID_AUTHORIZATION_FAILED, which is fatal for a client.
"""

from __future__ import annotations

from collections import deque

from blumfeld.broker.ports import Ports
from blumfeld.spi.completion import Completion
from blumfeld.spi.context import ApiHandler, RequestContext
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from blumfeld.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from blumfeld.wire.schema import Message

ALLOCATE_TIMEOUT_MS = 30_000


def handlers(ports: Ports) -> list[ApiHandler]:
    """Returns the handler of InitProducerId."""
    handle = InitProducerId(ports).handle
    return [ApiHandler(key=22, min_version=0, max_version=5, handle=handle, error_response=failed)]


def failed(_request: InitProducerIdRequest, code: int, _message: str | None) -> InitProducerIdResponse:
    """Returns an answer with this error and no id."""
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)


class InitProducerId:
    """Gives each producer the next id of a block, and asks the controller for another block when it is used up."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports
        self._next_id = 0
        self._block_end = 0
        self._waiting: deque[Completion[InitProducerIdResponse]] = deque()
        self._allocating = False

    def handle(
        self, request: InitProducerIdRequest, context: RequestContext
    ) -> InitProducerIdResponse | Completion[InitProducerIdResponse]:
        """Answer at once while the block lasts; otherwise after the controller has given the next one."""
        if request.transactional_id is not None:
            if not request.transactional_id:
                raise BrokerError(ErrorCode.INVALID_REQUEST)
            raise BrokerError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        if (request.producer_id < 0) != (request.producer_epoch < 0):
            raise BrokerError(ErrorCode.INVALID_REQUEST)
        if not context.authorize("IdempotentWrite", "Cluster", "kafka-cluster"):
            raise BrokerError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        if self._next_id < self._block_end and not self._waiting:
            return self._next()
        answered: Completion[InitProducerIdResponse] = Completion()
        self._waiting.append(answered)
        if not self._allocating:
            self._allocate()
        return answered

    def _next(self) -> InitProducerIdResponse:
        producer_id = self._next_id
        self._next_id += 1
        return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)

    def _allocate(self) -> None:
        self._allocating = True
        request = AllocateProducerIdsRequest(
            broker_id=self._ports.cluster.node_id, broker_epoch=self._ports.membership.broker_epoch
        )
        self._ports.controller.submit(request, ALLOCATE_TIMEOUT_MS, wait_image=False).when_done(
            self._allocated
        )

    def _allocated(self, done: Completion[Message]) -> None:
        self._allocating = False
        answer = None if done.error is not None else done.result()
        if not isinstance(answer, AllocateProducerIdsResponse) or answer.error_code:
            reason = str(done.error) if answer is None else str(answer)
            self._ports.events.warning("no producer ids from the controller", reason=reason)
            waiting, self._waiting = self._waiting, deque()
            for one in waiting:
                # Kafka's code for this: retriable, because the client did nothing wrong.
                one.fail(BrokerError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
            return
        self._next_id = answer.producer_id_start
        self._block_end = answer.producer_id_start + answer.producer_id_len
        while self._waiting and self._next_id < self._block_end:
            self._waiting.popleft().complete(self._next())
        if self._waiting:
            self._allocate()
