"""FindCoordinator (key 10), v0-6: the broker that coordinates a key: the leader of one partition of an internal topic.

v1  key types: 0 group, 1 transactional id.  v3 flexible.  v4 several keys.  v6 share groups (key type 2).
A key type whose coordinator the composition lacks gets INVALID_REQUEST; a transactional id gets the broker of Apache
Kafka that coordinates it, or TRANSACTIONAL_ID_AUTHORIZATION_FAILED, which is fatal for a client.
"""

from __future__ import annotations

from blumfeld.broker.handlers.auto_create import AutoCreate
from blumfeld.broker.handlers.common import CLUSTER_NAME
from blumfeld.broker.membership.leaders import leader_for
from blumfeld.broker.ports import Ports
from blumfeld.coordinator.runtime.coordinator import partition_for
from blumfeld.spi.context import ApiHandler, RequestContext
from blumfeld.spi.internal_topics import TRANSACTIONS_TOPIC
from blumfeld.spi.steps import in_parts
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

BATCH_FROM = 4
TRANSACTION = 1
SHARE = 2


def handlers(ports: Ports) -> list[ApiHandler]:
    """Returns the handler of FindCoordinator."""
    find = FindCoordinator(ports).handle
    return [
        ApiHandler(
            key=10,
            min_version=0,
            max_version=6,
            handle=in_parts(find, failed, ("coordinator_keys",), ("coordinators",)),
            error_response=failed,
        )
    ]


def failed(request: FindCoordinatorRequest, code: int, message: str | None) -> FindCoordinatorResponse:
    """Returns an answer with this error for every key; before v4, which has one key, at the top."""
    coordinators = [_refused(key, code, message) for key in request.coordinator_keys]
    if coordinators:
        return FindCoordinatorResponse(coordinators=coordinators)
    return FindCoordinatorResponse(error_code=code, error_message=message, node_id=-1, port=-1)


def _refused(key: str, code: int, message: str | None) -> Coordinator:
    return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=code, error_message=message)


class FindCoordinator:
    """Finds the leader of the partition that a key hashes to, in the internal topic of the key type's coordinator."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports
        self._auto_create = AutoCreate(ports)

    def handle(self, request: FindCoordinatorRequest, context: RequestContext) -> FindCoordinatorResponse:
        """Answer at once. A missing internal topic is created, and COORDINATOR_NOT_AVAILABLE makes the client ask
        again."""
        if context.api_version >= BATCH_FROM:
            return FindCoordinatorResponse(
                coordinators=[self._find(key, request.key_type, context) for key in request.coordinator_keys]
            )
        coordinator = self._find(request.key, request.key_type, context)
        return FindCoordinatorResponse(
            error_code=coordinator.error_code,
            error_message=coordinator.error_message,
            node_id=coordinator.node_id,
            host=coordinator.host,
            port=coordinator.port,
        )

    def _find(self, key: str, key_type: int, context: RequestContext) -> Coordinator:
        try:
            kind = self._ports.coordinators().get(key_type)
            if kind is None and key_type == TRANSACTION:
                return self._elsewhere(key, context)
            if kind is None:
                if key_type == SHARE and not context.authorize("ClusterAction", "Cluster", CLUSTER_NAME):
                    raise BrokerError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
                raise BrokerError(ErrorCode.INVALID_REQUEST, f"no coordinator for key type {key_type} here")
            if not context.authorize("Describe", kind.resource_type, key):
                raise BrokerError(kind.refusal)
            return self._leader(kind.topic, key, context)
        except BrokerError as error:
            return _refused(key, int(error.code), error.message)

    def _elsewhere(self, transactional_id: str, context: RequestContext) -> Coordinator:
        """Return the coordinator of a transactional id in a build without transactions: a broker of Apache Kafka in the
        same cluster. A client asks any broker, and again at any time, so a refusal here would end its producer.

        :raises BrokerError: TRANSACTIONAL_ID_AUTHORIZATION_FAILED: the coordinator would be this broker, or the cluster
            has had no transactions yet. COORDINATOR_NOT_AVAILABLE
        """
        cluster = self._ports.cluster
        if TRANSACTIONS_TOPIC in cluster.image.topics and context.authorize(
            "Describe", "TransactionalId", transactional_id
        ):
            leader = self._leader(TRANSACTIONS_TOPIC, transactional_id, context)
            if leader.node_id != cluster.node_id:
                return leader
        raise BrokerError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "this broker has no transactions")

    def _leader(self, topic_name: str, key: str, context: RequestContext) -> Coordinator:
        ports = self._ports
        topic = ports.cluster.image.topics.get(topic_name)
        if topic is None:
            self._auto_create.create([topic_name])
            raise BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        partition = topic.partitions[partition_for(key, len(topic.partitions))]
        listener = context.listener.name
        code, leader = leader_for(ports.cluster, partition, listener)
        endpoint = None if code else ports.cluster.image.brokers[leader].endpoint(listener)
        if endpoint is None:
            raise BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return Coordinator(
            key=key, node_id=leader, host=endpoint.host, port=endpoint.port, error_message=None
        )
