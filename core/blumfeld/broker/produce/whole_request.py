"""The answers that hold for a whole Produce request, or for all partitions of one of its topics.

A request may have a hundred partitions, so authorizer and image are asked once and not for each of them.
"""

from __future__ import annotations

from collections.abc import Iterable

from blumfeld.broker.ports import Ports
from blumfeld.broker.produce.pending_produce import TOPIC_ID_FROM
from blumfeld.broker.replicas.waiting_appends import ACKS_ALL
from blumfeld.spi.context import RequestContext
from blumfeld.spi.internal_topics import is_internal
from blumfeld.wire.batches.record_batch import NO_PRODUCER_ID, TRANSACTIONAL_BIT, RecordBatch
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.produce import ProduceRequest, TopicProduceData

ADMIN_CLIENT_ID = "__admin_client"
"""The only client id that may write to internal topics."""


class WholeRequest:
    """The checks by which a whole request fails. They look at all its batches in their order."""

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

    def take(self, batches: Iterable[RecordBatch | BrokerError]) -> None:
        """Set :attr:`code` if one of these batches makes the request fail. An unreadable batch fails alone."""
        if self.code:
            return
        known_id = self._producer_id
        for batch in batches:
            if isinstance(batch, BrokerError):
                continue
            if batch.attributes & TRANSACTIONAL_BIT and not self._may_transact:
                if self._may_transact is None:
                    self._may_transact = self._allowed()
                if not self._may_transact:
                    self.code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
                    return
            producer_id = batch.producer_id
            if producer_id != known_id and producer_id > NO_PRODUCER_ID:
                if known_id > NO_PRODUCER_ID:
                    self.code = ErrorCode.INVALID_PRODUCER_ID_MAPPING
                    return
                self._producer_id = known_id = producer_id

    def _allowed(self) -> bool:
        """Whether this build has transactions, and the client may write in this one."""
        if self._transactional_id is None or self._ports.transactions() is None:
            return False
        return self._context.authorize("Write", "TransactionalId", self._transactional_id)


class FoundTopic:
    """One topic of a request."""

    __slots__ = ("code", "is_foreign", "name")

    def __init__(self, ports: Ports, topic: TopicProduceData, context: RequestContext) -> None:
        self.code = ErrorCode.NONE
        """The error that each of its partitions gets."""
        name = topic.name
        if context.api_version >= TOPIC_ID_FROM:
            image = ports.cluster.image.topic_by_id(topic.topic_id)
            if image is None:
                self.code = ErrorCode.UNKNOWN_TOPIC_ID
            else:
                name = image.name
        if not self.code and not context.authorize("Write", "Topic", name):
            self.code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        self.name = name
        self.is_foreign = is_internal(name) and context.client_id != ADMIN_CLIENT_ID
        """Whether a coordinator keeps its state in the topic, so that this client may not write to it."""
