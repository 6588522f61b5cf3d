"""InitProducerId (key 22), v0-5: ids for idempotent producers, and for transactional ones with their coordinator.

v2  flexible.  v3 the producer sends its present id and epoch (KIP-360). Without a transactional id it just gets a
fresh id, as in Kafka.  v4 PRODUCER_FENCED (KIP-588).
In a composition without a transactions plug-in a transactional id gets TRANSACTIONAL_ID_AUTHORIZATION_FAILED, which is
fatal for a client.
"""

from __future__ import annotations

from blumfeld.broker.ports import Ports
from blumfeld.spi.completion import Completion
from blumfeld.spi.context import ApiHandler, RequestContext
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from blumfeld.wire.schema import Message


def handlers(ports: Ports) -> list[ApiHandler]:
    """Returns the handler of InitProducerId."""
    handle = InitProducerId(ports).handle
    return [ApiHandler(key=22, min_version=0, max_version=5, handle=handle, error_response=failed)]


def failed(_request: InitProducerIdRequest, code: int, _message: str | None) -> InitProducerIdResponse:
    """Returns an answer with this error and no id."""
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)


class InitProducerId:
    """Gives an idempotent producer a fresh id, and has the coordinator answer a transactional one."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports

    def handle(self, request: InitProducerIdRequest, context: RequestContext) -> Completion[Message]:
        """Answer once there is an id. With a transactional id the answer waits for the coordinator's log, too.

        :raises BrokerError: INVALID_REQUEST, CLUSTER_AUTHORIZATION_FAILED, TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        """
        if request.transactional_id is not None:
            return self._transactional(request, request.transactional_id, context)
        if (request.producer_id < 0) != (request.producer_epoch < 0):
            raise BrokerError(ErrorCode.INVALID_REQUEST)
        if not (
            context.authorize_any("Write", "Topic")
            or context.authorize("IdempotentWrite", "Cluster", "kafka-cluster")
        ):
            raise BrokerError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        answered: Completion[Message] = Completion()

        def settle(done: Completion[int]) -> None:
            if done.error is not None:
                answered.fail(done.error)
            else:
                answered.complete(InitProducerIdResponse(producer_id=done.result(), producer_epoch=0))

        self._ports.producer_ids().when_done(settle)
        return answered

    def _transactional(
        self, request: InitProducerIdRequest, transactional_id: str, context: RequestContext
    ) -> Completion[Message]:
        transactions = self._ports.transactions()
        if not transactional_id:
            raise BrokerError(ErrorCode.INVALID_REQUEST)
        if transactions is None or not context.authorize("Write", "TransactionalId", transactional_id):
            raise BrokerError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        if (request.producer_id < 0) != (request.producer_epoch < 0):
            raise BrokerError(ErrorCode.INVALID_REQUEST)
        return transactions.init_producer_id(request, context)
