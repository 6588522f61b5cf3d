"""DescribeCluster (key 60), v0-2.

v1  endpoint type: 1 brokers, 2 controllers (only on a controller listener, KIP-919).  v2 fenced brokers (KIP-1073).
"""

from __future__ import annotations

from blumfeld.broker.handlers.common import CLUSTER_NAME, NO_OPERATIONS, authorized_operations
from blumfeld.broker.membership.leaders import controller_id
from blumfeld.broker.ports import Ports
from blumfeld.spi.context import ApiHandler, RequestContext
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

BROKERS, CONTROLLERS = 1, 2


def handlers(ports: Ports) -> list[ApiHandler]:
    """Returns the handler of DescribeCluster."""

    def handle(request: DescribeClusterRequest, context: RequestContext) -> DescribeClusterResponse:
        if request.endpoint_type == CONTROLLERS:
            raise BrokerError(
                ErrorCode.MISMATCHED_ENDPOINT_TYPE, "controllers are described on a controller listener"
            )
        if request.endpoint_type != BROKERS:
            raise BrokerError(
                ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
                f"no endpoint type has the number {request.endpoint_type}",
            )
        return _describe(ports, request, context)

    return [ApiHandler(key=60, min_version=0, max_version=2, handle=handle, error_response=failed)]


def failed(_request: DescribeClusterRequest, code: int, message: str | None) -> DescribeClusterResponse:
    """Returns an answer with this error. Its endpoint type is Kafka's default, whatever the request had."""
    return DescribeClusterResponse(error_code=code, error_message=message)


def _describe(
    ports: Ports, request: DescribeClusterRequest, context: RequestContext
) -> DescribeClusterResponse:
    image, listener = ports.cluster.image, context.listener.name
    described = []
    for _, node in sorted(image.brokers.items()):
        endpoint = node.endpoint(listener)
        if endpoint is not None and (request.include_fenced_brokers or not node.fenced):
            described.append(
                DescribeClusterBroker(
                    broker_id=node.broker_id,
                    host=endpoint.host,
                    port=endpoint.port,
                    rack=node.rack,
                    is_fenced=node.fenced,
                )
            )
    return DescribeClusterResponse(
        cluster_id=image.cluster_id,
        controller_id=controller_id(ports.cluster),
        brokers=described,
        cluster_authorized_operations=authorized_operations(context, "Cluster", CLUSTER_NAME)
        if request.include_cluster_authorized_operations
        else NO_OPERATIONS,
        endpoint_type=request.endpoint_type,
    )
