"""DescribeCluster (key 60), v0-2.

v1  endpoint type: 1 brokers on broker listeners, 2 controllers on controller listeners (KIP-919).
v2  fenced brokers (KIP-1073).

Version 0 has no endpoint type. It means brokers, so a controller listener refuses it, as Kafka's does.
"""

from __future__ import annotations

from blumfeld.broker.handlers.common import CLUSTER_NAME, cluster_operations
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
        if request.endpoint_type not in (BROKERS, CONTROLLERS):
            raise BrokerError(
                ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
                f"no endpoint type has the number {request.endpoint_type}",
            )
        on_controller = context.listener.kind == "controller"
        if on_controller and not context.authorize("Alter", "Cluster", CLUSTER_NAME):
            raise BrokerError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        if on_controller != (request.endpoint_type == CONTROLLERS):
            raise BrokerError(
                ErrorCode.MISMATCHED_ENDPOINT_TYPE,
                "brokers are described on broker listeners, controllers on controller listeners",
            )
        answer = _answer(ports, request, context)
        if on_controller:
            _describe_controllers(answer, ports, context.listener.name)
        else:
            _describe_brokers(answer, ports, context.listener.name, request.include_fenced_brokers)
        return answer

    return [
        ApiHandler(
            key=60,
            min_version=0,
            max_version=2,
            listeners=("broker", "controller"),
            handle=handle,
            error_response=failed,
        )
    ]


def failed(_request: DescribeClusterRequest, code: int, message: str | None) -> DescribeClusterResponse:
    """Returns an answer with this error. Its endpoint type is Kafka's default, whatever the request had."""
    return DescribeClusterResponse(error_code=code, error_message=message)


def _answer(
    ports: Ports, request: DescribeClusterRequest, context: RequestContext
) -> DescribeClusterResponse:
    return DescribeClusterResponse(
        cluster_id=ports.cluster.image.cluster_id,
        cluster_authorized_operations=cluster_operations(
            context, wanted=request.include_cluster_authorized_operations
        ),
        endpoint_type=request.endpoint_type,
    )


def _describe_brokers(
    answer: DescribeClusterResponse, ports: Ports, listener: str, include_fenced: bool
) -> None:
    answer.controller_id = controller_id(ports.cluster)
    for _, node in sorted(ports.cluster.image.brokers.items()):
        endpoint = node.endpoint(listener)
        if endpoint is not None and (include_fenced or not node.fenced):
            answer.brokers.append(
                DescribeClusterBroker(
                    broker_id=node.broker_id,
                    host=endpoint.host,
                    port=endpoint.port,
                    rack=node.rack,
                    is_fenced=node.fenced,
                )
            )


def _describe_controllers(answer: DescribeClusterResponse, ports: Ports, listener: str) -> None:
    active = ports.controller.controller
    answer.controller_id = -1 if active is None else active.node_id
    answer.brokers = [
        DescribeClusterBroker(broker_id=node_id, host=endpoint.host, port=endpoint.port)
        for node_id, endpoint in ports.cluster.image.controller_endpoints(listener)
    ]
