"""The answers that hold for a whole Produce request, or for all partitions of one of its topics.

A request may have a hundred partitions, so authorizer and image are asked once and not for each of them.
"""

from __future__ import annotations

from blumfeld.broker.ports import Ports
from blumfeld.broker.produce.pending import TOPIC_ID_FROM
from blumfeld.broker.replicas.partition import Partition
from blumfeld.broker.replicas.waiting_appends import ACKS_ALL
from blumfeld.spi.context import RequestContext
from blumfeld.spi.internal_topics import is_internal
from blumfeld.wire.batches.record_batch import NO_PRODUCER_ID, TRANSACTIONAL_BIT, RecordBatch
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.produce import ProduceRequest, TopicProduceData

ADMIN_CLIENT_ID = "__admin_client"
"""The only client id that may write to internal topics."""


class WholeRequest:
    """The checks by which a whole request fails. They look at one batch after the other."""

    __slots__ = ("_context", "_may_transact", "_ports", "_producer_id", "_transactional_id", "code")

    def __init__(self, ports: Ports, request: ProduceRequest, context: RequestContext) -> None:
        self.code = ErrorCode.NONE
        """The error by which the request fails, as far as its batches are known."""
        if request.acks not in (ACKS_ALL, 0, 1):
            self.code = ErrorCode.INVALID_REQUIRED_ACKS
        self._ports = ports
        self._context = context
        self._transactional_id = request.transactional_id
        self._may_transact: bool | None = None
        self._producer_id = NO_PRODUCER_ID

    def take(self, batch: RecordBatch | BrokerError) -> None:
        """Set :attr:`code` if this batch makes the request fail. An unreadable batch fails alone."""
        if self.code or isinstance(batch, BrokerError):
            return
        if batch.attributes & TRANSACTIONAL_BIT:
            if self._may_transact is None:
                self._may_transact = self._allowed()
            if not self._may_transact:
                self.code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
                return
        producer_id = batch.producer_id
        if producer_id != self._producer_id and producer_id > NO_PRODUCER_ID:
            if self._producer_id > NO_PRODUCER_ID:
                self.code = ErrorCode.INVALID_PRODUCER_ID_MAPPING
            self._producer_id = producer_id

    def _allowed(self) -> bool:
        """Whether this build has transactions, and the client may write in this one."""
        if self._transactional_id is None or self._ports.transactions() is None:
            return False
        return self._context.authorize("Write", "TransactionalId", self._transactional_id)


class FoundTopic:
    """One topic of a request."""

    __slots__ = ("_code", "_hosted", "_name", "is_foreign")

    def __init__(self, ports: Ports, topic: TopicProduceData, context: RequestContext) -> None:
        self._hosted = ports.hosted
        self._code = ErrorCode.NONE
        name = topic.name
        if context.api_version >= TOPIC_ID_FROM:
            image = ports.cluster.image.topic_by_id(topic.topic_id)
            if image is None:
                self._code = ErrorCode.UNKNOWN_TOPIC_ID
            else:
                name = image.name
        if not self._code and not context.authorize("Write", "Topic", name):
            self._code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        self._name = name
        self.is_foreign = is_internal(name) and context.client_id != ADMIN_CLIENT_ID
        """Whether a coordinator keeps its state in the topic, so that this client may not write to it."""

    def leading(self, index: int) -> Partition:
        """Returns the partition, if this node leads it and the client may write to it.

        :raises BrokerError: it doesn't, or may not
        """
        if self._code:
            raise BrokerError(self._code)
        return self._hosted.leading(self._name, index)
