"""ListConfigResources (key 74), v0-1: the resources that can have a configuration of their own (KIP-1000, KIP-1142).

v0  client metrics only, and this build has none.  v1  types of resources; an empty list asks for all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from blumfeld.broker.handlers.common import CLUSTER_NAME
from blumfeld.broker.ports import Ports
from blumfeld.spi.cluster import BROKER_RESOURCE, GROUP_RESOURCE, TOPIC_RESOURCE, ClusterImage
from blumfeld.spi.context import ApiHandler, RequestContext
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

BROKER_LOGGER_RESOURCE, CLIENT_METRICS_RESOURCE = 8, 16
TYPES_SINCE_VERSION = 1

_NAMES: dict[int, Callable[[ClusterImage], Sequence[str]]] = {
    TOPIC_RESOURCE: lambda image: sorted(image.topics),
    BROKER_RESOURCE: lambda image: [str(broker_id) for broker_id in sorted(image.brokers)],
    BROKER_LOGGER_RESOURCE: lambda image: [str(broker_id) for broker_id in sorted(image.brokers)],
    CLIENT_METRICS_RESOURCE: lambda image: image.configured(CLIENT_METRICS_RESOURCE),
    GROUP_RESOURCE: lambda image: image.configured(GROUP_RESOURCE),
}


def handlers(ports: Ports) -> list[ApiHandler]:
    """Returns the handler of ListConfigResources."""

    def handle(request: ListConfigResourcesRequest, context: RequestContext) -> ListConfigResourcesResponse:
        if not context.authorize("DescribeConfigs", "Cluster", CLUSTER_NAME):
            raise BrokerError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        return ListConfigResourcesResponse(
            config_resources=[
                ConfigResource(resource_name=name, resource_type=kind)
                for kind in _types(request, context.api_version)
                for name in _NAMES[kind](ports.cluster.image)
            ]
        )

    return [ApiHandler(key=74, min_version=0, max_version=1, handle=handle, error_response=failed)]


def _types(request: ListConfigResourcesRequest, version: int) -> Sequence[int]:
    if version < TYPES_SINCE_VERSION:
        return (CLIENT_METRICS_RESOURCE,)
    unknown = [kind for kind in request.resource_types if kind not in _NAMES]
    if unknown:
        raise BrokerError(ErrorCode.UNSUPPORTED_VERSION, f"no resources of type {unknown[0]} can be listed")
    return list(dict.fromkeys(request.resource_types)) or list(_NAMES)


def failed(
    _request: ListConfigResourcesRequest, code: int, _message: str | None
) -> ListConfigResourcesResponse:
    """Returns an answer with this error. It has no field for a message."""
    return ListConfigResourcesResponse(error_code=code)
